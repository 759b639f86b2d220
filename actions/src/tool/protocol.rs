//! Adds the protocol of the Agent that a Tool calls to the Tool as it is rendered, and to the digest of its users' inputs.

use std::sync::Arc;

use crds::{
    Agent, Tool, ToolSpec, digest,
    tool::{AgentRef, ToolType},
};
use serde_json::json;

use crate::ports::CacheReader;

/// Returns the Tool as it is rendered: with the protocol of the Agent that it calls, if that is Agent2Agent.
pub(crate) fn with_protocol(cache: &dyn CacheReader, namespace: &str, tool: Arc<Tool>) -> Arc<Tool> {
    let agent = |agent: &AgentRef| cache.get::<Agent>(agent.namespace().unwrap_or(namespace), &agent.name);
    if !asks_in_a2a(&tool.spec, agent) {
        return tool;
    }
    let mut tool = Arc::unwrap_or_clone(tool);
    tool.spec.call.a2a = true;
    Arc::new(tool)
}

/// Adds the protocol of the Agent that a Tool asks to the digest of the Tool. That of a Tool that asks in no other protocol than
/// chat stays as it is, so that an upgrade rolls no Pods.
pub(super) fn with_protocol_digest(
    own: String,
    tool: &ToolSpec,
    agent: impl FnOnce(&AgentRef) -> Option<Arc<Agent>>,
) -> String {
    if asks_in_a2a(tool, agent) { digest::digest(&json!({ "own": own, "protocol": "a2a" })) } else { own }
}

/// Reports whether the Agent that the Tool refers to speaks Agent2Agent.
fn asks_in_a2a(tool: &ToolSpec, agent: impl FnOnce(&AgentRef) -> Option<Arc<Agent>>) -> bool {
    let asked = tool.agent_ref.as_ref().filter(|_| tool.tool_type() == Some(ToolType::Agent));
    asked.and_then(agent).is_some_and(|agent| agent.spec.speaks_a2a())
}
