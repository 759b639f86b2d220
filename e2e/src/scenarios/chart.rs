//! Tests the Helm charts in a cluster: the API server takes everything that they can make; an installation changes hands, is upgraded,
//! goes and comes again without a change of the agents; and its images come from a registry with a password. It comes late, because the
//! others use the installation of config/default.

use std::{fs, io::ErrorKind, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{
    cli::{chat_and_trace, print_steps, run_of_start},
    traffic::{await_response, targets_of},
};
use crate::{
    cleanup::await_ended_namespaces,
    client::{BackgroundLoad, LoadProfile},
    env::Env,
    gateway,
    kinds::{AGENT, DEFINITION, DEPLOYMENT, POD, SECRET, SERVICE_ACCOUNT},
    manifests::{agent, workload},
    namespace::{Namespace, START_TIMEOUT},
    object::{Object, ObjectExt as _, ObjectsByName},
    operator,
    scenario::{Scenario, scenarios},
    watch::{await_condition, poll},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Exclusive:
    the_api_server_takes_every_value,
    agents_outlive_every_change_of_the_installation,
    builtin_traces_show_gateway_agent_and_operator,
    images_come_from_a_registry_with_a_password,
);

const SYSTEM: &str = operator::NAMESPACE;
/// Values for the images of the local cluster.
const IMAGES: &str = "image.registry=recif.local,image.tag=dev";
/// Address of the registry of `hack/cluster start-registry`, by which the node pulls from it.
const REGISTRY: &str = "127.0.0.1:5000";
/// Flags by which a release takes over what kubectl applied. Each field belongs to kubectl too, until a release changes it by force.
pub(super) const TAKE_OVER: [&str; 3] = ["--install", "--take-ownership", "--force-conflicts"];
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
    for helm in ns.env.helms() {
        for chart in ["recif-crds", "recif"] {
            let folder = path(&ns.env, &format!("config/helm/{chart}"))?;
            let values = path(&ns.env, &format!("tests/chart/{chart}.yaml"))?;
            ns.env.tool(helm, &["lint", "--strict", &folder, "--values", &values]).await?;
            let all = [chart, &folder, "--namespace", SYSTEM, "--values", &values];
            // A dry run makes no ServiceAccount, without which the API server takes no Pod of a test.
            let manifests = ns.env.tool(helm, &[&["template"][..], &all, &["--skip-tests"]].concat()).await?;
            let arguments = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--filename", "-"];
            ns.env.kubectl_with(&arguments, manifests).await?;
            let dry = ["--take-ownership", "--dry-run=server"];
            let notes = ns.env.tool(helm, &[&["install"][..], &all, &dry].concat()).await?;
            ensure!(notes.contains("pending-install"), "{helm} would not install {chart}: {notes}");
        }
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
    release(&ns.env, "upgrade", "recif-crds", &TAKE_OVER).await?;
    release(&ns.env, "upgrade", "recif", &TAKE_OVER).await?;
    ensure!(uids(&ns).await? == before, "an object or a Pod was replaced by the takeover");
    let flag = ["--force-conflicts", "--set", "operator.extraArgs={--workers=8}"];
    release(&ns.env, "upgrade", "recif", &flag).await?;
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

async fn builtin_traces_show_gateway_agent_and_operator(ns: Namespace) -> Result<()> {
    let builtin = ["--set", "telemetry.endpoint=builtin"];
    release(&ns.env, "upgrade", "recif", &[&TAKE_OVER[..], &builtin].concat()).await?;
    let shown = traces_are_shown(&ns).await;
    let restored = release(&ns.env, "upgrade", "recif", &TAKE_OVER).await;
    shown.and(restored)
}

async fn traces_are_shown(ns: &Namespace) -> Result<()> {
    control_plane_ready(&ns.env).await?;
    gateway::old_ones_gone(&ns.env).await?;
    chat_and_trace(ns).await?;
    print_steps(ns, "traced", &run_of_start(ns, "traced").await?).await
}

async fn images_come_from_a_registry_with_a_password(ns: Namespace) -> Result<()> {
    ns.env.cluster(&["start-registry"]).await?;
    let result = with_a_registry(&ns).await;
    // What comes later goes on with the images that the node has.
    let forgotten = forget_pulls(&ns.env).await;
    let restored = release(&ns.env, "upgrade", "recif", &TAKE_OVER).await;
    let stopped = ns.env.cluster(&["stop-registry"]).await;
    result.and(forgotten).and(restored).and(stopped)
}

/// Removes the kubelet's records of pulls, as they were before the first one.
///
/// Since Kubernetes 1.35 the kubelet lets a Pod have an image that it has pulled only with the Secret of that pull. It knows images by
/// the digest of their configuration, so those that were loaded without a registry would need that Secret too.
async fn forget_pulls(env: &Env) -> Result<()> {
    env.cluster(&["stop-kubelet"]).await?;
    // With the intents: the kubelet makes records of those that it finds at its start.
    let records = env.state().join("kubelet/image_manager");
    let removed = match fs::remove_dir_all(&records) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    env.cluster(&["start-kubelet"]).await?;
    removed.with_context(|| format!("remove {}", records.display()))
}

async fn with_a_registry(ns: &Namespace) -> Result<()> {
    for (image, name) in [("operator", "operator"), ("proxy", "proxy"), ("runner", "runner"), ("runner", "agent")] {
        let (image, name) = (format!("recif.local/{image}:dev"), format!("{name}:pushed"));
        ns.env.cluster(&["push-image", &image, &name]).await?;
    }
    let from_registry = format!("image.registry={REGISTRY},image.tag=pushed,agentImage={REGISTRY}/agent:pushed");
    let images = ["--set", &from_registry];
    install(&ns.env, "upgrade", "recif", &[&TAKE_OVER[..], &images].concat()).await?;
    let waiting = format!("{REGISTRY}/operator:pushed of Pod {SYSTEM}/recif-");
    poll(START_TIMEOUT, "the kubelet's words on an image without a Secret", || async {
        let (_, said) = ns.env.recif(&["doctor", "-n", &ns.name]).await?;
        Ok(said.lines().any(|line| line.starts_with("fail  images: ") && line.contains(&waiting)).then_some(()))
    })
    .await?;

    let login = login(&ns.env)?;
    Namespace::existing(ns.env.clone(), SYSTEM).apply(&login).await?;
    let secrets = ["--set", "imagePullSecrets[0].name=registry"];
    release(&ns.env, "upgrade", "recif", &[&TAKE_OVER[..], &images, &secrets].concat()).await?;
    control_plane_ready(&ns.env).await?;
    for pod in ns.env.within(SYSTEM, POD).list(&Default::default()).await?.items {
        let image = pod.text("/spec/containers/0/image");
        let is_new = image == format!("{REGISTRY}/operator:pushed");
        ensure!(is_new || pod.metadata.deletion_timestamp.is_some(), "{} runs {image}", pod.name_any());
    }

    ns.apply(&agent("plain", json!({}))).await?;
    ns.await_agent_not_ready("plain", START_TIMEOUT, "Deploying", &["ImagePull", REGISTRY]).await?;
    let (code, said) = ns.env.recif(&["why", "agent/plain", "-n", &ns.name]).await?;
    let words = ["(ImagePull)", "cannot be pulled", "check the image's name and imagePullSecrets"];
    ensure!(code == 3 && words.iter().all(|word| said.contains(word)), "exit code {code}: {said}");
    ns.apply(&login).await?;
    let secrets = json!([{"name": "registry"}]);
    ns.edit(AGENT, "plain", json!({"spec": {"imagePullSecrets": secrets}})).await?;
    let running = ns.await_agent_running("plain").await?;
    let image = running.text("/status/images/agent");
    ensure!(image == format!("{REGISTRY}/agent:pushed"), "it runs {image}: {}", running.at("/status/images"));
    ensure!(ns.chat("plain", "hi").await? == "echo: hi", "it does not echo");

    // The doctor's own Pods have the Secrets of the parts, and those of the ServiceAccount where agents run.
    ns.edit(SERVICE_ACCOUNT, "default", json!({"imagePullSecrets": secrets})).await?;
    // The API server gives new Pods the Secrets of a ServiceAccount as its cache has it.
    poll(START_TIMEOUT, "every image is pulled", || async {
        let (_, said) = ns.env.recif(&["doctor", "-n", &ns.name, "--pull"]).await?;
        ensure!(said.lines().any(|line| line.starts_with("ok    images: ")), "{said}");
        Ok(Some(()))
    })
    .await
}

/// Returns a Secret with the login of the registry, as `kubectl create secret docker-registry` makes it.
fn login(env: &Env) -> Result<Value> {
    let file = env.state().join("registry/login");
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let (username, password) = text.trim().split_once(':').context("no password in the login")?;
    let config = json!({"auths": {REGISTRY: {"username": username, "password": password}}}).to_string();
    Ok(json!({
        "apiVersion": "v1", "kind": SECRET.kind, "metadata": {"name": "registry"},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": config},
    }))
}

/// Installs or upgrades a chart with the images of the local cluster, and waits until its Pods are ready.
pub(super) async fn release(env: &Env, verb: &str, chart: &str, more: &[&str]) -> Result<()> {
    install(env, verb, chart, more).await?;
    if chart == "recif-crds" {
        return Ok(());
    }
    operator::ready(env, operator::replicas(env).await?).await?;
    gateway::ready(env, 0).await
}

/// Waits until the Pod of the control plane is the newest one, and ready.
pub(super) async fn control_plane_ready(env: &Env) -> Result<()> {
    let rollout = ["rollout", "status", "deployment/recif-control-plane", "--timeout", "50s"];
    env.kubectl(&[&["--namespace", SYSTEM][..], &rollout].concat()).await.map(drop)
}

/// Installs or upgrades a chart with the images of the local cluster.
async fn install(env: &Env, verb: &str, chart: &str, more: &[&str]) -> Result<()> {
    let folder = path(env, &format!("config/helm/{chart}"))?;
    let mut arguments = vec![verb, chart, &folder, "--namespace", SYSTEM];
    if chart == "recif" {
        arguments.extend(["--set", IMAGES]);
    }
    env.helm(&[&arguments[..], more].concat()).await.map(drop)
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
