//! Tests admission policies that refuse a child of an agent: reported at once, no writes while the refusal lasts, and the
//! agent starts when the policy is removed. Mutating policies: their changes to an applied child are left unchanged.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    kinds::{
        ADMISSION_POLICY, ADMISSION_POLICY_BINDING, AGENT, DEPLOYMENT, KubeKind, MUTATING_POLICY,
        MUTATING_POLICY_BINDING, SERVICE,
    },
    manifests::agent,
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    what_a_policy_refuses_is_refused_until_the_policy_is_gone,
    what_a_policy_changes_is_left_as_it_wants_it,
);

async fn what_a_policy_refuses_is_refused_until_the_policy_is_gone(ns: Namespace) -> Result<()> {
    let overlay = json!({"metadata": {"annotations": {"example.com/owner": "us"}}});
    ns.start(&agent("edited", json!({}))).await?;
    ns.start(&agent("edited-overlay", json!({"podTemplate": overlay}))).await?;
    add_policy(&ns).await?;

    ns.apply(&agent("new", json!({}))).await?;
    ns.apply(&agent("new-overlay", json!({"podTemplate": overlay}))).await?;
    ns.edit(AGENT, "edited", json!({"spec": {"systemPrompt": "another one"}})).await?;
    ns.edit(AGENT, "edited-overlay", json!({"spec": {"systemPrompt": "another one"}})).await?;
    let all = ["new", "new-overlay", "edited", "edited-overlay"];
    for name in all {
        ns.await_agent_not_ready(name, REPORT_TIMEOUT, "Failed", &["Refused", "no Deployments today"]).await?;
    }
    ensure!(ns.chat("edited", "hi").await? == "echo: hi", "the Pods of before the edit do not serve");

    let mark = ns.env.audit.mark().await?;
    ns.stays_the_same(Duration::from_secs(15)).await?;
    let requests = ns.operator_requests(mark).await?;
    let written = requests.iter().find(|request| request.is_write() && request.resource() != "events");
    ensure!(written.is_none(), "the operator writes while it is refused: {written:?}");
    ensure!(requests.iter().any(|request| request.is_dry_run()), "no dry run checks whether it is still refused");

    remove_policy(&ns).await?;
    for name in all {
        ns.until(AGENT, name, Duration::from_secs(120), "comes up by itself", crate::object::ObjectExt::is_running)
            .await?;
    }
    Ok(())
}

/// Value that the policy writes over the label of an agent's Deployment and Service.
const PART_OF: &str = "the-platform";

async fn what_a_policy_changes_is_left_as_it_wants_it(ns: Namespace) -> Result<()> {
    ns.start(&agent("before", json!({}))).await?;
    let kinds = mutating_kinds(&ns).await?;
    add_mutating_policy(&ns, kinds).await?;
    ns.start(&agent("after", json!({}))).await?;
    for kind in [DEPLOYMENT, SERVICE] {
        let child = ns.get(kind, "after").await?;
        ensure!(part_of(&child) == Some(PART_OF), "{} is not as the policy makes it", kind.kind);
    }
    ns.edit(AGENT, "before", json!({"spec": {"systemPrompt": "another one"}})).await?;
    let changed = |it: &Object| it.is_running() && it.is_current();
    ns.until(AGENT, "before", START_TIMEOUT, "runs with its prompt", changed).await?;
    ensure!(part_of(&ns.get(DEPLOYMENT, "before").await?) == Some(PART_OF), "the policy did not see the edit");
    // Longer than one watch stays open.
    let mark = ns.env.audit.mark().await?;
    ns.stays_the_same(Duration::from_secs(35)).await?;
    let requests = ns.operator_requests(mark).await?;
    let written = requests.iter().find(|request| request.is_write() && request.resource() != "events");
    ensure!(written.is_none(), "the operator writes what the policy changes again: {written:?}");
    let [policy, binding] = kinds;
    delete(&ns, [binding, policy]).await
}

