//! `check`: Resolving → Available. Waits for what its headers and certificates are read from, then for what the server tells.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::{ReferencePhase, RemoteMCPServer};
use machine::{Action, ActionError};
use meta::PhasedObject;

use super::{foreign, target};
use crate::{
    deps::World,
    discovery::{When, tell},
    kind::Context,
    reference::Reference,
    references::Unresolved,
};

/// See the module.
#[derive(Debug)]
pub(super) struct Check;

#[async_trait]
impl Action<RemoteMCPServer, World> for Check {
    fn name(&self) -> &'static str {
        "check"
    }

    fn phases(&self) -> &'static [ReferencePhase] {
        &[ReferencePhase::Resolving]
    }

    fn recheck(&self, _cr: &RemoteMCPServer) -> Option<Duration> {
        Some(Duration::from_secs(600))
    }

    async fn handle(&self, cx: &Context, cr: Arc<RemoteMCPServer>) -> Result<Option<RemoteMCPServer>, ActionError> {
        let inputs = cr.inputs(cx);
        if let Some(Unresolved { reason, sentence, missing }) = inputs.waiting_for() {
            match missing {
                true => cx.notes.missing(reason, sentence),
                false => cx.notes.waiting(reason, sentence),
            }
            return Ok(None);
        }
        foreign::admit(&cr, cx)?;
        let Some(outcome) = cx.discoveries.look(&target(&cr, cx), When::Now) else {
            cx.notes.waiting("Discovering", "the server is asked for its tools");
            return Ok(None);
        };
        let found = outcome.as_ref().as_ref()?;
        let mut next = cr.moved_to(ReferencePhase::Available);
        if !tell(cx, &mut next, found).await? {
            return Ok(None);
        }
        next.machine_mut().inputs = Some(inputs.pin());
        Ok(Some(next))
    }
}
