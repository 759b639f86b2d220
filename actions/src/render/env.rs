//! Renders the environment of an agent's containers: one variable per field of the spec, in the ConfigMap or the Secret.
//!
//! A variable that may hold a credential goes to the Secret, all others to the ConfigMap. The container has both by `envFrom` and
//! sees no difference. A DSN always counts as a credential, not only with a password in it: the password may be a parameter or
//! the user name, and a key that moves between two objects would be missing for a moment.

use std::collections::{BTreeMap, BTreeSet};

use crds::{Agent, ModelSpec, PluginConfigSpec, digest};
use kube::ResourceExt;
use serde::Serialize;
use serde_json::Value;

use super::{
    FlowModel, RenderError, RenderSettings, ToolSlot,
    card::card,
    dsn::{self, DsnError},
    hash::content_hash,
    header_variables,
    model::{ModelEnv, SecretVariable},
    sizes::{MAX_OBJECT, MAX_VARIABLE},
    system_prompt::{SYSTEM_PROMPT, system_prompt},
    tools,
    tools_file::{self, ToolsFile, ToolsInput},
};

/// Environment of an agent's containers, and its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// Variable to value, for the ConfigMap; never a credential.
    pub plain: BTreeMap<String, String>,
    /// Variable to value, for the Secret; empty: there is none.
    pub secret: BTreeMap<String, String>,
    /// SHA-256 (hex) of both, and of the data that the containers read besides.
    pub content_hash: String,
    /// Variables that the kubelet sets from Secrets and ConfigMaps, by name, each as an entry of a container's `env`.
    pub referred: BTreeMap<String, Value>,
    /// Secret of which every key is a variable, if there is one.
    pub credentials: Option<String>,
    /// Tools as a file, if they are too many for a variable.
    pub tools_file: Option<ToolsFile>,
    /// True if knowledge bases were requested and left out, because the operator has no database.
    pub knowledge_bases_missing_dsn: bool,
}

impl AgentConfig {
    /// Reports whether the operator sets this variable in the container of `agent`.
    pub(super) fn sets(&self, agent: &Agent, name: &str) -> bool {
        self.plain.contains_key(name)
            || self.secret.contains_key(name)
            || self.referred.contains_key(name)
            || name == "CORAIL_PORT" && port_override(agent).is_some()
    }
}

/// Resolved references of an agent. Missing ones are left out.
#[derive(Debug, Clone, Default)]
pub struct AgentParts<'a> {
    /// Tools, in the order of the spec.
    pub tools: Vec<ToolSlot<'a>>,
    /// Text of the Prompt of `promptRef`.
    pub prompt: Option<&'a str>,
    /// Model of `modelRef`, and its provider.
    pub model: Option<(&'a ModelSpec, &'a PluginConfigSpec)>,
    /// Models that stand in for it.
    pub fallbacks: &'a [FlowModel],
    /// Set if the image is not Récif's runner.
    pub is_own_image: bool,
    /// For each Secret and ConfigMap that is read (`Secret/keys`), the digest of its data.
    pub data: BTreeMap<String, String>,
}

