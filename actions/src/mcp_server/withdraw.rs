//! `withdraw`: Resolving. Takes back what was published when publishing is switched off, before anything is waited for: a server
//! whose Pods never run keeps nobody from it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::{MCPServer, WorkloadPhase};

use crate::{
    discovery,
    machine::{Action, ActionError, Context, Machine},
};

/// See the module.
#[derive(Debug)]
pub(super) struct Withdraw;

#[async_trait]
impl Action<MCPServer> for Withdraw {
    fn name(&self) -> &'static str {
        "withdraw"
    }

    fn phases(&self) -> &'static [WorkloadPhase] {
        &[WorkloadPhase::Resolving]
    }

    /// Afterwards none is published, or none but those that are still used, which do not count.
    fn can_handle(&self, cr: &MCPServer) -> bool {
        let published = cr.status.as_ref().and_then(|status| status.server.published_tools);
        let wanted = cr.spec.publish.as_ref().is_some_and(|publish| publish.enabled);
        cr.phase() == Some(WorkloadPhase::Resolving) && !wanted && published.is_some_and(|count| count > 0)
    }

    async fn handle(&self, cx: &Context<MCPServer>, cr: Arc<MCPServer>) -> Result<Option<MCPServer>, ActionError> {
        let mut next = cr.as_ref().clone();
        withdraw(cx, &mut next).await?;
        cx.notes.look_again(Duration::ZERO);
        Ok(Some(next))
    }
}

/// Takes back what `server` published, if nothing is to be published any more.
///
/// # Errors
/// Whatever the API server answered.
pub(super) async fn withdraw(cx: &Context<MCPServer>, server: &mut MCPServer) -> Result<(), ActionError> {
    let wanted = server.spec.publish.clone().unwrap_or_default();
    let before = server.status.as_ref().and_then(|status| status.server.published_tools);
    if let Some(published) = discovery::withdraw(cx, server, &wanted, before).await? {
        let status = server.status.get_or_insert_default();
        published.tell(&mut status.server, &mut status.workload.machine.conditions);
    }
    Ok(())
}
