//! Renders the [native sidecar](https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/) of a workload's Pods: an
//! init container that keeps running, so that it starts before the workload's container and ends after it.
//!
//! On the deletion of a Pod two `preStop` hooks start at once: the sidecar's own hook makes it a lame duck (it announces the
//! shutdown and serves on), and the workload's hook drains (it returns when no request is in flight any more). The workload gets
//! SIGTERM only then, and the sidecar only when the workload has ended. So there is no fixed delay. The hooks authenticate by a
//! key that only the Pod's template holds.

use std::time::Duration;

use crds::{MCPServer, PROXY_CONTAINER, PROXY_PORT, PROXY_PORT_NAME, Traffic, UPSTREAM_PORT_NAME, digest::sha256_hex};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::{
    RenderError,
    container::{Handler, Probes, pull_policy},
};

/// Name of the container, and of its image in `status.images`.
pub const PROXY: &str = PROXY_CONTAINER;
/// Target port of the Service: the sidecar's, or without a sidecar the workload's.
pub(super) const SERVICE_PORT: &str = PROXY_PORT_NAME;
/// Name of the workload's port behind the sidecar.
const UPSTREAM_PORT: &str = UPSTREAM_PORT_NAME;
/// Lame duck period of a Pod that is being deleted: it serves as before until all clients know that it is going.
const LAME_DUCK: Duration = Duration::from_secs(5);
/// Rest of the Pod's termination grace period: 10 s for the workload's own SIGTERM, and 5 s of reserve.
const SHUTDOWN_MARGIN: Duration = Duration::from_secs(10 + 5);
/// Termination grace period of a Pod without a sidecar, in seconds: the runtime drains for 25 s after SIGTERM.
const GRACE_WITHOUT_SIDECAR: u64 = 30;

/// Fields of the sidecar that the overlay may change.
const OVERLAY_FIELDS: [&str; 7] =
    ["name", "image", "imagePullPolicy", "resources", "env", "securityContext", "terminationMessagePolicy"];

/// Program of the sidecar's image.
const PROGRAM: &str = "/recif-proxy";
/// Variable in the workload's container that announces the sidecar: Récif's runner then accepts requests from the sidecar only.
const BEHIND_SIDECAR: &str = "RECIF_SIDECAR";

/// Properties of the sidecar that come from the operator and stay pinned until the template changes for another reason.
#[derive(Debug, Clone, Copy)]
pub struct PinnedProxy<'a> {
    /// Its image.
    pub image: &'a str,
    /// Public keys of the gateways; `None`: the template is older than those.
    pub caller_keys: Option<&'a str>,
    /// True if the sidecar itself tells gateways that its Pod is ready; `false`: the template is older than that.
    pub tells_ready: bool,
    /// True if the workload's container declares the sidecar's port; `false`: the template is older than that.
    pub declares_port: bool,
}

impl<'a> From<&'a str> for PinnedProxy<'a> {
    fn from(image: &'a str) -> Self {
        Self { image, caller_keys: None, tells_ready: false, declares_port: false }
    }
}

/// Parameters of a rendered sidecar.
#[derive(Debug)]
pub(super) struct Sidecar<'a> {
    pinned: PinnedProxy<'a>,
    kind: String,
    traffic: &'a Traffic,
    /// Workload, by name and namespace.
    workload: (String, String),
    key: String,
    /// True if clients open streams only to listen, which are no requests in flight.
    listens: bool,
}

impl<'a> Sidecar<'a> {
    /// Returns the sidecar of `owner`, unless it wants none; its container listens on `port`.
    ///
    /// # Errors
    /// [`RenderError::PortTaken`]: both would listen on one port.
    pub(super) fn of<K: Resource<DynamicType = ()>>(
        owner: &K,
        traffic: &'a Traffic,
        port: i32,
        pinned: PinnedProxy<'a>,
    ) -> Result<Option<Self>, RenderError> {
        if !traffic.proxy.enabled {
            return Ok(None);
        }
        if port == PROXY_PORT {
            return Err(RenderError::PortTaken(port));
        }
        let mut key = sha256_hex(owner.uid().unwrap_or_default().as_bytes());
        key.truncate(32);
        let workload = (owner.name_any(), owner.namespace().unwrap_or_default());
        let kind = K::kind(&()).into_owned();
        Ok(Some(Self { pinned, listens: kind == MCPServer::kind(&()), kind, traffic, workload, key }))
    }