/// Returns a mutating policy and its binding in the version that the API server has. Before v1 it is an alpha version, which
/// `hack/cluster` switches on.
async fn mutating_kinds(ns: &Namespace) -> Result<[KubeKind; 2]> {
    let listed = ns.env.client.list_api_group_resources(&MUTATING_POLICY.api_version()).await?;
    let is_stable = listed.resources.iter().any(|found| found.kind == MUTATING_POLICY.kind);
    let version = if is_stable { "v1" } else { "v1alpha1" };
    Ok([MUTATING_POLICY, MUTATING_POLICY_BINDING].map(|kind| kind.at_version(version)))
}

fn part_of(object: &Object) -> Option<&str> {
    object.labels().get("app.kubernetes.io/part-of").map(String::as_str)
}

/// Creates a policy that changes a label of the applied Deployments and Services, and waits until it is effective.
async fn add_mutating_policy(ns: &Namespace, [policy_kind, binding_kind]: [KubeKind; 2]) -> Result<()> {
    let name = &ns.name;
    let label =
        format!(r#"Object{{metadata: Object.metadata{{labels: {{"app.kubernetes.io/part-of": "{PART_OF}"}}}}}}"#);
    let policy = json!({
        "apiVersion": policy_kind.api_version(), "kind": policy_kind.kind, "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [
                {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["deployments"]},
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["services"]},
            ]},
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": label}}],
        },
    });
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
    let binding = json!({
        "apiVersion": binding_kind.api_version(), "kind": binding_kind.kind,
        "metadata": {"name": name},
        "spec": {"policyName": name, "matchResources": {"namespaceSelector": here}},
    });
    create(ns, [(policy_kind, policy), (binding_kind, binding)]).await?;
    let probe = probe();
    poll(Duration::from_secs(60), "the policy changes what is applied", || async {
        let probed = ns.would_apply(&probe).await.map_err(|error| anyhow!("apply a Deployment: {error}"))?;
        Ok((part_of(&probed) == Some(PART_OF)).then_some(()))
    })
    .await
}

/// Creates a policy that refuses every Deployment of the namespace, and waits until it is effective.
async fn add_policy(ns: &Namespace) -> Result<()> {
    let name = &ns.name;
    let policy = json!({
        "apiVersion": ADMISSION_POLICY.api_version(), "kind": ADMISSION_POLICY.kind, "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["deployments"],
            }]},
            "validations": [{"expression": "false", "message": "no Deployments today"}],
        },
    });
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
    let binding = json!({
        "apiVersion": ADMISSION_POLICY_BINDING.api_version(), "kind": ADMISSION_POLICY_BINDING.kind,
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": here}},
    });
    create(ns, [(ADMISSION_POLICY, policy), (ADMISSION_POLICY_BINDING, binding)]).await?;
    await_policy(ns, true).await
}

async fn remove_policy(ns: &Namespace) -> Result<()> {
    delete(ns, [ADMISSION_POLICY_BINDING, ADMISSION_POLICY]).await?;
    await_policy(ns, false).await
}

async fn create(ns: &Namespace, manifests: [(KubeKind, Value); 2]) -> Result<()> {
    for (kind, manifest) in manifests {
        ns.env.all(kind).create(&PostParams::default(), &serde_json::from_value(manifest)?).await?;
    }
    Ok(())
}

async fn delete(ns: &Namespace, kinds: [KubeKind; 2]) -> Result<()> {
    for kind in kinds {
        ns.env.all(kind).delete(&ns.name, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Waits until the API server refuses a Deployment, or accepts one.
async fn await_policy(ns: &Namespace, refused: bool) -> Result<()> {
    let probe = probe();
    poll(Duration::from_secs(60), "the policy is as it is to be", || async {
        Ok((ns.would_apply(&probe).await.is_err() == refused).then_some(()))
    })
    .await
}

fn probe() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "probe"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "probe"}},
            "template": {
                "metadata": {"labels": {"app": "probe"}},
                "spec": {"containers": [{"name": "probe", "image": "probe"}]},
            },
        },
    })
}
