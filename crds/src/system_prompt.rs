//! Source of an agent's system prompt in a ConfigMap or Secret.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    references::{HasReferences, RefKind, ReferenceSet},
    schema,
};

/// Key of a ConfigMap or Secret that holds the system prompt of an agent. Set exactly one of configMapKeyRef and
/// secretKeyRef.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::one_of("configMapKeyRef", "secretKeyRef"))]
pub struct SystemPromptSource {
    /// Key of a ConfigMap in the same namespace. Excludes secretKeyRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<DataKey>,
    /// Key of a Secret in the same namespace. Excludes configMapKeyRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<DataKey>,
}

/// A key of a ConfigMap or Secret in the same namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DataKey {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the object.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

impl HasReferences for SystemPromptSource {
    fn collect(&self, mentions: &mut ReferenceSet) {
        for (kind, source) in [(RefKind::ConfigMap, &self.config_map_key_ref), (RefKind::Secret, &self.secret_key_ref)]
        {
            source.iter().for_each(|data| mentions.add_key(kind, &data.name, &data.key));
        }
    }
}
