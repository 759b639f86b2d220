//! Tests `recif doctor` before an install, and the commands that it prints: each breakage fails in its own row alone, and after
//! the command nothing fails any more.

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::process::Command;

use super::{
    chart::{TAKE_OVER, control_plane_ready, release},
    doctor::{FAILED, SHOWN, await_failure, await_no_failure, doctor, with_verdict},
};
use crate::{
    cleanup::await_ended_namespaces,
    env::{ProcessOutput, run_to_exit},
    kinds::{AGENT, CLUSTER_ROLE, DEFINITION, DEPLOYMENT, NAMESPACE, OURS, RESOURCE_QUOTA, SECRET},
    manifests::{agent, documents, quota, secret},
    namespace::{Namespace, REPORT_TIMEOUT},
    object::{Object, ObjectExt as _, ObjectsByName},
    operator,
    scenario::{Scenario, scenarios},
    setup,
    watch::{await_condition, poll},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_workload_that_pod_security_refuses_is_named_until_its_spec_is_changed,
);

pub(super) const ALONE: &[Scenario] = scenarios!(Exclusive:
    an_older_crd_is_upgraded_by_the_command_that_is_printed,
    a_wrong_url_of_the_database_is_corrected_by_the_command_that_is_printed,
    a_verb_taken_from_the_operator_comes_back_by_the_command_that_is_printed,
);

/// Comes late: it takes everything away, and installs it again.
pub(super) const WITHOUT_AN_INSTALL: &[Scenario] = scenarios!(Exclusive:
    before_an_install_it_is_judged_whether_one_would_work,
);

/// Comes last: it has the CRDs from Helm.
pub(super) const OF_THE_CHARTS: &[Scenario] = scenarios!(Exclusive:
    an_edited_crd_of_a_release_is_set_back_by_the_command_that_is_printed,
);

/// Checks that have nothing to judge before an install, in the order of the report.
const LATER: [&str; 7] =
    ["crds", "operator", "account-rights", "images", "gateway-and-control-plane", "database", "objects"];
/// Field of Agents that the older CRD does not have.
const FIELD: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/imagePullPolicy";
/// Annotations of a CRD with the digest of its schema and with its version.
const ANNOTATIONS: [&str; 2] = ["/metadata/annotations/recif.dev~1schema", "/metadata/annotations/recif.dev~1version"];
/// Upgrades the CRDs.
const UPGRADE: &str = "recif crds | kubectl apply --server-side --force-conflicts -f -";
/// Chart of the CRDs, and its release.
const CHART_OF_CRDS: &str = "recif-crds";
/// Secret with the URL of the control plane's database.
const DATABASE: &str = "recif-database";
/// Arguments by which kubectl replaces the Pod of the control plane.
const RESTART: [&str; 5] = ["--namespace", operator::NAMESPACE, "rollout", "restart", "deployment/recif-control-plane"];

/// Runs a command in bash, as a user who copies it.
async fn copied(ns: &Namespace, command: &str) -> Result<ProcessOutput> {
    let mut bash = Command::new("bash");
    bash.args(["-o", "pipefail", "-c", command]).env("PATH", ns.env.path()?);
    run_to_exit(bash, None).await
}

/// Runs the first command in the text of a finding, which has to succeed.
async fn follow(ns: &Namespace, text: &str) -> Result<()> {
    let command = command_in(text)?;
    let ended = copied(ns, command).await?;
    ensure!(ended.code == 0, "{command}: {ended:?}");
    Ok(())
}

fn command_in(text: &str) -> Result<&str> {
    text.split('`').nth(1).with_context(|| format!("no command in: {text}"))
}

