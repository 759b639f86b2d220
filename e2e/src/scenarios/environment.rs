//! Tests that the environment of the Pods follows the objects: a removed value is in no new Pod, and no Secret outlives its
//! use.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    environment::has,
    kinds::{AGENT, SECRET, TOOL},
    manifests::{tool, workload},
    namespace::{Namespace, START_TIMEOUT},
    object::{ObjectExt as _, ObjectsByName},
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    what_is_taken_away_is_in_no_new_pod,
);
/// Runs alone: its edits are sent as fast as the API server accepts them for half a minute, which delays all other
/// scenarios.
pub(super) const ALONE: &[Scenario] = scenarios!(Serial:
    quick_edits_between_databases_and_none_leave_no_secret,
);

const DATABASE: &str = "postgresql://u:hunter2@db.example:5432/one";

async fn what_is_taken_away_is_in_no_new_pod(ns: Namespace) -> Result<()> {
    let name = "reader";
    let http = json!({"type": "http", "endpoint": "http://weather.example/now"});
    ns.provide(&tool("weather", http)).await?;
    let spec = json!({
        "systemPrompt": "You are a pirate.", "tools": ["weather"], "storage": "postgresql", "databaseUrl": DATABASE,
    });
    let mut now = ns.start(&workload(name, spec)).await?;
    has(&ns, name, "CORAIL_SYSTEM_PROMPT", Some("pirate")).await?;
    has(&ns, name, "CORAIL_DATABASE_URL", Some("hunter2")).await?;
    has(&ns, name, "CORAIL_TOOLS", Some("weather.example")).await?;

    let of_tool = |fields: Value| (TOOL, "weather", json!({"spec": fields}));
    let of_agent = |fields: Value| (AGENT, name, json!({"spec": fields}));
    let steps = [
        (of_agent(json!({"systemPrompt": null})), "CORAIL_SYSTEM_PROMPT", None),
        (of_tool(json!({"headers": {"X-Key": "first"}})), "CORAIL_TOOLS", Some("first")),
        // The Secret stays for the database. Its old value of the tools must not take precedence over that of the
        // ConfigMap.
        (of_tool(json!({"headers": null, "endpoint": "http://other.example/"})), "CORAIL_TOOLS", Some("other.example")),
        (of_agent(json!({"databaseUrl": null, "storage": "memory"})), "CORAIL_DATABASE_URL", None),
        (of_tool(json!({"enabled": false})), "CORAIL_TOOLS", None),
        (of_tool(json!({"enabled": true})), "CORAIL_TOOLS", Some("other.example")),
        (of_agent(json!({"tools": []})), "CORAIL_TOOLS", None),
    ];
    for ((kind, object, patch), variable, text) in steps {
        ns.edit(kind, object, patch).await?;
        now = ns.await_reconfigured(AGENT, &now).await?;
        has(&ns, name, variable, text).await?;
    }
    ensure!(ns.find(SECRET, "reader-config").await?.is_none(), "the Secret is there although nothing wants it");
    Ok(())
}

async fn quick_edits_between_databases_and_none_leave_no_secret(ns: Namespace) -> Result<()> {
    const AGENTS: u64 = 200;
    let other = DATABASE.replace("/one", "/two");
    let edited = |n: u64| {
        let (ns, other) = (ns.clone(), other.clone());
        async move {
            let name = format!("quick-{n}");
            let with = |url: &str| json!({"replicas": 0, "storage": "postgresql", "databaseUrl": url});
            ns.apply(&workload(&name, with(DATABASE))).await?;
            // Each edit arrives at another moment of the operator's reconcile.
            tokio::time::sleep(Duration::from_millis(n * 7 % 80)).await;
            if n.is_multiple_of(3) {
                ns.edit(AGENT, &name, json!({"spec": {"databaseUrl": other}})).await?;
            }
            let none = json!({"spec": {"databaseUrl": null, "storage": "memory"}});
            ns.edit(AGENT, &name, none).await.map(drop)
        }
    };
    futures::stream::iter((0..AGENTS).map(edited)).buffer_unordered(4).try_collect::<Vec<()>>().await?;
    let at_rest = |agents: &ObjectsByName| agents.values().all(|it| it.phase() == "Terminated" && it.is_current());
    ns.until_all(AGENT, 2 * START_TIMEOUT, "stopped, as the last edit says", at_rest).await?;
    let left = |secrets: &ObjectsByName| secrets.keys().any(|name| name.ends_with("-config"));
    let gone = ns.until_all(SECRET, START_TIMEOUT, "gone", |secrets| !left(secrets)).await;
    if gone.is_err() {
        let secrets = ns.list(SECRET).await?;
        let names: Vec<_> = secrets.iter().map(ResourceExt::name_any).collect();
        ensure!(names.is_empty(), "{} Secrets that nothing wants: {names:?}", names.len());
    }
    Ok(())
}
