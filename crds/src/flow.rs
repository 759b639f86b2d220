//! `Flow`: one endpoint of prompts, a model and tools, run as a Deployment behind a Service.
#![expect(
    clippy::duplicated_attributes,
    reason = "the lint takes the parts of two `printcolumn(…)` for the same attribute"
)]

use k8s_openapi::api::core::v1::{EnvVar, LocalObjectReference, ResourceRequirements};

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ObjectRef, model::ModelSpec, schema, status::WorkloadStatus, traffic::Traffic};

/// What one flow answers with, and how it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "agents.recif.dev",
    version = "v1",
    kind = "Flow",
    plural = "flows",
    singular = "flow",
    shortname = "fl",
    category = "recif",
    namespaced,
    status = "WorkloadStatus",
    derive = "PartialEq",
    doc = "A flow: prompts, a model and tools behind one endpoint.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.currentReplicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].status",
        description = "Whether a Pod serves."
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether all is as the spec says."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint", priority = 1),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Why it is ready, or not.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::flow_rules)]
pub struct FlowSpec {
    /// What the flow answers with.
    #[serde(flatten)]
    pub definition: FlowDefinition,
    /// How it runs.
    #[serde(flatten)]
    pub runtime: Runtime,
}

crate::phased_object::phased_object!(workload Flow "flows");

/// What a flow answers with: of a Flow, or of one entry of a FlowSet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlowDefinition {
    /// The prompts, the first being the one that answers; the others are called by name or included as partials.
    #[schemars(length(min = 1, max = 64))]
    pub prompts: Vec<PromptSource>,
    /// The Tools that its prompts may call, each once. A builtin of the runtime (datetime, calculator, web_search, fetch_url)
    /// needs no Tool; a Tool of its name replaces it.
    #[schemars(schema_with = "schema::tool_refs")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ObjectRef>,
    /// The Model it asks. Exactly one of modelRef and modelSpec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_ref: Option<ObjectRef>,
    /// A model of its own. Exactly one of modelRef and modelSpec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_spec: Option<ModelSpec>,
}

/// A prompt: an object, or written in place. Exactly one of the two.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::one_prompt)]
pub struct PromptSource {
    /// A Prompt in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_ref: Option<ObjectRef>,
    /// A prompt written in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<InlinePrompt>,
}

impl PromptSource {
    /// The name by which the flow knows it.
    pub fn name(&self) -> &str {
        let named = self.prompt_ref.as_ref().map(|found| found.name.as_str());
        named.or(self.prompt.as_ref().map(|found| found.name.as_str())).unwrap_or_default()
    }
}

/// A prompt written in place.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InlinePrompt {
    /// Its name: letters, digits, '-', '_' and '.', beginning with a letter or digit.
    #[schemars(schema_with = "schema::file_name")]
    pub name: String,
    /// The Dotprompt text.
    #[schemars(length(min = 1, max = 1048576))]
    pub content: String,
}

/// How a Flow or FlowSet runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// Container image. Empty: the runner of the operator's version at the time of the last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// When the image is pulled: Always, IfNotPresent or Never. Empty: Never for a name without a slash, else IfNotPresent.
    #[schemars(schema_with = "schema::pull_policy")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Number of Pods, 0 to 10. 0 stops them. Default: 1.
    #[schemars(range(min = 0, max = 10))]
    #[serde(default = "one")]
    pub replicas: i32,
    /// Port of the container and of the Service, 1 to 65535. Default: 8080.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(default = "default_port")]
    pub port: i32,
    /// Environment of the container, each name once, as in a Pod.
    #[schemars(schema_with = "schema::env")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// Compute resources of the container, as in a Pod.
    #[schemars(schema_with = "schema::resources")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Type of the Service: ClusterIP, NodePort or LoadBalancer. Default: ClusterIP.
    #[schemars(schema_with = "schema::service_type")]
    #[serde(default = "cluster_ip")]
    pub service_type: String,
    /// Secrets for pulling the image, as in a Pod.
    #[schemars(schema_with = "schema::image_pull_secrets")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// ServiceAccount of the Pods. Empty: one of their own, called like the object.
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

fn one() -> i32 {
    1
}
fn default_port() -> i32 {
    8080
}
fn cluster_ip() -> String {
    "ClusterIP".into()
}