/// Renders the environment of `agent`.
///
/// # Errors
/// [`RenderError`]: a variable or object that is too large, a reserved name in `env`, two headers that become one variable, a
/// database that is missing or cannot be parsed.
pub fn agent_config(
    agent: &Agent,
    parts: &AgentParts<'_>,
    settings: &RenderSettings,
) -> Result<AgentConfig, RenderError> {
    let spec = &agent.spec;
    let mut plain = EnvMap::default();
    let mut secret = EnvMap::default();

    plain.set("CORAIL_AGENT_NAME", agent.name_any());
    plain.set("CORAIL_CHANNEL", &spec.channel);
    plain.set("CORAIL_STRATEGY", &spec.strategy);
    let model = ModelEnv::of(parts.model, parts.fallbacks);
    plain.set("CORAIL_MODEL_TYPE", parts.model.map_or(&spec.model_type, |(_, plugin)| &plugin.type_));
    plain.set("CORAIL_MODEL_ID", parts.model.map_or(&spec.model_id, |(model, _)| &model.model));
    plain.set_some("CORAIL_MODEL_REGION", model.region);
    // Another image may not read it, and a new variable would replace its Pods.
    plain.set_some("CORAIL_MODEL_EXTRA_CONFIG", model.extra_config.filter(|_| !parts.is_own_image));
    plain.set_some("CORAIL_MODEL_CONFIG", model.config);
    plain.set_some("CORAIL_MODEL_CREDENTIAL_KEYS", model.keys);
    set_url(&mut plain, &mut secret, "CORAIL_MODEL_BASE_URL", model.base_url);
    if model.secret_headers { &mut secret } else { &mut plain }.set_some("CORAIL_MODEL_HEADERS", model.headers);
    plain.set_some("CORAIL_MODEL_TLS", model.tls);
    plain.set_some("CORAIL_MODEL_PASSTHROUGH", model.passthrough);
    plain.set_some("CORAIL_MODEL_TIMEOUT", model.timeout);
    if model.secret_fallbacks { &mut secret } else { &mut plain }.set_some("CORAIL_MODEL_FALLBACKS", model.fallbacks);
    let prompt = parts.prompt.filter(|text| !text.is_empty());
    plain.set_some(SYSTEM_PROMPT, prompt.or(given(&spec.system_prompt)));
    plain.set_some("CORAIL_AGENT_CARD", card(&spec.description, spec.card.as_ref()));
    plain.set_some("CORAIL_BACKGROUND_MODEL", given(&spec.background_model));

    let (storage, database) = storage(agent, settings)?;
    plain.set("CORAIL_STORAGE", storage);
    secret.set_some("CORAIL_DATABASE_URL", database);

    let tools = tools::render(&parts.tools);
    let tools_file = match tools_file::split(agent, tools)? {
        ToolsInput::Nothing => None,
        ToolsInput::Variable { json, is_secret } => {
            if is_secret { &mut secret } else { &mut plain }.set("CORAIL_TOOLS", json);
            None
        }
        ToolsInput::File(file) => {
            plain.set(tools_file::VARIABLE, tools_file::PATH);
            Some(file)
        }
    };

    let knowledge_bases = knowledge_bases(agent, settings)?;
    let knowledge_bases_missing_dsn = knowledge_bases.is_none() && !spec.knowledge_bases.is_empty();
    secret.set_some("CORAIL_KNOWLEDGE_BASES", knowledge_bases);

    let ollama = given(&settings.ollama_base_url)
        .map(|url| dsn::expand_http(url, &settings.operator_namespace, &settings.cluster_domain));
    set_url(&mut plain, &mut secret, "OLLAMA_BASE_URL", ollama);

    let (plain, secret) = (plain.0, secret.0);
    check_sizes(agent, &plain, &secret)?;
    let from = spec.system_prompt_from.as_ref().and_then(system_prompt);
    let file = tools_file.as_ref().map(|file| (tools_file::KEY.to_owned(), digest::sha256_hex(file.json.as_bytes())));
    let data = parts.data.clone().into_iter().chain(file).collect();
    let content_hash = content_hash(&plain, &secret, &data);
    let referred = referred(parts, model.variables.into_iter().chain(from))?;
    let credentials = model.whole_secret;
    let config =
        AgentConfig { plain, secret, referred, credentials, content_hash, tools_file, knowledge_bases_missing_dsn };
    check_user_env(agent, &config)?;
    Ok(config)
}

/// Sets a URL, in the Secret if it has a user name, because it may then hold a password.
fn set_url(plain: &mut EnvMap, secret: &mut EnvMap, name: &str, url: Option<String>) {
    let has_user = url.as_ref().is_some_and(|url| url.contains('@'));
    if has_user { secret } else { plain }.set_some(name, url);
}

/// Returns the variables that come from Secrets and ConfigMaps: those of the agent itself, and headers of tools.
fn referred(
    parts: &AgentParts<'_>,
    own: impl IntoIterator<Item = SecretVariable>,
) -> Result<BTreeMap<String, Value>, RenderError> {
    let mut variables = BTreeMap::new();
    let headers = parts.tools.iter().filter_map(ToolSlot::spec).flat_map(header_variables);
    let headers = headers.map(|header| (header.name.clone(), header.env()));
    for (name, variable) in own.into_iter().chain(headers) {
        let same = variables.get(&name).is_none_or(|known| *known == variable);
        if !same {
            return Err(RenderError::DuplicateVariable(name));
        }
        variables.insert(name, variable);
    }
    Ok(variables)
}

/// Returns the name of the ConfigMap and of the Secret of `agent`.
pub(super) fn config_name(agent: &Agent) -> String {
    format!("{}-config", agent.name_any())
}

/// Returns the port the runtime listens on, if it is not the default.
pub(super) fn port_override(agent: &Agent) -> Option<i32> {
    (agent.spec.port != 8000).then_some(agent.spec.port)
}

#[derive(Default)]
struct EnvMap(BTreeMap<String, String>);

impl EnvMap {
    fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), value.into());
    }

    fn set_some(&mut self, name: &str, value: Option<impl Into<String>>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }
}

