//! Renders the variables by which an agent's runtime reaches the Model of `modelRef`.
//!
//! | variable | value |
//! |---|---|
//! | `CORAIL_MODEL_BASE_URL` | `extraConfig.baseUrl` (or `baseURL`) of the PluginConfig, where it has one |
//! | `CORAIL_MODEL_REGION` | `region` of the PluginConfig, where it has one |
//! | `CORAIL_MODEL_CONFIG` | `defaultConfig` of the Model as JSON, where it has one |
//! | `CORAIL_MODEL_CREDENTIAL_KEYS` | `credentialKeys` of the PluginConfig as a JSON array, where it has any |
//! | each credential key | from the Secret; without credential keys every key of the Secret is a variable |

use crds::{ModelSpec, PluginConfigSpec};
use serde_json::{Value, json};

/// Name of a variable from a Secret or ConfigMap, and the variable as an entry of a container's `env`.
pub(super) type SecretVariable = (String, Value);

/// Variables that a model adds to the environment.
#[derive(Debug, Default)]
pub(super) struct ModelEnv {
    pub(super) base_url: Option<String>,
    pub(super) region: Option<String>,
    pub(super) config: Option<String>,
    pub(super) keys: Option<String>,
    /// One variable for each credential key.
    pub(super) variables: Vec<SecretVariable>,
    /// Secret of which every key is a variable, if no keys are named.
    pub(super) whole_secret: Option<String>,
}

impl ModelEnv {
    pub(super) fn of(model: Option<(&ModelSpec, &PluginConfigSpec)>) -> Self {
        let Some((model, plugin)) = model else { return Self::default() };
        let extra = |name| plugin.extra_config.as_ref().and_then(|extra| extra.get(name)?.as_str());
        let base_url = extra("baseUrl").or(extra("baseURL"));
        let config = model.default_config.as_ref().filter(|config| config.as_object().is_some_and(|it| !it.is_empty()));
        let keys = &plugin.credential_keys;
        let secret = plugin.credentials_ref.as_ref().map(|secret| secret.name.as_str());
        let variable = |secret: &str, key: &String| {
            let source = json!({ "secretKeyRef": { "name": secret, "key": key } });
            (key.clone(), json!({ "name": key, "valueFrom": source }))
        };
        Self {
            base_url: base_url.filter(|url| !url.is_empty()).map(str::to_owned),
            region: plugin.region.clone().filter(|region| !region.is_empty()),
            config: config.map(Value::to_string),
            keys: (!keys.is_empty()).then(|| json!(keys).to_string()),
            variables: secret.iter().flat_map(|secret| keys.iter().map(|key| variable(secret, key))).collect(),
            whole_secret: secret.filter(|_| keys.is_empty()).map(str::to_owned),
        }
    }
}
