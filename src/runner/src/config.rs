//! Configuration of an agent from environment variables ([`variables`](super::variables)), as domain types.

use std::{fs, net::SocketAddr, time::Duration};

use telemetry::TelemetryConfig;

use super::{
    Lookup,
    a2a::CardSettings,
    conversations::Storage,
    database::Dsn,
    knowledge::KnowledgeSource,
    models::{Fallback, ModelRef},
    tools::CallableTool,
    variables::{
        ConfigError, LogFormat, address, closed_ports, egress_list, hidden_error, search_service, sidecar_port,
        telemetry, value_error, value_or_default,
    },
};

/// Complete configuration of a runtime.
#[derive(Debug)]
pub struct RunnerConfig {
    pub(super) agent: String,
    /// Settings of the agent's A2A card.
    pub(super) card: CardSettings,
    pub(super) namespace: String,
    pub(super) address: SocketAddr,
    pub(super) model: ModelRef,
    /// Models that answer, in this order, where that one cannot.
    pub(super) fallbacks: Vec<Fallback>,
    pub(super) background: Option<ModelRef>,
    pub(super) system_prompt: Option<String>,
    pub(super) tools: Vec<CallableTool>,
    /// Storage of conversations.
    pub(super) storage: Storage,
    /// Knowledge bases that can be searched.
    pub(super) knowledge: Vec<KnowledgeSource>,
    /// Configuration of traces.
    pub(super) telemetry: TelemetryConfig,
    /// Settings that are served in another way than configured; one line each, for the log.
    pub(super) warnings: Vec<String>,
    /// Format of log lines.
    pub log: LogFormat,
}

