//! Tests `recif doctor`: a good install has no failure, and each breakage fails in its own row alone. Those whose remedy is run
//! are in `doctor_remedies`.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    env::run_to_exit,
    kinds::{ADMISSION_POLICY, NETWORK_POLICY, POD, RESOURCE_QUOTA},
    manifests::{agent, object, quota},
    namespace::{Namespace, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    operator,
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_good_install_has_no_failure,
    what_is_wrong_in_a_namespace_fails_alone,
    images_are_pulled_by_pods_that_are_gone_afterwards,
);

pub(super) const ALONE: &[Scenario] = scenarios!(Exclusive:
    what_is_wrong_with_the_install_fails_alone,
);

/// Exit code of a failed check.
pub(super) const FAILED: i32 = 3;
/// Time in which a breakage shows, and is gone.
pub(super) const SHOWN: Duration = Duration::from_secs(30);
/// An admission policy of ours.
const POLICY: &str = "recif-operator-no-spec";

/// Runs it for the namespace; returns the exit code and the report.
pub(super) async fn doctor(ns: &Namespace) -> Result<(i32, Value)> {
    let mut command = ns.env.recif_command();
    command.args(["doctor", "-n", &ns.name, "-o", "json"]);
    let ended = run_to_exit(command, None).await?;
    let report = serde_json::from_str(&ended.stdout).with_context(|| format!("{ended:?}"))?;
    Ok((ended.code, report))
}

/// Returns the findings with this verdict, as name and text.
pub(super) fn with_verdict(report: &Value, verdict: &str) -> Vec<(String, String)> {
    let findings = report["findings"].as_array().into_iter().flatten();
    let found = findings.filter(|finding| finding["verdict"] == verdict);
    let text = |finding: &Value, field: &str| finding[field].as_str().unwrap_or_default().to_owned();
    found.map(|finding| (text(finding, "check"), text(finding, "text"))).collect()
}

/// Waits until this check alone fails, with these words; returns its text.
pub(super) async fn await_failure(ns: &Namespace, check: &str, words: &str) -> Result<String> {
    // On the way there another check may fail for a moment, or this one with other words.
    poll(SHOWN, "the failure of a check", || async {
        let (code, report) = doctor(ns).await?;
        let mut found = with_verdict(&report, "fail");
        let alone = found.len() == 1 && found[0].0 == check && found[0].1.contains(words);
        ensure!(code == FAILED && alone, "instead of {check} ({words}), exit code {code}: {report}");
        Ok(Some(found.remove(0).1))
    })
    .await
}

/// Waits until no check fails, and returns that report.
pub(super) async fn await_no_failure(ns: &Namespace) -> Result<Value> {
    poll(SHOWN, "no failure any more", || async {
        let (code, report) = doctor(ns).await?;
        ensure!(code == 0 && with_verdict(&report, "fail").is_empty(), "exit code {code}: {report}");
        Ok(Some(report))
    })
    .await
}

async fn a_good_install_has_no_failure(ns: Namespace) -> Result<()> {
    // A new namespace has no ServiceAccount for a moment.
    let report = await_no_failure(&ns).await?;
    ensure!(with_verdict(&report, "skip").is_empty(), "{report}");
    ensure!(report["findings"].as_array().is_some_and(|all| all.len() == 15), "{report}");
    poll(SHOWN, "the report for people", || async {
        let (code, said) = ns.env.recif(&["doctor", "-n", &ns.name]).await?;
        ensure!(code == 0 && said.lines().count() == 15 && said.starts_with("ok    Kubernetes 1."), "{said}");
        Ok(Some(()))
    })
    .await?;
    let (code, said) = ns.env.recif(&["version", "-o", "json"]).await?;
    let versions: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
    ensure!(code == 0 && versions["client"] == env!("CARGO_PKG_VERSION"), "{versions}");
    ensure!(versions.get("operator").is_some() && versions.get("controlPlane").is_some(), "{versions}");
    Ok(())
}

async fn what_is_wrong_in_a_namespace_fails_alone(ns: Namespace) -> Result<()> {
    ns.create_object(&quota("pods", "0")).await?;
    let counted = |it: &Object| it.at("/status/hard")["pods"] == "0";
    ns.until(RESOURCE_QUOTA, "limit", SHOWN, "counts", counted).await?;
    await_failure(&ns, "pods", "refused by quota \"limit\" (pods: used 0, limited 0): raise it").await?;
    ns.delete(RESOURCE_QUOTA, "limit").await?;
    await_no_failure(&ns).await?;

    let nothing = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]});
    ns.create_object(&object(NETWORK_POLICY, "deny-all", nothing)).await?;
    await_failure(&ns, "network-policies", "\"deny-all\"").await?;
    ns.delete(NETWORK_POLICY, "deny-all").await?;
    await_no_failure(&ns).await?;

    ns.apply(&agent("nowhere", json!({"image": "nowhere:1"}))).await?;
    // The kubelet looks for the image of the agent only after the sidecar has started.
    let waits = |pod: &Object| {
        let mut containers = pod.at("/status/containerStatuses").as_array().into_iter().flatten();
        containers.any(|it| it["state"]["waiting"]["reason"] == "ErrImageNeverPull")
    };
    ns.until_all(POD, START_TIMEOUT, "a Pod that waits for its image", |pods| pods.values().any(waits)).await?;
    await_failure(&ns, "images", "ErrImageNeverPull").await.map(drop)
}

async fn images_are_pulled_by_pods_that_are_gone_afterwards(ns: Namespace) -> Result<()> {
    // Before a new namespace has its ServiceAccount, no Pod is made there.
    await_no_failure(&ns).await?;
    let (code, said) = ns.env.recif(&["doctor", "-n", &ns.name, "--pull"]).await?;
    ensure!(code == 0 && said.contains("on their nodes, and start\n"), "exit code {code}: {said}");
    for pods in [ns.list(POD).await?, ns.env.within(operator::NAMESPACE, POD).list(&Default::default()).await?.items] {
        let left = pods.iter().find(|pod| pod.name_any().starts_with("recif-doctor-"));
        ensure!(left.is_none(), "a Pod is left: {left:?}");
    }
    Ok(())
}

async fn what_is_wrong_with_the_install_fails_alone(ns: Namespace) -> Result<()> {
    let policies = ns.env.all(ADMISSION_POLICY);
    let mut policy = policies.get(POLICY).await.context("read the policy")?;
    policies.delete(POLICY, &DeleteParams::default()).await.context("delete the policy")?;
    let missed = await_failure(&ns, "admission-policies", POLICY).await;
    policy.metadata.resource_version = None;
    policy.metadata.uid = None;
    policy.metadata.managed_fields = None;
    policies.create(&PostParams::default(), &policy).await.context("put the policy back")?;
    missed?;

    let replicas = operator::replicas(&ns.env).await?;
    operator::scale(&ns.env, 0).await?;
    let missed = await_failure(&ns, "operator", "scaled to 0").await;
    operator::scale(&ns.env, replicas).await?;
    missed?;
    await_no_failure(&ns).await.map(drop)
}
