//! `Agent`: one agent, run as a Deployment behind a Service.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, LocalObjectReference, ResourceRequirements};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::WorkloadStatus;

/// What one agent is: its model, its prompt, what it may call, and how it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "agents.recif.dev",
    version = "v1",
    kind = "Agent",
    plural = "agents",
    singular = "agent",
    shortname = "ag",
    category = "recif",
    namespaced,
    status = "WorkloadStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct AgentSpec {
    /// Display name.
    pub name: String,
    /// The framework the agent is written in.
    pub framework: Framework,
    /// How the agent plans its answer.
    #[serde(default = "simple")]
    pub strategy: String,
    /// How the agent is talked to.
    #[serde(default = "rest")]
    pub channel: String,
    /// Kind of model, such as `stub` or `ollama`.
    #[serde(default = "stub")]
    pub model_type: String,
    /// The model within its kind.
    #[serde(default = "stub_echo")]
    pub model_id: String,
    /// Model for side work such as titles, as `provider:model_id`; empty: the main model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_model: Option<String>,
    /// What the agent is told before the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Where conversations are kept; empty: PostgreSQL when a database is known, else memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// Database of this agent, instead of the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_url: Option<String>,
    /// Names of Tools in the same namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Ids of knowledge bases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knowledge_bases: Vec<String>,
    /// Container image; a name without `/` is never pulled.
    #[serde(default = "default_image")]
    pub image: String,
    /// Number of Pods; 0 stops the agent.
    #[serde(default = "one")]
    pub replicas: i32,
    /// Port the container listens on.
    #[serde(default = "default_port")]
    pub port: i32,
    /// Environment of the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// Environment of the container, from ConfigMaps and Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<EnvFromSource>,
    /// Compute resources of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Secrets for pulling the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// ServiceAccount of the Pods; empty: one of the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Overlay on the Pod template, merged by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<serde_json::Value>,
}

/// Frameworks an agent may be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Framework {
    Adk,
    Langchain,
    Crewai,
    Autogen,
    Custom,
    Corail,
}

/// Where conversations are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Storage {
    /// Decided by whether a database is known.
    #[serde(rename = "")]
    Unset,
    /// Lost with the Pod.
    #[serde(rename = "memory")]
    Memory,
    /// In the database.
    #[serde(rename = "postgresql")]
    Postgresql,
}

fn simple() -> String {
    "simple".into()
}
fn rest() -> String {
    "rest".into()
}
fn stub() -> String {
    "stub".into()
}
fn stub_echo() -> String {
    "stub-echo".into()
}
fn default_image() -> String {
    "corail:latest".into()
}
fn one() -> i32 {
    1
}
fn default_port() -> i32 {
    8000
}
