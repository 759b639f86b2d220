//! `Agent`: one agent, run as a Deployment behind a Service.
#![expect(
    clippy::duplicated_attributes,
    reason = "the lint takes the parts of two `printcolumn(…)` for the same attribute"
)]

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, LocalObjectReference, ResourceRequirements};
use kube::CustomResource;
use meta::schema::brief;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ObjectRef,
    agent_card::AgentCard,
    references::{HasReferences, RefKind, ReferenceSet},
    schema,
    status::WorkloadStatus,
    system_prompt::SystemPromptSource,
    tool_server::AllowedNamespaces,
    tool_server_ref::{self, ToolServerRef},
    traffic::{self, Traffic},
};

/// Image of an agent that names none. The operator's `--agent-image` takes its place where that is set.
pub const DEFAULT_IMAGE: &str = "corail:latest";

/// Protocols in which an agent may be talked to.
pub const PROTOCOLS: &[&str] = &["chat", A2A, HTTP];
/// Protocol of an agent that speaks Agent2Agent.
pub const A2A: &str = "a2a";
/// Protocol of an agent of which only its own clients know how to talk to it.
pub const HTTP: &str = "http";

/// Answer of gateway and runtime to any request for one response of OpenAI's API: `/v1/responses/{id}`.
pub const NO_RESPONSE_BY_ID: &str = "a response cannot be read, cancelled or deleted by its id: of responses, an agent keeps only \
                                     the messages of their conversation, which `previous_response_id` of another request continues";

