//! Renders `CORAIL_AGENT_CARD`: what the spec of an agent says for its A2A card.

use crds::agent_card::{AgentCard, AgentSkill};
use serde::Serialize;

#[derive(Serialize)]
struct RenderedCard<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(skip_serializing_if = "<[AgentSkill]>::is_empty")]
    skills: &'a [AgentSkill],
}

/// Returns the JSON object; `None` if the spec sets neither a description nor skills.
pub(super) fn card(description: &Option<String>, card: Option<&AgentCard>) -> Option<String> {
    let description = description.as_deref().unwrap_or_default();
    let skills: &[AgentSkill] = card.map_or(&[], |card| card.skills.as_slice());
    let is_set = !description.is_empty() || !skills.is_empty();
    // Strings and lists of strings under string keys: this cannot fail.
    is_set.then(|| serde_json::to_string(&RenderedCard { description, skills }).ok()).flatten()
}
