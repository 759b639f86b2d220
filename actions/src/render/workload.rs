//! The children of an agent, in the order in which they are applied.

use std::collections::BTreeMap;

use crds::Agent;
use k8s_openapi::ByteString;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    Config, RenderError,
    env::config_name,
    labels::{AGENT_LABEL, child, selector_labels},
    pod::{own_service_account, template},
    service::service,
};
use crate::ports::{ChildKind, Manifest};

/// What the Pods need to start: ServiceAccount (when the spec names none), ConfigMap, Secret (when it has a key).
pub fn agent_config_children(agent: &Agent, config: &Config) -> Vec<Manifest> {
    let manifest = |kind, name, fields| child(agent, AGENT_LABEL, kind, name, fields);
    let account = own_service_account(agent)
        .map(|name| manifest(ChildKind::ServiceAccount, name, json!({ "automountServiceAccountToken": false })));
    let config_map = manifest(ChildKind::ConfigMap, config_name(agent), json!({ "data": config.plain }));
    let secret = (!config.secret.is_empty())
        .then(|| manifest(ChildKind::Secret, config_name(agent), json!({ "data": base64(&config.secret) })));
    account.into_iter().chain([config_map]).chain(secret).collect()
}

/// The Service and the Deployment. Without `replicas` the apply leaves that field to whoever has it.
///
/// # Errors
/// [`RenderError::PodTemplate`] and [`RenderError::EnvTaken`]: an overlay that cannot be merged.
pub fn agent_workload_children(
    agent: &Agent,
    config: &Config,
    replicas: Option<i32>,
) -> Result<[Manifest; 2], RenderError> {
    Ok([service(agent), deployment(agent, config, replicas)?])
}

fn deployment(agent: &Agent, config: &Config, replicas: Option<i32>) -> Result<Manifest, RenderError> {
    let name = agent.name_any();
    let mut spec = json!({
        "selector": { "matchLabels": selector_labels(AGENT_LABEL, &name) },
        "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } },
        // The default, but ours: the agent is Failed when it is over, and it has to outlast the startup probe.
        "progressDeadlineSeconds": 600,
        "template": template(agent, config)?,
    });
    if let Some(replicas) = replicas {
        spec["replicas"] = json!(replicas);
    }
    Ok(child(agent, AGENT_LABEL, ChildKind::Deployment, name, json!({ "spec": spec })))
}

/// A Secret's `data`, not `stringData`: that one is write-only, and its fields would never be owned.
fn base64(values: &BTreeMap<String, String>) -> BTreeMap<&str, Value> {
    values.iter().map(|(name, value)| (name.as_str(), json!(ByteString(value.clone().into_bytes())))).collect()
}
