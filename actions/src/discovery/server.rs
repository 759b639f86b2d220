//! What the kinds that are servers of tools share: how what a server told gets into its object.

use crds::{MCPServer, RemoteMCPServer, ToolServerStatus, tool_server::Publish};
use kube::Resource;
use machine::ActionError;
use meta::{PhasedObject, update_condition};

use super::{Discovered, keep::keep, publish::publish};
use crate::kind::Context;

/// A kind whose objects are servers of tools.
pub trait ToolServer: PhasedObject + Resource<DynamicType = ()> {
    /// What is to be made of its tools.
    fn publish(&self) -> Option<&Publish>;
    /// What is known of its tools.
    fn told(&self) -> Option<&ToolServerStatus>;
    /// What is known of its tools, made if there is nothing.
    fn told_mut(&mut self) -> &mut ToolServerStatus;
}

/// Implements [`ToolServer`] for a kind.
macro_rules! tool_server {
    ($kind:ident) => {
        impl ToolServer for $kind {
            fn publish(&self) -> Option<&Publish> {
                self.spec.publish.as_ref()
            }
            fn told(&self) -> Option<&ToolServerStatus> {
                self.status.as_ref().map(|status| &status.server)
            }
            fn told_mut(&mut self) -> &mut ToolServerStatus {
                &mut self.status.get_or_insert_default().server
            }
        }
    };
}

tool_server!(MCPServer);
tool_server!(RemoteMCPServer);

/// Puts what the server told into the status of `next`, and makes Tools of it; whether that could be done. `false`: where the
/// definitions are kept is being deleted, which is waited for.
///
/// # Errors
/// `Terminal` when the name of the ConfigMap is taken; whatever the API server answered.
pub async fn tell<K: ToolServer>(cx: &Context, next: &mut K, found: &Discovered) -> Result<bool, ActionError> {
    let before = next.told().cloned().unwrap_or_default();
    let Some((server, said)) = keep(cx, next, &before, found).await? else { return Ok(false) };
    *next.told_mut() = server;
    update_condition(&mut next.machine_mut().conditions, said);
    publish(cx, next, &found.catalogue, before.tools_digest.as_ref()).await?;
    Ok(true)
}
