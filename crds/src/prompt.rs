//! `Prompt`: a Dotprompt text that flows and agents use.
#![expect(
    clippy::duplicated_attributes,
    reason = "the lint takes the parts of two `printcolumn(…)` for the same attribute"
)]

use kube::CustomResource;
use meta::CommonStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    references::{HasReferences, ReferenceSet},
    schema,
};

/// Desired state of a Prompt: a Dotprompt text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "agents.recif.dev",
    version = "v1",
    kind = "Prompt",
    plural = "prompts",
    singular = "prompt",
    shortname = "pr",
    category = "recif",
    namespaced,
    status = "PromptStatus",
    derive = "PartialEq",
    doc = "A Dotprompt text that flows and agents use.",
    printcolumn(name = "Description", type_ = "string", json_path = ".spec.description"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PromptSpec {
    /// Dotprompt text: optional YAML frontmatter between lines of `---`, and a Handlebars template. At most 1 MiB;
    /// beyond 256 KiB `kubectl apply` needs --server-side.
    #[schemars(length(min = 1, max = 1048576))]
    pub content: String,
    /// Purpose of the prompt, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

crate::phased_object::phased_object!(reference Prompt "prompts");

impl HasReferences for Prompt {
    fn collect(&self, _: &mut ReferenceSet) {}
}

/// Observed state of a Prompt, as the operator last wrote it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptStatus {
    /// Status fields of every kind.
    #[serde(flatten)]
    pub machine: CommonStatus,
    /// SHA-256 (hex) of the text's bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_hash: Option<String>,
    /// Frontmatter of the text, as parsed.
    #[schemars(schema_with = "schema::opaque_object")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frontmatter: Option<serde_json::Value>,
}
