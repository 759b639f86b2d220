//! The parts of this process as objects: Pods, Services and EndpointSlices in `recif-system`, where the scaler, `recif trace` and
//! `recif doctor` look for them.

use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{kinds::Kinds, manifest::ObjectId, part::Part};

/// Namespace of the parts.
pub(crate) const NAMESPACE: &str = "recif-system";
/// Node that the Pods of the parts are on: not the one whose Pods are processes of their own.
const NODE: &str = "recif";
/// Field manager of these objects.
const MANAGER: &str = "recif-dev-platform";

/// Ports of the parts on this machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartPorts {
    /// Of the gateway, for clients.
    pub(crate) gateway: u16,
    /// Of the gateway, for the scaler and metrics.
    pub(crate) gateway_admin: u16,
    /// Of the control plane.
    pub(crate) control_plane: u16,
    /// Of the control plane, for metrics.
    pub(crate) control_plane_admin: u16,
}

/// Service of a part.
struct PartService {
    name: &'static str,
    part: Part,
    /// Name of the port, the one of the Service, and the one of the part.
    port: (&'static str, u16, u16),
}

impl PartPorts {
    fn of(self, part: Part) -> Vec<(&'static str, u16)> {
        match part {
            Part::Operator => Vec::new(),
            Part::Gateway => vec![("http", self.gateway), ("admin", self.gateway_admin)],
            Part::ControlPlane => vec![("http", self.control_plane), ("admin", self.control_plane_admin)],
        }
    }

    fn services(self) -> [PartService; 3] {
        [
            PartService { name: "recif-gateway", part: Part::Gateway, port: ("http", 80, self.gateway) },
            PartService { name: "recif-gateway-admin", part: Part::Gateway, port: ("admin", 8081, self.gateway_admin) },
            PartService {
                name: "recif-control-plane",
                part: Part::ControlPlane,
                port: ("http", 80, self.control_plane),
            },
        ]
    }
}

/// Writes the objects of the parts.
///
/// # Errors
/// The API server refuses one.
pub(crate) async fn write(client: &Client, kinds: &Kinds, ports: PartPorts, now: &str) -> Result<(), kube::Error> {
    let writer = Writer { client, kinds };
    writer.apply(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } })).await?;
    for part in Part::ALL {
        writer.apply(pod(part, &ports.of(part))).await?;
        writer.apply_status(pod_status(part, now)).await?;
    }
    for service in ports.services() {
        let written = writer.apply(service_object(&service)).await?;
        let pod = writer.uid(&pod(service.part, &[])).await?;
        writer.apply(slice(&service, written.metadata.uid.as_deref().unwrap_or_default(), &pod)).await?;
    }
    Ok(())
}

struct Writer<'a> {
    client: &'a Client,
    kinds: &'a Kinds,
}

impl Writer<'_> {
    fn api(&self, object: &Value) -> Option<(Api<DynamicObject>, ObjectId)> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let id = ObjectId {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
        };
        let kind = self.kinds.get(&id.api_version, &id.kind)?;
        let api = match kind.namespaced {
            true => Api::namespaced_with(self.client.clone(), &id.namespace, &kind.resource),
            false => Api::all_with(self.client.clone(), &kind.resource),
        };
        Some((api, id))
    }

    async fn apply(&self, object: Value) -> Result<DynamicObject, kube::Error> {
        let (api, id) = self.api(&object).ok_or_else(|| unknown(&object))?;
        api.patch(&id.name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await
    }

    async fn apply_status(&self, object: Value) -> Result<(), kube::Error> {
        let (api, id) = self.api(&object).ok_or_else(|| unknown(&object))?;
        api.patch_status(&id.name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await.map(drop)
    }

    async fn uid(&self, object: &Value) -> Result<String, kube::Error> {
        let (api, id) = self.api(object).ok_or_else(|| unknown(object))?;
        Ok(api.get(&id.name).await?.metadata.uid.unwrap_or_default())
    }
}

/// Returns the error for a kind that the API server does not keep.
fn unknown(object: &Value) -> kube::Error {
    kube::Error::Service(format!("the API server keeps no {}", object["kind"]).into())
}

fn labels(part: Part) -> Value {
    json!({ "app.kubernetes.io/name": part.full_name(), "app.kubernetes.io/part-of": "recif" })
}

fn pod(part: Part, ports: &[(&str, u16)]) -> Value {
    let ports: Vec<_> =
        ports.iter().map(|(name, port)| json!({ "name": name, "containerPort": port, "hostPort": port })).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": part.full_name(), "namespace": NAMESPACE, "labels": labels(part) },
        "spec": {
            "hostNetwork": true,
            "nodeName": NODE,
            "containers": [{ "name": part.name(), "image": "recif.local/operator:dev", "ports": ports }],
        },
    })
}