async fn a_workload_that_pod_security_refuses_is_named_until_its_spec_is_changed(ns: Namespace) -> Result<()> {
    await_no_failure(&ns).await?;
    // The operator's own level admits it, that of the namespace does not.
    let containers = json!([{"name": "agent", "securityContext": {"allowPrivilegeEscalation": true}}]);
    ns.apply(&agent("bold", json!({"podTemplate": {"spec": {"containers": containers}}}))).await?;
    let words = "those of agent/bold are refused, violates PodSecurity \"restricted";
    let text = await_failure(&ns, "pods", words).await?;
    let why = copied(&ns, command_in(&text)?).await?;
    let names_it = why.stdout.contains("violates PodSecurity") && why.stdout.contains("allowPrivilegeEscalation");
    ensure!(why.code == FAILED && names_it, "{why:?}");

    ns.edit(AGENT, "bold", json!({"spec": {"podTemplate": null}})).await?;
    ns.await_agent_running("bold").await?;
    await_no_failure(&ns).await?;

    let containers = json!([{"name": "agent", "securityContext": {"privileged": true}}]);
    ns.apply(&agent("bolder", json!({"podTemplate": {"spec": {"containers": containers}}}))).await?;
    let words = "those of agent/bolder are refused, podTemplate: spec.containers[agent].securityContext.privileged";
    await_failure(&ns, "pods", words).await?;
    ns.delete(AGENT, "bolder").await?;
    await_no_failure(&ns).await.map(drop)
}

async fn an_older_crd_is_upgraded_by_the_command_that_is_printed(ns: Namespace) -> Result<()> {
    let result = with_an_older_crd(&ns).await;
    if result.is_err() {
        copied(&ns, UPGRADE).await?;
    }
    result
}

async fn with_an_older_crd(ns: &Namespace) -> Result<()> {
    await_no_failure(ns).await?;
    let newer = agent("newer", json!({"imagePullPolicy": "IfNotPresent"}));
    ensure!(ns.would_apply(&newer).await.is_ok(), "the CRD does not take spec.imagePullPolicy");

    // One that another client has changed: its annotations stay.
    change_crd(ns, json!([{"op": "remove", "path": FIELD}])).await?;
    let text = await_failure(ns, "crds", "took out spec.imagePullPolicy of agents.agents.recif.dev: ").await?;
    follow(ns, &text).await?;
    await_ok(ns, "crds").await?;

    // One of a release before: its schema has another digest.
    let [schema, version] = ANNOTATIONS;
    let digest = json!({"op": "replace", "path": schema, "value": "of a release before"});
    change_crd(ns, json!([{"op": "remove", "path": FIELD}, digest])).await?;
    poll(REPORT_TIMEOUT, "the older CRD", || async { Ok(ns.would_apply(&newer).await.is_err().then_some(())) }).await?;
    let (code, report) = doctor(ns).await?;
    let words = format!("1 of {} are of {}", OURS.len(), env!("CARGO_PKG_VERSION"));
    let says = |(check, text): &(String, String)| check == "crds" && text.contains(&words);
    ensure!(code == 0 && with_verdict(&report, "warn").iter().any(says), "exit code {code}: {report}");
    let (code, said) = ns.env.recif(&["doctor", "-n", &ns.name, "--strict"]).await?;
    ensure!(code == FAILED && said.lines().any(|line| line.starts_with("warn  crds: ")), "exit code {code}: {said}");

    // One from before the annotations.
    change_crd(ns, json!([{"op": "remove", "path": schema}, {"op": "remove", "path": version}])).await?;
    let text = await_failure(ns, "crds", "not of this program agents.agents.recif.dev: ").await?;
    follow(ns, &text).await?;
    poll(REPORT_TIMEOUT, "the present CRD", || async { Ok(ns.would_apply(&newer).await.is_ok().then_some(())) })
        .await?;
    await_ok(ns, "crds").await
}

async fn an_edited_crd_of_a_release_is_set_back_by_the_command_that_is_printed(ns: Namespace) -> Result<()> {
    release(&ns.env, "upgrade", CHART_OF_CRDS, &TAKE_OVER).await?;
    let result = with_an_edited_crd_of_a_release(&ns).await;
    if result.is_err() {
        release(&ns.env, "upgrade", CHART_OF_CRDS, &TAKE_OVER).await?;
    }
    result
}

async fn with_an_edited_crd_of_a_release(ns: &Namespace) -> Result<()> {
    await_no_failure(ns).await?;
    change_crd(ns, json!([{"op": "remove", "path": FIELD}])).await?;
    let words = "took out spec.imagePullPolicy of agents.agents.recif.dev: helm upgrade ";
    let text = await_failure(ns, "crds", words).await?;
    let command = text.split_once(": helm ").and_then(|(_, rest)| rest.split_once(" (with --force-conflicts "));
    let (command, _) = command.with_context(|| format!("no command in: {text}"))?;
    let chart = ns.env.file(&format!("config/helm/{CHART_OF_CRDS}"));
    let chart = chart.to_str().context("a path that is text")?;
    let arguments: Vec<&str> = command.split(' ').map(|word| if word == "<chart>" { chart } else { word }).collect();
    if ns.env.helm(&arguments).await.is_err() {
        ns.env.helm(&[&arguments[..], &["--force-conflicts"]].concat()).await?;
    }
    await_ok(ns, "crds").await
}

