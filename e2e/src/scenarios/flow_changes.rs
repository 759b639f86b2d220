//! Tests which workloads are rolled out after an edit of an object that flows use: its users, once, and no other workload.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::flows::provide_stub;
use crate::{
    kinds::{CONFIG_MAP, DEPLOYMENT, FLOW, FLOW_SET, KubeKind, MODEL, PLUGIN_CONFIG, PROMPT, REPLICA_SET, SECRET},
    manifests::{agent, flow, flow_set, model, plugin_config, prompt, secret},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _, ObjectsByName},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    an_edited_prompt_rolls_exactly_its_users_and_answers_change,
    a_rotated_secret_rolls_exactly_its_users_once,
    a_changed_model_and_its_provider_are_rendered_anew,
    an_edit_that_no_flow_reads_restarts_nothing,
    a_template_that_cannot_be_read_leaves_the_old_pods_serving,
    a_rollout_that_is_asked_for_happens_once,
    kubectl_scale_works_on_flows_and_sets,
);

/// Time in which nothing more may happen.
const AFTERWARDS: Duration = Duration::from_secs(3);

/// State of a workload before a change.
struct RolloutBaseline {
    kind: KubeKind,
    object: Object,
    deployment: i64,
    pods: Vec<String>,
}

impl RolloutBaseline {
    /// Starts the workload.
    async fn start(ns: &Namespace, manifest: &Value) -> Result<Self> {
        let kind = KubeKind::of(manifest).context("a known kind")?;
        let object = ns.start(manifest).await?;
        let name = object.name_any();
        let deployment = ns.get(DEPLOYMENT, &name).await?.generation();
        Ok(Self { kind, deployment, pods: ns.pod_uids(&name).await?, object })
    }

    fn name(&self) -> String {
        self.object.name_any()
    }

    /// Waits until it runs with another configuration, and checks that it was rolled out once.
    async fn rolled_once(&self, ns: &Namespace) -> Result<Object> {
        let now = ns.await_reconfigured(self.kind, &self.object).await?;
        self.was_rolled_once(ns).await?;
        Ok(now)
    }

    async fn was_rolled_once(&self, ns: &Namespace) -> Result<()> {
        let name = self.name();
        let generation = ns.get(DEPLOYMENT, &name).await?.generation();
        ensure!(
            generation == self.deployment + 1,
            "the Deployment of {name} was changed {}×",
            generation - self.deployment
        );
        let sets = ns.list(REPLICA_SET).await?.iter().filter(|it| is_of(it, &name)).count();
        ensure!(sets == 2, "{name} has {sets} ReplicaSets");
        let pods = ns.pod_uids(&name).await?;
        ensure!(pods.iter().all(|pod| !self.pods.contains(pod)), "{name} keeps an old Pod");
        Ok(())
    }

    /// Checks that neither its object nor its Pods were changed.
    async fn is_untouched(&self, ns: &Namespace) -> Result<()> {
        let name = self.name();
        let now = ns.get(self.kind, &name).await?;
        ensure!(now.revision() == self.object.revision(), "it was written: {}", now.describe());
        ensure!(ns.pod_uids(&name).await? == self.pods, "the Pods of {name} were replaced");
        Ok(())
    }
}

fn is_of(child: &Object, name: &str) -> bool {
    child.labels().get("app.kubernetes.io/name").is_some_and(|label| label == name)
}

async fn an_edited_prompt_rolls_exactly_its_users_and_answers_change(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.provide(&prompt("shared", "Before: {{text}}")).await?;
    let user = RolloutBaseline::start(&ns, &flow("user", &["shared"], json!({}))).await?;
    let set =
        RolloutBaseline::start(&ns, &flow_set("set", &[("one", &["say"]), ("two", &["shared"])], json!({}))).await?;
    let bystander = RolloutBaseline::start(&ns, &flow("bystander", &["say"], json!({}))).await?;
    ns.await_response("user", "/", json!({"text": "hi"}), "echo: Before: hi").await?;
    ns.await_response("set", "/two", json!({"text": "hi"}), "echo: Before: hi").await?;

    ns.edit(PROMPT, "shared", json!({"spec": {"content": "After: {{text}}"}})).await?;
    user.rolled_once(&ns).await?;
    set.rolled_once(&ns).await?;
    ns.await_response("user", "/", json!({"text": "hi"}), "echo: After: hi").await?;
    ns.await_response("set", "/two", json!({"text": "hi"}), "echo: After: hi").await?;
    ns.await_response("set", "/one", json!({"text": "hi"}), "echo: hi").await?;
    bystander.is_untouched(&ns).await
}

