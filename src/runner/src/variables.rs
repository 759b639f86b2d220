//! Environment variables of the runtime: one table, [`VARIABLES`], names every variable with its default and meaning, and the
//! program's help is printed from it. Here are the readers of single variables, which every mode uses.
//!
//! Variables are read through a lookup function, so that a test passes a table. An error shows the refused value, except where it
//! may hold a credential.

use std::net::{IpAddr, SocketAddr};

use crds::egress::{EGRESS_VARIABLE, EgressList};
use mcp::ClosedPorts;
use telemetry::{TelemetryConfig, TelemetryError};
use url::Url;

use super::Lookup;

/// Name, default ("" for none) and meaning of every variable.
const VARIABLES: &[(&str, &str, &str)] = &[
    ("CORAIL_AGENT_NAME", "agent", "name of the agent, for logs"),
    ("CORAIL_AGENT_CARD", "", "JSON object with description and skills of the agent, for its A2A card"),
    ("CORAIL_PORT", "8000", "TCP port to listen on"),
    ("RECIF_ADDRESS", "::", "IP address to listen on; `::` is every address of both families"),
    ("CORAIL_CHANNEL", "rest", "how users reach the agent; `rest` is served"),
    ("CORAIL_STRATEGY", "simple", "how the agent reasons; `simple` is served"),
    (
        "CORAIL_MODEL_TYPE",
        "stub",
        "model provider: openai (also for servers that speak its API), anthropic, gemini, ollama, azure-openai, \
         gemini-vertex, anthropic-vertex, bedrock, or `stub`, which answers without any network",
    ),
    ("CORAIL_MODEL_ID", "stub-echo", "model of that provider"),
    ("CORAIL_MODEL_BASE_URL", "", "where the provider is; goes before that provider's own variable"),
    (
        "CORAIL_MODEL_REGION",
        "",
        "region of providers openai, *-vertex and bedrock, such as eu: selects one of their public addresses",
    ),
    (
        "CORAIL_MODEL_EXTRA_CONFIG",
        "",
        "JSON object of settings of the provider: apiVersion of azure-openai, projectId of *-vertex",
    ),
    ("CORAIL_MODEL_CONFIG", "", "JSON object of generation settings such as temperature"),
    (
        "CORAIL_MODEL_CREDENTIAL_KEYS",
        "",
        "JSON array of the variables with credentials; a single one is the provider's key under any name",
    ),
    (
        "CORAIL_MODEL_HEADERS",
        "",
        "JSON object of headers for the provider, with `$MODEL_<NAME>_<HEADER>` for a variable; never printed",
    ),
    ("CORAIL_MODEL_TLS", "", "JSON object with insecureSkipVerify, systemCAs and ca, PEM or `$MODEL_<NAME>_TLS_CA`"),
    ("CORAIL_MODEL_PASSTHROUGH", "", "`true`: the key is the caller's own, from its `Authorization: Bearer`"),
    (
        "CORAIL_MODEL_TIMEOUT",
        "",
        "longest silence of the provider in seconds; 60 when unset, 15 to the first byte with fallbacks",
    ),
    ("CORAIL_MODEL_FALLBACKS", "", "JSON array of models that answer where the first one cannot; never printed"),
    ("OPENAI_API_KEY", "", "key of provider openai, not needed with OPENAI_BASE_URL; never printed"),
    ("OPENAI_BASE_URL", "https://api.openai.com/v1", "where provider openai is; likewise ANTHROPIC_, GEMINI_BASE_URL"),
    ("ANTHROPIC_API_KEY", "", "key of provider anthropic; never printed"),
    ("GEMINI_API_KEY", "", "key of provider gemini, or GOOGLE_API_KEY; never printed"),
    (
        "AZURE_OPENAI_API_KEY",
        "",
        "key of provider azure-openai, or AZURE_OPENAI_AD_TOKEN, or AZURE_TENANT_ID, AZURE_CLIENT_ID and \
         AZURE_FEDERATED_TOKEN_FILE or AZURE_CLIENT_SECRET; never printed",
    ),
    ("AZURE_OPENAI_ENDPOINT", "", "where provider azure-openai is, as CORAIL_MODEL_BASE_URL"),
    (
        "GOOGLE_APPLICATION_CREDENTIALS",
        "",
        "key of a service account for *-vertex, its JSON or a file with it; the Pod's identity when unset; never printed",
    ),
    (
        "GOOGLE_CLOUD_PROJECT",
        "",
        "project of *-vertex; that of the credentials when unset. Likewise GOOGLE_CLOUD_LOCATION",
    ),
    (
        "AWS_BEARER_TOKEN_BEDROCK",
        "",
        "key of provider bedrock, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what EKS sets for a ServiceAccount; \
         never printed",
    ),
    ("OLLAMA_BASE_URL", "http://localhost:11434", "where provider ollama is"),
    ("CORAIL_SYSTEM_PROMPT", "", "instructions given to the model before the conversation"),
    ("CORAIL_BACKGROUND_MODEL", "", "`provider:model_id` that titles conversations; the main model when unset"),
    (
        "CORAIL_STORAGE",
        "memory",
        "where conversations and A2A tasks live: `memory`, or `postgresql`, which replicas share",
    ),
    (
        "CORAIL_CONVERSATION_DAYS",
        "90",
        "days after its last turn that a conversation in PostgreSQL is deleted; 0 keeps it for ever",
    ),
    ("CORAIL_DATABASE_URL", "", "postgres URL of `postgresql` storage; never printed"),
    ("CORAIL_TOOLS", "", "JSON array of tools; never printed"),
    ("CORAIL_TOOLS_FILE", "", "file with that array, read at the start in place of CORAIL_TOOLS"),
    ("CORAIL_KNOWLEDGE_BASES", "", "JSON array of knowledge bases; never printed"),
    (
        "SEARXNG_URL",
        "",
        "URL of a search service that speaks the API of SearXNG; without it the tool web_search is not offered; never \
         printed",
    ),
    ("RECIF_NAMESPACE", "default", "namespace of the agent, under which its conversations and tasks are stored"),
    ("RECIF_SIDECAR", "false", "`true` behind a sidecar: others than this Pod are answered only /healthz and /readyz"),
    ("RECIF_SIDECAR_PORT", "8888", "TCP port of the sidecar, to which no tool connects"),
    ("RECIF_CLOSED_PORTS", "", "further TCP ports on loopback to which no tool connects, separated by commas"),
    (
        "RECIF_EGRESS",
        "",
        "JSON object with the hosts and ports to which tools may connect: those of the spec (listed), and those of tools and \
         models (own); every host when unset",
    ),
    (
        "RECIF_CONTRACT_ROOT",
        "/genkit",
        "folder with the files of a flow or of a set of flows; without them it is an agent",
    ),
    ("RECIF_CONTRACT_VERSION", "1", "version of those files; this runtime reads 1"),
    ("RECIF_FLOW_NAME", "", "name of the flow, as a route of its own; a set has them in its manifest"),
    ("PORT", "8080", "TCP port of flows to listen on"),
    (
        "RECIF_LOCAL",
        "",
        "`true` on a developer's machine: servers of tools may be on it, under any name, and requests that web pages send \
         are refused",
    ),
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "",
        "collector that gets the spans of requests, over HTTP, such as http://collector:4318; none are recorded without one",
    ),
    (
        "OTEL_EXPORTER_OTLP_HEADERS",
        "",
        "headers for the collector, `name=value,…`; never printed. Likewise the standard's OTEL_EXPORTER_OTLP_PROTOCOL, \
         _CERTIFICATE, _TIMEOUT, _COMPRESSION, OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG, OTEL_BSP_*, OTEL_SERVICE_NAME, \
         OTEL_RESOURCE_ATTRIBUTES",
    ),
    (
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
        "false",
        "`true`: spans hold content, which is messages, instructions, and arguments and results of tools; secrets are masked",
    ),
    (
        "RECIF_SECRET_VARIABLES",
        "",
        "names of variables whose values come from Secrets, separated by commas, `PREFIX*` for several; no span holds their values",
    ),
    ("OTEL_SDK_DISABLED", "", "`true`: nothing is recorded, whatever the others say"),
    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "", "the same for traces alone, with its path; it goes first"),
    ("RECIF_LOG_FORMAT", "json", "`json`, or `pretty` for people"),
];

