//! Session with a server that notifies when its tools change.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ClientHandler;
use rmcp::model::{ClientConfig, Implementation, ServerNotification, SubscriptionFilter};
use rmcp::service::{NotificationContext, RoleClient, RunningService, Subscription};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::discovery_request::Era;
use super::session::HANDSHAKE_VERSION;

/// Longest time for the end of a session, or for the start of a subscription.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Open session of a discovery.
pub(super) type McpService = RunningService<RoleClient, Handler>;

/// Returns the notifications of changes, `None` if the server sends none. In the older era they come without a subscription; in
/// the newer era the client has to subscribe.
pub(super) async fn changes(service: &McpService, era: Era) -> Option<Option<Subscription>> {
    let info = service.peer().peer_info()?;
    let tells = info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true));
    match era {
        _ if !tells => None,
        Era::Initialize => Some(None),
        Era::Discover => {
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            let listening = timeout(CLOSE_TIMEOUT, service.listen(filter)).await;
            listening.ok()?.ok().map(Some)
        }
    }
}

/// Receiver of the notifications of a server.
#[derive(Default)]
pub(super) struct Handler {
    changed: Arc<Notify>,
}

impl ClientHandler for Handler {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    fn get_info(&self) -> ClientConfig {
        let me = Implementation::new("recif", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(Default::default(), me).with_protocol_version(HANDSHAKE_VERSION)
    }
}

/// Open session with a server that notifies when its tools change. Dropping it ends the session.
pub struct ToolListChanges {
    pub(super) service: McpService,
    pub(super) subscription: Option<Subscription>,
}

impl std::fmt::Debug for ToolListChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolListChanges").finish_non_exhaustive()
    }
}

impl ToolListChanges {
    /// Waits until the server notifies that its tools changed; for ever if it has gone silent for good.
    pub async fn next(&mut self) {
        let changed = self.service.service().changed.clone();
        tokio::select! {
            () = changed.notified() => {}
            () = subscribed(&mut self.subscription) => {}
        }
    }

    /// Ends the session.
    pub async fn close(mut self) {
        let _ = self.service.close_with_timeout(CLOSE_TIMEOUT).await;
    }
}

async fn subscribed(subscription: &mut Option<Subscription>) {
    while let Some(open) = subscription {
        match open.next().await {
            Ok(Some(ServerNotification::ToolListChangedNotification(_))) => return,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => *subscription = None,
        }
    }
    std::future::pending().await
}
