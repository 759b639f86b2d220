//! The life of one Pod: its containers run, its status is written, its files follow their objects, and in the end it is removed.

use std::{convert::Infallible, fs, panic::resume_unwind, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{
    Api,
    api::{DeleteParams, Preconditions},
};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    container,
    context::PodContext,
    prepare::refresh_volumes,
    states::{ContainerRecord, State, pod_status},
};

/// Pause after a write that failed.
const RETRY: Duration = Duration::from_millis(100);
/// Pause before a Pod is replaced whose task has panicked, and may do so again.
const REPLACE: Duration = Duration::from_secs(1);

/// Runs a Pod until it has ended.
pub(crate) async fn run(cx: Arc<PodContext>) {
    if let Err(error) = fs::create_dir_all(&cx.folders.pod) {
        // Its containers say so, too, because no volume can be written.
        tracing::warn!(%error, "make the folder {}", cx.folders.pod.display());
    }
    let mut containers = JoinSet::new();
    let count = cx.state.borrow().containers.len();
    for index in 0..count {
        containers.spawn(container::run(cx.clone(), index));
    }
    let mut pod = cx.pod.as_ref().clone();
    tokio::select! {
        () = all_ended(&mut containers) => {}
        never = write_states(&cx, &mut pod) => match never {},
        never = follow_data(&cx) => match never {},
    }
    let lost = cx.state.borrow().lost_port;
    if let Some(port) = lost {
        cx.note("", &format!("port {port} was taken by another program meanwhile: another Pod is made"));
        let status = PodStatus {
            phase: Some("Failed".to_owned()),
            reason: Some("NodePorts".to_owned()),
            message: Some(format!("port {port} is taken")),
            ..PodStatus::default()
        };
        write(&cx, &mut pod, status).await;
    } else {
        delete(&cx).await;
    }
    clean_up(&cx).await;
}

/// Removes a Pod whose task has panicked, so that its Deployment makes another one, and informs the user.
pub(crate) async fn give_up(cx: Arc<PodContext>) {
    // Its processes ended with its task: nothing may be sent to it.
    let mut pod = cx.pod.as_ref().clone();
    let status = pod_status(&pod, &ContainerRecord::all(&pod), Timestamp::now());
    write(&cx, &mut pod, status).await;
    cx.node.tell_once(
        &cx.source,
        "its task panicked, which is a defect of recif dev: another Pod is made; report it with .recif/logs",
    );
    tokio::select! {
        () = sleep(REPLACE) => {}
        () = cx.ending() => {}
    }
    delete(&cx).await;
    clean_up(&cx).await;
}

/// Waits until all containers have ended. The panic of one is the Pod's.
async fn all_ended(containers: &mut JoinSet<()>) {
    while let Some(ended) = containers.join_next().await {
        if let Err(error) = ended
            && error.is_panic()
        {
            resume_unwind(error.into_panic());
        }
    }
}

/// Deletes the Pod from the API.
async fn delete(cx: &PodContext) {
    let api: Api<Pod> = Api::namespaced(cx.node.client.clone(), &cx.source.namespace);
    let preconditions = Some(Preconditions { uid: cx.pod.metadata.uid.clone(), resource_version: None });
    let params = DeleteParams { preconditions, grace_period_seconds: Some(0), ..DeleteParams::default() };
    if let Err(error) = api.delete(&cx.source.pod, &params).await {
        tracing::debug!(%error, "remove Pod {}", cx.source.pod);
    }
}

/// Removes what the node has of a Pod.
async fn clean_up(cx: &PodContext) {
    cx.node.logs.remove_pod(&cx.source.namespace, &cx.source.pod);
    for token in cx.tokens.lock().await.values() {
        cx.node.config.tokens.revoke(token);
    }
    if let Err(error) = fs::remove_dir_all(&cx.folders.pod) {
        tracing::debug!(%error, "remove the folder {}", cx.folders.pod.display());
    }
}

/// Writes the status each time that the states of the containers change.
async fn write_states(cx: &PodContext, pod: &mut Pod) -> Infallible {
    let mut state = cx.state.subscribe();
    loop {
        let containers = state.borrow_and_update().containers.clone();
        let status = pod_status(pod, &containers, Timestamp::now());
        if pod.status.as_ref() != Some(&status) && !write(cx, pod, status).await {
            sleep(RETRY).await;
            continue;
        }
        if state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Writes a status. Returns whether there is nothing more to do about it.
async fn write(cx: &PodContext, pod: &mut Pod, status: PodStatus) -> bool {
    let mut new = pod.clone();
    new.metadata.resource_version = None;
    new.metadata.managed_fields = None;
    new.status = Some(status);
    let api: Api<Pod> = Api::namespaced(cx.node.client.clone(), &cx.source.namespace);
    match api.replace_subresource("status", &cx.source.pod, &cx.node.write(), &new).await {
        Ok(written) => {
            pod.status = new.status;
            cx.node.pods.observe(written);
            true
        }
        // A Pod that is gone needs no status.
        Err(kube::Error::Api(error)) if error.is_not_found() || error.is_conflict() => {
            pod.status = new.status;
            true
        }
        Err(error) => {
            tracing::debug!(%error, "status of Pod {}", cx.source.pod);
            false
        }
    }
}

/// Writes the files of the Pod again when ConfigMaps or Secrets change, once its containers have written them.
async fn follow_data(cx: &PodContext) -> Infallible {
    let mut data = cx.node.data_changed.subscribe();
    let volumes = cx.pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    let has_data = volumes.is_some_and(|volumes| {
        volumes
            .iter()
            .any(|volume| volume.config_map.is_some() || volume.secret.is_some() || volume.projected.is_some())
    });
    loop {
        if !has_data || data.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        let runs = |container: &ContainerRecord| matches!(container.state, State::Running(_));
        let is_running = cx.state.borrow().containers.iter().any(runs);
        if is_running && let Err(error) = refresh_volumes(cx).await {
            // The files stay as they were, as in the kubelet.
            tracing::debug!(%error, "volumes of Pod {}", cx.source.pod);
        }
    }
}
