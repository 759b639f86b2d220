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
pub(crate) async fn play(world: &FaultEnv, older: &Path) -> Result<String> {
    let (log, proxy) = (world.log(NAME), world.proxy().await?);
    let mut operator = world.operator_of(older, &proxy, &log, "upgrade", None).await?;
    let places = world.create_namespaces(NAME, NAMESPACES).await?;
    let scripts: Vec<_> = places.iter().cloned().map(|place| tokio::spawn(async move { place.play().await })).collect();
    for script in scripts {
        script.await.context("a script panicked")??;
    }
    world.settle(&places, &mut [&mut operator], &log).await?;
    sleep(QUIET).await;
    let before = templates(&places).await?;
    let mut told = Vec::new();
    for (program, what) in [(world.args.program.as_path(), "newer"), (older, "older")] {
        operator.stop().await?;
        let mark = proxy.faults.log.now();
        operator = world.operator_of(program, &proxy, &log, "upgrade", None).await?;
        sleep(QUIET).await;
        world.settle(&places, &mut [&mut operator], &log).await?;
        ensure!(templates(&places).await? == before, "the {what} operator changed Pod templates");
        let mut writes = BTreeMap::<String, usize>::new();
        for entry in proxy.faults.log.since(mark) {
            if is_change(&entry) {
                *writes.entry(entry.call.to_string()).or_default() += 1;
            }
        }
        let most = writes.iter().max_by_key(|(_, count)| **count);
        ensure!(most.is_none_or(|(_, count)| *count <= 1), "the {what} operator wrote more than once: {most:?}");
        told.push(format!("{what}: {} writes", writes.len()));
        if what == "newer" {
            // The newer build may render the template differently; a change of the replica count must not roll that out.
            scale(&places[0]).await?;
            sleep(QUIET).await;
            ensure!(templates(&places).await? == before, "a changed number of replicas changed a Pod template");
        }
    }
    for place in &places {
        place.remove().await?;
    }
    operator.stop().await?;
    Ok(told.join(", "))
}

/// Returns the Pod template of each Deployment.
async fn templates(places: &[ScriptNamespace]) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for place in places {
        for deployment in place.api("Deployment").list(&ListParams::default()).await?.items {
            let title = format!("{}/{}", place.name, deployment.name_any());
            all.insert(title, deployment.data["spec"]["template"].to_string());
        }
    }
    Ok(all)
}

async fn scale(place: &ScriptNamespace) -> Result<()> {
    place.patch("Agent", "wide", json!({"spec": {"replicas": 4}})).await
}
