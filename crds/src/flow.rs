//! `Flow`: one endpoint of prompts, a model and tools, run as a Deployment behind a Service.
#![expect(
    clippy::duplicated_attributes,
    reason = "the lint takes the parts of two `printcolumn(…)` for the same attribute"
)]

use k8s_openapi::api::core::v1::{EnvVar, LocalObjectReference, ResourceRequirements};
use kube::CustomResource;
use meta::schema::brief;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ObjectRef,
    model::ModelSpec,
    references::{HasReferences, RefKind, ReferenceSet},
    schema,
    status::WorkloadStatus,
    tool_server_ref::{self, ToolServerRef},
    traffic::{self, Traffic},
};

/// Desired state of a flow: its prompts, its model, its tools and how its Pods run.
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
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".status.desiredReplicas",
        description = "Pods that the spec or the load requires.",
        priority = 1
    ),
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
#[schemars(transform = traffic::rules)]
pub struct FlowSpec {
    /// Prompts, model and tools of the flow.
    #[serde(flatten)]
    pub definition: FlowDefinition,
    /// Settings of its Pods.
    #[serde(flatten)]
    pub runtime: Runtime,
}

crate::phased_object::phased_object!(workload Flow "flows");

impl HasReferences for Runtime {
    fn collect(&self, mentions: &mut ReferenceSet) {
        mentions.add_env(&self.env);
    }
}

impl HasReferences for FlowDefinition {
    fn collect(&self, mentions: &mut ReferenceSet) {
        for prompt in self.prompts.iter().filter_map(|source| source.prompt_ref.as_ref()) {
            mentions.add(RefKind::Prompt, &prompt.name);
        }
        self.tools.iter().for_each(|tool| mentions.add(RefKind::Tool, &tool.name));
        tool_server_ref::collect(&self.tool_servers, mentions);
        if let Some(model) = &self.model_ref {
            mentions.add(RefKind::Model, &model.name);
        }
        if let Some(model) = &self.model_spec {
            mentions.add(RefKind::PluginConfig, &model.plugin_config_ref.name);
            mentions.add_fallbacks(&model.fallback_refs);
        }
    }
}

impl HasReferences for Flow {
    fn collect(&self, mentions: &mut ReferenceSet) {
        self.spec.definition.collect(mentions);
        self.spec.runtime.collect(mentions);
    }
}

/// Prompts, model and tools of one flow: of a Flow, or of one entry of a FlowSet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::one_of("modelRef", "modelSpec"))]
pub struct FlowDefinition {
    /// Prompts of the flow, 1 to 64. The first one answers; the others are called by name or included as partials.
    #[schemars(length(min = 1, max = 64))]
    pub prompts: Vec<PromptSource>,
    /// Tools in the same namespace that the prompts may call, each once, at most 64. A builtin of the runtime
    /// (datetime, calculator, web_search, fetch_url) needs no Tool; a Tool of the same name replaces it.
    #[schemars(schema_with = "schema::by_name::<ObjectRef>", length(max = 64))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ObjectRef>,
    /// MCP servers whose tools the prompts may call without a Tool for each, at most 32. A tool that a server gains later
    /// is added without an edit. Of several tools with one name the first is taken, those of tools before those of
    /// servers; a flow has at most 128. The condition ToolsResolved names those that are left out.
    #[schemars(length(max = 32))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_servers: Vec<ToolServerRef>,
    /// Model in the same namespace that answers. Set exactly one of modelRef and modelSpec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_ref: Option<ObjectRef>,
    /// Model written in place instead of a Model object. Set exactly one of modelRef and modelSpec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_spec: Option<ModelSpec>,
}

/// Prompt of a flow: a reference to a Prompt, or a prompt written in place. Set exactly one of promptRef and prompt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::one_of("promptRef", "prompt"))]
pub struct PromptSource {
    /// Prompt in the same namespace. Excludes prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_ref: Option<ObjectRef>,
    /// Prompt written in place. Excludes promptRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<InlinePrompt>,
}

impl PromptSource {
    /// Returns the name by which the flow calls or includes the prompt.
    pub fn name(&self) -> &str {
        let named = self.prompt_ref.as_ref().map(|found| found.name.as_str());
        named.or(self.prompt.as_ref().map(|found| found.name.as_str())).unwrap_or_default()
    }
}

/// Prompt written in place.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InlinePrompt {
    /// Name of the prompt: at most 253 letters, digits, '-', '_' and '.', beginning with a letter or digit.
    #[schemars(length(max = 253), regex(pattern = "^[a-zA-Z0-9][-._a-zA-Z0-9]*$"))]
    pub name: String,
    /// Dotprompt text of the prompt, 1 to 1048576 characters.
    #[schemars(length(min = 1, max = 1048576))]
    pub content: String,
}

/// Settings of the Pods of a Flow or FlowSet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// Container image. Empty: the runner image of the operator's version at the time of the last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Pull policy of the image: Always, IfNotPresent or Never. Empty: Never for a name without a slash, else
    /// IfNotPresent.
    #[schemars(schema_with = "schema::pull_policy")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Number of Pods, 0 to 10. 0 stops them. While scaling is set, every other value is ignored. Default: 1.
    #[schemars(range(min = 0, max = 10))]
    #[serde(default = "one")]
    pub replicas: i32,
    /// Port of the container and of the Service, 1 to 65535. Default: 8080.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(default = "default_port")]
    pub port: i32,
    /// Environment variables of the container, each name once, as in a Pod.
    #[schemars(schema_with = "schema::by_name::<EnvVar>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// Compute resources of the container, as in a Pod.
    #[schemars(schema_with = "brief::<ResourceRequirements>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Type of the Service: ClusterIP, NodePort or LoadBalancer. Default: ClusterIP.
    #[schemars(extend("enum" = ["ClusterIP", "NodePort", "LoadBalancer"]))]
    #[serde(default = "cluster_ip")]
    pub service_type: String,
    /// Secrets for pulling the image, as in a Pod.
    #[schemars(schema_with = "schema::by_name::<LocalObjectReference>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// ServiceAccount of the Pods. Empty: a ServiceAccount of their own, with the name of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Overlay on the Pod template (labels, nodeSelector, tolerations, volumes, more containers …), merged by name. The
    /// API server checks the result before anything is deployed.
    #[schemars(schema_with = "schema::opaque_object")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<serde_json::Value>,
    /// Scaling, sidecar, probes, timeouts, anonymous paths and limits.
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
