//! Tests the Helm charts in a cluster: the API server takes everything that they can make, and an installation changes hands, is
//! upgraded, goes and comes again without a change of the agents. It comes last, because the others use the installation of
//! config/default.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::json;

use super::traffic::{await_response, targets_of};
use crate::{
    cleanup::await_ended_namespaces,
    client::{BackgroundLoad, LoadProfile},
    env::Env,
    gateway,
    kinds::{AGENT, DEFINITION, DEPLOYMENT, SECRET},
    manifests::workload,
    namespace::{Namespace, START_TIMEOUT},
    object::{Object, ObjectExt as _, ObjectsByName},
    operator,
    scenario::{Scenario, scenarios},
    watch::{await_condition, poll},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Exclusive:
    the_api_server_takes_every_value,
    agents_outlive_every_change_of_the_installation,
);

const SYSTEM: &str = operator::NAMESPACE;
/// Values for the images of the local cluster.
const IMAGES: &str = "image.registry=recif.local,image.tag=dev";
const LOAD_PROFILE: LoadProfile =
    LoadProfile { requests: 2, streams: 0, stream: Duration::from_secs(1), retry_on: None };

async fn the_api_server_takes_every_value(ns: Namespace) -> Result<()> {
    let folder = ns.env.prepared("hack/prometheus", &["crds"]).await?;
    let definitions = folder.to_str().context("a path that is text")?;
    ns.env.kubectl(&["apply", "--server-side", "--filename", definitions]).await?;
    poll(START_TIMEOUT, "the kinds of the Prometheus operator", || async {
        ns.env.kubectl(&["get", "servicemonitors,podmonitors,prometheusrules"]).await.map(Some)
    })
    .await?;
    for chart in ["recif-crds", "recif"] {
        let folder = path(&ns.env, &format!("config/helm/{chart}"))?;
        let values = path(&ns.env, &format!("tests/chart/{chart}.yaml"))?;
        // A dry run makes no ServiceAccount, without which the API server takes no Pod of a test.
        let template = ["template", chart, &folder, "--namespace", SYSTEM, "--values", &values, "--skip-tests"];
        let manifests = ns.env.helm(&template).await?;
        let arguments = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--filename", "-"];
        ns.env.kubectl_with(&arguments, manifests).await?;
    }
    ns.env.kubectl(&["delete", "--filename", definitions]).await.map(drop)
}

async fn agents_outlive_every_change_of_the_installation(ns: Namespace) -> Result<()> {
    // While there is no operator, no namespace with agents can go.
    await_ended_namespaces(&ns.env, &ns.name).await?;
    ns.start(&workload("kept", json!({}))).await?;
    let [_, through_gateway] = targets_of(&ns, "kept").await?;
    await_response(&ns, &through_gateway).await?;
    let before = uids(&ns).await?;

    let load = BackgroundLoad::start(&ns.env, &[through_gateway], LOAD_PROFILE).await?;
    // Each field belongs to kubectl too, until a release changes it by force.
    let force = "--force-conflicts";
    let take_over = ["--install", "--take-ownership", force];
    release(&ns.env, "upgrade", "recif-crds", &take_over).await?;
    release(&ns.env, "upgrade", "recif", &take_over).await?;
    ensure!(uids(&ns).await? == before, "an object or a Pod was replaced by the takeover");
    release(&ns.env, "upgrade", "recif", &[force, "--set", "operator.extraArgs={--workers=8}"]).await?;
    let deployment = ns.env.within(SYSTEM, DEPLOYMENT).get(operator::NAME).await?;
    let arguments = deployment.at("/spec/template/spec/containers/0/args");
    ensure!(arguments.as_array().is_some_and(|all| all.contains(&json!("--workers=8"))), "{arguments}");
    ns.env.helm(&["test", "recif", "--namespace", SYSTEM, "--timeout", "2m", "--logs"]).await?;
    load.stop(20, 0).await?;
    ensure!(uids(&ns).await? == before, "an object or a Pod was replaced by the upgrade");

    let keys = ns.env.within(SYSTEM, SECRET).get("recif-identity").await?.id();
    for chart in ["recif", "recif-crds"] {
        ns.env.helm(&["uninstall", chart, "--namespace", SYSTEM]).await?;
    }
    let none = |deployments: &ObjectsByName| deployments.is_empty().then_some(());
    let what = "the Deployments of the release gone";
    await_condition(ns.env.within(SYSTEM, DEPLOYMENT), Default::default(), Duration::from_secs(60), what, none).await?;
    ensure!(uids(&ns).await? == before, "an object or a Pod went with the uninstall");
    for chart in ["recif-crds", "recif"] {
        release(&ns.env, "install", chart, &[]).await?;
    }
    // The Service has another address now.
    let [_, through_gateway] = targets_of(&ns, "kept").await?;
    await_response(&ns, &through_gateway).await?;
    ensure!(uids(&ns).await? == before, "an object or a Pod was replaced by the installation");
    ensure!(
        ns.env.within(SYSTEM, SECRET).get("recif-identity").await?.id() == keys,
        "the gateways' keys were replaced"
    );
    let edited = ns.edit(AGENT, "kept", json!({"spec": {"systemPrompt": "go on"}})).await?;
    let goes_on = |it: &Object| it.is_running() && it.generation() == edited.generation();
    ns.until(AGENT, "kept", START_TIMEOUT, "follows the new operator", goes_on).await.map(drop)
}

/// Installs or upgrades a chart with the images of the local cluster, and waits until its Pods are ready.
async fn release(env: &Env, verb: &str, chart: &str, more: &[&str]) -> Result<()> {
    let folder = path(env, &format!("config/helm/{chart}"))?;
    let mut arguments = vec![verb, chart, &folder, "--namespace", SYSTEM];
    if chart == "recif" {
        arguments.extend(["--set", IMAGES]);
    }
    env.helm(&[&arguments[..], more].concat()).await?;
    if chart == "recif-crds" {
        return Ok(());
    }
    operator::ready(env, operator::replicas(env).await?).await?;
    gateway::ready(env, 0).await
}

/// Returns the uids of the definitions, of the agent and of its Pods.
async fn uids(ns: &Namespace) -> Result<Vec<String>> {
    let definitions = ns.env.all(DEFINITION).list(&Default::default()).await?.items;
    let ours = definitions.iter().filter(|it| it.name_any().ends_with(crds::GROUP)).map(|it| it.id());
    let mut uids: Vec<String> = ours.collect();
    ensure!(uids.len() == crds::KINDS.len(), "{} definitions", uids.len());
    uids.sort();
    uids.push(ns.get(AGENT, "kept").await?.id());
    uids.extend(ns.pod_uids("kept").await?);
    Ok(uids)
}

fn path(env: &Env, file: &str) -> Result<String> {
    Ok(env.file(file).to_str().context("a path that is text")?.to_owned())
}
