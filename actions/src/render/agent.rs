//! Renders the children of an agent, in the order in which they are applied.

use crds::Agent;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    AgentConfig, PinnedProxy, RenderError,
    container::{Container, Probes},
    env::{config_name, port_override},
    labels::{AGENT_LABEL, child},
    service::{AGENT_PORT, WorkloadPort},
    sidecar::Sidecar,
    workload::{base64, own_service_account},
    workload_parts::{ReservedNames, WorkloadParts},
};
use crate::ports::{ChildKind, ChildManifest};

/// Name of the container, and of its image in `status.images`.
pub const AGENT: &str = "agent";
/// Annotation of an agent's Pod template that holds the content hash.
pub const CONFIG_HASH: &str = "recif.dev/config-hash";

/// Variable with the namespace of the Pod.
const NAMESPACE: &str = "RECIF_NAMESPACE";

/// Returns the objects that the Pods need to start: ServiceAccount (if the spec names none), ConfigMap, Secret (if it has a key).
pub fn agent_config_children(agent: &Agent, config: &AgentConfig) -> Vec<ChildManifest> {
    let manifest = |kind, name, fields| child(agent, AGENT_LABEL, kind, name, fields);
    let account = own_service_account(agent, AGENT_LABEL, agent.spec.service_account_name.as_deref());
    let config_map = manifest(ChildKind::ConfigMap, config_name(agent), json!({ "data": config.plain }));
    let secret = (!config.secret.is_empty())
        .then(|| manifest(ChildKind::Secret, config_name(agent), json!({ "data": base64(&config.secret) })));
    account.into_iter().chain([config_map]).chain(secret).collect()
}

/// Images of the containers of an agent's Pods.
#[derive(Debug, Clone, Copy)]
pub struct AgentImages<'a> {
    /// Image of the agent.
    pub agent: &'a str,
    /// Sidecar, for Pods that have one.
    pub proxy: PinnedProxy<'a>,
}

/// Returns the Service and the Deployment, whose containers run `images`. Without `replicas` the apply leaves that field to its
/// other manager.
///
/// # Errors
/// [`RenderError::PodTemplate`] and [`RenderError::EnvReserved`]: an overlay that cannot be merged; [`RenderError::PortTaken`].
pub fn agent_workload_children(
    agent: &Agent,
    config: &AgentConfig,
    images: AgentImages<'_>,
    replicas: Option<i32>,
) -> Result<[ChildManifest; 2], RenderError> {
    let spec = &agent.spec;
    let port = port_override(agent).map(|port| json!({ "name": "CORAIL_PORT", "value": port.to_string() }));
    let running = WorkloadParts {
        kind: AGENT,
        label: AGENT_LABEL,
        name: agent.name_any(),
        container: Container {
            image: images.agent,
            pull_policy: spec.image_pull_policy.as_deref(),
            port: spec.port,
            command: Vec::new(),
            args: Vec::new(),
            probes: Probes::http("/healthz", "/healthz").or_of(spec.traffic.readiness.as_ref(), spec.port),
            env: namespace(agent)
                .into_iter()
                .chain(port)
                .chain(config.referred.values().cloned())
                .chain(spec.env.iter().map(|variable| json!(variable)))
                .collect(),
            env_from: env_from(agent, config),
            resources: spec.resources.as_ref().map_or(Value::Null, |resources| json!(resources)),
            volumes: Vec::new(),
        },
        init_containers: Vec::new(),
        port: WorkloadPort { type_: "ClusterIP", number: AGENT_PORT },
        sidecar: Sidecar::of(agent, &spec.traffic, spec.port, images.proxy)?,
        service_account_name: spec.service_account_name.as_deref(),
        image_pull_secrets: &spec.image_pull_secrets,
        hash: (CONFIG_HASH, &config.content_hash),
        rollout_at: agent.annotations().get(crds::ROLLOUT_AT).map(String::as_str),
        pod_template: spec.pod_template.as_ref(),
        reserved: &AgentReserved { agent, config },
    };
    running.children(agent, replicas)
}

#[derive(Debug)]
struct AgentReserved<'a> {
    agent: &'a Agent,
    config: &'a AgentConfig,
}

impl ReservedNames for AgentReserved<'_> {
    fn is_reserved(&self, name: &str) -> bool {
        self.config.sets(self.agent, name)
    }
}

/// Returns the variable with the namespace, which separates the conversations of agents of one name in a shared database. It is
/// not part of the documented API, so the user's own value wins.
fn namespace(agent: &Agent) -> Option<Value> {
    let from = json!({ "fieldRef": { "fieldPath": "metadata.namespace" } });
    let taken = agent.spec.env.iter().any(|variable| variable.name == NAMESPACE);
    (!taken).then(|| json!({ "name": NAMESPACE, "valueFrom": from }))
}

/// Returns the user's sources before the operator's: of two sources with one variable the later one wins.
fn env_from(agent: &Agent, config: &AgentConfig) -> Vec<Value> {
    let name = config_name(agent);
    let mut sources: Vec<_> = agent.spec.env_from.iter().map(|source| json!(source)).collect();
    sources.extend(config.credentials.iter().map(|secret| json!({ "secretRef": { "name": secret } })));
    sources.push(json!({ "configMapRef": { "name": name } }));
    if !config.secret.is_empty() {
        sources.push(json!({ "secretRef": { "name": name } }));
    }
    sources
}
