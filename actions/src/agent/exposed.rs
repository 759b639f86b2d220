//! Detects Tools that would send a key of the model's Secret in a header.
//!
//! The headers of a Tool may refer to variables from the Agent's own `env` and `envFrom`: the author of the Agent chose those.
//! The variables of the model's credentials come through the Model, so only the Agent knows their names. A user who may write
//! Tools alone must not be able to name them.

use crds::{Agent, Model, PluginConfig, Tool};

use super::parts::namespace;
use crate::{
    deps::Deps,
    ports::{ChildKind, ChildRef},
    render::variables,
};

/// Returns the first header of one of the agent's tools that refers to such a key, as a sentence.
pub(super) fn exposed_credentials(agent: &Agent, deps: &Deps) -> Option<String> {
    let (namespace, cache) = (namespace(agent), &deps.cache);
    let model = cache.get::<Model>(namespace, &agent.spec.model_ref.as_ref()?.name)?;
    let plugin = cache.get::<PluginConfig>(namespace, &model.spec.plugin_config_ref.name)?;
    let secret = &plugin.spec.credentials_ref.as_ref()?.name;
    let keys_of = |kind, name: &str| -> Vec<String> {
        let child = ChildRef { kind, namespace: namespace.to_owned(), name: name.to_owned() };
        cache.child(&child).map(|child| child.data.keys().cloned().collect()).unwrap_or_default()
    };
    let mut keys = plugin.spec.credential_keys.clone();
    if keys.is_empty() {
        keys = keys_of(ChildKind::Secret, secret);
    }
    let mut own: Vec<String> = agent.spec.env.iter().map(|variable| variable.name.clone()).collect();
    for source in &agent.spec.env_from {
        let secret = source.secret_ref.iter().map(|found| (ChildKind::Secret, &found.name));
        let config_map = source.config_map_ref.iter().map(|found| (ChildKind::ConfigMap, &found.name));
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let brought = secret.chain(config_map).flat_map(|(kind, name)| keys_of(kind, name));
        own.extend(brought.map(|key| format!("{prefix}{key}")));
    }
    agent.spec.tools.iter().find_map(|tool| {
        let found = cache.get::<Tool>(namespace, tool).filter(|found| found.spec.enabled)?;
        found.spec.headers.iter().find_map(|(header, value)| {
            let is_taken = |name: &&str| keys.iter().any(|key| key == name) && !own.iter().any(|own| own == name);
            let name = variables(value).find(is_taken)?;
            Some(format!(
                "tool {tool:?} would send ${name} of the model's secret {secret:?} in its header {header}: let the Tool take the \
                 value with headersFrom"
            ))
        })
    })
}