/// Waits until no check fails, and this one is good.
async fn await_ok(ns: &Namespace, check: &str) -> Result<()> {
    poll(SHOWN, "a good check", || async {
        let (code, report) = doctor(ns).await?;
        let is_good = with_verdict(&report, "ok").iter().any(|(name, _)| name == check);
        let fails = !with_verdict(&report, "fail").is_empty();
        ensure!(code == 0 && is_good && !fails, "{check} is not good, exit code {code}: {report}");
        Ok(Some(()))
    })
    .await
}

/// Patches the CRD of Agents.
async fn change_crd(ns: &Namespace, patch: Value) -> Result<()> {
    let patch = Patch::Json::<()>(serde_json::from_value(patch)?);
    let name = format!("{}.{}", AGENT.plural, crds::GROUP);
    let changed = ns.env.all(DEFINITION).patch(&name, &PatchParams::default(), &patch).await;
    changed.map(drop).context("change the CRD")
}

async fn a_wrong_url_of_the_database_is_corrected_by_the_command_that_is_printed(ns: Namespace) -> Result<()> {
    let system = Namespace::existing(ns.env.clone(), operator::NAMESPACE);
    ensure!(system.find(SECRET, DATABASE).await?.is_none(), "the control plane has a database already");
    let result = with_wrong_urls(&ns, &system).await;
    if result.is_err() {
        if system.find(SECRET, DATABASE).await?.is_some() {
            system.delete(SECRET, DATABASE).await?;
        }
        restart_control_plane(&ns).await?;
    }
    result
}

async fn with_wrong_urls(ns: &Namespace, system: &Namespace) -> Result<()> {
    await_no_failure(ns).await?;
    // Nothing listens at this port of the Pod itself.
    system.create_object(&secret(DATABASE, json!({"url": "postgresql://recif:hunter2@127.0.0.1:1/recif"}))).await?;
    restart_control_plane(ns).await?;
    let text = await_failure(ns, "database", "unavailable (the database does not answer)").await?;
    correct_url(ns, system, &text).await?;

    // With this one the control plane does not start.
    system.create_object(&secret(DATABASE, json!({"url": "postgresql://recif:hunter2@db:port/recif"}))).await?;
    ns.env.kubectl(&RESTART).await?;
    let none = |deployments: &ObjectsByName| {
        let control_plane = deployments.get("recif-control-plane")?;
        (control_plane.number("/status/readyReplicas") == 0).then_some(())
    };
    await_condition(system.api(DEPLOYMENT), Default::default(), SHOWN, "the control plane is down", none).await?;
    let text = await_failure(ns, "database", "its URL cannot be read").await?;
    correct_url(ns, system, &text).await
}

/// Has the history in a file again, as without the Secret, and runs the command in the text of the finding.
async fn correct_url(ns: &Namespace, system: &Namespace, text: &str) -> Result<()> {
    ensure!(!text.contains("hunter2"), "it shows the password: {text}");
    system.delete(SECRET, DATABASE).await?;
    follow(ns, text).await?;
    control_plane_ready(&ns.env).await?;
    await_no_failure(ns).await.map(drop)
}

async fn restart_control_plane(ns: &Namespace) -> Result<()> {
    ns.env.kubectl(&RESTART).await?;
    control_plane_ready(&ns.env).await
}

async fn a_verb_taken_from_the_operator_comes_back_by_the_command_that_is_printed(ns: Namespace) -> Result<()> {
    let rules = ns.env.all(CLUSTER_ROLE).get(operator::NAME).await.context("get the ClusterRole")?.at("/rules").clone();
    let result = with_a_verb_less(&ns, &rules).await;
    if result.is_err() {
        set_rules(&ns, &rules).await?;
    }
    result
}

