//! `Model`: a model of a provider, with its defaults.
#![expect(
    clippy::duplicated_attributes,
    reason = "the lint takes the parts of two `printcolumn(…)` for the same attribute"
)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ObjectRef,
    references::{HasReferences, RefKind, ReferenceSet},
    schema,
    status::ReferenceStatus,
    usage::ModelPrice,
};

/// Desired state of a Model: a model of a provider, with its default settings.
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
    /// PluginConfig in the same namespace with the protocol, address and credentials of the provider.
    pub plugin_config_ref: ObjectRef,
    /// Known properties of the model, such as its label and what it supports; kept as written.
    #[schemars(schema_with = "schema::opaque_object")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<serde_json::Value>,
    /// Default generation settings such as temperature; the settings of a prompt take precedence. Kept as written.
    #[schemars(schema_with = "schema::opaque_object")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_config: Option<serde_json::Value>,
    /// Models in the same namespace that answer, in this order, where this one cannot, at most 4. Their own fallbacks
    /// are not followed.
    #[schemars(schema_with = "schema::by_name::<ObjectRef>", length(max = 4))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback_refs: Vec<ObjectRef>,
    /// Price of its tokens, from which the control plane computes the cost of what was used, and by which costPerDay counts. An edit
    /// replaces no Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<ModelPrice>,
}

/// Form of the setting `toolChoice`.
pub const TOOL_CHOICE_FORM: &str = "`toolChoice` is auto, none, required, or {\"tool\": \"its name\"}";
/// Form of the setting `cache`.
pub const CACHE_FORM: &str = "`cache` is 5m, 1h or off";

impl ModelSpec {
    /// Returns what is wrong with a setting of `defaultConfig` that means the same for every provider and is no number. A
    /// `toolChoice` with a `type` is in the provider's own form, which is not judged; `null` is no setting.
    pub fn setting_problem(&self) -> Option<&'static str> {
        let settings = self.default_config.as_ref()?;
        let setting = |name: &str| settings.get(name).filter(|value| !value.is_null());
        let choice = setting("toolChoice").is_none_or(|choice| match choice.as_str() {
            Some(word) => ["auto", "none", "required"].contains(&word),
            None => choice["tool"].is_string() || choice["type"].is_string(),
        });
        let cache = setting("cache").is_none_or(|cache| matches!(cache.as_str(), Some("5m" | "1h" | "off")));
        match (choice, cache) {
            (false, _) => Some(TOOL_CHOICE_FORM),
            (true, false) => Some(CACHE_FORM),
            (true, true) => None,
        }
    }

    /// Returns the name of the tool that `toolChoice` names, unless the choice is in the provider's own form.
    pub fn chosen_tool(&self) -> Option<&str> {
        let choice = self.default_config.as_ref()?.get("toolChoice")?;
        choice["tool"].as_str().filter(|_| !choice["type"].is_string())
    }
}

/// Message for a model that is its own fallback.
pub const OWN_FALLBACK: &str = "a model cannot stand in for itself";

/// Returns the rules on the whole object.
pub(crate) fn rules() -> Vec<ValidationRule> {
    vec![ValidationRule {
        rule: "!has(self.spec.fallbackRefs) || self.spec.fallbackRefs.all(it, it.name != self.metadata.name)".into(),
        message: Some(OWN_FALLBACK.into()),
        field_path: Some(".spec.fallbackRefs".into()),
        ..Default::default()
    }]
}

crate::phased_object::phased_object!(reference Model "models");

impl HasReferences for Model {
    const IS_TRANSITIVE: bool = true;

    fn collect(&self, mentions: &mut ReferenceSet) {
        mentions.add(RefKind::PluginConfig, &self.spec.plugin_config_ref.name);
        mentions.add_fallbacks(&self.spec.fallback_refs);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_setting_that_cannot_be_read_is_found() {
        for (config, problem, tool) in [
            (json!({"toolChoice": "auto", "cache": "off"}), None, None),
            (json!({"toolChoice": "none"}), None, None),
            (json!({"toolChoice": "required"}), None, None),
            (json!({"toolChoice": null, "cache": null}), None, None),
            (json!({"toolChoice": {"tool": "weather"}}), None, Some("weather")),
            (json!({"toolChoice": {"type": "tool", "tool": "weather"}}), None, None),
            (json!({"toolChoice": "any"}), Some(TOOL_CHOICE_FORM), None),
            (json!({"toolChoice": true, "cache": "2h"}), Some(TOOL_CHOICE_FORM), None),
            (json!({"toolChoice": ["weather"]}), Some(TOOL_CHOICE_FORM), None),
            (json!({"toolChoice": {"tool": 1}}), Some(TOOL_CHOICE_FORM), None),
            (json!({"cache": "2h"}), Some(CACHE_FORM), None),
            (json!({"cache": 300}), Some(CACHE_FORM), None),
            (json!({}), None, None),
        ] {
            let model = json!({
                "provider": "p", "model": "m", "pluginConfigRef": {"name": "p"}, "defaultConfig": config,
            });
            let model: ModelSpec = serde_json::from_value(model).unwrap();
            assert_eq!((model.setting_problem(), model.chosen_tool()), (problem, tool), "{config}");
        }
    }
}