/// Returns the storage of conversations, and the database, if there is one.
fn storage(agent: &Agent, settings: &RenderSettings) -> Result<(&'static str, Option<String>), RenderError> {
    let own = given(&agent.spec.database_url)
        .map(|dsn| dsn::expand(dsn, &agent.namespace().unwrap_or_default(), &settings.cluster_domain))
        .transpose()
        .map_err(|bad| RenderError::InvalidDatabaseUrl { field: "spec.databaseUrl", bad })?;
    let wanted = given(&agent.spec.storage);
    let database = match (own, wanted) {
        (None, Some("memory")) => None,
        (None, _) => settings
            .database_of(&agent.namespace().unwrap_or_default())
            .map(|dsn| dsn::expand(dsn, &settings.operator_namespace, &settings.cluster_domain))
            .transpose()
            .map_err(operator_dsn_error)?,
        (own, _) => own,
    };
    match (wanted, &database) {
        (Some("memory"), _) | (None, None) => Ok(("memory", database)),
        (Some("postgresql"), None) => Err(RenderError::MissingDatabaseUrl),
        (Some("postgresql") | None, Some(_)) => Ok(("postgresql", database)),
        (Some(other), _) => Err(RenderError::UnknownStorage(other.to_owned())),
    }
}

/// Element of `CORAIL_KNOWLEDGE_BASES`.
#[derive(Serialize)]
struct KnowledgeBase<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    type_: &'static str,
    connection_url: &'a str,
    kb_id: &'a str,
    description: String,
    embedding_provider: &'static str,
    embedding_model: &'static str,
}

/// Returns the JSON array; `None` if the agent has no knowledge bases, or the operator no database that could hold them.
fn knowledge_bases(agent: &Agent, settings: &RenderSettings) -> Result<Option<String>, RenderError> {
    let ids = &agent.spec.knowledge_bases;
    let inherited = settings.database_of(&agent.namespace().unwrap_or_default());
    let Some(dsn) = inherited.filter(|_| !ids.is_empty()) else { return Ok(None) };
    let connection_url =
        dsn::knowledge_base(dsn, &settings.operator_namespace, &settings.cluster_domain).map_err(operator_dsn_error)?;
    let elements: Vec<_> = ids
        .iter()
        .map(|id| KnowledgeBase {
            name: id,
            type_: "pgvector",
            connection_url: &connection_url,
            kb_id: id,
            description: format!("Search for information in the {id} knowledge base."),
            embedding_provider: "ollama",
            embedding_model: "nomic-embed-text",
        })
        .collect();
    // Strings under string keys: this cannot fail.
    Ok(serde_json::to_string(&elements).ok())
}

fn operator_dsn_error(bad: DsnError) -> RenderError {
    RenderError::InvalidDatabaseUrl { field: "DATABASE_URL of the operator", bad }
}

/// Returns the text of a field; an empty text means none, because it would override the runtime's own default.
fn given(field: &Option<String>) -> Option<&str> {
    field.as_deref().filter(|text| !text.is_empty())
}

/// Returns an error if a variable is larger than the kernel accepts, or an object larger than the API server stores.
pub(super) fn check_sizes(
    agent: &Agent,
    plain: &BTreeMap<String, String>,
    secret: &BTreeMap<String, String>,
) -> Result<(), RenderError> {
    for (kind, values) in [("ConfigMap", plain), ("Secret", secret)] {
        values.iter().try_for_each(|(name, value)| check_variable(name, value))?;
        let size = values.values().map(String::len).sum();
        if size > MAX_OBJECT {
            let object = format!("{kind}/{}", config_name(agent));
            return Err(RenderError::ObjectTooLarge { object, size, max: MAX_OBJECT });
        }
    }
    Ok(())
}

fn check_user_env(agent: &Agent, config: &AgentConfig) -> Result<(), RenderError> {
    let mut seen = BTreeSet::new();
    for variable in &agent.spec.env {
        let name = &variable.name;
        if config.sets(agent, name) {
            return Err(RenderError::EnvReserved { field: "spec.env", kind: "agent", name: name.clone() });
        }
        if !seen.insert(name) {
            return Err(RenderError::DuplicateEnv(name.clone()));
        }
        check_variable(name, variable.value.as_deref().unwrap_or_default())?;
    }
    Ok(())
}

pub(super) fn check_variable(name: &str, value: &str) -> Result<(), RenderError> {
    let size = name.len() + value.len() + 2;
    if size > MAX_VARIABLE {
        return Err(RenderError::EnvTooLarge { name: name.to_owned(), size, max: MAX_VARIABLE });
    }
    Ok(())
}
