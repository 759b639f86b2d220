//! `Model`: a model of a provider, with its defaults.
#![expect(
    clippy::duplicated_attributes,
    reason = "the lint takes the parts of two `printcolumn(…)` for the same attribute"
)]

use kube::CustomResource;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ObjectRef, schema, status::ReferenceStatus};

/// A model, and how it is used unless somebody says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "agents.recif.dev",
    version = "v1",
    kind = "Model",
    plural = "models",
    singular = "model",
    shortname = "mdl",
    category = "recif",
    namespaced,
    status = "ReferenceStatus",
    derive = "PartialEq",
    doc = "A model of a provider, with its defaults.",
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.provider"),
    printcolumn(name = "Model", type_ = "string", json_path = ".spec.model"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Why it is ready, or not.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ModelSpec {
    /// Name of the provider, for people and for prompts that name a model as provider/model.
    #[schemars(length(min = 1, max = 63))]
    pub provider: String,
    /// Name of the model at its provider.
    #[schemars(length(min = 1, max = 253))]
    pub model: String,
    /// The PluginConfig that says how the provider is reached.
    pub plugin_config_ref: ObjectRef,
    /// What is known of the model, such as its label and what it supports; kept as written.
    #[schemars(schema_with = "schema::opaque_object")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<serde_json::Value>,
    /// Generation settings such as temperature, used unless a prompt sets its own; kept as written.
    #[schemars(schema_with = "schema::opaque_object")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_config: Option<serde_json::Value>,
}

crate::phased_object::phased_object!(reference Model "models");
