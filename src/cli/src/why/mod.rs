//! `recif why`: prints one sentence on an object, and a few lines that only the live cluster can add; without a name, the
//! sentences on all that is not as it should be.
//!
//! The sentence comes from the object alone, and is the same in operator and control plane. The details are read on
//! demand, because they change too often for a status: the kubelet's messages on each container, or its last warning about
//! a Pod without containers, the last output of a container, the state of a rollout, and the problems of the objects that
//! it waits for. Last come notes that also concern a Ready object.

mod list;
mod warnings;

use actions::render::MANAGED_BY_LABEL;
use crds::{
    ApiKind, MANAGED_BY, Role,
    diagnosis::{deployment_problems, failing_container, first_lines, last_error, pod_problems, reference_problem},
};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::api::{DynamicObject, LogParams};
use meta::condition_type;
use serde_json::json;

use self::warnings::newest_warning;
use crate::{
    cluster::{UserClient, pods_of},
    error::CliError,
    exit::Exit,
    output::{PrintFormat, hint, print_foreign},
    selection::Selection,
    target::ConnectArgs,
    trace::status_of,
};

/// Lines that are read from the end of a log.
const LOG_LINES: i64 = 20;

/// Flags of `recif why`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code 0: the object is Ready, or all is as it should be; 3: it is not. `recif --help` has the \
                        others.\n\nExamples:\n  recif why agent/my-agent\n  recif why -A                     what is not as \
                        it should be, in all namespaces\n  recif why agents,flows -n team-a\n  kubectl recif why tl weather \
                        -n team-a\n  recif why ag my-agent -o json | jq -r .waitingFor[]"
)]
pub struct WhyArgs {
    /// KIND/NAME or KIND NAME, or several; without a name, what is not as it should be: of these kinds, or of all
    #[arg(num_args = 0.., value_name = "OBJECT")]
    object: Vec<String>,
    /// In all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    #[command(flatten)]
    connection: ConnectArgs,
    /// How to print it
    #[arg(short, long, value_parser = PrintFormat::parser(PrintFormat::TEXT_FORMATS), default_value = "plain")]
    output: PrintFormat,
}

/// Explains the named objects, or lists what is not as it should be.
pub(super) async fn run(args: WhyArgs) -> Result<Exit, CliError> {
    let WhyArgs { object, all_namespaces, connection, output } = args;
    let selection = Selection::parse(&object)?;
    selection.check_namespaces(all_namespaces)?;
    let live = connection.connect().await?;
    let Selection::Objects(objects) = &selection else {
        return list::run(&live, &selection, all_namespaces, output).await;
    };
    let (mut worst, mut missing) = (Exit::Done, None::<CliError>);
    for (kind, name) in objects {
        match live.object(kind, name).await? {
            Some(object) => {
                if !explain(&live, kind, name, &object, output).await? {
                    worst = Exit::NotReady;
                }
            }
            None => {
                if let Some(before) = missing.replace(CliError::missing(&live, kind, name)) {
                    hint(&format!("error: {before}"));
                }
            }
        }
    }
    missing.map_or(Ok(worst), Err)
}

/// Prints the sentence and the details of an object. Returns whether it is Ready.
async fn explain(
    live: &UserClient,
    kind: &'static ApiKind,
    name: &str,
    object: &DynamicObject,
    output: PrintFormat,
) -> Result<bool, CliError> {
    let summary = summarize(kind, object);
    if output == PrintFormat::Plain {
        print_foreign(&format!("{}\n", summary.sentence))?;
    }
    let details = if summary.ready { Vec::new() } else { first_lines(collect_details(live, kind, name, object).await) };
    let mut notes = crds::why::notes(&status_of(object));
    notes.extend(pod_state_note(live, kind, name, object).await);
    match output {
        PrintFormat::Json | PrintFormat::Yaml => {
            let StatusSummary { sentence, phase, ready, reason, attention: _ } = &summary;
            let answer = json!({ "kind": kind.name, "namespace": live.namespace, "name": name, "phase": phase, "ready": ready,
                "reason": reason, "sentence": sentence, "waitingFor": details, "notes": notes });
            print_foreign(&output.document("the answer", &answer)?)?;
        }
        _ => print_foreign(&details.iter().chain(&notes).map(|line| format!("  {line}\n")).collect::<String>())?,
    }
    Ok(summary.ready)
}

