//! What an object refers to: the data of the reverse indexes, by which a changed Tool or Secret finds its users.

use std::collections::BTreeMap;
use std::fmt;

use crate::Agent;

/// Kinds that an object may refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum RefKind {
    Tool,
    Model,
    PluginConfig,
    Prompt,
    Flow,
    Agent,
    Secret,
    ConfigMap,
}

impl RefKind {
    /// The kind as written in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "Tool",
            Self::Model => "Model",
            Self::PluginConfig => "PluginConfig",
            Self::Prompt => "Prompt",
            Self::Flow => "Flow",
            Self::Agent => "Agent",
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        }
    }
}

impl fmt::Display for RefKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One object in the same namespace that is referred to. Displays as `Tool/weather-api`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// Its kind.
    pub kind: RefKind,
    /// Its name.
    pub name: String,
    /// Whether it may be missing.
    pub optional: bool,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// What an Agent refers to: its Tools, and the Secrets and ConfigMaps of `env` and `envFrom`. Sorted by kind and name, each
/// object once; it is optional only if every mention of it is. What `podTemplate` names is not looked at.
pub fn agent_references(agent: &Agent) -> Vec<Reference> {
    let spec = &agent.spec;
    let mut found = Found::default();
    for tool in &spec.tools {
        found.add(RefKind::Tool, tool, None);
    }
    for source in spec.env.iter().filter_map(|variable| variable.value_from.as_ref()) {
        if let Some(key) = &source.secret_key_ref {
            found.add(RefKind::Secret, &key.name, key.optional);
        }
        if let Some(key) = &source.config_map_key_ref {
            found.add(RefKind::ConfigMap, &key.name, key.optional);
        }
    }
    for source in &spec.env_from {
        if let Some(secret) = &source.secret_ref {
            found.add(RefKind::Secret, &secret.name, secret.optional);
        }
        if let Some(config_map) = &source.config_map_ref {
            found.add(RefKind::ConfigMap, &config_map.name, config_map.optional);
        }
    }
    found.0.into_iter().map(|((kind, name), optional)| Reference { kind, name, optional }).collect()
}

#[derive(Default)]
struct Found(BTreeMap<(RefKind, String), bool>);

impl Found {
    fn add(&mut self, kind: RefKind, name: &str, optional: Option<bool>) {
        let optional = optional.unwrap_or(false);
        if !name.is_empty() {
            self.0.entry((kind, name.into())).and_modify(|all| *all &= optional).or_insert(optional);
        }
    }
}
