//! Keys of the model's Secret that a tool would send out.
//!
//! A Tool's headers may refer to what the Agent's own `env` and `envFrom` bring: who writes the Agent knows of it. The variables
//! of the model's credentials come by the Model, so only the Agent knows which they are; who may write Tools alone is not to
//! name them.

use crds::Agent;

use super::parts::namespace;
use crate::{
    deps::Deps,
    ports::{ChildKind, ChildRef},
    render::variables,
};

/// The first header of a tool of the agent that refers to such a key, as a sentence.
pub(super) fn exposed_credentials(agent: &Agent, world: &Deps) -> Option<String> {
    let (namespace, views) = (namespace(agent), &world.cache);
    let model = views.model(namespace, &agent.spec.model_ref.as_ref()?.name)?;
    let plugin = views.plugin_config(namespace, &model.spec.plugin_config_ref.name)?;
    let secret = &plugin.spec.credentials_ref.as_ref()?.name;
    let keys_of = |kind, name: &str| -> Vec<String> {
        let child = ChildRef { kind, namespace: namespace.to_owned(), name: name.to_owned() };
        views.child(&child).map(|child| child.data.keys().cloned().collect()).unwrap_or_default()
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
        let found = views.tool(namespace, tool).filter(|found| found.spec.enabled)?;
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
