//! Deletes the published Tools when publishing is switched off, in whatever phase and before the phase's own action: a server
//! that never runs, or never answers, does not prevent it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use machine::{Action, ActionError, ApiError};

use super::{Catalog, ToolServer, publish::publish};
use crate::{deps::Deps, kind::Context};

/// Delay of the next attempt after a failed request.
const SOON: Duration = Duration::from_secs(5);

/// Decorator of an action, which unpublishes first.
#[derive(Debug)]
pub struct Unpublishing<A>(pub A);

#[async_trait]
impl<K: ToolServer, A: Action<K, Deps>> Action<K, Deps> for Unpublishing<A> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn phases(&self) -> &'static [K::Phase] {
        self.0.phases()
    }

    fn can_handle(&self, cr: &K) -> bool {
        self.0.can_handle(cr)
    }

    fn deadline(&self) -> Duration {
        self.0.deadline()
    }

    fn recheck(&self, cr: &K) -> Option<Duration> {
        self.0.recheck(cr)
    }

    async fn handle(&self, cx: &Context, cr: Arc<K>) -> Result<Option<K>, ActionError> {
        match unpublished(cx, cr.as_ref()).await {
            Ok(None) => {}
            Ok(Some(next)) => {
                cx.notes.reason("what is published no more was taken back");
                cx.notes.requeue_after(Duration::ZERO);
                return Ok(Some(next));
            }
            Err(ActionError::Api(ApiError::Stale)) => return Err(ApiError::Stale.into()),
            // Tools that cannot be deleted do not stop the server's own action.
            Err(error) => {
                cx.notes.fact("not_withdrawn", error.to_string());
                cx.notes.requeue_after(SOON);
            }
        }
        self.0.handle(cx, cr).await
    }
}

/// Returns the object without its published Tools if nothing is to be published any more; `None` if it stays as it is.
async fn unpublished<K: ToolServer>(cx: &Context, cr: &K) -> Result<Option<K>, ActionError> {
    let published = cr.tools_status().is_some_and(|status| status.published_tools.is_some());
    if !published || cr.publish().is_some_and(|publish| publish.enabled) {
        return Ok(None);
    }
    let mut next = cr.clone();
    publish(cx, &mut next, &Catalog::of([], false), None).await?;
    Ok((next.tools_status() != cr.tools_status() || next.common() != cr.common()).then_some(next))
}
