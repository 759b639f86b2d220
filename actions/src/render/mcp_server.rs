//! Renders the children of an MCPServer.
//!
//! A server that speaks over standard input and output (stdio) runs in its own image under the bridge: an init container copies
//! the bridge, a static binary, to a volume from which the server's container starts it.

use std::collections::BTreeMap;

use crds::{MCPServer, Traffic};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    PinnedProxy, RenderError,
    container::{Container, Probes, pull_policy},
    flow::CONTENT_HASH,
    hash::content_hash,
    service::WorkloadPort,
    sidecar::Sidecar,
    workload::own_service_account,
    workload_parts::{ReservedNames, WorkloadParts},
};
use crate::ports::ChildManifest;

/// Label that names the MCPServer on its children.
pub const MCP_SERVER_LABEL: &str = "recif.dev/mcpserver";
/// Name of the container that installs the bridge, and of its image in `status.images`.
pub const BRIDGE: &str = "bridge";
/// Directory of the bridge in the server's container.
const BRIDGE_DIR: &str = "/recif";

/// Images that come from the operator.
#[derive(Debug, Clone, Copy)]
pub struct ServerImages<'a> {
    /// Image of the bridge.
    pub bridge: &'a str,
    /// Sidecar.
    pub proxy: PinnedProxy<'a>,
}

/// Returns SHA-256 (hex) of the data that the Pods read besides their template: `data` holds the digest of each Secret and
/// ConfigMap.
pub fn mcp_server_hash(data: &BTreeMap<String, String>) -> String {
    content_hash(&BTreeMap::new(), &BTreeMap::new(), data)
}

/// Returns the objects that the Pods need to start: a ServiceAccount, if the spec names none.
pub fn mcp_server_config_children(server: &MCPServer) -> Vec<ChildManifest> {
    let named = server.spec.deployment.service_account_name.as_deref();
    own_service_account(server, MCP_SERVER_LABEL, named).into_iter().collect()
}

/// Returns the Service and the Deployment. Without `replicas` the apply leaves that field to its other manager.
///
/// # Errors
/// A missing program, a port that is the sidecar's, or an overlay that cannot be merged.
pub fn mcp_server_workload_children(
    server: &MCPServer,
    traffic: &Traffic,
    hash: &str,
    images: ServerImages<'_>,
    replicas: Option<i32>,
) -> Result<[ChildManifest; 2], RenderError> {
    let (spec, deployment) = (&server.spec, &server.spec.deployment);
    let port = spec.container_port();
    let program = deployment.cmd.as_deref().filter(|program| !program.is_empty());
    let stdio = spec.is_stdio();
    if stdio && program.is_none() {
        return Err(RenderError::NoProgram);
    }
    let words = program.into_iter().map(str::to_owned).chain(deployment.args.iter().cloned());
    let (command, args) = match (stdio, program) {
        (true, _) => {
            let bridge = ["mcp-bridge", "--port", &port.to_string(), "--path", spec.path(), "--"].map(str::to_owned);
            (vec![format!("{BRIDGE_DIR}/recif-proxy")], bridge.into_iter().chain(words).collect())
        }
        (false, Some(program)) => (vec![program.to_owned()], deployment.args.clone()),
        (false, None) => (Vec::new(), deployment.args.clone()),
    };
    let volume = (json!({ "name": BRIDGE, "emptyDir": {} }), BRIDGE_DIR);
    let running = WorkloadParts {
        kind: "mcpserver",
        label: MCP_SERVER_LABEL,
        name: server.name_any(),
        container: Container {
            image: &deployment.image,
            pull_policy: deployment.image_pull_policy.as_deref(),
            command,
            args,
            port,
            probes: if stdio { Probes::http("/livez", "/readyz") } else { Probes::tcp() },
            env: deployment.env.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect(),
            env_from: env_from(server),
            resources: deployment.resources.as_ref().map_or(Value::Null, |resources| json!(resources)),
            volumes: if stdio { vec![volume] } else { Vec::new() },
        },
        init_containers: if stdio { vec![bridge(images.bridge)] } else { Vec::new() },
        port: WorkloadPort { type_: "ClusterIP", number: deployment.port },
        sidecar: Sidecar::of(server, traffic, port, images.proxy)?,
        service_account_name: deployment.service_account_name.as_deref(),
        image_pull_secrets: &[],
        hash: (CONTENT_HASH, hash),
        rollout_at: server.annotations().get(crds::ROLLOUT_AT).map(String::as_str),
        pod_template: deployment.pod_template.as_ref(),
        reserved: &NoneReserved,
    };
    running.children(server, replicas)
}

/// No variable of the container is reserved.
#[derive(Debug)]
struct NoneReserved;

impl ReservedNames for NoneReserved {
    fn is_reserved(&self, _: &str) -> bool {
        false
    }
}

/// Returns the sources of variables: of two sources with one variable the later one wins.
fn env_from(server: &MCPServer) -> Vec<Value> {
    let deployment = &server.spec.deployment;
    let config_maps = deployment.config_map_refs.iter().map(|named| json!({ "configMapRef": { "name": named.name } }));
    let secrets = deployment.secret_refs.iter().map(|named| json!({ "secretRef": { "name": named.name } }));
    config_maps.chain(secrets).collect()
}

/// Returns the init container that installs the bridge.
fn bridge(image: &str) -> Value {
    json!({
        "name": BRIDGE,
        "image": image,
        "imagePullPolicy": pull_policy(image),
        "args": ["install", format!("{BRIDGE_DIR}/recif-proxy")],
        "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        },
        "volumeMounts": [{ "name": BRIDGE, "mountPath": BRIDGE_DIR }],
    })
}