fn pod_status(part: Part, now: &str) -> Value {
    let condition = |name: &str| json!({ "type": name, "status": "True", "lastTransitionTime": now });
    let mut status = pod(part, &[]);
    if let Some(fields) = status.as_object_mut() {
        fields.remove("spec");
    }
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    status["status"] = json!({
        "phase": "Running", "hostIP": "127.0.0.1", "podIP": "127.0.0.1", "podIPs": [{ "ip": "127.0.0.1" }], "startTime": now,
        "conditions": conditions,
        "containerStatuses": [{
            "name": part.name(), "image": "recif.local/operator:dev", "imageID": "", "ready": true, "started": true,
            "restartCount": 0, "state": { "running": { "startedAt": now } },
        }],
    });
    status
}

/// Returns a Service without a selector: its slice is written here, as that of a program outside of a cluster.
fn service_object(service: &PartService) -> Value {
    let (name, port, target) = service.port;
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": service.name, "namespace": NAMESPACE, "labels": labels(service.part) },
        "spec": { "ports": [{ "name": name, "port": port, "targetPort": target, "protocol": "TCP" }] },
    })
}

fn slice(service: &PartService, uid: &str, pod: &str) -> Value {
    let (name, _, port) = service.port;
    let mut labels = labels(service.part);
    labels["kubernetes.io/service-name"] = service.name.into();
    // The scaler believes slices of this controller alone.
    labels["endpointslice.kubernetes.io/managed-by"] = "endpointslice-controller.k8s.io".into();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": service.name, "namespace": NAMESPACE, "labels": labels,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Service", "name": service.name, "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "endpoints": [{
            "addresses": ["127.0.0.1"],
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "nodeName": NODE,
            "targetRef": { "kind": "Pod", "name": service.part.full_name(), "namespace": NAMESPACE, "uid": pod },
        }],
        "ports": [{ "name": name, "port": port, "protocol": "TCP" }],
    })
}

#[cfg(test)]
mod tests {
    use apiserver::ApiServer;
    use kube::{api::ListParams, core::GroupVersionKind, discovery::ApiResource};

    use super::*;

    #[tokio::test]
    async fn the_parts_are_found_where_they_are_looked_for() {
        let client = Client::new(ApiServer::new(jiff::Timestamp::now, |_| None), "default");
        let kinds = Kinds::discover(&client).await.unwrap();
        let ports = PartPorts { gateway: 8080, gateway_admin: 1, control_plane: 8780, control_plane_admin: 2 };
        for _ in 0..2 {
            write(&client, &kinds, ports, "2026-01-01T00:00:00Z").await.unwrap();
        }
        let list = async |group: &str, kind: &str, plural: &str, labels: &str| {
            let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &resource);
            api.list(&ListParams::default().labels(labels)).await.unwrap().items
        };
        let pods = list("", "Pod", "pods", "app.kubernetes.io/name=recif-operator").await;
        assert_eq!(pods.len(), 1);
        assert_eq!(pods[0].data["status"]["phase"], "Running");
        assert_eq!(pods[0].data["spec"]["containers"][0]["name"], "operator");
        let slices = list(
            "discovery.k8s.io",
            "EndpointSlice",
            "endpointslices",
            "kubernetes.io/service-name=recif-gateway-admin",
        )
        .await;
        let json = serde_json::to_string(&slices[0]).unwrap();
        let slice = cluster::endpoint_slice::EndpointSlice::read(&json).unwrap();
        assert!(slice.service("recif-gateway-admin").is_some());
        assert_eq!(slice.first_port(), Some(1));
        assert_eq!(slice.endpoints().count(), 1);
    }
}
