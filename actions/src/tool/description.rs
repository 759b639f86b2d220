//! Description of a Tool that asks an Agent and has none of its own: that of the Agent.

use std::sync::Arc;

use crds::{
    Agent, Tool, ToolSpec,
    tool::{AgentRef, ToolType},
};

use crate::ports::CacheReader;

/// Returns the Tool as it is rendered: with the description of the Agent that it asks, if it has none of its own.
pub(crate) fn described(cache: &dyn CacheReader, namespace: &str, tool: Arc<Tool>) -> Arc<Tool> {
    let agent = |agent: &AgentRef| cache.get::<Agent>(agent.namespace().unwrap_or(namespace), &agent.name);
    match agent_description(&tool.spec, agent) {
        Some(description) => {
            let mut tool = Arc::unwrap_or_clone(tool);
            tool.spec.description = Some(description);
            Arc::new(tool)
        }
        None => tool,
    }
}

/// Returns the description that a Tool takes from the Agent that it asks; `None` if it has one of its own, asks no Agent, or the
/// Agent has none.
pub(super) fn agent_description(
    tool: &ToolSpec,
    agent: impl FnOnce(&AgentRef) -> Option<Arc<Agent>>,
) -> Option<String> {
    let asks = tool.tool_type() == Some(ToolType::Agent) && tool.description.as_deref().unwrap_or_default().is_empty();
    let agent = agent(tool.agent_ref.as_ref().filter(|_| asks)?)?;
    agent.spec.description.clone().filter(|text| !text.is_empty())
}