    /// Returns the container, in front of one that listens on `port`.
    pub(super) fn container(&self, port: i32) -> Value {
        let (name, namespace) = &self.workload;
        let mut env = vec![
            ("RECIF_UPSTREAM_URL", format!("http://127.0.0.1:{port}")),
            ("RECIF_CONCURRENCY", self.traffic.concurrency().to_string()),
            ("RECIF_TIMEOUT", duration_text(self.traffic.timeout())),
            ("RECIF_LAME_DUCK", duration_text(LAME_DUCK)),
            ("RECIF_SHUTDOWN_TIMEOUT", duration_text(self.traffic.drain_timeout())),
            ("RECIF_KEY", self.key.clone()),
            ("RECIF_NAME", name.clone()),
            ("RECIF_NAMESPACE", namespace.clone()),
        ];
        if self.listens {
            env.push(("RECIF_LISTEN_STREAMS", "true".to_owned()));
        }
        if let Some(keys) = self.pinned.caller_keys {
            env.push(("RECIF_KIND", self.kind.clone()));
            env.push(("RECIF_CALLER_KEYS", keys.to_owned()));
        }
        if self.traffic.proxy.require_identity {
            env.push(("RECIF_REQUIRE_IDENTITY", "true".to_owned()));
        }
        let env: Vec<_> = env.into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        let port = if self.pinned.declares_port { json!(PROXY_PORT) } else { json!(SERVICE_PORT) };
        let probe = |path: &str, failures: i32| {
            json!({
                "httpGet": { "path": path, "port": port },
                "periodSeconds": 1,
                "failureThreshold": failures,
            })
        };
        let mut container = json!({
            "name": PROXY,
            "image": self.pinned.image,
            "imagePullPolicy": pull_policy(self.pinned.image),
            "restartPolicy": "Always",
            "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } },
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": { "drop": ["ALL"] },
            },
        });
        container["env"] = Value::Array(env);
        if !self.pinned.declares_port {
            container["ports"] = json!([declared_port()]);
        }
        // The workload's container starts only after this probe has passed, which takes the kubelet up to a second, and it can
        // start without the sidecar. Templates that have the probe keep it, so that no Pod is replaced for it alone.
        if !self.pinned.tells_ready {
            container["startupProbe"] = probe("/healthz", 60);
        }
        container["readinessProbe"] = probe("/readyz", 2);
        container["lifecycle"]["preStop"] = match self.pinned.caller_keys {
            // By the program itself, over loopback: from the network any client that can read the template could call it.
            Some(_) => json!({ "exec": { "command": [PROGRAM, "lame-duck"] } }),
            None => self.hook("/_recif/lame-duck"),
        };
        container
    }

    /// Configures the sidecar of a finished template to query the readiness of its workload, so that a gateway with waiting
    /// requests need not wait for the kubelet too. Nothing is configured if anything besides the workload's own probes, as they
    /// are rendered, decides on the readiness, or if those go to another port than the requests: then only the kubelet can judge.
    pub(super) fn learn_readiness(&self, template: &mut Value, kind: &str, probes: Probes<'_>) {
        let asked = match probes.readiness {
            Handler::Http(path) => path,
            Handler::Tcp => "tcp",
        };
        // The sidecar writes the path into its request as it is; the kubelet escapes other characters.
        let is_probed = asked.bytes().all(|byte| byte.is_ascii_graphic()) && probes.port.is_none();
        if !self.pinned.tells_ready || !is_probed {
            return;
        }
        let gates = template["spec"]["readinessGates"].as_array().is_some_and(|gates| !gates.is_empty());
        let plain = |container: &Value| {
            let is = |probe: &str, rendered: Value| container[probe] == rendered;
            match container["name"] == kind {
                true => {
                    is("readinessProbe", probes.readiness(UPSTREAM_PORT))
                        && is("startupProbe", probes.startup(UPSTREAM_PORT))
                        && container.pointer("/lifecycle/postStart").is_none()
                }
                false => is("readinessProbe", Value::Null) && is("startupProbe", Value::Null),
            }
        };
        let alone = listed(template, "initContainers")
            .chain(listed(template, "containers"))
            .all(|container| container["name"] == PROXY || plain(container));
        let containers = template["spec"]["initContainers"].as_array_mut().into_iter().flatten();
        let proxy = containers.into_iter().find(|container| container["name"] == PROXY);
        if let Some(env) = proxy.and_then(|proxy| proxy["env"].as_array_mut()).filter(|_| alone && !gates) {
            let uid = json!({ "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.uid" } });
            env.push(json!({ "name": "RECIF_POD_UID", "valueFrom": uid }));
            env.push(json!({ "name": "RECIF_READINESS", "value": asked }));
        }
    }

    /// Returns the sidecar's port as the workload's container declares it: before Kubernetes 1.33 the controller of
    /// EndpointSlices does not find the ports of init containers by name (kubernetes/kubernetes#128850).
    pub(super) fn port(&self) -> Option<Value> {
        self.pinned.declares_port.then(declared_port)
    }

    /// Returns the `preStop` hook of the workload's container, which drains.
    pub(super) fn drain(&self) -> Value {
        self.hook("/_recif/drain")
    }

    /// Returns the variable that announces the sidecar to the workload's container, unless the spec sets it. It is set only if
    /// the sidecar verifies callers, and never for an MCPServer.
    pub(super) fn variable(&self, env: &[Value]) -> Option<Value> {
        let listens_behind = self.pinned.caller_keys.is_some() && !self.listens;
        let taken = env.iter().any(|variable| variable["name"] == BEHIND_SIDECAR);
        (listens_behind && !taken).then(|| json!({ "name": BEHIND_SIDECAR, "value": "true" }))
    }

    fn hook(&self, path: &str) -> Value {
        // By number: a hook cannot refer to the name of another container's port.
        let headers = [json!({ "name": "X-Recif-Key", "value": self.key })];
        json!({ "httpGet": { "path": path, "port": PROXY_PORT, "httpHeaders": headers } })
    }

    /// Rejects an overlay that would remove or bypass the sidecar.
    pub(super) fn check_overlay(&self, overlay: &Value, kind: &str) -> Result<(), RenderError> {
        let refuse = |message: String| Err(RenderError::PodTemplate(message));
        if overlay.pointer("/spec/initContainers").is_some_and(|list| !list.is_array()) {
            return refuse(
                "initContainers must be a list: to run without the sidecar set proxy.enabled to false".into(),
            );
        }
        for container in listed(overlay, "initContainers").filter(|found| found["name"] == PROXY) {
            let fields = container.as_object().into_iter().flatten().map(|(field, _)| field);
            if let Some(field) = fields.filter(|field| !OVERLAY_FIELDS.contains(&field.as_str())).min() {
                return refuse(format!("container {PROXY} is the sidecar, which sets {field} itself: remove that"));
            }
            let variables = container["env"].as_array().into_iter().flatten();
            let names = variables.filter_map(|variable| variable["name"].as_str());
            if let Some(name) = names.filter(|name| name.starts_with("RECIF_") && *name != "RECIF_IDLE_TIMEOUT").min() {
                return refuse(format!(
                    "container {PROXY} is the sidecar, whose {name} comes from the spec: remove that"
                ));
            }
        }
        for container in listed(overlay, "containers") {
            if container["name"] == PROXY {
                return refuse(format!(
                    "{PROXY} is the name of the sidecar: give the container another one, or change the sidecar under initContainers"
                ));
            }
            for port in container["ports"].as_array().into_iter().flatten() {
                if port["name"] == SERVICE_PORT || port["containerPort"] == PROXY_PORT {
                    return refuse(format!(
                        "port {PROXY_PORT} and the name {SERVICE_PORT} are the sidecar's: give the port another number or name"
                    ));
                }
            }
        }
        for container in listed(overlay, "containers").filter(|found| found["name"] == kind) {
            let lifecycle = container.get("lifecycle");
            if lifecycle.is_some_and(|hooks| !hooks.is_object() || hooks.get("preStop").is_some()) {
                return refuse(format!(
                    "lifecycle.preStop of container {kind} is where the sidecar empties the Pod: remove it, or set \
                     proxy.enabled to false"
                ));
            }
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                let port = |handler: &str| &container[probe][handler]["port"];
                if [port("httpGet"), port("tcpSocket")].contains(&&json!(SERVICE_PORT)) {
                    return refuse(format!(
                        "{probe} of container {kind} names port {SERVICE_PORT}, which is the sidecar's: name it {UPSTREAM_PORT}"
                    ));
                }
            }
        }
        Ok(())
    }
}

fn listed<'a>(overlay: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    overlay["spec"][list].as_array().into_iter().flatten()
}

/// Returns the sidecar's port as a container declares it.
fn declared_port() -> Value {
    json!({ "name": SERVICE_PORT, "containerPort": PROXY_PORT })
}

/// Returns the name of the workload's port.
pub(super) fn port_name(sidecar: Option<&Sidecar<'_>>) -> &'static str {
    if sidecar.is_some() { UPSTREAM_PORT } else { SERVICE_PORT }
}

/// Returns the termination grace period in seconds: lame duck, drain, the workload's own SIGTERM, and a reserve.
pub(super) fn grace(sidecar: Option<&Sidecar<'_>>) -> u64 {
    sidecar.map_or(GRACE_WITHOUT_SIDECAR, |sidecar| {
        let whole = LAME_DUCK + sidecar.traffic.drain_timeout() + SHUTDOWN_MARGIN;
        whole.as_secs() + u64::from(whole.subsec_nanos() > 0)
    })
}

fn duration_text(length: Duration) -> String {
    match length.subsec_millis() {
        0 => format!("{}s", length.as_secs()),
        _ => format!("{}ms", length.as_millis()),
    }
}
