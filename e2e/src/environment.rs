//! What the processes of a Pod have in their environment: what they were started with, whatever the objects say by now.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use kube::ResourceExt as _;

use crate::{
    kinds::POD,
    namespace::{Namespace, SAID},
    watch::poll,
};

/// The variable that only the container of an agent has, not its sidecar.
const AGENT: &str = "CORAIL_AGENT_NAME";

/// The environment of the agent's container in each of its Pods that is not being deleted, read from the machine's processes: an
/// image needs no shell for it.
pub(crate) async fn of_agent(ns: &Namespace, agent: &str) -> Result<Vec<BTreeMap<String, String>>> {
    poll(SAID, "the processes of the agent's Pods", || async {
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

/// Checks that every Pod of the agent has this variable with a value that contains the text, or (`None`) that none has it.
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

/// The environment of every process of this machine that may be read.
fn environments() -> std::io::Result<Vec<BTreeMap<String, String>>> {
    let processes = std::fs::read_dir("/proc")?.flatten();
    let texts = processes.filter_map(|process| std::fs::read(process.path().join("environ")).ok());
    let read = |bytes: Vec<u8>| {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    Ok(texts.map(read).collect())
}
