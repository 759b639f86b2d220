//! The controller of Deployments: makes and deletes Pods as [`roll_out`] decides, and writes the status.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Preconditions},
};

use crate::{
    deployment_status,
    output::Source,
    pod_spec::{self, DevAnnotations, REQUIRE_IDENTITY, containers},
    ports::PortMap,
    roll_out::roll_out,
    shared::{NodeState, controller},
};

/// Pause before Pods are made again that could not be made.
const RETRY: SignedDuration = SignedDuration::from_secs(1);

/// Takes the next step of a Deployment that owns these Pods. Returns the time at which it is to be looked at again.
pub(crate) async fn reconcile(shared: &NodeState, deployment: &Deployment, pods: &[&Pod]) -> Option<Timestamp> {
    // An owner that is not known yet says later what is to run.
    let owner = dev_annotations(shared, deployment)?;
    let template = deployment.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let hash = pod_spec::template_hash(&template, &owner);
    let now = Timestamp::now();
    let mut plan = roll_out(deployment, &hash, pods, now);
    let api: Api<Pod> = Api::namespaced(shared.client.clone(), &deployment.namespace().unwrap_or_default());
    for name in &plan.delete {
        let uid = pods.iter().find(|pod| pod.metadata.name.as_ref() == Some(name)).and_then(|pod| pod.uid());
        let preconditions = Some(Preconditions { uid, resource_version: None });
        match api.delete(name, &DeleteParams { preconditions, ..DeleteParams::default() }).await {
            Ok(deleted) => {
                if let Some(pod) = deleted.left().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
                    shared.pods.observe(pod);
                }
            }
            // The watch says what became of it.
            Err(error) => tracing::debug!(%error, "delete Pod {name}"),
        }
    }
    for _ in 0..plan.create {
        match create(shared, deployment, &hash, &owner, &api).await {
            Ok(pod) => shared.pods.observe(pod),
            Err(message) => {
                let failure = deployment_status::failure(message, deployment.status.as_ref(), now);
                plan.status.conditions.get_or_insert_default().push(failure);
                plan.next = Some(plan.next.map_or(now + RETRY, |next| next.min(now + RETRY)));
                break;
            }
        }
    }
    if deployment.status.as_ref() != Some(&plan.status) {
        write_status(shared, deployment, plan.status).await;
    }
    plan.next
}

/// Returns the annotations that decide what runs: those of the object that the Deployment belongs to, or its own. None if that object is
/// not known yet.
fn dev_annotations(shared: &NodeState, deployment: &Deployment) -> Option<DevAnnotations> {
    let owner = controller(deployment.metadata.owner_references.as_deref());
    let cache = owner.and_then(|owner| Some((owner, shared.owners.get(owner.kind.as_str())?)));
    let Some((owner, cache)) = cache else {
        return Some(DevAnnotations::of(deployment.metadata.annotations.as_ref()));
    };
    let found = cache.get(&deployment.namespace().unwrap_or_default(), &owner.name)?;
    (found.metadata.uid.as_deref() == Some(&owner.uid)).then(|| DevAnnotations::of(found.metadata.annotations.as_ref()))
}

/// Makes a Pod, with a free port for each that it declares.
async fn create(
    shared: &NodeState,
    deployment: &Deployment,
    hash: &str,
    owner: &DevAnnotations,
    api: &Api<Pod>,
) -> Result<Pod, String> {
    let template = deployment.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let mut ports = BTreeMap::new();
    for (declared, is_ours) in pod_spec::declared_ports(&template, owner, &shared.config.programs) {
        // Many programs listen on one port in spite of PORT.
        let wanted = (!is_ours).then_some(declared);
        let found = shared.ports.take(wanted).ok_or("no port from 21000 to 29999 is free: close other programs")?;
        ports.insert(declared, found);
    }
    let pod = pod_spec::pod(deployment, hash, owner, &PortMap(ports), &shared.config.programs);
    tell_what_has_no_effect(shared, &template.spec.unwrap_or_default(), &pod);
    api.create(&shared.write(), &pod).await.map_err(|error| error.to_string())
}

/// Shows the parts of a template that have no effect here.
fn tell_what_has_no_effect(shared: &NodeState, spec: &k8s_openapi::api::core::v1::PodSpec, pod: &Pod) {
    let mut variables = containers(spec).flat_map(|container| container.env.iter().flatten());
    let requires = |value: Option<&str>| value == Some("true");
    if variables.any(|variable| variable.name == REQUIRE_IDENTITY && requires(variable.value.as_deref())) {
        let text = "proxy.requireIdentity has no effect here, because no gateway vouches for callers";
        shared.tell_once(&source(pod, 1), text);
    }
}

/// Returns the source of what a Pod shows: its workload, or its Deployment.
pub(crate) fn source(pod: &Pod, index: usize) -> Source {
    let label = |kind: &&crds::ApiKind| pod.labels().get(&format!("recif.dev/{}", kind.name.to_lowercase())).cloned();
    let workload = crds::KINDS.iter().find_map(|kind| Some((kind.name.to_lowercase(), label(&kind)?)));
    let owner = controller(pod.metadata.owner_references.as_deref());
    let (kind, name) = workload
        .or_else(|| owner.map(|owner| (owner.kind.to_lowercase(), owner.name.clone())))
        .unwrap_or_else(|| ("pod".to_owned(), pod.name_any()));
    Source {
        namespace: pod.namespace().unwrap_or_default(),
        kind,
        name,
        pod: pod.name_any(),
        index,
        container: String::new(),
    }
}

async fn write_status(
    shared: &NodeState,
    deployment: &Deployment,
    status: k8s_openapi::api::apps::v1::DeploymentStatus,
) {
    let mut new = deployment.clone();
    new.metadata.resource_version = None;
    new.metadata.managed_fields = None;
    new.status = Some(status);
    let api: Api<Deployment> = Api::namespaced(shared.client.clone(), &deployment.namespace().unwrap_or_default());
    match api.replace_subresource("status", &deployment.name_any(), &shared.write(), &new).await {
        Ok(written) => shared.deployments.observe(written),
        // The watch says what became of it.
        Err(error) => tracing::debug!(%error, "status of Deployment {}", deployment.name_any()),
    }
}
