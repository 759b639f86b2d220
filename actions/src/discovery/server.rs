//! What the kinds that are servers of tools share: how what a server told gets into its object.

use crds::{MCPServer, RemoteMCPServer, ToolServerStatus, tool_server::Publish};
use kube::Resource;
use meta::PhasedObject;

/// A kind whose objects are servers of tools.
pub trait ToolServer: PhasedObject + Resource<DynamicType = ()> {
    /// What is to be made of its tools.
    fn publish(&self) -> Option<&Publish>;
    /// What is known of its tools.
    fn tools_status(&self) -> Option<&ToolServerStatus>;
    /// What is known of its tools, made if there is nothing.
    fn tools_status_mut(&mut self) -> &mut ToolServerStatus;
}

/// Implements [`ToolServer`] for a kind.
macro_rules! tool_server {
    ($kind:ident) => {
        impl ToolServer for $kind {
            fn publish(&self) -> Option<&Publish> {
                self.spec.publish.as_ref()
            }
            fn tools_status(&self) -> Option<&ToolServerStatus> {
                self.status.as_ref().map(|status| &status.server)
            }
            fn tools_status_mut(&mut self) -> &mut ToolServerStatus {
                &mut self.status.get_or_insert_default().server
            }
        }
    };
}

tool_server!(MCPServer);
tool_server!(RemoteMCPServer);