/// Returns the part of `--help` that lists the environment variables.
pub fn help() -> String {
    let mut text = String::from("Environment (an empty variable counts as unset):\n");
    for (name, default, meaning) in VARIABLES {
        text.push_str(&format!("  {name:<24} {meaning}"));
        if !default.is_empty() {
            text.push_str(&format!(" [default: {default}]"));
        }
        text.push('\n');
    }
    text.push_str("  RUST_LOG                 log filter, for example `debug` [default: info]");
    text
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line, for collectors.
    #[default]
    Json,
    /// Coloured text, for people.
    Pretty,
}

/// Invalid variable. The process must not start.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    /// A value that may be shown.
    #[error("{variable}={value:?} is refused: set it to {expected}")]
    Value {
        /// Name of the variable.
        variable: &'static str,
        /// Present value.
        value: String,
        /// Expected values.
        expected: &'static str,
    },
    /// A value that may hold a credential and is therefore left out.
    #[error("{variable} is refused (its value is not shown, it may hold credentials): {problem}")]
    Hidden {
        /// Name of the variable.
        variable: &'static str,
        /// Problem, without quoting the value.
        problem: String,
    },
    /// A variable of OpenTelemetry.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
}

impl LogFormat {
    /// Reads `RECIF_LOG_FORMAT`.
    ///
    /// # Errors
    /// It is neither of the formats.
    pub(super) fn read(lookup: &Lookup) -> Result<Self, ConfigError> {
        match value_or_default(lookup, "RECIF_LOG_FORMAT").as_str() {
            "json" => Ok(Self::Json),
            "pretty" => Ok(Self::Pretty),
            other => Err(value_error("RECIF_LOG_FORMAT", other.into(), "`json` or `pretty`")),
        }
    }
}

