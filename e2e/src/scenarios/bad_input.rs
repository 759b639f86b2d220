//! Tests bad input: it is refused on apply, or a condition reports within ten seconds the necessary correction, and no
//! other object is affected.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{
    kinds::{AGENT, EVENT},
    manifests::{agent, tool},
    namespace::{Namespace, REPORT_TIMEOUT},
    object::ObjectExt as _,
    operator,
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    bad_input_is_reported_within_ten_seconds_and_harms_no_other_object,
    a_password_is_never_shown,
    a_mended_agent_runs,
);

/// Returns the cases: name, fields of the spec, final phase and words of the condition. Secrets in them contain `hunter2`.
fn cases() -> Vec<(&'static str, Value, &'static str, &'static [&'static str])> {
    vec![
        ("absent-tool", json!({"tools": ["nowhere"]}), "Resolving", &["nowhere"]),
        ("broken-tool", json!({"tools": ["broken"]}), "Resolving", &["broken"]),
        ("two-bad-tools", json!({"tools": ["nowhere", "broken"]}), "Resolving", &["nowhere", "broken"]),
        (
            "bad-dsn",
            json!({"databaseUrl": "postgresql://agent:hunter2@db:port:5432/agent"}),
            "Failed",
            &["InvalidDatabaseUrl"],
        ),
        ("no-dsn", json!({"storage": "postgresql"}), "Failed", &["MissingDatabaseUrl"]),
        (
            "no-pod",
            json!({"podTemplate": {"spec": {"containers": [{"name": "agent", "ports": "http"}]}}}),
            "Failed",
            &["InvalidSpec"],
        ),
        (
            "refused-pod",
            json!({"podTemplate": {"spec": {"restartPolicy": "Sometimes"}}}),
            "Failed",
            &["InvalidSpec", "restartPolicy"],
        ),
        (
            "own-hook",
            json!({"podTemplate": {"spec": {"containers": [{"name": "agent", "lifecycle": {"preStop": {"sleep": {"seconds": 3}}}}]}}}),
            "Failed",
            &["InvalidSpec", "lifecycle.preStop"],
        ),
        (
            "own-variable",
            json!({"env": [{"name": "CORAIL_CHANNEL", "value": "mine"}]}),
            "Failed",
            &["InvalidSpec", "CORAIL_CHANNEL"],
        ),
        ("long-value", json!({"env": [{"name": "LONG", "value": "x".repeat(200 << 10)}]}), "Failed", &["InvalidSpec"]),
    ]
}

async fn bad_input_is_reported_within_ten_seconds_and_harms_no_other_object(ns: Namespace) -> Result<()> {
    ns.apply(&tool("broken", json!({"type": "cli"}))).await?;
    let neighbour = ns.start(&agent("neighbour", json!({}))).await?;
    let pods = ns.pod_uids("neighbour").await?;

    let prompt = agent("long-prompt", json!({"systemPrompt": "x".repeat(2 << 20)}));
    refused(&ns, &prompt, "spec.systemPrompt").await?;
    refused(&ns, &agent("typo", json!({"sistemPrompt": "mistyped"})), "sistemPrompt").await?;

    for (name, fields, phase, words) in cases() {
        ns.apply(&agent(name, fields)).await?;
        let sentence = ns.await_agent_not_ready(name, REPORT_TIMEOUT, phase, words).await?;
        let stalled = sentence.condition("Stalled").is_true();
        ensure!(stalled == (phase == "Failed"), "Stalled is {stalled}: {}", sentence.describe());
    }
    // Objects that wait or have failed cause no writes, and no other object was changed.
    ns.stays_the_same(Duration::from_secs(3)).await?;
    let now = ns.get(AGENT, "neighbour").await?;
    ensure!(now.revision() == neighbour.revision(), "the neighbour was written: {}", now.describe());
    ensure!(ns.pod_uids("neighbour").await? == pods, "the neighbour's Pods were replaced");
    Ok(())
}

async fn refused(ns: &Namespace, manifest: &Value, message: &str) -> Result<()> {
    match ns.apply(manifest).await {
        Ok(_) => anyhow::bail!("accepted, although {message:?} was expected"),
        Err(error) => {
            let text = format!("{error:#}");
            ensure!(text.contains(message), "refused with another message: {}", &text[..text.len().min(600)]);
        }
    }
    Ok(())
}

async fn a_password_is_never_shown(ns: Namespace) -> Result<()> {
    for (name, url) in [
        ("bad-port", "postgresql://agent:hunter2secret@db:port/agent"),
        ("no-scheme", "agent:hunter2secret@db/agent"),
        ("bad-host", "postgresql://agent:hunter2secret@[db/agent"),
    ] {
        ns.apply(&agent(name, json!({"databaseUrl": url}))).await?;
        let failed = ns.await_agent_not_ready(name, REPORT_TIMEOUT, "Failed", &["InvalidDatabaseUrl"]).await?;
        let status = failed.at("/status").to_string();
        ensure!(!status.contains("hunter2secret"), "the password is in the status: {status}");
    }
    for event in ns.list(EVENT).await? {
        ensure!(!event.data.to_string().contains("hunter2secret"), "the password is in an Event");
    }
    ensure!(!operator::logs(&ns.env).await?.contains("hunter2secret"), "the password is in the operator's log");
    Ok(())
}

async fn a_mended_agent_runs(ns: Namespace) -> Result<()> {
    ns.apply(&agent("mended", json!({"databaseUrl": "postgresql://a:b@db:port/x"}))).await?;
    ns.await_agent_not_ready("mended", REPORT_TIMEOUT, "Failed", &["InvalidDatabaseUrl"]).await?;
    ns.edit(AGENT, "mended", json!({"spec": {"databaseUrl": null}})).await?;
    ns.await_agent_running("mended").await?;
    Ok(())
}