/// Explains why an object is not Ready, as `recif why` does: the sentence, then the details. Empty for a Ready object.
pub(super) async fn explain_not_ready(
    live: &UserClient,
    kind: &'static ApiKind,
    name: &str,
    object: &DynamicObject,
) -> Vec<String> {
    let summary = summarize(kind, object);
    if summary.ready {
        return Vec::new();
    }
    let details = first_lines(collect_details(live, kind, name, object).await);
    [summary.sentence].into_iter().chain(details.into_iter().map(|line| format!("  {line}"))).collect()
}

/// Summary of an object's status.
#[derive(Debug)]
pub(super) struct StatusSummary {
    /// Sentence on the object.
    pub(super) sentence: String,
    /// Phase last written.
    pub(super) phase: Option<String>,
    /// Set if the object is Ready for the newest generation of its spec.
    pub(super) ready: bool,
    /// Reason of that, for machines.
    reason: Option<String>,
    /// Set if the object is not as it should be.
    attention: bool,
}

/// Summarizes the status of an object.
pub(super) fn summarize(kind: &ApiKind, object: &DynamicObject) -> StatusSummary {
    let status = status_of(object);
    let why = crds::why::why(kind.name, &object.metadata, object.data.get("status").map(|_| &status));
    let generation = object.metadata.generation;
    let current = generation.is_none() || status.observed_generation >= generation;
    let ready = status.condition(condition_type::READY).is_some_and(|ready| ready.status == "True");
    let crds::StatusExplanation { sentence, phase, reason, attention, .. } = why;
    StatusSummary { sentence, phase, ready: ready && current, reason, attention }
}

/// Collects the details, those of references first. Objects that the caller may not read are left out, with a note.
async fn collect_details(live: &UserClient, kind: &'static ApiKind, name: &str, object: &DynamicObject) -> Vec<String> {
    let mut lines = Vec::new();
    let references = serde_json::to_value(object).map(|object| kind.references(&object)).unwrap_or_default();
    for reference in references {
        // Secrets and ConfigMaps are not kinds of the API, and the sentence names what is missing in them.
        let Some(kind) = ApiKind::find(reference.kind.as_str()) else { continue };
        let namespace = reference.namespace.as_deref().unwrap_or(&live.namespace);
        match live.object_in(namespace, kind, &reference.name).await {
            Ok(found) => {
                lines.extend(reference_problem(kind.name, &reference.name, found.as_ref().map(status_of).as_ref()));
            }
            Err(error) => hint(&format!("note: {error}")),
        }
    }
    if kind.role != Role::Workload {
        return lines;
    }
    match live.deployment(name).await {
        // A Deployment of the same name that another client created says nothing about this object.
        Ok(deployment) => {
            lines.extend(deployment.iter().filter(|found| is_managed(found)).flat_map(deployment_problems))
        }
        Err(error) => hint(&format!("note: {error}")),
    }
    match live.pods(&live.namespace, &pods_of(kind, name)).await {
        Ok(pods) => {
            for pod in &pods {
                lines.extend(pod_problems(pod));
                lines.extend(newest_warning(live, pod).await);
                lines.extend(failing_container_output(live, pod).await);
            }
        }
        Err(error) => hint(&format!("note: {error}")),
    }
    lines
}

/// Returns the warning on several Pods that do not share their state. For a spec that does not name the storage, the
/// Agent's ConfigMap decides.
async fn pod_state_note(live: &UserClient, kind: &ApiKind, name: &str, object: &DynamicObject) -> Option<String> {
    let held = |storage: Option<&str>| crds::why::pod_local_state(kind.name, &object.data["spec"], storage);
    held(Some("memory"))?;
    if let Some(text) = held(None) {
        return Some(text);
    }
    match live.config_map(&format!("{name}-config")).await {
        Ok(config) => held(config?.data?.get("CORAIL_STORAGE").map(String::as_str)),
        Err(error) => {
            hint(&format!("note: {error}"));
            None
        }
    }
}

