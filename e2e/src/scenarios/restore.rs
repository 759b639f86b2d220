//! Tests a restore of etcd from a backup: resource versions go back, deleted objects exist again, and objects that were
//! created since do not. It runs alone.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, ensure};
use kube::ResourceExt;
use serde_json::json;
use tokio::{fs, process::Command};

use super::traffic::{await_response, send_request};
use crate::{
    cleanup::await_ended_namespaces,
    client::ClientTarget,
    kinds::{AGENT, DEPLOYMENT},
    manifests::workload,
    namespace::{Namespace, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    operator,
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Exclusive:
    a_restored_etcd_makes_neither_operator_nor_gateway_deaf,
);

/// Number of versions between the backup and its restore: the caches must recover without the next versions.
const EDITS: usize = 300;
/// Longest wait from the return of the API server until operator and gateway act on the restored state.
const RESTORED: Duration = Duration::from_secs(180);

async fn a_restored_etcd_makes_neither_operator_nor_gateway_deaf(ns: Namespace) -> Result<()> {
    await_ended_namespaces(&ns.env, &ns.name).await?;
    ns.start(&workload("kept", json!({}))).await?;
    // Without Pods: a node does not restart a Pod that it has terminated, even if the restored API contains it.
    ns.apply(&workload("deleted", json!({"replicas": 0}))).await?;
    ns.until(AGENT, "deleted", START_TIMEOUT, "is stopped", |it| it.phase() == "Terminated").await?;
    let uids: Vec<String> = operator::pods(&ns.env).await?.iter().map(Object::id).collect();
    let backup = back_up(&ns).await?;
    ns.delete(AGENT, "deleted").await?;
    ns.start(&workload("later", json!({}))).await?;
    for edit in 0..EDITS {
        ns.edit(AGENT, "later", json!({"metadata": {"labels": {"edit": edit.to_string()}}})).await?;
    }
    ns.until_gone(AGENT, "deleted", START_TIMEOUT).await?;
    restore(&ns, &backup).await?;

    // No change brings newer versions: the caches must contain the restored objects and no others.
    for (name, status) in [("kept", 200), ("deleted", 503), ("later", 404)] {
        let target = ClientTarget::gateway(&ns, AGENT, name).await?;
        poll(RESTORED, &format!("the gateway answers for {name} with {status}"), || async {
            let answer = send_request(&ns, &target, "GET", "/sleep?ms=0").await?;
            ensure!(answer.status == status, "{answer:?}");
            Ok(Some(()))
        })
        .await?;
    }
    let edited = ns.edit(AGENT, "kept", json!({"spec": {"systemPrompt": "go on"}})).await?;
    let goes_on = |it: &Object| it.is_running() && it.generation() == edited.generation() && it.is_current();
    ns.until(AGENT, "kept", RESTORED, "is seen by the operator", goes_on).await?;
    await_response(&ns, &ClientTarget::gateway(&ns, AGENT, "kept").await?).await?;
    ns.delete(AGENT, "deleted").await?;
    ns.until_gone(AGENT, "deleted", RESTORED).await?;
    let left: Vec<String> = ns.list(DEPLOYMENT).await?.iter().map(ResourceExt::name_any).collect();
    ensure!(left == ["kept"], "Deployments: {left:?}");
    let now: Vec<String> = operator::pods(&ns.env).await?.iter().map(Object::id).collect();
    ensure!(now == uids, "the operator's Pods were replaced");
    Ok(())
}

/// Copies the files of etcd while it is stopped.
async fn back_up(ns: &Namespace) -> Result<PathBuf> {
    let backup = ns.env.state().join("etcd-backup");
    ns.env.cluster(&["stop-apiserver"]).await?;
    ns.env.cluster(&["stop-etcd"]).await?;
    // A failed run may have left it.
    let _ = fs::remove_dir_all(&backup).await;
    let copied = Command::new("cp").arg("-a").arg(ns.env.state().join("etcd")).arg(&backup).status().await?;
    ns.env.cluster(&["start-etcd"]).await?;
    ns.env.cluster(&["start-apiserver"]).await?;
    ensure!(copied.success(), "cp -a of etcd's files: {copied}");
    Ok(backup)
}

/// Replaces the files of etcd with the copy.
async fn restore(ns: &Namespace, backup: &Path) -> Result<()> {
    let data = ns.env.state().join("etcd");
    ns.env.cluster(&["stop-apiserver"]).await?;
    ns.env.cluster(&["stop-etcd"]).await?;
    fs::remove_dir_all(&data).await?;
    fs::rename(backup, &data).await?;
    ns.env.cluster(&["start-etcd"]).await?;
    ns.env.cluster(&["start-apiserver"]).await?;
    // Kubernetes requires these restarts after a restore: the components expect resource versions that only increase, and
    // kube-proxy would route to no API server.
    for part in ["restart-controller-manager", "restart-scheduler", "restart-proxy", "restart-kubelet"] {
        ns.env.cluster(&[part]).await?;
    }
    Ok(())
}
