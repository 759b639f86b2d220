//! The Pod of a Deployment on this machine: its template, with each port replaced by the one that it became, and the variables by
//! which programs learn them. Pure.

use std::collections::BTreeMap;

use crds::{PROXY_PORT, PROXY_PORT_NAME};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Container, ContainerPort, EnvVar, LifecycleHandler, Pod, PodSpec, PodTemplateSpec, Probe},
    },
    apimachinery::pkg::{
        apis::meta::v1::{ObjectMeta, OwnerReference},
        util::intstr::IntOrString,
    },
};
use sha2::{Digest as _, Sha256};

use crate::{
    config::NODE_NAME,
    ports::{PORTS, PortMap},
    programs::{DEV_COMMAND, DEV_FOLDER, Programs},
    roll_out::TEMPLATE_HASH,
};

/// Name of the sidecar's container.
pub(crate) const PROXY: &str = "proxy";
/// Variable of the sidecar with the address of its workload.
const UPSTREAM: &str = "RECIF_UPSTREAM_URL";
/// Variables by which a program learns its port.
const PORT_VARIABLES: &[&str] = &["PORT", "CORAIL_PORT"];
/// Mount path of the files of flows, and the variable that leads to another one.
const CONTRACT: (&str, &str) = ("/genkit", "RECIF_CONTRACT_ROOT");
/// Mount path of temporary files, and the variable that leads to another one.
const TEMPORARY: (&str, &str) = ("/tmp", "TMPDIR");
/// Lame duck period here, where relays learn at once that a Pod is going.
const LAME_DUCK: &str = "200ms";
/// Variable that makes the sidecar refuse callers for whom no gateway vouches. None does here.
pub(crate) const REQUIRE_IDENTITY: &str = "RECIF_REQUIRE_IDENTITY";
/// Characters of hashes in names, as Kubernetes has them.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Length of the hash of a template.
const HASH_LENGTH: usize = 10;

/// Annotations of the object that a Deployment belongs to, as far as they decide what runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DevAnnotations(BTreeMap<String, String>);

impl DevAnnotations {
    /// Takes them from all annotations of the object.
    pub(crate) fn of(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let found = [DEV_COMMAND, DEV_FOLDER].iter().filter_map(|name| annotations?.get_key_value(*name));
        Self(found.map(|(name, value)| (name.clone(), value.clone())).collect())
    }
}

/// Returns the hash by which Pods name this template. Another command of the owner is another template.
pub(crate) fn template_hash(template: &PodTemplateSpec, owner: &DevAnnotations) -> String {
    // Maps with text keys: this cannot fail.
    let bytes = serde_json::to_vec(&(template, &owner.0)).unwrap_or_default();
    let digest = Sha256::digest(bytes);
    digest.iter().take(HASH_LENGTH).map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect()
}

/// Returns the declared TCP ports of a template, each with whether its program is one of ours.
pub(crate) fn declared_ports(
    template: &PodTemplateSpec,
    owner: &DevAnnotations,
    programs: &Programs,
) -> BTreeMap<u16, bool> {
    let replaced = main_container(template.spec.as_ref()).filter(|_| owner.0.contains_key(DEV_COMMAND));
    let mut spec = template.spec.clone().unwrap_or_default();
    give_sidecar_its_port(&mut spec);
    let containers = containers(&spec);
    let ports = containers.flat_map(|container| {
        let is_replaced = Some(container.name.as_str()) == replaced && !is_bridge(container);
        let is_ours = programs.is_ours(container) && !is_replaced;
        let ports = container.ports.iter().flatten().filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP");
        ports.filter_map(move |port| Some((u16::try_from(port.container_port).ok()?, is_ours)))
    });
    ports.collect()
}

/// Returns the name of the container that the annotation with a command is meant for: the first one, as kubectl chooses it.
pub(crate) fn main_container(spec: Option<&PodSpec>) -> Option<&str> {
    Some(spec?.containers.first()?.name.as_str())
}

fn is_bridge(container: &Container) -> bool {
    container.args.iter().flatten().next().is_some_and(|first| first == "mcp-bridge")
}

/// Returns all containers of a Pod: first the init containers.
pub(crate) fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