/// Returns a variable's value, or its default.
pub(super) fn value_or_default(lookup: &Lookup, name: &str) -> String {
    lookup(name).filter(|value| !value.is_empty()).unwrap_or_else(|| default(name).to_owned())
}

/// Reads the address to listen on, whose port is in `variable`.
///
/// # Errors
/// A variable holds no address, or no port.
pub(super) fn address(lookup: &Lookup, variable: &'static str) -> Result<SocketAddr, ConfigError> {
    let value = value_or_default(lookup, "RECIF_ADDRESS");
    match value.parse::<IpAddr>() {
        Ok(address) => Ok(SocketAddr::new(address, port(lookup, variable)?)),
        Err(_) => Err(value_error("RECIF_ADDRESS", value, "an IP address such as `127.0.0.1`")),
    }
}

/// Reads the TCP port of the sidecar.
///
/// # Errors
/// It is not a port.
pub(super) fn sidecar_port(lookup: &Lookup) -> Result<u16, ConfigError> {
    port(lookup, "RECIF_SIDECAR_PORT")
}

/// Reads the TCP ports that are closed to tools.
///
/// # Errors
/// One of them is not a port.
pub(super) fn closed_ports(lookup: &Lookup) -> Result<ClosedPorts, ConfigError> {
    let variable = "RECIF_CLOSED_PORTS";
    let value = value_or_default(lookup, variable);
    value.parse().map_err(|expected| value_error(variable, value, expected))
}

/// Reads the hosts to which tools may connect; `None` without a list.
///
/// # Errors
/// It is not such a list.
pub(super) fn egress_list(lookup: &Lookup) -> Result<Option<EgressList>, ConfigError> {
    let Some(value) = lookup(EGRESS_VARIABLE).filter(|value| !value.is_empty()) else { return Ok(None) };
    let expected = "a JSON object such as `{\"listed\": [\"api.example.com:443\"], \"own\": []}`";
    serde_json::from_str(&value).map(Some).map_err(|_| value_error(EGRESS_VARIABLE, value, expected))
}

/// Reads the URL of the search service; `None` without one.
///
/// # Errors
/// It is not an http or https URL.
pub(super) fn search_service(lookup: &Lookup) -> Result<Option<Url>, ConfigError> {
    let variable = "SEARXNG_URL";
    let Some(value) = lookup(variable).filter(|value| !value.is_empty()) else { return Ok(None) };
    let url = Url::parse(&value).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.map(Some).ok_or_else(|| hidden_error(variable, "it is not an http or https URL such as `http://searxng:8080`"))
}

/// Reads the configuration of traces.
///
/// # Errors
/// The first variable that is refused.
pub(super) fn telemetry(lookup: &Lookup) -> Result<TelemetryConfig, ConfigError> {
    Ok(TelemetryConfig::read(&|name| lookup(name))?)
}

/// Reports whether this is a developer's machine.
pub(super) fn is_local(lookup: &Lookup) -> bool {
    lookup("RECIF_LOCAL").is_some_and(|value| value == "true")
}

/// Reads the TCP port in `variable`.
///
/// # Errors
/// It is not a port.
fn port(lookup: &Lookup, variable: &'static str) -> Result<u16, ConfigError> {
    let value = value_or_default(lookup, variable);
    match value.parse() {
        Ok(0) | Err(_) => Err(value_error(variable, value, "a number from 1 to 65535")),
        Ok(port) => Ok(port),
    }
}

fn default(name: &str) -> &'static str {
    VARIABLES.iter().find(|(known, ..)| *known == name).map_or("", |(_, default, _)| default)
}

/// Returns the error of a value that may be shown.
pub(super) fn value_error(variable: &'static str, value: String, expected: &'static str) -> ConfigError {
    ConfigError::Value { variable, value, expected }
}

/// Returns the error of a value that may hold a credential.
pub(super) fn hidden_error(variable: &'static str, problem: impl Into<String>) -> ConfigError {
    ConfigError::Hidden { variable, problem: problem.into() }
}
