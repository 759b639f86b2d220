//! Tests the number of the operator's requests by the audit log.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::mcp_servers::start_servers_and_a_user;
use crate::{
    kinds::{AGENT, MCP_SERVER, REMOTE_MCP_SERVER, TOOL},
    manifests::{agent, tool},
    namespace::Namespace,
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    an_annotation_on_a_shared_tool_writes_nothing,
    an_annotation_on_a_server_of_tools_asks_nothing,
    foreign_clients_that_patch_all_the_time_hold_up_no_object,
);

async fn an_annotation_on_a_shared_tool_writes_nothing(ns: Namespace) -> Result<()> {
    ns.provide(&tool("shared", json!({}))).await?;
    let names = ["one", "two", "three"];
    for name in names {
        ns.apply(&agent(name, json!({"tools": ["shared"]}))).await?;
    }
    for name in names {
        ns.await_agent_running(name).await?;
        ns.await_event(name, "Running").await?;
    }
    let mark = ns.mark().await?;
    ns.edit(TOOL, "shared", json!({"metadata": {"annotations": {"example.com/note": "seen"}}})).await?;
    ns.env.audit.ensure_quiet(mark, &ns.name, Duration::from_secs(3)).await
}

async fn an_annotation_on_a_server_of_tools_asks_nothing(ns: Namespace) -> Result<()> {
    start_servers_and_a_user(&ns).await?;
    let mark = ns.mark().await?;
    for (kind, name) in [(REMOTE_MCP_SERVER, "elsewhere"), (MCP_SERVER, "pipes"), (TOOL, "echo")] {
        ns.edit(kind, name, json!({"metadata": {"annotations": {"example.com/note": "seen"}}})).await?;
    }
    ns.env.audit.ensure_quiet(mark, &ns.name, Duration::from_secs(3)).await
}

async fn foreign_clients_that_patch_all_the_time_hold_up_no_object(ns: Namespace) -> Result<()> {
    let recorder = ns.record(AGENT, "busy").await?;
    ns.apply(&agent("busy", json!({"tools": ["late"]}))).await?;
    let api = ns.api(AGENT);
    let labels = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(40));
        for round in 0_u64.. {
            ticks.tick().await;
            ns.edit(AGENT, "busy", json!({"metadata": {"labels": {"round": round.to_string()}}})).await?;
        }
        Ok::<_, anyhow::Error>(())
    };
    let status = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(40));
        let params = PatchParams::apply("stranger").force();
        for round in 0_u64.. {
            ticks.tick().await;
            let condition = json!({
                "type": "Stranger", "status": "True", "reason": "Round", "message": round.to_string(),
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let body = json!({
                "apiVersion": AGENT.api_version(), "kind": AGENT.kind, "metadata": {"name": "busy"},
                "status": {"conditions": [condition]},
            });
            api.patch_status("busy", &params, &Patch::Apply(body)).await?;
        }
        Ok::<_, anyhow::Error>(())
    };
    let start = async {
        ns.provide(&tool("late", json!({}))).await?;
        ns.await_agent_running("busy").await
    };
    let running = tokio::select! {
        running = start => running?,
        result = labels => return result,
        result = status => return result,
    };
    ensure!(running.condition("Stranger").is_true(), "the stranger's condition is lost");
    let now = ns.get(AGENT, "busy").await?;
    ensure!(now.is_running(), "{}", now.describe());
    let seen = recorder.up_to(&now).await?;
    let rounds = |text: &dyn Fn(&Object) -> String| -> Vec<u64> {
        seen.iter().map(|it| text(it).parse().unwrap_or_default()).collect()
    };
    for rounds in [
        rounds(&|it| it.condition("Stranger").message.to_owned()),
        rounds(&|it| it.labels().get("round").cloned().unwrap_or_default()),
    ] {
        ensure!(rounds.first() < rounds.last() && rounds.is_sorted(), "a write of the stranger was undone: {rounds:?}");
    }
    Ok(())
}
