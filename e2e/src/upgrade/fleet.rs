//! Workloads that live through the upgrade, and what of them must stay as it is.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::{
    kinds::{AGENT, DEPLOYMENT, FLOW_SET, MCP_SERVER, OURS, POD},
    manifests::{WORKLOAD, agent, flow_set, model, object, plugin_config, prompt, tool, workload},
    namespace::{Namespace, START_TIMEOUT},
    object::{Object, ObjectExt},
};

/// Number of agents with a Pod, [`STREAMS`] and the one that calls a tool among them.
pub(super) const AGENTS: usize = 20;
/// Number of agents of which streams are read.
pub(super) const STREAMS: usize = 4;
/// Number of agents without Pods, so that there are 200 agents: a node runs about a hundred Pods.
const STOPPED: usize = 200 - AGENTS;
/// Longest wait until all of them are stopped.
const ALL: Duration = Duration::from_secs(240);

/// Name of the MCP server, which has the tool `echo`.
pub(super) const SERVER: &str = "pipes";
/// Name of the agent that calls this tool.
pub(super) const CALLER: &str = "caller";
/// Name of the flow set, which has the flow `greet`.
pub(super) const FLOWS: &str = "desk";

/// Returns the name of an agent with the runner's image that has no tools.
pub(super) fn talker(number: usize) -> String {
    format!("talker-{number}")
}

/// Returns the name of an agent with the image of the test workload.
pub(super) fn streamer(number: usize) -> String {
    format!("streamer-{number}")
}

/// Creates all objects and waits until they are as they should be.
pub(super) async fn start(ns: &Namespace) -> Result<()> {
    let deployment = json!({"image": WORKLOAD, "cmd": "/workload", "args": ["mcp", "echo"]});
    let server = json!({"transportType": "stdio", "deployment": deployment, "resync": "1h"});
    let reference = json!({"type": "mcp", "mcpServerRef": {"kind": MCP_SERVER.kind, "name": SERVER}});
    let mut manifests = vec![
        plugin_config("stub", json!({})),
        model("echo", "stub"),
        prompt("greet", "Greet {{name}}."),
        object(MCP_SERVER, SERVER, server),
        tool("echo", reference),
        agent(CALLER, json!({"tools": ["echo"]})),
        flow_set(FLOWS, &[("greet", &["greet"])], json!({})),
    ];
    manifests.extend((0..STREAMS).map(|number| workload(&streamer(number), json!({}))));
    manifests.extend((1..AGENTS - STREAMS).map(|number| agent(&talker(number), json!({}))));
    manifests.extend((0..STOPPED).map(|number| agent(&format!("stopped-{number}"), json!({"replicas": 0}))));
    let applied = stream::iter(&manifests).map(|manifest| ns.apply(manifest)).buffer_unordered(8);
    applied.try_for_each(|_| std::future::ready(Ok(()))).await?;

    let settled = |it: &Object| if it.number("/spec/replicas") == 0 { is_stopped(it) } else { it.is_running() };
    ns.until_all(AGENT, ALL, "every agent Running or stopped", |agents| agents.values().all(settled)).await?;
    for (kind, name) in [(FLOW_SET, FLOWS), (MCP_SERVER, SERVER)] {
        ns.until(kind, name, START_TIMEOUT, "is Running and Ready", ObjectExt::is_running).await?;
    }
    Ok(())
}

fn is_stopped(agent: &Object) -> bool {
    agent.phase() == "Terminated" && agent.is_current() && agent.condition("Ready").is_true()
}

/// State that an upgrade must keep.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// Number of objects of our kinds.
    pub(super) objects: usize,
    /// Uid and restarts of each Pod by its name.
    pub(super) pods: BTreeMap<String, String>,
    /// Pod template of each Deployment by its name.
    templates: BTreeMap<String, Value>,
}

impl Snapshot {
    /// Reads it.
    pub(super) async fn take(ns: &Namespace) -> Result<Self> {
        let mut objects = 0;
        for kind in OURS {
            objects += ns.list(kind).await?.len();
        }
        let pod = |pod: Object| {
            let restarts = |field: &str| {
                let containers = pod.at(field).as_array().into_iter().flatten();
                containers.map(|container| container["restartCount"].as_u64().unwrap_or_default()).sum::<u64>()
            };
            let restarts = restarts("/status/containerStatuses") + restarts("/status/initContainerStatuses");
            (pod.name_any(), format!("{}, {restarts} restarts", pod.id()))
        };
        let template = |deployment: Object| (deployment.name_any(), deployment.at("/spec/template").clone());
        Ok(Self {
            objects,
            pods: ns.list(POD).await?.into_iter().map(pod).collect(),
            templates: ns.list(DEPLOYMENT).await?.into_iter().map(template).collect(),
        })
    }

    /// Checks that nothing of it has changed.
    pub(super) fn check_kept(&self, after: &Self) -> Result<()> {
        let pods = (&self.pods, &after.pods);
        ensure!(pods.0 == pods.1, "Pods were replaced or restarted: before {:?}, after {:?}", pods.0, pods.1);
        let changed = self.templates.iter().filter(|(name, template)| after.templates.get(*name) != Some(template));
        let changed: Vec<&String> = changed.map(|(name, _)| name).collect();
        ensure!(changed.is_empty(), "Pod templates changed: {changed:?}");
        ensure!(self.objects == after.objects, "{} objects became {}", self.objects, after.objects);
        Ok(())
    }
}
