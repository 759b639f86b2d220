//! `PluginConfig`: a provider of models, with its credentials.
#![expect(
    clippy::duplicated_attributes,
    reason = "the lint takes the parts of two `printcolumn(…)` for the same attribute"
)]

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::{
    ObjectRef, Period,
    provider::{REGION_KEYS, provider},
    references::{HasReferences, RefKind, ReferenceSet},
    schema,
    status::ReferenceStatus,
    tool_server::{ServerHeader, ServerTls},
};

/// Headers that a protocol of models sets itself, in lower case.
const PROTOCOL_HEADERS: &str = "^(authorization|api-key|x-api-key|x-goog-api-key|anthropic-version|x-amz-.*)$";

/// Reports whether a header is set by the protocol of a provider: [`PROTOCOL_HEADERS`].
pub fn is_protocol_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("x-amz-")
        || matches!(name.as_str(), "authorization" | "api-key" | "x-api-key" | "x-goog-api-key" | "anthropic-version")
}

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
pub struct PluginConfigSpec {
    /// Protocol of the provider: stub (answers without any network), openai (also for compatible servers), anthropic,
    /// gemini (also: googleai, google-ai, google), ollama, azure-openai (also: azureaifoundry), gemini-vertex (also: vertexai,
    /// vertex-ai; their models that begin with claude are anthropic-vertex's), anthropic-vertex or bedrock. Any other word is for a
    /// workload with an image of its own that knows it.
    #[serde(rename = "type")]
    #[schemars(
        length(max = 63),
        transform = schema::rule(
            "self.matches('^[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$')",
            "is no word: use letters, digits and '-', such as openai",
        )
    )]
    pub type_: String,
    /// Region of the provider (us, eu …), which selects its address there. Type bedrock needs it, but with a base
    /// URL; openai, gemini-vertex and anthropic-vertex (default: global) take it; the other types have no regions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Secret in the same namespace with the credentials. Required by openai, anthropic and gemini, unless
    /// extraConfig.baseUrl, headersFrom or passthrough is set.
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
    /// More settings of the provider: baseUrl (also: baseURL, serverAddress, endpoint), apiVersion of
    /// azure-openai, projectId (also: project) and location of gemini-vertex and anthropic-vertex; kept as written. Not for
    /// credentials.
    #[schemars(schema_with = "schema::opaque_object")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_config: Option<serde_json::Value>,
    /// Headers of every request to the provider besides those of the protocol, each name once, at most 32.
    #[schemars(schema_with = "provider_headers", length(max = 32))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers_from: Vec<ServerHeader>,
    /// Verification of the provider's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ServerTls>,
    /// Sends the caller's own key to the provider: the token of `Authorization: Bearer` that reaches the workload. No
    /// fallback gets it. Default: false.
    #[schemars(extend("default" = false))]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passthrough: bool,
    /// Longest silence of the provider, to the first byte and between two pieces of an answer, from 1s to 1h. Default:
    /// 60s; 15s to the first byte while a fallback can answer.
    #[schemars(transform = Period::between("1s", "1h", "90s or 5m"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Period>,
}

/// Returns the schema of the headers: those of the protocol are refused besides those that any server's are.
fn provider_headers(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = schema::by_name::<ServerHeader>(generator);
    let name = schema.pointer_mut("/items/properties/name").and_then(|name| <&mut Schema>::try_from(name).ok());
    if let Some(name) = name {
        let rule = format!("!self.lowerAscii().matches('{PROTOCOL_HEADERS}')");
        schema::rule(rule, "is set by the protocol: leave it out")(name);
    }
    schema
}

crate::phased_object::phased_object!(reference PluginConfig "pluginconfigs");

impl HasReferences for PluginConfig {
    const IS_TRANSITIVE: bool = true;

    fn collect(&self, mentions: &mut ReferenceSet) {
        if let Some(secret) = &self.spec.credentials_ref {
            match self.spec.credential_keys.as_slice() {
                [] => mentions.add(RefKind::Secret, &secret.name),
                keys => keys.iter().for_each(|key| mentions.add_key(RefKind::Secret, &secret.name, key)),
            }
        }
        mentions.add_server(&self.spec.headers_from, self.spec.tls.as_ref());
    }
}

/// Keys of `extraConfig` that mean the base URL of the provider, the usual one first.
pub const BASE_URL_KEYS: [&str; 4] = ["baseUrl", "baseURL", "serverAddress", "endpoint"];

impl PluginConfigSpec {
    /// Returns the values in `extraConfig` of a setting with these names, each with the name that sets it.
    pub fn setting<'a>(
        &'a self,
        names: &'a [&'static str],
    ) -> impl Iterator<Item = (&'static str, &'a serde_json::Value)> {
        let extra = self.extra_config.as_ref();
        names.iter().filter_map(move |name| Some((*name, extra?.get(*name)?)))
    }

    /// Returns the names of each setting that the provider's protocol reads besides the base URL.
    fn setting_names(&self) -> &'static [&'static [&'static str]] {
        match provider(&self.type_) {
            Some(provider) => provider.settings,
            None => &[],
        }
    }

    /// Returns the settings of `extraConfig` that the provider's protocol reads besides the base URL.
    pub fn protocol_settings(&self) -> serde_json::Map<String, serde_json::Value> {
        let settings = self.setting_names();
        let found = settings.iter().flat_map(|names| self.setting(names));
        found.map(|(name, value)| (name.to_owned(), value.clone())).collect()
    }

    /// Returns the keys of `extraConfig` that nothing reads; none for a type that this build does not know, whose image may read
    /// them.
    pub fn unread_settings(&self) -> Vec<&str> {
        let keys = self.extra_config.as_ref().and_then(|extra| extra.as_object()).into_iter().flatten();
        let reads_url = provider(&self.type_).is_some_and(|provider| !provider.base.is_empty());
        let settings = self.setting_names();
        let is_read =
            |key: &str| reads_url && BASE_URL_KEYS.contains(&key) || settings.iter().any(|names| names.contains(&key));
        let known = provider(&self.type_).is_some();
        keys.map(|(key, _)| key.as_str()).filter(|key| known && !is_read(key)).collect()
    }

    /// Returns the region, also by what stands for it in `extraConfig`.
    pub fn region(&self) -> Option<&str> {
        let has_setting = self.setting_names().contains(&REGION_KEYS);
        let names = if has_setting { REGION_KEYS } else { &[] };
        let setting = || self.setting(names).find_map(|(_, value)| value.as_str());
        self.region.as_deref().or_else(setting).filter(|region| !region.is_empty())
    }

    /// Returns the base URL that `extraConfig` sets.
    pub fn base_url(&self) -> Option<&str> {
        self.setting(&BASE_URL_KEYS).next()?.1.as_str().filter(|url| !url.is_empty())
    }

    /// Reports whether the provider needs credentials and the spec has none. A server at another address may need none,
    /// and a header or the caller may bring them.
    pub fn lacks_credentials(&self) -> bool {
        provider(&self.type_).is_some_and(|provider| provider.needs_key)
            && self.credentials_ref.is_none()
            && self.base_url().is_none()
            && self.headers_from.is_empty()
            && !self.passthrough
    }

    /// Returns the longest silence of the provider, if it is set.
    pub fn timeout(&self) -> Option<std::time::Duration> {
        self.timeout.as_ref()?.length()
    }
}
