//! `monitor`: runs the monitor of every workload. In Running, while a Pod serves, it also queries the server for its tools: at
//! once if they were never discovered or its Pods changed, then once per resync period. A failed discovery is reported in a
//! condition and keeps the last tools.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::{MCPServer, WorkloadPhase, digest, reason, tool_server::ServerTls};
use machine::{Action, ActionError, ApiError, RECHECK};
use meta::{PhasedObject, condition, condition_type, update_condition};
use serde_json::json;

use crate::{
    deps::Deps,
    discovery::{DiscoveryTarget, Schedule, ToolServer as _, is_accepting, store_accepted_tools},
    kind::Context,
    workload::{self, WorkloadKind as _, is_available, note_unready},
};

/// Prefix of the failure message of a server that did answer, with an HTTP status.
pub(super) const ANSWERS_HTTP: &str = "it answers HTTP";

/// Condition reason of a server that answers only callers that it authenticates.
const UNAUTHORIZED: &str = "Unauthorized";

/// Longest silence on a stream that only listens: the bridge sends something every 15 s.
const SILENCE: Duration = Duration::from_secs(300);

/// Delay after which the tools are looked at again when a request about them failed.
const SOON: Duration = Duration::from_secs(5);

/// Action `monitor`, see the module.
#[derive(Debug)]
pub(super) struct Monitor;

#[async_trait]
impl Action<MCPServer, Deps> for Monitor {
    fn name(&self) -> &'static str {
        "monitor"
    }

    fn phases(&self) -> &'static [WorkloadPhase] {
        &[WorkloadPhase::Running, WorkloadPhase::Terminated]
    }

    fn recheck(&self, _cr: &MCPServer) -> Option<Duration> {
        Some(RECHECK)
    }

    async fn handle(&self, cx: &Context, cr: Arc<MCPServer>) -> Result<Option<MCPServer>, ActionError> {
        let watched = workload::Monitor.handle(cx, cr.clone()).await?;
        let mut next = watched.unwrap_or_else(|| cr.as_ref().clone());
        let unready = next.unready();
        let looked = match next.phase() == Some(WorkloadPhase::Running) && is_available(&next) {
            true => discover(cx, &mut next).await,
            false => Ok(()),
        };
        match looked {
            Ok(()) => {}
            // A problem with its tools takes no server out of Running that serves.
            Err(ActionError::Terminal { reason, message }) => set_undiscovered(&mut next, reason, &message),
            Err(ActionError::Api(ApiError::Invalid(message) | ApiError::Refused(message))) => {
                set_undiscovered(&mut next, reason::REFUSED, &message)
            }
            Err(error) if next.phase() == cr.phase() && next.status == cr.status => return Err(error),
            // The observed state of the Pods is stored first.
            Err(_) => cx.notes.requeue_after(SOON),
        }
        // The result of this discovery replaces the wait that was noted before it.
        if let Some(before) = unready {
            cx.notes.withdraw(before.reason);
            note_unready(cx, &next);
        }
        let is_changed = next.phase() != cr.phase() || next.status != cr.status;
        Ok((is_changed || next.meta().annotations != cr.meta().annotations).then_some(next))
    }
}

fn set_undiscovered(next: &mut MCPServer, reason: &'static str, message: &str) {
    update_condition(
        &mut next.common_mut().conditions,
        condition(condition_type::TOOLS_DISCOVERED, false, reason, message),
    );
}

async fn discover(cx: &Context, next: &mut MCPServer) -> Result<(), ActionError> {
    let known = next.tools_status().is_some_and(|status| status.tools_digest.is_some());
    let when = if known && !is_accepting(next) { Schedule::OnResync } else { Schedule::Now };
    match cx.discovery.query(&target(cx, next), when).as_deref() {
        None => {}
        Some(Ok(found)) => {
            store_accepted_tools(cx, next, found).await?;
        }
        Some(Err(failed)) => {
            let discovered = next.common().and_then(|status| status.condition(condition_type::TOOLS_DISCOVERED));
            let known = discovered.is_some_and(|found| found.message == failed.message);
            // HTTP 401 or 403: the server answers only callers that it authenticates, and the operator is none of them. A
            // condition with the same message stays as it is.
            let signs_in =
                ["401", "403"].iter().any(|code| failed.message.starts_with(&format!("{ANSWERS_HTTP} {code}")));
            match signs_in && !known {
                true => set_undiscovered(next, UNAUTHORIZED, &failed.message),
                false if known => {}
                false => set_undiscovered(next, failed.reason, &failed.message),
            }
        }
    }
    Ok(())
}

/// Returns the target of the discovery: the server's Service. Other Pods count as another server. A terminating Pod is among
/// them, because it may still be the one that answers until it is gone.
fn target(cx: &Context, server: &MCPServer) -> DiscoveryTarget {
    let key = server.key();
    let pods = cx.cache.pods(MCPServer::KIND, &key.namespace, &key.name);
    let serving = pods.iter().filter(|pod| pod.ready || pod.terminating);
    let serving: Vec<_> = serving.map(|pod| (pod.uid.as_str(), pod.terminating)).collect();
    DiscoveryTarget {
        kind: MCPServer::KIND,
        key,
        uid: server.uid().to_owned(),
        url: server.endpoint(&cx.settings),
        headers: Vec::new(),
        tls: ServerTls::default(),
        sse: false,
        silence: SILENCE,
        terminates: true,
        timeout: server.spec.timeout(),
        resync: server.spec.resync(),
        data: [("Pods".to_owned(), digest::digest(&json!(serving)))].into(),
    }
}