/// Desired state of an agent: its model, its prompt, its tools and how its Pods run.
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
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether all is as the spec says."
    ),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicas", description = "Ready Pods."),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".status.desiredReplicas",
        description = "Pods that the spec or the load requires.",
        priority = 1
    ),
    printcolumn(name = "Model", type_ = "string", json_path = ".status.model", priority = 1),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Why it is ready, or not.",
        priority = 1
    ),
    printcolumn(
        name = "Approvals",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"ApprovalsPending\")].reason",
        description = "Whether calls of its tools wait for a person.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(
    transform = schema::rule(
        "!has(self.promptRef) || !has(self.systemPrompt) || self.systemPrompt == ''",
        "set only one of promptRef and systemPrompt",
    ),
    transform = schema::rule(
        "!has(self.systemPromptFrom) || (!has(self.promptRef) && (!has(self.systemPrompt) || self.systemPrompt == ''))",
        "set only one of systemPrompt, promptRef and systemPromptFrom",
    ),
    transform = schema::rule(
        "!has(self.modelRef) || (self.modelType == 'stub' && self.modelId == 'stub-echo')",
        "modelRef brings the model: leave out modelType and modelId",
    ),
    transform = schema::rule(
        "has(self.modelRef) || !has(self.limits) || self.limits.all(limit, !has(limit.costPerDay))",
        "costPerDay needs modelRef: prices are in the Model",
    ),
    transform = traffic::rules
)]
pub struct AgentSpec {
    /// Display name, for people.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Description of what the agent does, at most 4096 characters: in its A2A card, in lists, and for the model of an
    /// agent that asks this one by a Tool without a description.
    #[schemars(length(max = 4096))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Protocol in which the agent is talked to by Tools, recif chat and the web UI: chat (POST /chat), a2a
    /// (Agent2Agent: card and JSON-RPC) or http (neither: it is reached through the gateway alone). Default: chat.
    // A string and not an enum, as `framework`.
    #[schemars(with = "String", extend("enum" = PROTOCOLS))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// A2A card of the agent, by which other agents learn what it can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<AgentCard>,
    /// Framework that the agent is written in.
    // A string and not an enum: a value written by another version must not make the object unreadable.
    #[schemars(extend("enum" = ["adk", "langchain", "crewai", "autogen", "custom", "corail"]))]
    pub framework: String,
    /// Reasoning strategy of the agent, passed on to its runtime. Default: simple.
    #[serde(default = "simple")]
    pub strategy: String,
    /// Interface by which users reach the agent, passed on to its runtime. Default: rest.
    #[serde(default = "rest")]
    pub channel: String,
    /// Type of the model's provider, such as stub or ollama. Default: stub, which needs no network.
    #[serde(default = "stub")]
    pub model_type: String,
    /// Name of the model at its provider. Default: stub-echo.
    #[serde(default = "stub_echo")]
    pub model_id: String,
    /// Model in the same namespace that sets the model and its provider's credentials. Excludes modelType and modelId.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_ref: Option<ObjectRef>,
    /// Model for side work such as titles, as provider:model_id. Empty: the agent's main model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_model: Option<String>,
    /// System prompt of the agent, at most 131072 characters. Excludes promptRef and systemPromptFrom.
    #[schemars(length(max = 131072))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Prompt in the same namespace whose text is the system prompt of the agent. Excludes systemPrompt and
    /// systemPromptFrom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_ref: Option<ObjectRef>,
    /// Key of a ConfigMap or Secret that holds the system prompt of the agent; a change of it replaces the Pods.
    /// Excludes systemPrompt and promptRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt_from: Option<SystemPromptSource>,
    /// Storage of conversations and A2A tasks: memory (each Pod has its own) or postgresql (shared by all Pods). Empty:
    /// postgresql when a database URL is known, else memory.
    // A string and not an enum, as `framework`.
    #[schemars(with = "String", extend("enum" = ["", "memory", "postgresql"]))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// Database URL of this agent (postgresql://…), used instead of the operator's. The operator writes it to a Secret
    /// only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_url: Option<String>,
    /// Names of Tools in the same namespace, each once, at most 128. The agent's Pods start once all of them are
    /// Available. A builtin of the runtime (datetime, calculator, web_search, fetch_url) needs no Tool; a Tool of the
    /// same name replaces it.
    // A set in the order of the user, so that two clients that apply the agent may each add their own; the rule says how to
    // repair a duplicate. 128 names of 253 characters stay within the run-time cost that the API server allows one rule;
    // 256 do not.
    #[schemars(
        length(max = 128),
        inner(length(min = 1, max = 253)),
        extend("x-kubernetes-list-type" = "set"),
        transform = schema::rule(
            "self.all(a, self.exists_one(b, a == b))",
            "the same Tool is listed twice: list each Tool once",
        )
    )]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// MCP servers whose tools the agent has without a Tool for each, at most 32. A tool that a server gains later is
    /// added without an edit. Of several tools with one name the first is taken, those of tools before those of servers;
    /// an agent has at most 128. The condition ToolsResolved names those that are left out.
    #[schemars(length(max = 32))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_servers: Vec<ToolServerRef>,
    /// Ids of the agent's knowledge bases. They need a database.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub knowledge_bases: Vec<String>,
    /// Container image. Default: corail:latest, which stands for the operator's --agent-image where that is set.
    #[serde(default = "default_image")]
    pub image: String,
    /// Pull policy of the image: Always, IfNotPresent or Never. Empty: Never for a name without a slash, else
    /// IfNotPresent.
    #[schemars(schema_with = "schema::pull_policy")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Number of Pods, 0 to 10. 0 stops the agent. While scaling is set, every other value is ignored. Default: 1.
    #[schemars(range(min = 0, max = 10))]
    #[serde(default = "one")]
    pub replicas: i32,
    /// Port that the container listens on, 1 to 65535; the Service always has port 8000. Default: 8000.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(default = "default_port")]
    pub port: i32,
    /// Environment variables of the container, each name once, as in a Pod.
    #[schemars(schema_with = "schema::by_name::<EnvVar>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// Sources of environment variables of the container, ConfigMaps and Secrets, as in a Pod.
    #[schemars(schema_with = "brief::<Vec<EnvFromSource>>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<EnvFromSource>,
    /// Compute resources of the container, as in a Pod.
    #[schemars(schema_with = "brief::<ResourceRequirements>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Secrets for pulling the image, as in a Pod.
    #[schemars(schema_with = "schema::by_name::<LocalObjectReference>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// ServiceAccount of the Pods. Empty: a ServiceAccount of the agent's own, with the agent's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Overlay on the Pod template (labels, nodeSelector, tolerations, volumes, more containers …), merged by name. The
    /// API server checks the result before anything is deployed.
    #[schemars(schema_with = "schema::opaque_object")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<serde_json::Value>,
    /// Namespaces whose Tools may ask the agent. Default: its own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_namespaces: Option<AllowedNamespaces>,
    /// Scaling, sidecar, probes, timeouts, anonymous paths and limits.
    #[serde(flatten)]
    pub traffic: Traffic,
}

crate::phased_object::phased_object!(workload Agent "agents");

impl AgentSpec {
    /// Reports whether the agent speaks Agent2Agent.
    pub fn speaks_a2a(&self) -> bool {
        self.protocol.as_deref() == Some(A2A)
    }

    /// Reports whether the agent speaks a protocol of its own, in which neither a Tool nor `recif chat` can talk to it.
    pub fn speaks_plain_http(&self) -> bool {
        self.protocol.as_deref() == Some(HTTP)
    }
}

impl HasReferences for Agent {
    fn collect(&self, mentions: &mut ReferenceSet) {
        let spec = &self.spec;
        if let Some(prompt) = &spec.prompt_ref {
            mentions.add(RefKind::Prompt, &prompt.name);
        }
        spec.tools.iter().for_each(|tool| mentions.add(RefKind::Tool, tool));
        tool_server_ref::collect(&spec.tool_servers, mentions);
        if let Some(model) = &spec.model_ref {
            mentions.add(RefKind::Model, &model.name);
        }
        spec.system_prompt_from.iter().for_each(|source| source.collect(mentions));
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
    DEFAULT_IMAGE.into()
}
fn one() -> i32 {
    1
}
fn default_port() -> i32 {
    8000
}
