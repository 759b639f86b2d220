//! Renders the variables by which an agent's runtime reaches the Model of `modelRef`.
//!
//! | variable | value |
//! |---|---|
//! | `CORAIL_MODEL_BASE_URL` | `extraConfig.baseUrl` (or `baseURL`, `serverAddress`, `endpoint`) of the PluginConfig, where it has one |
//! | `CORAIL_MODEL_REGION` | `region` of the PluginConfig, where it has one |
//! | `CORAIL_MODEL_EXTRA_CONFIG` | the settings of `extraConfig` that its protocol reads besides the base URL, as JSON, where it has any; with Récif's runner alone |
//! | `CORAIL_MODEL_CONFIG` | `defaultConfig` of the Model as JSON, where it has one |
//! | `CORAIL_MODEL_CREDENTIAL_KEYS` | `credentialKeys` of the PluginConfig as a JSON array, where it has any |
//! | `CORAIL_MODEL_HEADERS` | `headersFrom` as a JSON object; values that come from elsewhere are `$NAME` |
//! | `CORAIL_MODEL_TLS` | `tls` as JSON `{insecureSkipVerify, systemCAs, ca}` |
//! | `CORAIL_MODEL_PASSTHROUGH` | `true` where `passthrough` is |
//! | `CORAIL_MODEL_TIMEOUT` | `timeout` in seconds |
//! | `CORAIL_MODEL_FALLBACKS` | JSON array of the Models of `fallbackRefs`, each as in `fallbacks` of a flow's `config.json` |
//! | each credential key | from the Secret; without credential keys every key of the Secret is a variable |

use crds::{ModelSpec, PluginConfigSpec};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    FlowModel,
    provider::{Fallback, Plugin, plugin_variables},
};

/// Name of a variable, and the variable as an entry of a container's `env`.
pub(super) type SecretVariable = (String, Value);

/// Variables that a model adds to the environment.
#[derive(Debug, Default)]
pub(super) struct ModelEnv {
    pub(super) base_url: Option<String>,
    pub(super) region: Option<String>,
    pub(super) extra_config: Option<String>,
    pub(super) config: Option<String>,
    pub(super) keys: Option<String>,
    pub(super) headers: Option<String>,
    /// Set if the value of a header is in the PluginConfig itself, because it may be a credential.
    pub(super) secret_headers: bool,
    pub(super) tls: Option<String>,
    pub(super) passthrough: Option<&'static str>,
    pub(super) timeout: Option<String>,
    pub(super) fallbacks: Option<String>,
    /// Set if the base URL of a fallback has a user name, because it may then hold a password, or for a header as above.
    pub(super) secret_fallbacks: bool,
    /// One variable for each credential key, and for each value of a header that comes from elsewhere.
    pub(super) variables: Vec<SecretVariable>,
    /// Secret of which every key is a variable, if no keys are named.
    pub(super) whole_secret: Option<String>,
}

impl ModelEnv {
    pub(super) fn of(model: Option<(&ModelSpec, &PluginConfigSpec)>, fallbacks: &[FlowModel]) -> Self {
        let Some((model, plugin)) = model else { return Self::default() };
        let name = &model.plugin_config_ref.name;
        let rendered = Plugin::new(name, plugin);
        let mut referred = plugin_variables(name, plugin);
        for fallback in fallbacks {
            referred.extend(plugin_variables(fallback.plugin_name(), &fallback.plugin));
            referred.extend(fallback.credential_variables());
        }
        let elements: Vec<_> = fallbacks.iter().map(|fallback| Fallback::new(fallback, name, None)).collect();
        let has_user = |fallback: &FlowModel| fallback.plugin.base_url().is_some_and(|url| url.contains('@'));
        let has_literal = |plugin: &PluginConfigSpec| plugin.headers_from.iter().any(|header| header.value.is_some());
        let config = model.default_config.as_ref().filter(|config| config.as_object().is_some_and(|it| !it.is_empty()));
        let settings = plugin.protocol_settings();
        let keys = &plugin.credential_keys;
        let secret = plugin.credentials_ref.as_ref().map(|secret| secret.name.as_str());
        let variable = |secret: &str, key: &String| {
            let source = json!({ "secretKeyRef": { "name": secret, "key": key } });
            (key.clone(), json!({ "name": key, "valueFrom": source }))
        };
        Self {
            base_url: plugin.base_url().map(str::to_owned),
            region: plugin.region.clone().filter(|region| !region.is_empty()),
            extra_config: (!settings.is_empty()).then(|| Value::from(settings).to_string()),
            config: config.map(Value::to_string),
            keys: (!keys.is_empty()).then(|| json!(keys).to_string()),
            headers: (!rendered.headers.is_empty()).then(|| text(&rendered.headers)).flatten(),
            tls: rendered.tls.as_ref().and_then(text),
            passthrough: plugin.passthrough.then_some("true"),
            timeout: rendered.timeout.map(|seconds| seconds.to_string()),
            fallbacks: (!elements.is_empty()).then(|| text(&elements)).flatten(),
            secret_headers: has_literal(plugin),
            secret_fallbacks: fallbacks.iter().any(|one| has_user(one) || has_literal(&one.plugin)),
            variables: (secret.iter().flat_map(|secret| keys.iter().map(|key| variable(secret, key))))
                .chain(referred.iter().map(|found| (found.name.clone(), found.env())))
                .collect(),
            whole_secret: secret.filter(|_| keys.is_empty()).map(str::to_owned),
        }
    }
}

/// Returns JSON, with the keys of structs in their order.
fn text(value: &impl Serialize) -> Option<String> {
    // Strings, numbers and JSON values under string keys: this cannot fail.
    serde_json::to_string(value).ok()
}