async fn a_rotated_secret_rolls_exactly_its_users_once(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.apply(&secret("keys", json!({"KEY": "hunter2-old"}))).await?;
    let fields = json!({"credentialsRef": {"name": "keys"}, "credentialKeys": ["KEY"]});
    ns.provide(&plugin_config("keyed", fields)).await?;
    ns.provide(&model("keyed", "keyed")).await?;
    let keyed = json!({"modelRef": {"name": "keyed"}});
    let mut set = flow_set("set", &[("plain", &["say"]), ("keyed", &["say"])], json!({}));
    set["spec"]["flows"][1]["modelRef"]["name"] = json!("keyed");
    let user = RolloutBaseline::start(&ns, &flow("user", &["say"], keyed)).await?;
    let set = RolloutBaseline::start(&ns, &set).await?;
    let bystander = RolloutBaseline::start(&ns, &flow("bystander", &["say"], json!({}))).await?;

    ns.edit(SECRET, "keys", json!({"stringData": {"KEY": "hunter2-new"}})).await?;
    for rolled in [&user, &set] {
        let now = rolled.rolled_once(&ns).await?;
        ensure!(!now.data.to_string().contains("hunter2"), "the key is in the status");
    }
    ns.stays_the_same(AFTERWARDS).await?;
    user.was_rolled_once(&ns).await?;
    set.was_rolled_once(&ns).await?;
    ns.await_response("user", "/", json!({"text": "hi"}), "echo: hi").await?;
    ns.await_response("set", "/keyed", json!({"text": "hi"}), "echo: hi").await?;
    bystander.is_untouched(&ns).await
}

async fn a_changed_model_and_its_provider_are_rendered_anew(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.provide(&model("other", "stub")).await?;
    let user = RolloutBaseline::start(&ns, &flow("user", &["say"], json!({}))).await?;
    let other = RolloutBaseline::start(&ns, &flow("other", &["say"], json!({"modelRef": {"name": "other"}}))).await?;

    let changed = json!({"model": "echo-2", "defaultConfig": {"temperature": 0.5}});
    ns.edit(MODEL, "echo", json!({ "spec": changed })).await?;
    let renewed = user.rolled_once(&ns).await?;
    let config = rendered(&ns, "user").await?;
    let model = &config["defaultModel"];
    ensure!(model["model"] == "echo-2" && model["config"] == json!({"temperature": 0.5}), "config.json: {config}");
    other.is_untouched(&ns).await?;

    ns.edit(PLUGIN_CONFIG, "stub", json!({"spec": {"region": "eu", "extraConfig": {"note": "seen"}}})).await?;
    ns.await_reconfigured(FLOW, &renewed).await?;
    ns.await_reconfigured(FLOW, &other.object).await?;
    for name in ["user", "other"] {
        let config = rendered(&ns, name).await?;
        let expected = json!({"type": "stub", "region": "eu", "extraConfig": {"note": "seen"}});
        ensure!(config["plugin"] == expected, "config.json of {name}: {config}");
        ns.await_response(name, "/", json!({"text": "hi"}), "echo: hi").await?;
    }
    Ok(())
}

async fn rendered(ns: &Namespace, flow: &str) -> Result<Value> {
    let config = ns.get(CONFIG_MAP, &CONFIG_MAP.child_of(flow)).await?;
    serde_json::from_str(config.text("/data/config.json")).context("read config.json")
}

async fn an_edit_that_no_flow_reads_restarts_nothing(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    let user = RolloutBaseline::start(&ns, &flow("calm", &["say"], json!({}))).await?;
    let edited = ns.edit(PROMPT, "say", json!({"spec": {"description": "Says it"}})).await?;
    let looked =
        |it: &Object| it.phase() == "Available" && it.number("/status/observedGeneration") == edited.generation();
    ns.until(PROMPT, "say", REPORT_TIMEOUT, "is Available again", looked).await?;
    crate::watch::stays_the_same(vec![(DEPLOYMENT, ns.api(DEPLOYMENT))], AFTERWARDS).await?;
    let now = ns.await_running(FLOW, "calm").await?;
    let hash = |it: &Object| it.text("/status/contentHash").to_owned();
    ensure!(hash(&now) == hash(&user.object), "the content hash changed");
    ensure!(ns.get(DEPLOYMENT, "calm").await?.generation() == user.deployment, "the Deployment was changed");
    ensure!(ns.pod_uids("calm").await? == user.pods, "its Pods were replaced");
    Ok(())
}

