//! Reads the environment variables of the processes of a Pod: the values with which they were started, independent of the
//! objects' current state.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use rustix::process::{Pid, Signal};

use crate::{
    kinds::POD,
    namespace::{Namespace, REPORT_TIMEOUT},
    watch::poll,
};

/// Variable that only the container of an agent has, not its sidecar.
const AGENT: &str = "CORAIL_AGENT_NAME";

/// Returns the environment of the agent's container for each of its Pods that is not being deleted. It is read from the
/// processes of this machine, so the image needs no shell.
pub(crate) async fn of_agent(ns: &Namespace, agent: &str) -> Result<Vec<BTreeMap<String, String>>> {
    poll(REPORT_TIMEOUT, "the processes of the agent's Pods", || async {
        let pods = ns.list(POD).await?;
        let label = |pod: &crate::object::Object| pod.labels().get("app.kubernetes.io/name").cloned();
        let live = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let names: Vec<_> = live.filter(|pod| label(pod).as_deref() == Some(agent)).map(|pod| pod.name_any()).collect();
        let found: Vec<_> = tokio::task::spawn_blocking(environments).await??;
        let of = |pod: &String| {
            let is_its = |it: &&BTreeMap<String, String>| it.get("HOSTNAME") == Some(pod) && it.contains_key(AGENT);
            found.iter().find(is_its).cloned()
        };
        let all: Vec<_> = names.iter().filter_map(of).collect();
        Ok((!names.is_empty() && all.len() == names.len()).then_some(all))
    })
    .await
}

/// Checks that every Pod of the agent has this variable with a value that contains the text, or (`None`) that no Pod has
/// the variable.
pub(crate) async fn has(ns: &Namespace, agent: &str, variable: &str, text: Option<&str>) -> Result<()> {
    for found in of_agent(ns, agent).await? {
        let value = found.get(variable);
        let as_expected = match (value, text) {
            (Some(value), Some(text)) => value.contains(text),
            (value, text) => value.is_none() && text.is_none(),
        };
        ensure!(as_expected, "{variable} of a Pod of {agent} is {value:?}, expected {text:?}");
    }
    Ok(())
}

/// Sends a signal to every process of a Pod, without the kubelet.
pub(crate) async fn signal(pod: &str, signal: Signal) -> Result<()> {
    let pod = pod.to_owned();
    tokio::task::spawn_blocking(move || {
        let mut sent = 0;
        for (pid, _) in processes()?.into_iter().filter(|(_, found)| found.get("HOSTNAME") == Some(&pod)) {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process id")?;
            rustix::process::kill_process(pid, signal)
                .with_context(|| format!("send {signal:?} to a process of {pod}"))?;
            sent += 1;
        }
        ensure!(sent > 0, "Pod {pod} has no process");
        Ok(())
    })
    .await?
}

/// Returns the environment of every process of this machine that may be read.
fn environments() -> Result<Vec<BTreeMap<String, String>>> {
    Ok(processes()?.into_iter().map(|(_, environment)| environment).collect())
}

/// Returns the id and the environment of every process of this machine that may be read.
fn processes() -> Result<Vec<(u32, BTreeMap<String, String>)>> {
    let processes = std::fs::read_dir("/proc")?.flatten();
    let read = |process: std::fs::DirEntry| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let text = String::from_utf8_lossy(&std::fs::read(process.path().join("environ")).ok()?).into_owned();
        let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
        Some((pid, pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
    };
    Ok(processes.filter_map(read).collect())
}