impl RunnerConfig {
    /// Reads the configuration through `lookup`.
    ///
    /// # Errors
    /// The first variable that is invalid.
    pub fn read(lookup: &Lookup) -> Result<Self, ConfigError> {
        let set = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let or = |name: &str| value_or_default(lookup, name);
        let mut warnings = Vec::new();
        sidecar_port(lookup)?;
        closed_ports(lookup)?;
        search_service(lookup)?;
        egress_list(lookup)?;

        for (name, served) in [("CORAIL_CHANNEL", "rest"), ("CORAIL_STRATEGY", "simple")] {
            let value = or(name);
            if value != served {
                warnings.push(format!("{name}={value:?} is not served by this runtime; it runs as {served:?}"));
            }
        }
        let dsn = set("CORAIL_DATABASE_URL")
            .map(|url| {
                let refusal = "it does not start with `postgres://` or `postgresql://`";
                Dsn::parse(&url).ok_or_else(|| hidden_error("CORAIL_DATABASE_URL", refusal))
            })
            .transpose()?;
        let days = days(lookup)?;
        let storage = match (or("CORAIL_STORAGE").as_str(), dsn) {
            ("memory", _) => Storage::Memory,
            ("postgresql", Some(dsn)) => Storage::Postgres { dsn, namespace: or("RECIF_NAMESPACE"), days },
            ("postgresql", None) => {
                return Err(hidden_error(
                    "CORAIL_DATABASE_URL",
                    "it is not set, and CORAIL_STORAGE=postgresql needs it",
                ));
            }
            _ => return Err(value_error("CORAIL_STORAGE", or("CORAIL_STORAGE"), "`memory` or `postgresql`")),
        };
        let json = |name, problem| move |_| hidden_error(name, problem);
        let model = ModelRef {
            base_url: set("CORAIL_MODEL_BASE_URL"),
            region: set("CORAIL_MODEL_REGION"),
            settings: set("CORAIL_MODEL_EXTRA_CONFIG")
                .map_or(Ok(Default::default()), |text| serde_json::from_str(&text))
                .map_err(json("CORAIL_MODEL_EXTRA_CONFIG", "not a JSON object"))?,
            config: set("CORAIL_MODEL_CONFIG")
                .map_or(Ok(Default::default()), |text| serde_json::from_str(&text))
                .map_err(json("CORAIL_MODEL_CONFIG", "not a JSON object"))?,
            credential_keys: set("CORAIL_MODEL_CREDENTIAL_KEYS")
                .map_or(Ok(Vec::new()), |text| serde_json::from_str(&text))
                .map_err(json("CORAIL_MODEL_CREDENTIAL_KEYS", "not a JSON array of names"))?,
            headers: set("CORAIL_MODEL_HEADERS")
                .map_or(Ok(Default::default()), |text| serde_json::from_str(&text))
                .map_err(json("CORAIL_MODEL_HEADERS", "not a JSON object of texts"))?,
            tls: set("CORAIL_MODEL_TLS")
                .map(|text| serde_json::from_str(&text))
                .transpose()
                .map_err(json("CORAIL_MODEL_TLS", "not a JSON object with insecureSkipVerify, systemCAs or ca"))?,
            passthrough: set("CORAIL_MODEL_PASSTHROUGH").is_some_and(|value| value == "true"),
            timeout: set("CORAIL_MODEL_TIMEOUT")
                .map(|value| match value.parse() {
                    Ok(seconds @ 1..=3600) => Ok(Duration::from_secs(seconds)),
                    _ => Err(value_error("CORAIL_MODEL_TIMEOUT", value, "a number of seconds from 1 to 3600")),
                })
                .transpose()?,
            ..ModelRef::new(or("CORAIL_MODEL_TYPE"), or("CORAIL_MODEL_ID"))
        };
        let fallbacks = set("CORAIL_MODEL_FALLBACKS")
            .map_or(Ok(Vec::new()), |text| serde_json::from_str(&text))
            .map_err(json("CORAIL_MODEL_FALLBACKS", "not a JSON array of models"))?;
        let background = set("CORAIL_BACKGROUND_MODEL")
            .map(|value| match value.split_once(':') {
                Some((provider, id)) if !provider.is_empty() && !id.is_empty() => Ok(ModelRef::new(provider, id)),
                _ => Err(value_error("CORAIL_BACKGROUND_MODEL", value, "`provider:model_id`")),
            })
            .transpose()?;
        let card = set("CORAIL_AGENT_CARD").map_or(Ok(CardSettings::default()), |text| {
            serde_json::from_str(&text).map_err(|error| {
                let problem = format!("not a JSON object with description and skills: {error}");
                hidden_error("CORAIL_AGENT_CARD", problem)
            })
        })?;
        let tools = match (set("CORAIL_TOOLS_FILE"), set("CORAIL_TOOLS")) {
            (Some(file), _) => tools_of_file(&file)?,
            (None, Some(json)) => {
                CallableTool::read_all(&json).map_err(|problem| hidden_error("CORAIL_TOOLS", problem))?
            }
            (None, None) => Vec::new(),
        };
        let ollama = set("OLLAMA_BASE_URL");
        let knowledge = match set("CORAIL_KNOWLEDGE_BASES") {
            None => Vec::new(),
            Some(json) => KnowledgeSource::read_all(&json, ollama.as_deref())
                .map_err(|problem| hidden_error("CORAIL_KNOWLEDGE_BASES", problem))?,
        };

        Ok(Self {
            agent: or("CORAIL_AGENT_NAME"),
            card,
            namespace: or("RECIF_NAMESPACE"),
            address: address(lookup, "CORAIL_PORT")?,
            model,
            fallbacks,
            background,
            system_prompt: set("CORAIL_SYSTEM_PROMPT"),
            tools,
            storage,
            knowledge,
            telemetry: telemetry(lookup)?,
            warnings,
            log: LogFormat::read(lookup)?,
        })
    }
}

/// Reads the tools of a file, which holds more of them than an environment variable can.
fn tools_of_file(file: &str) -> Result<Vec<CallableTool>, ConfigError> {
    let refused = |problem: String| hidden_error("CORAIL_TOOLS_FILE", format!("{file}: {problem}"));
    let json = fs::read_to_string(file).map_err(|error| refused(format!("it cannot be read: {error}")))?;
    CallableTool::read_all(&json).map_err(refused)
}

/// Reads the number of days after which a conversation is deleted; `None`: never.
fn days(lookup: &Lookup) -> Result<Option<i32>, ConfigError> {
    let variable = "CORAIL_CONVERSATION_DAYS";
    let value = value_or_default(lookup, variable);
    match value.parse() {
        Ok(0) => Ok(None),
        Ok(days @ 1..=36_500) => Ok(Some(days)),
        _ => Err(value_error(variable, value, "a number of days from 0 to 36500")),
    }
}