async fn a_template_that_cannot_be_read_leaves_the_old_pods_serving(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    let before = RolloutBaseline::start(&ns, &flow("steady", &["say"], json!({}))).await?;
    let pods = ns.pod_uids("steady").await?;
    ns.edit(PROMPT, "say", json!({"spec": {"content": "{{#if text}}never closed"}})).await?;
    ns.await_not_ready(PROMPT, "say", REPORT_TIMEOUT, "Error", &["line 1: the block `{{#if}}` does not end"]).await?;
    ns.await_not_ready(
        FLOW,
        "steady",
        REPORT_TIMEOUT,
        "Resolving",
        &["prompt \"say\" is in phase Error", "does not end"],
    )
    .await?;
    ensure!(ns.pod_uids("steady").await? == pods, "the Pods of a template that every reader refuses are replaced");
    // Only our runtime does not support this template, which the operator knows.
    ns.edit(PROMPT, "say", json!({"spec": {"content": "{{^text}}never read{{/text}}"}})).await?;
    ns.await_not_ready(FLOW, "steady", REPORT_TIMEOUT, "Failed", &["InvalidSpec", "prompt \"say\", line 1"]).await?;
    ensure!(ns.pod_uids("steady").await? == pods, "the Pods of a template that our runtime refuses are replaced");
    ns.await_response("steady", "/", json!({"text": "hi"}), "echo: hi").await?;
    // Only the runtime knows the available tools.
    ns.edit(PROMPT, "say", json!({"spec": {"content": "---\ntools: [absent]\n---\n{{text}}"}})).await?;
    ns.await_not_ready(FLOW, "steady", START_TIMEOUT, "Deploying", &["NotReady"]).await?;
    // A Pod is not ready, too, before its container says why.
    poll(START_TIMEOUT, "recif why names the line of the prompt", || async {
        let (code, message) = ns.env.recif(&["why", "flow/steady", "-n", &ns.name]).await?;
        ensure!(code == 3 && message.contains("prompts/say.prompt:2: "), "recif why: exit code {code}: {message}");
        Ok(Some(()))
    })
    .await?;
    let now = ns.get(FLOW, "steady").await?;
    ensure!(now.condition("Available").is_true(), "its old Pods do not count: {}", now.describe());
    let pods = ns.pod_uids("steady").await?;
    ensure!(before.pods.iter().all(|pod| pods.contains(pod)), "the old Pod is gone");
    ns.await_response("steady", "/", json!({"text": "hi"}), "echo: hi").await?;
    ns.edit(PROMPT, "say", json!({"spec": {"content": "Mended: {{text}}"}})).await?;
    ns.await_reconfigured(FLOW, &before.object).await?;
    ns.await_response("steady", "/", json!({"text": "hi"}), "echo: Mended: hi").await
}

async fn a_rollout_that_is_asked_for_happens_once(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    let asked = RolloutBaseline::start(&ns, &flow("asked", &["say"], json!({}))).await?;
    let set = RolloutBaseline::start(&ns, &flow_set("set", &[("one", &["say"])], json!({}))).await?;
    let agent = RolloutBaseline::start(&ns, &agent("agent", json!({}))).await?;
    for target in ["flow/asked", "flowset/set", "agent/agent"] {
        let (code, message) = ns.env.recif(&["rollout", target, "-n", &ns.name]).await?;
        ensure!(code == 0, "recif rollout {target}: exit code {code}: {message}");
    }
    for before in [&asked, &set, &agent] {
        let name = before.name();
        let two = |sets: &ObjectsByName| sets.values().filter(|it| is_of(it, &name)).count() == 2;
        ns.until_all(REPLICA_SET, START_TIMEOUT, &format!("{name} has a second ReplicaSet"), two).await?;
        let replaced = |pods: &ObjectsByName| {
            let mut pods = pods.values().filter(|it| is_of(it, &name)).peekable();
            pods.peek().is_some() && pods.all(|pod| !before.pods.contains(&pod.id()))
        };
        ns.until_all(crate::kinds::POD, START_TIMEOUT, &format!("{name} has only new Pods"), replaced).await?;
        let now = ns.await_running(before.kind, &name).await?;
        let hash = |it: &Object| it.text("/status/contentHash").to_owned();
        ensure!(hash(&now) == hash(&before.object), "the content hash of {name} changed");
    }
    ns.stays_the_same(AFTERWARDS).await?;
    for before in [&asked, &set, &agent] {
        before.was_rolled_once(&ns).await?;
    }
    ensure!(ns.chat("agent", "hi").await? == "echo: hi", "the agent's new Pods do not answer");
    Ok(())
}

async fn kubectl_scale_works_on_flows_and_sets(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    let one = RolloutBaseline::start(&ns, &flow("one", &["say"], json!({}))).await?;
    let set = RolloutBaseline::start(&ns, &flow_set("set", &[("one", &["say"])], json!({}))).await?;
    for before in [one, set] {
        let name = before.name();
        ns.scale(before.kind, &name, 2, "kubectl").await?;
        let two = |it: &Object| it.is_running() && it.number("/status/replicas") == 2;
        ns.until(before.kind, &name, START_TIMEOUT, "runs with two ready Pods", two).await?;
        let pods = ns.pod_uids(&name).await?;
        ensure!(
            pods.len() == 2 && before.pods.iter().all(|pod| pods.contains(pod)),
            "the first Pod of {name} was replaced"
        );
        ns.scale(before.kind, &name, 0, "kubectl").await?;
        let stopped = |it: &Object| it.phase() == "Terminated" && it.condition("Ready").is_true();
        ns.until(before.kind, &name, START_TIMEOUT, "is Terminated", stopped).await?;
    }
    ensure!(ns.get(FLOW_SET, "set").await?.number("/status/totalFlows") == 1, "the set no longer says how many it has");
    Ok(())
}
