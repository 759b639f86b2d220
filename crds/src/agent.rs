//! `Agent`: one agent, run as a Deployment behind a Service.
#![expect(
    clippy::duplicated_attributes,
    reason = "the lint takes the parts of two `printcolumn(…)` for the same attribute"
)]

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, LocalObjectReference, ResourceRequirements};

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ObjectRef, schema, status::WorkloadStatus, traffic::Traffic};

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
    derive = "PartialEq",
    doc = "An agent: what it is, and how it runs as Pods behind a Service.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.currentReplicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicas", description = "Ready Pods."),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Model", type_ = "string", json_path = ".status.model", priority = 1),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Why it is ready, or not.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::agent_rules)]
pub struct AgentSpec {
    /// Display name, for people.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Framework the agent is written in.
    // Text and not an enum: a value of another build must not make the object unreadable.
    #[schemars(schema_with = "schema::framework")]
    pub framework: String,
    /// How the agent plans its answer. Default: simple.
    #[serde(default = "simple")]
    pub strategy: String,
    /// How the agent is talked to. Default: rest.
    #[serde(default = "rest")]
    pub channel: String,
    /// Kind of model, such as stub or ollama. Default: stub, which needs no network.
    #[serde(default = "stub")]
    pub model_type: String,
    /// The model within its kind. Default: stub-echo.
    #[serde(default = "stub_echo")]
    pub model_id: String,
    /// A Model in the same namespace, which brings its provider's credentials; instead of modelType and modelId.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_ref: Option<ObjectRef>,
    /// Model for side work such as titles, as provider:model_id. Empty: the main model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_model: Option<String>,
    /// What the agent is told before the conversation, at most 131072 characters.
    #[schemars(length(max = 131072))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// A Prompt in the same namespace that says what the agent is told before the conversation; instead of systemPrompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_ref: Option<ObjectRef>,
    /// Where conversations and A2A tasks are kept: memory, of each Pod its own, or postgresql, which all of them share. Empty: postgresql when a database is known, else memory.
    // Text and not an enum, as framework.
    #[schemars(schema_with = "schema::storage")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// Database of this agent (postgresql://…), instead of the operator's. It is only ever written to a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_url: Option<String>,
    /// Names of Tools in the same namespace, each once. The agent starts when all of them are Available. A builtin of the runtime
    /// (datetime, calculator, web_search, fetch_url) needs no Tool; a Tool of its name replaces it.
    #[schemars(schema_with = "schema::tool_names")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Ids of knowledge bases. They need a database.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knowledge_bases: Vec<String>,
    /// Container image. A name without a slash is never pulled: load it onto the nodes. Default: corail:latest.
    #[serde(default = "default_image")]
    pub image: String,
    /// Number of Pods, 0 to 10. 0 stops the agent. Default: 1.
    #[schemars(range(min = 0, max = 10))]
    #[serde(default = "one")]
    pub replicas: i32,
    /// Port the container listens on, 1 to 65535; the Service's is 8000. Default: 8000.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(default = "default_port")]
    pub port: i32,
    /// Environment of the container, each name once, as in a Pod.
    #[schemars(schema_with = "schema::env")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// Environment of the container from ConfigMaps and Secrets, as in a Pod.
    #[schemars(schema_with = "schema::env_from")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<EnvFromSource>,
    /// Compute resources of the container, as in a Pod.
    #[schemars(schema_with = "schema::resources")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Secrets for pulling the image, as in a Pod.
    #[schemars(schema_with = "schema::image_pull_secrets")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// ServiceAccount of the Pods. Empty: one of the agent's own, called like it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Overlay on the Pod template (labels, nodeSelector, tolerations, volumes, more containers …), merged by name. Checked
    /// by the API server before anything is deployed.
    #[schemars(schema_with = "schema::opaque_object")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<serde_json::Value>,
    /// How requests reach it.
    #[serde(flatten)]
    pub traffic: Traffic,
}

crate::phased_object::phased_object!(workload Agent "agents");

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
