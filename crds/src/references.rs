//! What an object refers to: the data of the reverse indexes, by which a changed Tool or Secret finds its users, and of
//! the look-ups that judge whether an object may go on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::EnvVar;

use crate::flow::{FlowDefinition, Runtime};
use crate::tool::{ServerRef, ToolType};
use crate::{Agent, Flow, FlowSet, MCPServer, Model, PluginConfig, Prompt, RemoteMCPServer, Tool};

/// Kinds that an object may refer to, in the order in which what is missing is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum RefKind {
    Prompt,
    Tool,
    Model,
    PluginConfig,
    Flow,
    Agent,
    RemoteMCPServer,
    MCPServer,
    Secret,
    ConfigMap,
}

impl RefKind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::Prompt,
        Self::Tool,
        Self::Model,
        Self::PluginConfig,
        Self::Flow,
        Self::Agent,
        Self::RemoteMCPServer,
        Self::MCPServer,
        Self::Secret,
        Self::ConfigMap,
    ];

    /// The kind as written in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prompt => "Prompt",
            Self::Tool => "Tool",
            Self::Model => "Model",
            Self::PluginConfig => "PluginConfig",
            Self::Flow => "Flow",
            Self::Agent => "Agent",
            Self::RemoteMCPServer => "RemoteMCPServer",
            Self::MCPServer => "MCPServer",
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        }
    }

    /// The kind of this name, if it can be referred to.
    pub fn parse(kind: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|found| found.as_str() == kind)
    }

    /// Whether what is referred to is only passed on: whoever uses such an object uses what it refers to as well.
    pub fn is_transitive(self) -> bool {
        matches!(self, Self::Tool | Self::Model | Self::PluginConfig)
    }
}

impl fmt::Display for RefKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One object that is referred to. Displays as `Tool/weather-api`, and with its namespace if that is another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// Its kind.
    pub kind: RefKind,
    /// Its namespace, if it is another one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Whether it may be missing.
    pub optional: bool,
    /// Of a Secret or ConfigMap: keys that must be there; of a server: tools.
    pub keys: BTreeSet<String>,
    /// Of a Secret or ConfigMap: whether everything in it counts, and not only `keys`.
    pub whole: bool,
}

impl Reference {
    /// A reference to an object that must be there.
    pub fn new(kind: RefKind, name: impl Into<String>) -> Self {
        Self { kind, namespace: None, name: name.into(), optional: false, keys: BTreeSet::new(), whole: true }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}/{namespace}/{}", self.kind, self.name),
            None => write!(f, "{}/{}", self.kind, self.name),
        }
    }
}

/// Something that may refer to objects in its namespace. What `podTemplate` names is not looked at.
pub trait HasReferences {
    /// What it refers to, sorted by kind and name, each object once; it is optional only if every mention of it is.
    fn references(&self) -> Vec<Reference> {
        let mut mentions = ReferenceSet::default();
        self.collect(&mut mentions);
        mentions.0.into_values().collect()
    }

    /// Adds everything that it refers to.
    fn collect(&self, mentions: &mut ReferenceSet);
}

impl HasReferences for Agent {
    fn collect(&self, mentions: &mut ReferenceSet) {
        let spec = &self.spec;
        if let Some(prompt) = &spec.prompt_ref {
            mentions.add(RefKind::Prompt, &prompt.name);
        }
        spec.tools.iter().for_each(|tool| mentions.add(RefKind::Tool, tool));
        if let Some(model) = &spec.model_ref {
            mentions.add(RefKind::Model, &model.name);
        }
        mentions.add_env(&spec.env);
        for source in &spec.env_from {
            if let Some(secret) = &source.secret_ref {
                mentions.add_data(RefKind::Secret, &secret.name, None, secret.optional);
            }
            if let Some(config_map) = &source.config_map_ref {
                mentions.add_data(RefKind::ConfigMap, &config_map.name, None, config_map.optional);
            }
        }
    }
}

impl HasReferences for FlowDefinition {
    fn collect(&self, mentions: &mut ReferenceSet) {
        for prompt in self.prompts.iter().filter_map(|source| source.prompt_ref.as_ref()) {
            mentions.add(RefKind::Prompt, &prompt.name);
        }
        self.tools.iter().for_each(|tool| mentions.add(RefKind::Tool, &tool.name));
        if let Some(model) = &self.model_ref {
            mentions.add(RefKind::Model, &model.name);
        }
        if let Some(model) = &self.model_spec {
            mentions.add(RefKind::PluginConfig, &model.plugin_config_ref.name);
        }
    }
}

impl HasReferences for Runtime {
    fn collect(&self, mentions: &mut ReferenceSet) {
        mentions.add_env(&self.env);
    }
}

impl HasReferences for Flow {
    fn collect(&self, mentions: &mut ReferenceSet) {
        self.spec.definition.collect(mentions);
        self.spec.runtime.collect(mentions);
    }
}

