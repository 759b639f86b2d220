//! Access to the spec and status fields that the kinds of tool servers share.

use crds::{MCPServer, RemoteMCPServer, ToolServerStatus, tool_pins::OnChange, tool_server::Publish};
use kube::Resource;
use meta::PhasedObject;

/// Kind whose objects are servers of tools.
pub trait ToolServer: PhasedObject + Resource<DynamicType = ()> {
    /// Returns the settings for publishing its tools as Tools.
    fn publish(&self) -> Option<&Publish>;
    /// Returns the reaction to a definition that changes, and to a new tool.
    fn on_change(&self) -> OnChange;
    /// Returns the status of its tools.
    fn tools_status(&self) -> Option<&ToolServerStatus>;
    /// Returns the status of its tools, created if there is none.
    fn tools_status_mut(&mut self) -> &mut ToolServerStatus;
}

/// Implements [`ToolServer`] for a kind.
macro_rules! tool_server {
    ($kind:ident) => {
        impl ToolServer for $kind {
            fn publish(&self) -> Option<&Publish> {
                self.spec.publish.as_ref()
            }
            fn on_change(&self) -> OnChange {
                OnChange::parse(&self.spec.on_change)
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
