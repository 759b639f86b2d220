//! Checks overlays against the Pod Security Standards.
//!
//! A user who may write an Agent may write its `podTemplate`. In a namespace without Pod Security admission that would grant
//! every privilege of a node, so the operator itself checks the Pod template by the levels of
//! <https://kubernetes.io/docs/concepts/security/pod-security-standards/>. Only templates with an overlay are checked: the
//! rendered template itself is `restricted`.

use serde_json::Value;

use super::RenderError;
use crate::ports::{ChildKind, ChildManifest};

/// Level of the Pod Security Standards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodSecurity {
    /// Hardened.
    Restricted,
    /// Prevents known privilege escalations.
    Baseline,
    /// Unrestricted.
    Privileged,
}

impl PodSecurity {
    /// Returns the name of the level, as in the labels of a namespace.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Restricted => "restricted",
            Self::Baseline => "baseline",
            Self::Privileged => "privileged",
        }
    }
}

/// Capabilities that `baseline` lets a container add.
const CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Sysctls that `baseline` lets a Pod set.
const SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];
/// SELinux types that `baseline` allows.
const SELINUX: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
/// Volume types that `restricted` allows.
const VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// Checks the Pod template of a workload whose spec has an overlay.
///
/// # Errors
/// [`RenderError::PodSecurity`], which names the first field that goes beyond the level.
pub fn check_pod_security(running: &[ChildManifest], overlay: bool, level: PodSecurity) -> Result<(), RenderError> {
    let deployment = running.iter().find(|found| found.child.kind == ChildKind::Deployment).filter(|_| overlay);
    let template = deployment.and_then(|found| found.body.pointer("/spec/template"));
    match template.and_then(|template| pod_security_violation(template, level)) {
        Some(field) => Err(RenderError::PodSecurity { field, level: level.as_str() }),
        None => Ok(()),
    }
}

/// Returns the first field of a Pod template that goes beyond the level.
pub fn pod_security_violation(template: &Value, level: PodSecurity) -> Option<String> {
    let pod = &template["spec"];
    if level == PodSecurity::Privileged {
        return None;
    }
    let restricted = level == PodSecurity::Restricted;
    let of_pod = || pod_baseline_violation(template).or_else(|| restricted.then(|| pod_restricted_violation(pod))?);
    let of_containers = || {
        ["initContainers", "containers"].iter().find_map(|list| {
            pod[*list].as_array().into_iter().flatten().find_map(|container| {
                let field = container_baseline_violation(container).or_else(|| {
                    restricted.then(|| container_restricted_violation(container, &pod["securityContext"]))?
                })?;
                Some(format!("spec.{list}[{}].{field}", container["name"].as_str().unwrap_or_default()))
            })
        })
    };
    of_pod().or_else(of_containers)
}

fn pod_baseline_violation(template: &Value) -> Option<String> {
    let pod = &template["spec"];
    let host = ["hostNetwork", "hostPID", "hostIPC"].iter().find(|field| pod[**field] == true);
    let volumes = pod["volumes"].as_array().into_iter().flatten();
    let host_path = volumes.into_iter().find(|volume| volume.get("hostPath").is_some_and(|path| !path.is_null()));
    let sysctls = pod["securityContext"]["sysctls"].as_array();
    let sysctl = sysctls.into_iter().flatten().find(|found| !one_of(&found["name"], SYSCTLS));
    let annotations = template["metadata"]["annotations"].as_object();
    let unconfined = annotations.into_iter().flatten().find(|(name, value)| {
        let profile = value.as_str().unwrap_or_default();
        name.starts_with("container.apparmor.security.beta.kubernetes.io/")
            && profile != "runtime/default"
            && !profile.starts_with("localhost/")
    });
    host.map(|field| format!("spec.{field}"))
        .or_else(|| {
            host_path.map(|volume| format!("spec.volumes[{}].hostPath", volume["name"].as_str().unwrap_or_default()))
        })
        .or_else(|| sysctl.map(|_| "spec.securityContext.sysctls".to_owned()))
        .or_else(|| unconfined.map(|(name, _)| format!("metadata.annotations[{name}]")))
        .or_else(|| profiles(&pod["securityContext"]).map(|field| format!("spec.securityContext.{field}")))
}

