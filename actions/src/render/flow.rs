//! Renders the children of a Flow or FlowSet, in the order in which they are applied.

use std::collections::{BTreeMap, BTreeSet};

use crds::flow::Runtime;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::{
    FlowContract, PinnedProxy, RenderError,
    container::{Container, Probes},
    service::WorkloadPort,
    sidecar::Sidecar,
    workload::own_service_account,
    workload_parts::{ReservedNames, WorkloadParts},
};
use crate::ports::ChildManifest;

/// Annotation of a flow's Pod template that holds the content hash.
pub const CONTENT_HASH: &str = "recif.dev/content-hash";
/// Version of the files and variables that the runner reads.
const CONTRACT_VERSION: &str = "1";

/// Difference between Flow and FlowSet for the children.
#[derive(Debug, Clone, Copy)]
pub struct FlowKind {
    /// Kind in lower case, which is also the name of the container.
    pub name: &'static str,
    /// Label that names the object on its children.
    pub label: &'static str,
}

/// Container name and label of a Flow.
pub const FLOW: FlowKind = FlowKind { name: "flow", label: "recif.dev/flow" };
/// Container name and label of a FlowSet.
pub const FLOW_SET: FlowKind = FlowKind { name: "flowset", label: "recif.dev/flowset" };

/// Returns the objects that the Pods need to start: ServiceAccount (if the spec names none), ConfigMaps and Secrets.
pub fn flow_config_children<K: Resource<DynamicType = ()>>(
    owner: &K,
    kind: FlowKind,
    runtime: &Runtime,
    contract: &FlowContract,
) -> Vec<ChildManifest> {
    let account = own_service_account(owner, kind.label, runtime.service_account_name.as_deref());
    account.into_iter().chain(contract.children(owner, kind.label)).collect()
}

/// Images of the containers of a flow's Pods.
#[derive(Debug, Clone, Copy)]
pub struct FlowImages<'a> {
    /// Image of the runner.
    pub runner: &'a str,
    /// Sidecar.
    pub proxy: PinnedProxy<'a>,
}

/// Returns the Service and the Deployment, whose containers run `images`. Without `replicas` the apply leaves that field to its
/// other manager.
///
/// # Errors
/// A variable of the spec that is reserved or set twice, a port that is the sidecar's, or an overlay that cannot be merged.
pub fn flow_workload_children<K: Resource<DynamicType = ()>>(
    owner: &K,
    kind: FlowKind,
    runtime: &Runtime,
    contract: &FlowContract,
    images: FlowImages<'_>,
    replicas: Option<i32>,
) -> Result<[ChildManifest; 2], RenderError> {
    let ours = FlowReserved::of(owner, runtime, contract);
    check_env(kind, runtime, &ours)?;
    let env = ours.0.values().cloned().chain(runtime.env.iter().map(|variable| json!(variable))).collect();
    let running = WorkloadParts {
        kind: kind.name,
        label: kind.label,
        name: owner.name_any(),
        container: Container {
            image: images.runner,
            pull_policy: runtime.image_pull_policy.as_deref(),
            port: runtime.port,
            command: Vec::new(),
            args: Vec::new(),
            probes: Probes::http("/healthz", "/readyz").or_of(runtime.traffic.readiness.as_ref(), runtime.port),
            env,
            env_from: contract.env_from().map(|secret| json!({ "secretRef": { "name": secret } })).collect(),
            resources: runtime.resources.as_ref().map_or(Value::Null, |resources| json!(resources)),
            volumes: vec![contract.volume()],
        },
        init_containers: Vec::new(),
        port: WorkloadPort { type_: &runtime.service_type, number: runtime.port },
        sidecar: Sidecar::of(owner, &runtime.traffic, runtime.port, images.proxy)?,
        service_account_name: runtime.service_account_name.as_deref(),
        image_pull_secrets: &runtime.image_pull_secrets,
        hash: (CONTENT_HASH, &contract.content_hash),
        rollout_at: owner.annotations().get(crds::ROLLOUT_AT).map(String::as_str),
        pod_template: runtime.pod_template.as_ref(),
        reserved: &ours,
    };
    running.children(owner, replicas)
}

/// Variables of the container that come from the operator, by name.
#[derive(Debug)]
struct FlowReserved(BTreeMap<String, Value>);

impl FlowReserved {
    fn of<K: Resource<DynamicType = ()>>(owner: &K, runtime: &Runtime, contract: &FlowContract) -> Self {
        let plain = [
            ("PORT", runtime.port.to_string()),
            ("RECIF_CONTRACT_VERSION", CONTRACT_VERSION.to_owned()),
            ("RECIF_FLOW_NAME", owner.name_any()),
        ];
        let plain = plain.map(|(name, value)| (name.to_owned(), json!({ "name": name, "value": value })));
        let headers = contract.headers().into_iter().map(|header| (header.name.clone(), header.env()));
        Self(plain.into_iter().chain(headers).collect())
    }
}

impl ReservedNames for FlowReserved {
    fn is_reserved(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

fn check_env(kind: FlowKind, runtime: &Runtime, ours: &FlowReserved) -> Result<(), RenderError> {
    let mut seen = BTreeSet::new();
    for variable in &runtime.env {
        let name = &variable.name;
        if ours.is_reserved(name) {
            return Err(RenderError::EnvReserved { field: "spec.env", kind: kind.name, name: name.clone() });
        }
        if !seen.insert(name) {
            return Err(RenderError::DuplicateEnv(name.clone()));
        }
        super::env::check_variable(name, variable.value.as_deref().unwrap_or_default())?;
    }
    Ok(())
}