impl HasReferences for FlowSet {
    fn collect(&self, mentions: &mut ReferenceSet) {
        self.spec.flows.iter().for_each(|flow| flow.definition.collect(mentions));
        self.spec.runtime.collect(mentions);
    }
}

impl HasReferences for Tool {
    fn collect(&self, mentions: &mut ReferenceSet) {
        let spec = &self.spec;
        match spec.tool_type() {
            Some(ToolType::Flow) => spec.flow_ref.iter().for_each(|flow| mentions.add(RefKind::Flow, &flow.name)),
            Some(ToolType::Agent) => spec.agent_ref.iter().for_each(|agent| mentions.add(RefKind::Agent, &agent.name)),
            _ => {}
        }
        if let Some((server, tool)) = spec.served_by()
            && let Some(kind) = RefKind::parse(&server.kind)
        {
            mentions.add_tool(kind, server, tool);
        }
        for header in &spec.headers_from {
            mentions.add_key(RefKind::Secret, &header.secret_key_ref.name, &header.secret_key_ref.key);
        }
    }
}

impl HasReferences for Model {
    fn collect(&self, mentions: &mut ReferenceSet) {
        mentions.add(RefKind::PluginConfig, &self.spec.plugin_config_ref.name);
    }
}

impl HasReferences for PluginConfig {
    fn collect(&self, mentions: &mut ReferenceSet) {
        let Some(secret) = &self.spec.credentials_ref else { return };
        match self.spec.credential_keys.as_slice() {
            [] => mentions.add(RefKind::Secret, &secret.name),
            keys => keys.iter().for_each(|key| mentions.add_key(RefKind::Secret, &secret.name, key)),
        }
    }
}

impl HasReferences for RemoteMCPServer {
    fn collect(&self, mentions: &mut ReferenceSet) {
        for source in self.spec.headers_from.iter().filter_map(|header| header.value_from.as_ref()) {
            let kind = if source.is_secret() { RefKind::Secret } else { RefKind::ConfigMap };
            mentions.add_key(kind, &source.name, &source.key);
        }
        if let Some(ca) = self.spec.tls.as_ref().and_then(|tls| tls.ca_secret_ref.as_ref()) {
            mentions.add_key(RefKind::Secret, &ca.name, &ca.key);
        }
    }
}

impl HasReferences for MCPServer {
    fn collect(&self, mentions: &mut ReferenceSet) {
        let deployment = &self.spec.deployment;
        deployment.secret_refs.iter().for_each(|secret| mentions.add(RefKind::Secret, &secret.name));
        deployment.config_map_refs.iter().for_each(|map| mentions.add(RefKind::ConfigMap, &map.name));
    }
}

impl HasReferences for Prompt {
    fn collect(&self, _: &mut ReferenceSet) {}
}

/// What was mentioned so far.
#[derive(Debug, Default)]
pub struct ReferenceSet(BTreeMap<(RefKind, Option<String>, String), Reference>);

impl ReferenceSet {
    /// An object that must be there.
    fn add(&mut self, kind: RefKind, name: &str) {
        self.add_data(kind, name, None, None);
    }

    /// One key of a Secret or ConfigMap, of which nothing else counts.
    fn add_key(&mut self, kind: RefKind, name: &str, key: &str) {
        let mut reference = Reference::new(kind, name);
        (reference.keys, reference.whole) = (BTreeSet::from([key.to_owned()]), false);
        self.join(reference);
    }

    /// A tool of a server.
    fn add_tool(&mut self, kind: RefKind, server: &ServerRef, tool: &str) {
        let mut reference = Reference::new(kind, &server.name);
        reference.namespace = server.namespace.clone().filter(|namespace| !namespace.is_empty());
        (reference.keys, reference.whole) = (BTreeSet::from([tool.to_owned()]), false);
        self.join(reference);
    }

    /// A Secret or ConfigMap that counts as a whole, and a key that it must have unless it is optional.
    fn add_data(&mut self, kind: RefKind, name: &str, key: Option<&str>, optional: Option<bool>) {
        let optional = optional.unwrap_or(false);
        let keys = key.filter(|_| !optional).map(str::to_owned).into_iter().collect();
        self.join(Reference { optional, keys, ..Reference::new(kind, name) });
    }

    fn add_env(&mut self, env: &[EnvVar]) {
        for source in env.iter().filter_map(|variable| variable.value_from.as_ref()) {
            if let Some(key) = &source.secret_key_ref {
                self.add_data(RefKind::Secret, &key.name, Some(&key.key), key.optional);
            }
            if let Some(key) = &source.config_map_key_ref {
                self.add_data(RefKind::ConfigMap, &key.name, Some(&key.key), key.optional);
            }
        }
    }

    fn join(&mut self, new: Reference) {
        if new.name.is_empty() {
            return;
        }
        let place = (new.kind, new.namespace.clone(), new.name.clone());
        match self.0.get_mut(&place) {
            Some(known) => {
                known.optional &= new.optional;
                known.whole |= new.whole;
                known.keys.extend(new.keys);
            }
            None => drop(self.0.insert(place, new)),
        }
    }
}
