//! Skills of an agent's A2A card.

use meta::schema::list_map;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// A2A card of an agent, as far as the spec sets it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentCard {
    /// Skills that the card lists, each id once, at most 32. Empty: one skill, chat.
    #[schemars(schema_with = "by_id", length(max = 32))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<AgentSkill>,
}

/// Skill of an agent, as in A2A.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentSkill {
    /// Id of the skill, unique in the card, such as find-flights.
    #[schemars(length(min = 1, max = 128))]
    pub id: String,
    /// Display name of the skill.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Description of what the skill does, at most 4096 characters, for people and other agents. Empty: its name.
    #[schemars(length(max = 4096))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Keywords of the skill, at most 32.
    #[schemars(length(max = 32), inner(length(min = 1, max = 128)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Messages that the skill answers, as examples, at most 32.
    #[schemars(length(max = 32), inner(length(min = 1, max = 4096)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// Media types that the skill takes, such as text/plain, at most 32. Empty: those of the agent.
    #[schemars(length(max = 32), inner(length(min = 1, max = 128)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_modes: Vec<String>,
    /// Media types that the skill answers with, such as text/plain, at most 32. Empty: those of the agent.
    #[schemars(length(max = 32), inner(length(min = 1, max = 128)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_modes: Vec<String>,
}

fn by_id(generator: &mut SchemaGenerator) -> Schema {
    list_map::<AgentSkill>(generator, "id")
}