fn is_managed(deployment: &Deployment) -> bool {
    deployment
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(MANAGED_BY_LABEL))
        .is_some_and(|by| by == MANAGED_BY)
}

/// Returns the last error of the container that keeps the Pod from being ready.
async fn failing_container_output(live: &UserClient, pod: &Pod) -> Option<String> {
    let name = pod.metadata.name.as_deref()?;
    let (container, previous) = failing_container(pod)?;
    let tail_lines = Some(LOG_LINES);
    let params = LogParams { container: Some(container.to_owned()), previous, tail_lines, ..LogParams::default() };
    match live.log(&live.namespace, name, &params, |_| true).await {
        Ok(log) => last_error(&log).map(|words| format!("Pod {name}, {container} says: {words}")),
        Err(error) => {
            hint(&format!("note: {error}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// Returns a client of a cluster that holds these objects, by the path at which they are read.
    fn live(objects: &[(&str, Value)]) -> UserClient {
        let objects: HashMap<String, Value> =
            objects.iter().map(|(path, object)| ((*path).to_owned(), object.clone())).collect();
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path();
            let name = path.rsplit('/').next().unwrap_or_default();
            let gone = json!({ "kind": "Status", "code": 404, "message": "gone", "reason": "NotFound", "status": "Failure",
                "details": { "name": name } });
            let (status, body) = match objects.get(path) {
                Some(object) => (StatusCode::OK, object.clone()),
                None if name == "pods" => {
                    (StatusCode::OK, json!({ "apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [] }))
                }
                None => (StatusCode::NOT_FOUND, gone),
            };
            let answer = Response::builder().status(status).body(Body::from(body.to_string().into_bytes())).unwrap();
            async move { Ok::<_, std::io::Error>(answer) }
        });
        UserClient::mocked(kube::Client::new(service, "a"), "a")
    }

    async fn collected(live: &UserClient, kind: &str, spec: Value) -> Vec<String> {
        let object = json!({ "apiVersion": "agents.recif.dev/v1", "kind": kind,
            "metadata": { "namespace": "a", "name": "one" }, "spec": spec });
        collect_details(live, ApiKind::find(kind).unwrap(), "one", &serde_json::from_value(object).unwrap()).await
    }

    #[tokio::test]
    async fn a_reference_is_read_in_the_namespace_that_it_names() {
        let server = json!({ "apiVersion": "agents.recif.dev/v1", "kind": "MCPServer",
            "metadata": { "namespace": "b", "name": "files" },
            "status": { "phase": "Error", "conditions": [{ "type": "Ready", "status": "False", "reason": "X",
                "message": "it is down", "lastTransitionTime": "2026-01-01T00:00:00Z" }] } });
        let live = live(&[("/apis/agents.recif.dev/v1/namespaces/b/mcpservers/files", server)]);
        let spec = json!({ "name": "one", "type": "mcp", "mcpServerRef": { "kind": "MCPServer", "name": "files", "namespace": "b" } });
        assert_eq!(collected(&live, "Tool", spec).await, ["MCPServer files: Error: it is down"]);
    }

    #[tokio::test]
    async fn what_keeps_an_object_from_being_ready_is_told_before_anything_waits_for_it() {
        let pods = json!({ "apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [{ "metadata": { "name": "one-1" },
            "status": { "containerStatuses": [{ "name": "agent", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": { "waiting": { "reason": "ImagePullBackOff", "message": "Back-off pulling image" } } }] } }] });
        let live = live(&[("/api/v1/namespaces/a/pods", pods)]);
        let kind = ApiKind::find("Agent").unwrap();
        let agent = |ready: &str| {
            let condition = json!({ "type": "Ready", "status": ready, "reason": "Deploying", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z" });
            let agent = json!({ "apiVersion": "agents.recif.dev/v1", "kind": "Agent", "metadata": { "namespace": "a", "name": "one" },
                "spec": { "name": "one", "framework": "corail" }, "status": { "phase": "Deploying", "conditions": [condition] } });
            serde_json::from_value::<DynamicObject>(agent).unwrap()
        };
        let lines = explain_not_ready(&live, kind, "one", &agent("False")).await;
        assert!(lines[0].contains("Deploying") && lines[1].contains("ImagePullBackOff"), "{lines:?}");
        assert!(explain_not_ready(&live, kind, "one", &agent("True")).await.is_empty());
    }

    #[tokio::test]
    async fn a_pod_without_containers_is_explained_by_the_newest_warning_about_it() {
        let pods = json!({ "apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [{
            "metadata": { "name": "one-1", "uid": "u" },
            "status": { "containerStatuses": [{ "name": "agent", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": { "waiting": { "reason": "ContainerCreating" } } }] } }] });
        let warning = |reason: &str, message: &str, second: u8| {
            json!({ "metadata": { "name": format!("w{second}") }, "involvedObject": {}, "type": "Warning", "reason": reason,
                "message": message, "lastTimestamp": format!("2026-01-01T00:00:0{second}Z") })
        };
        let mount = warning("FailedMount", "secret \"keys\" not found", 7);
        let sandbox = warning("FailedCreatePodSandBox", "no address", 1);
        let never = warning("ErrImageNeverPull", "Container image \"x\" is not present", 8);
        let bare = warning("Failed", "Error: ErrImageNeverPull", 9);
        for (warnings, expected) in [
            (json!([mount, sandbox]), "FailedMount: secret \"keys\" not found"),
            (json!([mount, bare, never]), "ErrImageNeverPull: Container image \"x\" is not present"),
        ] {
            let events = json!({ "apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": warnings });
            let answers = [("/api/v1/namespaces/a/pods", pods.clone()), ("/api/v1/namespaces/a/events", events)];
            let spec = json!({ "name": "one", "framework": "corail" });
            assert_eq!(collected(&live(&answers), "Agent", spec).await, [format!("Pod one-1: {expected}")]);
        }
    }

    #[tokio::test]
    async fn a_spec_without_storage_is_judged_by_its_config_map() {
        let kind = ApiKind::find("Agent").unwrap();
        let agent = |spec: Value| {
            let mut whole = json!({ "name": "one", "framework": "corail", "replicas": 2 });
            whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            let agent = json!({ "apiVersion": "agents.recif.dev/v1", "kind": "Agent", "metadata": { "name": "one" }, "spec": whole });
            serde_json::from_value::<DynamicObject>(agent).unwrap()
        };
        for (storage, held) in [("memory", true), ("postgresql", false)] {
            let config = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "one-config" },
                "data": { "CORAIL_STORAGE": storage } });
            let live = live(&[("/api/v1/namespaces/a/configmaps/one-config", config)]);
            assert_eq!(pod_state_note(&live, kind, "one", &agent(json!({}))).await.is_some(), held, "{storage}");
        }
        let bare = live(&[]);
        assert!(pod_state_note(&bare, kind, "one", &agent(json!({}))).await.is_none(), "not rendered yet");
        let own = pod_state_note(&bare, kind, "one", &agent(json!({ "storage": "memory" }))).await.unwrap();
        assert!(own.contains("set storage to postgresql"), "{own}");
    }

    #[tokio::test]
    async fn a_foreign_deployment_explains_nothing() {
        let deployment = |labels: Value| {
            json!({ "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": { "namespace": "a", "name": "one", "labels": labels },
                "status": { "conditions": [{ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
                    "message": "quota" }] } })
        };
        let spec = json!({ "name": "one", "framework": "corail" });
        for (labels, expected) in [(json!({}), false), (json!({ MANAGED_BY_LABEL: MANAGED_BY }), true)] {
            let live = live(&[("/apis/apps/v1/namespaces/a/deployments/one", deployment(labels.clone()))]);
            assert_eq!(!collected(&live, "Agent", spec.clone()).await.is_empty(), expected, "{labels}");
        }
    }
}
