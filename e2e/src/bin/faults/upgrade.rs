//! Upgrades the operator from another build and downgrades it again (P35): no Pod template changes, and each object costs
//! one write at most.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kube::{ResourceExt as _, api::ListParams};
use serde_json::json;
use tokio::time::sleep;

use crate::{counts::is_change, fault_env::FaultEnv, script::ScriptNamespace};

/// Name of the scenario.
pub(crate) const NAME: &str = "P35-upgrade";
/// Number of namespaces, which makes about two hundred agents.
const NAMESPACES: usize = 40;
/// Time without a write after which a namespace counts as settled.
const QUIET: Duration = Duration::from_secs(10);

/// Creates all objects with the older build, then runs the newer build, then the older one again.
pub(crate) async fn play(env: &FaultEnv, older: &Path) -> Result<String> {
    let (log, proxy) = (env.log(NAME), env.proxy().await?);
    let mut operator = env.operator_of(older, &proxy, &log, "upgrade", None).await?;
    let namespaces = env.create_namespaces(NAME, NAMESPACES).await?;
    let scripts: Vec<_> =
        namespaces.iter().cloned().map(|namespace| tokio::spawn(async move { namespace.play().await })).collect();
    for script in scripts {
        script.await.context("a script panicked")??;
    }
    env.settle(&namespaces, &mut [&mut operator], &log).await?;
    sleep(QUIET).await;
    let before = templates(&namespaces).await?;
    let mut reported = Vec::new();
    for (program, what) in [(env.args.program.as_path(), "newer"), (older, "older")] {
        operator.stop().await?;
        let mark = proxy.faults.log.now();
        operator = env.operator_of(program, &proxy, &log, "upgrade", None).await?;
        sleep(QUIET).await;
        env.settle(&namespaces, &mut [&mut operator], &log).await?;
        ensure!(templates(&namespaces).await? == before, "the {what} operator changed Pod templates");
        let mut writes = BTreeMap::<String, usize>::new();
        for entry in proxy.faults.log.since(mark) {
            if is_change(&entry) {
                *writes.entry(entry.call.to_string()).or_default() += 1;
            }
        }
        let most = writes.iter().max_by_key(|(_, count)| **count);
        ensure!(most.is_none_or(|(_, count)| *count <= 1), "the {what} operator wrote more than once: {most:?}");
        reported.push(format!("{what}: {} writes", writes.len()));
        if what == "newer" {
            // The newer build may render the template differently; a change of the replica count must not roll that out.
            scale(&namespaces[0]).await?;
            sleep(QUIET).await;
            ensure!(templates(&namespaces).await? == before, "a changed number of replicas changed a Pod template");
        }
    }
    for namespace in &namespaces {
        namespace.remove().await?;
    }
    operator.stop().await?;
    Ok(reported.join(", "))
}

/// Returns the Pod template of each Deployment.
async fn templates(namespaces: &[ScriptNamespace]) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for namespace in namespaces {
        for deployment in namespace.api("Deployment").list(&ListParams::default()).await?.items {
            let title = format!("{}/{}", namespace.name, deployment.name_any());
            all.insert(title, deployment.data["spec"]["template"].to_string());
        }
    }
    Ok(all)
}

async fn scale(namespace: &ScriptNamespace) -> Result<()> {
    namespace.patch("Agent", "wide", json!({"spec": {"replicas": 4}})).await
}
