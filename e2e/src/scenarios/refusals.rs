//! Admission policies that refuse what an agent needs: said at once, nothing is written while they do, and when they change
//! their mind it comes up by itself.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::{Scenario, scenarios};
use crate::{
    kinds::{ADMISSION_POLICY, ADMISSION_POLICY_BINDING, AGENT},
    manifests::agent,
    namespace::{Namespace, SAID},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Shared:
    what_a_policy_refuses_is_refused_until_the_policy_is_gone,
);

async fn what_a_policy_refuses_is_refused_until_the_policy_is_gone(ns: Namespace) -> Result<()> {
    let overlay = json!({"metadata": {"annotations": {"example.com/owner": "us"}}});
    ns.start(&agent("edited", json!({}))).await?;
    ns.start(&agent("edited-overlay", json!({"podTemplate": overlay}))).await?;
    put_on(&ns).await?;

    ns.apply(&agent("new", json!({}))).await?;
    ns.apply(&agent("new-overlay", json!({"podTemplate": overlay}))).await?;
    ns.edit(AGENT, "edited", json!({"spec": {"systemPrompt": "another one"}})).await?;
    ns.edit(AGENT, "edited-overlay", json!({"spec": {"systemPrompt": "another one"}})).await?;
    let all = ["new", "new-overlay", "edited", "edited-overlay"];
    for name in all {
        ns.says(name, SAID, "Failed", &["Refused", "no Deployments today"]).await?;
    }
    ensure!(ns.chat("edited", "hi").await? == "echo: hi", "the Pods of before the edit do not serve");

    let mark = ns.env.audit.mark().await?;
    ns.stays_the_same(Duration::from_secs(15)).await?;
    let requests = ns.operator_requests(mark).await?;
    let written = requests.iter().find(|request| request.is_write() && request.resource() != "events");
    ensure!(written.is_none(), "the operator writes while it is refused: {written:?}");
    ensure!(requests.iter().any(|request| request.is_dry_run()), "nobody looks whether it is still refused");

    take_off(&ns).await?;
    for name in all {
        ns.until(AGENT, name, Duration::from_secs(120), "comes up by itself", crate::object::Read::is_running).await?;
    }
    Ok(())
}

/// Refuses every Deployment of the namespace, and returns when the API server does so.
async fn put_on(ns: &Namespace) -> Result<()> {
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
    for (kind, manifest) in [(ADMISSION_POLICY, policy), (ADMISSION_POLICY_BINDING, binding)] {
        ns.env.all(kind).create(&PostParams::default(), &serde_json::from_value(manifest)?).await?;
    }
    judged(ns, true).await
}

async fn take_off(ns: &Namespace) -> Result<()> {
    for kind in [ADMISSION_POLICY_BINDING, ADMISSION_POLICY] {
        ns.env.all(kind).delete(&ns.name, &DeleteParams::default()).await?;
    }
    judged(ns, false).await
}

/// Waits until the API server does or does not refuse a Deployment.
async fn judged(ns: &Namespace, refused: bool) -> Result<()> {
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
