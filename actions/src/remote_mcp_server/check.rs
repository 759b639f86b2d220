//! `check`: Resolving → Available. Waits for the Secrets and ConfigMaps of the headers and certificates, then for the result of
//! the discovery.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::{ReferencePhase, RemoteMCPServer};
use machine::{Action, ActionError};
use meta::PhasedObject;

use super::{cross_namespace, target::target};
use crate::{
    deps::Deps,
    discovery::{Schedule, store_tools},
    kind::Context,
    reference::ReferenceKind,
    references::Unresolved,
};

/// Action `check`, see the module.
#[derive(Debug)]
pub(super) struct CheckServer;

#[async_trait]
impl Action<RemoteMCPServer, Deps> for CheckServer {
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
        if let Some(Unresolved { reason, sentence, needs_user }) = inputs.waiting_for() {
            match needs_user {
                true => cx.notes.blocked(reason, sentence),
                false => cx.notes.waiting(reason, sentence),
            }
            return Ok(None);
        }
        cross_namespace::check_allowed(&cr, cx)?;
        let Some(outcome) = cx.discovery.query(&target(&cr, cx), Schedule::Now) else {
            cx.notes.waiting("Discovering", "listing the server's tools");
            return Ok(None);
        };
        let found = outcome.as_ref().as_ref()?;
        let mut next = cr.moved_to(ReferencePhase::Available);
        if !store_tools(cx, &mut next, found).await? {
            return Ok(None);
        }
        next.common_mut().inputs = Some(inputs.pin());
        Ok(Some(next))
    }
}
