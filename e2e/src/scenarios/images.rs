//! Tests the image of agents that name none: that of the operator's `--agent-image`.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::process::Child;

use crate::{
    kinds::{AGENT, DEPLOYMENT},
    manifests::{WORKLOAD, agent},
    namespace::Namespace,
    object::ObjectExt as _,
    operator,
    scenario::{Scenario, scenarios},
};

/// Run alone, because the cluster's operator is stopped meanwhile.
pub(super) const ALONE: &[Scenario] = scenarios!(Exclusive:
    an_agent_without_an_image_runs_that_of_the_operator_and_another_flag_rolls_nothing,
);

/// Image of the runner. It has a slash, so that only a pull policy of the spec is Never.
const RUNNER: &str = "recif.local/runner:dev";
const CONTAINER: &str = "/spec/template/spec/containers/0";

async fn an_agent_without_an_image_runs_that_of_the_operator_and_another_flag_rolls_nothing(
    ns: Namespace,
) -> Result<()> {
    let replicas = operator::replicas(&ns.env).await?;
    operator::scale(&ns.env, 0).await?;
    let result = under_two_flags(&ns).await;
    operator::scale(&ns.env, replicas).await?;
    let pods = result?;
    // The cluster's operator has another one.
    check_not_rolled(&ns, &pods, "Renamed again").await
}

/// Returns the Pods of the agent `plain`, which started under one flag and outlived the change to another.
async fn under_two_flags(ns: &Namespace) -> Result<Vec<String>> {
    let mut first = with_agent_image(ns, RUNNER)?;
    let running = ns.start(&agent("plain", json!({"imagePullPolicy": "Never"}))).await?;
    ensure!(running.text("/status/images/agent") == RUNNER, "pinned: {}", running.at("/status/images"));
    let container = ns.get(DEPLOYMENT, "plain").await?.at(CONTAINER).clone();
    ensure!(container["image"] == RUNNER && container["imagePullPolicy"] == "Never", "{container}");
    ensure!(ns.chat("plain", "hi").await? == "echo: hi", "it does not echo");
    let pods = ns.pod_uids("plain").await?;
    first.kill().await.context("end the first operator")?;

    let mut second = with_agent_image(ns, WORKLOAD)?;
    ns.start(&agent("later", json!({}))).await?;
    let container = ns.get(DEPLOYMENT, "later").await?.at(CONTAINER).clone();
    ensure!(container["image"] == WORKLOAD && container["imagePullPolicy"] == "IfNotPresent", "{container}");
    check_not_rolled(ns, &pods, "Renamed").await?;
    second.kill().await.context("end the second operator")?;
    Ok(pods)
}

/// Starts an operator of this namespace, with the name of the cluster's: both write as one.
fn with_agent_image(ns: &Namespace, image: &str) -> Result<Child> {
    let mut command = ns.env.recif_command();
    command
        .args(["operator", "--namespaces", &ns.name, "--leader-elect=false", "--agent-image", image])
        .args(["--listen", "127.0.0.1:0", "--gateway-service", ""])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command.spawn().context("start an operator")
}

/// Checks that an edit which is rendered, and changes no template, leaves these Pods in place.
async fn check_not_rolled(ns: &Namespace, pods: &[String], name: &str) -> Result<()> {
    ns.edit(AGENT, "plain", json!({"spec": {"name": name}})).await?;
    let running = ns.await_agent_running("plain").await?;
    let now = ns.pod_uids("plain").await?;
    ensure!(now == pods, "its Pods were {pods:?} and are {now:?}: {}", running.describe());
    Ok(())
}