/// Returns the Pod of a Deployment whose template has this hash.
pub(crate) fn pod(
    deployment: &Deployment,
    hash: &str,
    owner: &DevAnnotations,
    ports: &PortMap,
    programs: &Programs,
) -> Pod {
    let template = deployment.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let metadata = template.metadata.unwrap_or_default();
    let mut labels = metadata.labels.unwrap_or_default();
    labels.insert(TEMPLATE_HASH.to_owned(), hash.to_owned());
    let mut annotations = metadata.annotations.unwrap_or_default();
    annotations.extend(owner.0.clone());
    annotations.insert(PORTS.to_owned(), ports.to_string());
    let mut spec = template.spec.unwrap_or_default();
    localize(&mut spec, ports, programs);
    let name = deployment.metadata.name.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        generate_name: Some(format!("{name}-{hash}-")),
        namespace: deployment.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: Some(annotations),
        owner_references: Some(vec![OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            name,
            uid: deployment.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: Some(spec), status: None }
}

/// Moves the sidecar's port, which the workload's container declares for Services, to the sidecar, whose program listens on it.
fn give_sidecar_its_port(spec: &mut PodSpec) {
    let mut sidecars = spec.init_containers.iter_mut().flatten();
    let Some(sidecar) = sidecars.find(|container| container.name == PROXY && container.ports.is_none()) else { return };
    let is_its =
        |port: &mut ContainerPort| port.container_port == PROXY_PORT && port.name.as_deref() == Some(PROXY_PORT_NAME);
    let declared = spec.containers.iter_mut().filter_map(|container| container.ports.as_mut());
    let own: Vec<_> = declared.flat_map(|ports| ports.extract_if(.., is_its)).collect();
    sidecar.ports = Some(own).filter(|own| !own.is_empty());
}

/// Moves a Pod to this node: ports, probes, hooks, and variables that name a port.
fn localize(spec: &mut PodSpec, ports: &PortMap, programs: &Programs) {
    give_sidecar_its_port(spec);
    spec.node_name = Some(NODE_NAME.to_owned());
    spec.host_network = Some(true);
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let is_ours = programs.is_ours(container);
        variables(container, ports, is_ours);
        for port in container.ports.iter_mut().flatten() {
            port.container_port = ports.port(port.container_port);
            port.host_port = Some(port.container_port);
        }
        let probes = [&mut container.startup_probe, &mut container.liveness_probe, &mut container.readiness_probe];
        probes.into_iter().flatten().for_each(|probe| move_probe(probe, ports));
        if let Some(lifecycle) = &mut container.lifecycle {
            for hook in [&mut lifecycle.post_start, &mut lifecycle.pre_stop].into_iter().flatten() {
                move_hook(hook, ports);
            }
        }
        if is_ours {
            move_bridge(container, ports);
        }
    }
}

fn move_port(port: &mut IntOrString, ports: &PortMap) {
    if let IntOrString::Int(number) = port {
        *number = ports.port(*number);
    }
}

fn move_probe(probe: &mut Probe, ports: &PortMap) {
    if let Some(get) = &mut probe.http_get {
        move_port(&mut get.port, ports);
    }
    if let Some(socket) = &mut probe.tcp_socket {
        move_port(&mut socket.port, ports);
    }
    if let Some(grpc) = &mut probe.grpc {
        grpc.port = ports.port(grpc.port);
    }
}

fn move_hook(hook: &mut LifecycleHandler, ports: &PortMap) {
    if let Some(get) = &mut hook.http_get {
        move_port(&mut get.port, ports);
    }
}

/// Gives the bridge its port, and loopback as its address.
fn move_bridge(container: &mut Container, ports: &PortMap) {
    let is_bridge = is_bridge(container);
    let Some(arguments) = container.args.as_mut().filter(|_| is_bridge) else { return };
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    for at in 1..end {
        if arguments[at - 1] == "--port"
            && let Ok(declared) = arguments[at].parse()
        {
            arguments[at] = ports.port(declared).to_string();
        }
    }
    arguments.splice(1..1, ["--address", "127.0.0.1"].map(str::to_owned));
}

/// Sets the variables that tell a program where it listens.
fn variables(container: &mut Container, ports: &PortMap, is_ours: bool) {
    let mut known = container.env.take().unwrap_or_default();
    let first = container.ports.iter().flatten().next().map(|port| ports.port(port.container_port));
    let mut added: Vec<(&str, String)> = Vec::new();
    let is_sidecar = container.name == PROXY && known.iter().any(|variable| variable.name == UPSTREAM);
    for variable in &mut known {
        let Some(value) = &mut variable.value else { continue };
        match variable.name.as_str() {
            UPSTREAM if is_sidecar => move_upstream(value, ports),
            "RECIF_LAME_DUCK" if is_sidecar => LAME_DUCK.clone_into(value),
            name if PORT_VARIABLES.contains(&name) => {
                if let Ok(declared) = value.parse() {
                    *value = ports.port(declared).to_string();
                }
            }
            _ => {}
        }
    }
    if is_sidecar {
        known.retain(|variable| variable.name != REQUIRE_IDENTITY);
        added.push(("RECIF_LISTEN_ADDR", format!("127.0.0.1:{}", ports.port(PROXY_PORT))));
    } else if let Some(port) = first {
        added.extend(PORT_VARIABLES.iter().map(|name| (*name, port.to_string())));
        added.push(("HOST", "127.0.0.1".to_owned()));
    }
    if is_ours {
        added.push(("RECIF_ADDRESS", "127.0.0.1".to_owned()));
        added.push(("RECIF_LOCAL", "true".to_owned()));
        // Tools must not lead to it.
        added.extend((!is_sidecar).then(|| ("RECIF_SIDECAR_PORT", ports.port(PROXY_PORT).to_string())));
    }
    for (path, name) in [CONTRACT, TEMPORARY] {
        let is_mounted = container.volume_mounts.iter().flatten().any(|mount| mount.mount_path == path);
        added.extend(is_mounted.then(|| (name, path.to_owned())));
    }
    // First, so that the others may refer to them.
    let missing = added.into_iter().filter(|(name, _)| known.iter().all(|variable| variable.name != *name));
    let mut all: Vec<EnvVar> =
        missing.map(|(name, value)| EnvVar { name: name.to_owned(), value: Some(value), value_from: None }).collect();
    all.append(&mut known);
    container.env = Some(all).filter(|all| !all.is_empty());
}

/// Replaces the port of a URL that ends in it.
fn move_upstream(url: &mut String, ports: &PortMap) {
    let Some((host, port)) = url.rsplit_once(':') else { return };
    if let Ok(declared) = port.parse() {
        *url = format!("{host}:{}", ports.port(declared));
    }
}

#[cfg(test)]
mod tests;