async fn with_a_verb_less(ns: &Namespace, rules: &Value) -> Result<()> {
    await_no_failure(ns).await?;
    let mut fewer = rules.clone();
    let of_budgets = |rule: &&mut Value| rule["resources"] == json!(["poddisruptionbudgets"]);
    let rule =
        fewer.as_array_mut().into_iter().flatten().find(of_budgets).context("no rule on PodDisruptionBudgets")?;
    let verbs = rule["verbs"].as_array_mut().context("a rule without verbs")?;
    verbs.retain(|verb| verb != "delete");
    ensure!(fewer != *rules, "the operator may not delete PodDisruptionBudgets");
    set_rules(ns, &fewer).await?;
    let words = "1 missing, recif-operator may not delete poddisruptionbudgets.policy in all namespaces: ";
    let text = await_failure(ns, "account-rights", words).await?;

    // The overlay that was applied is config/default with the image of this cluster.
    let flags = text.split_once(": kubectl apply ").and_then(|(_, rest)| rest.split_once(" -k <"));
    let (flags, _) = flags.with_context(|| format!("no command in: {text}"))?;
    let mut arguments: Vec<&str> = std::iter::once("apply").chain(flags.split(' ')).collect();
    arguments.extend(["--filename", "-"]);
    let manifests = setup::default_manifests(&ns.env, &operator::image(&ns.env).await?).await?;
    ns.env.kubectl_with(&arguments, manifests).await?;
    await_ok(ns, "account-rights").await
}

async fn set_rules(ns: &Namespace, rules: &Value) -> Result<()> {
    let patch = Patch::Merge(json!({"rules": rules}));
    let changed = ns.env.all(CLUSTER_ROLE).patch(operator::NAME, &PatchParams::default(), &patch).await;
    changed.map(drop).context("change the operator's rights")
}

async fn before_an_install_it_is_judged_whether_one_would_work(ns: Namespace) -> Result<()> {
    // Their finalizers need the operator, and what is left goes with the CRDs.
    await_ended_namespaces(&ns.env, &ns.name).await?;
    for kind in OURS {
        let left = ns.env.all(kind).list(&Default::default()).await?.items.len();
        ensure!(left == 0, "{left} {} are there, which would go with the CRDs", kind.plural);
    }
    let image = operator::image(&ns.env).await?;
    let result = without_an_install(&ns, &setup::default_manifests(&ns.env, &image).await?).await;
    let installed = setup::install(&ns.env, &image).await;
    result.and(installed)?;
    control_plane_ready(&ns.env).await?;
    let report = await_no_failure(&ns).await?;
    ensure!(with_verdict(&report, "skip").is_empty(), "after the install: {report}");
    Ok(())
}

/// Deletes what is installed, but for the namespace with the gateways' keys.
async fn without_an_install(ns: &Namespace, manifests: &str) -> Result<()> {
    let mut installed = documents(manifests)?;
    installed.retain(|manifest| manifest["kind"] != NAMESPACE.kind);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": installed}).to_string();
    let delete = ["delete", "--ignore-not-found", "--timeout", "50s", "--filename", "-"];
    ns.env.kubectl_with(&delete, list).await?;

    let later = poll(SHOWN, "what is not installed yet", || async {
        let (code, report) = doctor(ns).await?;
        let skipped = with_verdict(&report, "skip");
        let all_later = skipped.iter().all(|(_, text)| text.ends_with(": not installed yet"));
        let checks: Vec<&str> = skipped.iter().map(|(check, _)| check.as_str()).collect();
        ensure!(code == 0 && all_later && checks == LATER, "exit code {code}: {report}");
        Ok(Some(report))
    });
    let report = later.await?;
    let good = with_verdict(&report, "ok");
    for (check, words) in [
        ("sidecars", "they are kept"),
        ("admission-policies", "ours are not installed yet"),
        ("your-rights", "you may install it"),
        ("pods", "the sample agent is accepted"),
    ] {
        let is_good = good.iter().any(|(name, text)| name == check && text.contains(words));
        ensure!(is_good, "{check} does not say '{words}': {report}");
    }

    ns.create_object(&quota("pods", "0")).await?;
    let counted = |it: &Object| it.at("/status/hard")["pods"] == "0";
    ns.until(RESOURCE_QUOTA, "limit", SHOWN, "counts", counted).await?;
    await_failure(ns, "pods", "refused by quota \"limit\" (pods: used 0, limited 0): raise it").await?;
    ns.delete(RESOURCE_QUOTA, "limit").await?;
    await_no_failure(ns).await.map(drop)
}
