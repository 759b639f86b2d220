//! The whole operator on the API server in memory, in paused time: its watches, queues, steps and writes are those of a cluster, and an hour
//! passes in moments.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::time::Duration;

use apiserver::ApiServer;
use clap::{Args as _, Command, FromArgMatches as _};
use crds::{Agent, Tool};
use daemon::runtime::Runtime;
use http::{HeaderValue, Request, header::USER_AGENT};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace},
};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    client::Body,
};
use operator::{
    args::OperatorArgs,
    prepare::{OperatorError, prepare},
    run::reconcile,
};
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tower::ServiceExt as _;

/// Namespace of the objects.
const NAMESPACE: &str = "default";
/// Longest wait for a condition, of paused time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes a client of a new API server. It has a name, by which the server knows who wrote a field.
fn client() -> Client {
    let server = ApiServer::new(jiff::Timestamp::now, |_| None);
    let named = server.map_request(|mut request: Request<Body>| {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("recif/test"));
        request
    });
    Client::new(named, NAMESPACE)
}

/// Starts an operator that is alone, with the flags that `recif dev` gives it.
fn start(client: &Client, runtime: Runtime) -> JoinHandle<Result<(), OperatorError>> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The environment of the tests sets no flag.
    let command = OperatorArgs::augment_args(Command::new("operator")).mut_args(|arg| arg.env(None::<&'static str>));
    let flags = ["operator", "--leader-elect=false", "--network-policies=false", "--agent-image", "runner"];
    let args = OperatorArgs::from_arg_matches(&command.try_get_matches_from(flags).unwrap()).unwrap();
    let mut operator = prepare(args).unwrap();
    operator.listen = None;
    tokio::spawn(reconcile(operator, Some(client.clone()), runtime))
}

fn objects<K: Resource<DynamicType = ()>>(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), NAMESPACE, &ApiResource::erase::<K>(&()))
}

async fn create<K: Resource<DynamicType = ()>>(client: &Client, name: &str, spec: Value) {
    let kind = K::kind(&());
    let object = json!({ "apiVersion": K::api_version(&()), "kind": kind, "metadata": { "name": name }, "spec": spec });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    objects::<K>(client).create(&PostParams::default(), &object).await.unwrap();
}

/// Waits until `look` finds something, and returns it.
async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

/// Waits until the Agent is in a phase, and its condition Ready has this status and these words.
async fn until_agent(client: &Client, phase: &str, ready: &str, words: &str) {
    let agents = objects::<Agent>(client);
    let what = format!("the Agent is {phase}, Ready is {ready} and says {words:?}");
    until(&what, async || {
        let status = agents.get("shop").await.unwrap().data["status"].take();
        let conditions = status["conditions"].as_array()?;
        let condition = conditions.iter().find(|condition| condition["type"] == "Ready")?;
        let says = condition["message"].as_str().is_some_and(|message| message.contains(words));
        (status["phase"] == phase && condition["status"] == ready && says).then_some(())
    })
    .await;
}

/// Does what Kubernetes does with a Deployment whose Pods become ready.
async fn become_ready(deployments: &Api<Deployment>, name: &str) {
    let deployment = deployments.get(name).await.unwrap();
    let count = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = json!({ "status": {
        "observedGeneration": deployment.metadata.generation, "replicas": count, "updatedReplicas": count,
        "readyReplicas": count, "availableReplicas": count,
    } });
    deployments.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// Returns the version of the store, which each write raises.
async fn version(maps: &Api<ConfigMap>) -> String {
    maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_agent_waits_for_its_tool_runs_rests_for_an_hour_and_goes_with_its_children() {
    let client = client();
    let system: Namespace = serde_json::from_value(json!({ "metadata": { "name": "recif-system" } })).unwrap();
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &system).await.unwrap();
    let runtime = Runtime::with_shutdown(Default::default());
    let stop = runtime.shutdown();
    let running = start(&client, runtime);
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);

    create::<Agent>(&client, "shop", json!({ "name": "shop", "framework": "corail", "tools": ["prices"] })).await;
    until_agent(&client, "Resolving", "False", "\"prices\" not found").await;
    assert!(deployments.get_opt("shop").await.unwrap().is_none(), "it is not rendered without its tool");

    create::<Tool>(
        &client,
        "prices",
        json!({ "name": "prices", "type": "http", "endpoint": "https://prices.example/" }),
    )
    .await;
    until("the Deployment is there", async || deployments.get_opt("shop").await.unwrap()).await;
    until_agent(&client, "Deploying", "False", "").await;
    // The number of its Pods is a write of its own.
    sleep(Duration::from_secs(1)).await;
    become_ready(&deployments, "shop").await;
    until_agent(&client, "Running", "True", "").await;
    assert!(maps.get_opt("shop-config").await.unwrap().is_some());

    // Events are written beside the steps.
    sleep(Duration::from_secs(60)).await;
    let before = version(&maps).await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(version(&maps).await, before, "something is written although nothing changes");

    objects::<Agent>(&client).delete("shop", &DeleteParams::default()).await.unwrap();
    let agents = objects::<Agent>(&client);
    until("the Agent is gone", async || agents.get_opt("shop").await.unwrap().is_none().then_some(())).await;
    until("its Deployment is gone", async || deployments.get_opt("shop").await.unwrap().is_none().then_some(())).await;
    until("its ConfigMap is gone", async || maps.get_opt("shop-config").await.unwrap().is_none().then_some(())).await;

    stop.cancel();
    running.await.unwrap().unwrap();
}
