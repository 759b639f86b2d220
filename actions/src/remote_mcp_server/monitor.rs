//! `monitor`: Available and Error. Evaluates the latest discovery: equal tools cause no transition and no write, changed tools
//! are stored in place, and a server that does not answer is in Error until it does.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::{ReferencePhase, RemoteMCPServer};
use machine::{Action, ActionError, RECHECK};
use meta::PhasedObject;

use super::{cross_namespace, target::target};
use crate::{
    deps::Deps,
    discovery::{Schedule, is_accepting, store_accepted_tools, store_tools},
    kind::Context,
    reference::ReferenceKind,
};

/// Interval at which it is checked again whether a server of another namespace may be queried.
const RECHECK_ALLOWED: Duration = Duration::from_secs(60);

/// Action `monitor`, see the module.
#[derive(Debug)]
pub(super) struct Monitor;

#[async_trait]
impl Action<RemoteMCPServer, Deps> for Monitor {
    fn name(&self) -> &'static str {
        "monitor"
    }

    fn phases(&self) -> &'static [ReferencePhase] {
        &[ReferencePhase::Available, ReferencePhase::Error]
    }

    fn recheck(&self, _cr: &RemoteMCPServer) -> Option<Duration> {
        Some(RECHECK)
    }

    async fn handle(&self, cx: &Context, cr: Arc<RemoteMCPServer>) -> Result<Option<RemoteMCPServer>, ActionError> {
        let failed = cr.phase() == Some(ReferencePhase::Error);
        if failed && cr.validate().is_err() {
            return Ok(None);
        }
        let move_on = |why: String| {
            cx.notes.reason(why);
            Ok(Some(cr.moved_to(ReferencePhase::Resolving)))
        };
        let inputs = cr.inputs(cx);
        let pinned = cr.common().and_then(|machine| machine.inputs.as_ref());
        if let Some(why) = pinned.and_then(|pinned| inputs.changed_since(pinned)) {
            return move_on(why);
        }
        if cross_namespace::is_cross_namespace(&cr, cx) {
            cx.notes.requeue_after(RECHECK_ALLOWED);
            match cross_namespace::check_allowed(&cr, cx) {
                Err(_) if failed => return Ok(None),
                admitted => admitted?,
            }
        }
        let when = if is_accepting(cr.as_ref()) { Schedule::Now } else { Schedule::OnResync };
        match cx.discovery.query(&target(&cr, cx), when).as_deref() {
            None => Ok(None),
            // The status is written after the move, and an acceptance ends then.
            Some(Ok(found)) if failed => match store_tools(cx, &mut cr.as_ref().clone(), found).await? {
                true => move_on("the server lists its tools".to_owned()),
                false => Ok(None),
            },
            Some(Ok(found)) => {
                let mut next = cr.as_ref().clone();
                let stored = store_accepted_tools(cx, &mut next, found).await?;
                let is_changed = next.status != cr.status || next.meta().annotations != cr.meta().annotations;
                Ok((stored && is_changed).then_some(next))
            }
            Some(Err(error)) => Err(error.into()),
        }
    }
}
