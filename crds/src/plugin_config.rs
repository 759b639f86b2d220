//! `PluginConfig`: a provider of models, with its credentials.
#![expect(
    clippy::duplicated_attributes,
    reason = "the lint takes the parts of two `printcolumn(…)` for the same attribute"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ObjectRef,
    references::{HasReferences, RefKind, ReferenceSet},
    schema,
    status::ReferenceStatus,
};

/// Desired state of a PluginConfig: protocol, address and credentials of a provider of models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "agents.recif.dev",
    version = "v1",
    kind = "PluginConfig",
    plural = "pluginconfigs",
    singular = "pluginconfig",
    shortname = "pc",
    category = "recif",
    namespaced,
    status = "ReferenceStatus",
    derive = "PartialEq",
    doc = "A provider of models, and the Secret with its credentials.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
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
#[schemars(transform = schema::rule(
    "has(self.credentialsRef) || self.type in ['stub', 'ollama']",
    "this type needs credentials: set credentialsRef to a Secret with them",
))]
pub struct PluginConfigSpec {
    /// Protocol of the provider: stub (answers without any network), openai (also for compatible servers), anthropic,
    /// gemini or ollama.
    // A string and not an enum: a value written by another version must not make the object unreadable.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["stub", "openai", "anthropic", "gemini", "ollama"]))]
    pub type_: String,
    /// Region of the provider (us, eu …). With type openai it selects the provider's address in that region; the other
    /// types have no regions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Secret in the same namespace with the credentials. Required unless the type is ollama or stub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_ref: Option<ObjectRef>,
    /// Keys that the Secret must have, such as OPENAI_API_KEY, at most 32. The runner gets each as an environment
    /// variable or a file.
    #[schemars(
        length(max = 32),
        inner(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$")),
        extend("x-kubernetes-list-type" = "set")
    )]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credential_keys: Vec<String>,
    /// More settings of the provider, such as baseUrl; kept as written. Not for credentials.
    #[schemars(schema_with = "schema::opaque_object")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_config: Option<serde_json::Value>,
}

crate::phased_object::phased_object!(reference PluginConfig "pluginconfigs");

impl HasReferences for PluginConfig {
    const IS_TRANSITIVE: bool = true;

    fn collect(&self, mentions: &mut ReferenceSet) {
        let Some(secret) = &self.spec.credentials_ref else { return };
        match self.spec.credential_keys.as_slice() {
            [] => mentions.add(RefKind::Secret, &secret.name),
            keys => keys.iter().for_each(|key| mentions.add_key(RefKind::Secret, &secret.name, key)),
        }
    }
}

impl PluginConfigSpec {
    /// Reports whether the provider is used without credentials.
    pub fn is_keyless(&self) -> bool {
        matches!(self.type_.as_str(), "stub" | "ollama")
    }
}