fn container_baseline_violation(container: &Value) -> Option<String> {
    let context = &container["securityContext"];
    if context["privileged"] == true {
        return Some("securityContext.privileged".to_owned());
    }
    let added = context["capabilities"]["add"].as_array();
    if added.into_iter().flatten().any(|name| !one_of(name, CAPABILITIES)) {
        return Some("securityContext.capabilities.add".to_owned());
    }
    if context["procMount"].as_str().is_some_and(|mount| mount != "Default") {
        return Some("securityContext.procMount".to_owned());
    }
    let has_host_port = |port: &Value| port["hostPort"].as_i64().is_some_and(|port| port != 0);
    if container["ports"].as_array().into_iter().flatten().any(has_host_port) {
        return Some("ports.hostPort".to_owned());
    }
    // A probe of another host would send requests from the node.
    let lifecycle = ["postStart", "preStop"].map(|hook| &container["lifecycle"][hook]);
    let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| &container[probe]);
    let host = |handler: &Value| ["httpGet", "tcpSocket"].iter().any(|way| !is_empty(&handler[*way]["host"]));
    if lifecycle.into_iter().chain(probes).any(host) {
        return Some("a probe or hook with host".to_owned());
    }
    profiles(context).map(|field| format!("securityContext.{field}"))
}

/// Returns the first field of a Pod's or container's security context that violates `baseline` by its profile.
fn profiles(context: &Value) -> Option<&'static str> {
    let selinux = &context["seLinuxOptions"];
    if context["windowsOptions"]["hostProcess"] == true {
        Some("windowsOptions.hostProcess")
    } else if context["appArmorProfile"]["type"] == "Unconfined" {
        Some("appArmorProfile.type")
    } else if context["seccompProfile"]["type"] == "Unconfined" {
        Some("seccompProfile.type")
    } else if !selinux["type"].is_null() && !one_of(&selinux["type"], SELINUX) {
        Some("seLinuxOptions.type")
    } else if !is_empty(&selinux["user"]) || !is_empty(&selinux["role"]) {
        Some("seLinuxOptions")
    } else {
        None
    }
}

fn pod_restricted_violation(pod: &Value) -> Option<String> {
    let is_other = |volume: &&Value| {
        let fields = volume.as_object().into_iter().flatten();
        fields.filter(|(field, _)| *field != "name").any(|(field, _)| !VOLUMES.contains(&field.as_str()))
    };
    let volume = pod["volumes"].as_array().into_iter().flatten().find(is_other);
    let root = pod["securityContext"]["runAsUser"] == 0;
    volume
        .map(|volume| format!("spec.volumes[{}]", volume["name"].as_str().unwrap_or_default()))
        .or_else(|| root.then(|| "spec.securityContext.runAsUser".to_owned()))
}

fn container_restricted_violation(container: &Value, of_pod: &Value) -> Option<String> {
    let context = &container["securityContext"];
    let field = |name: &str| if context[name].is_null() { &of_pod[name] } else { &context[name] };
    let drops = context["capabilities"]["drop"].as_array();
    let found = if context["allowPrivilegeEscalation"] != false {
        "allowPrivilegeEscalation"
    } else if field("runAsNonRoot") != true {
        "runAsNonRoot"
    } else if context["runAsUser"] == 0 {
        "runAsUser"
    } else if !one_of(&field("seccompProfile")["type"], &["RuntimeDefault", "Localhost"]) {
        "seccompProfile"
    } else if !drops.into_iter().flatten().any(|name| name == "ALL") {
        "capabilities.drop"
    } else if context["capabilities"]["add"].as_array().into_iter().flatten().any(|name| name != "NET_BIND_SERVICE") {
        "capabilities.add"
    } else {
        return None;
    };
    Some(format!("securityContext.{found}"))
}

fn one_of(value: &Value, known: &[&str]) -> bool {
    value.as_str().is_some_and(|value| known.contains(&value))
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value == ""
}
