//! Tests tools whose calls a person has to approve.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::flows::provide_stub;
use crate::{
    kinds::{AGENT, FLOW, TOOL},
    manifests::{flow, tool, workload},
    namespace::{Namespace, REPORT_TIMEOUT},
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    an_image_that_may_not_ask_gets_no_tool_that_a_person_approves,
    a_flow_gets_no_tool_that_a_person_approves,
);

/// Exit code of `recif why` for an object that is not Ready.
const NOT_READY: i32 = 3;

/// Returns the tool `pay`, whose calls change something.
fn pay() -> Value {
    let fields = json!({
        "type": "http", "endpoint": "http://bank.example/payments", "method": "POST", "approval": {"when": "OnWrite"},
    });
    tool("pay", fields)
}

async fn an_image_that_may_not_ask_gets_no_tool_that_a_person_approves(ns: Namespace) -> Result<()> {
    ns.provide(&pay()).await?;
    ns.apply(&workload("own", json!({"tools": ["pay"]}))).await?;
    let words = ["ApprovalUnsupported", r#"tool "pay" asks a person"#];
    ns.await_agent_not_ready("own", REPORT_TIMEOUT, "Failed", &words).await?;
    let (code, why) = ns.env.recif(&["why", "agent/own", "-n", &ns.name]).await?;
    ensure!(code == NOT_READY && why.contains("annotate recif.dev/asks"), "exit code {code}: {why}");
    ns.edit(AGENT, "own", json!({"metadata": {"annotations": {"recif.dev/asks": "true"}}})).await?;
    ns.await_agent_running("own").await?;
    Ok(())
}

async fn a_flow_gets_no_tool_that_a_person_approves(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.provide(&pay()).await?;
    ns.apply(&flow("f", &["say"], json!({"tools": [{"name": "pay"}]}))).await?;
    let words = ["ApprovalUnsupported", "a flow has no conversation to wait in"];
    ns.await_not_ready(FLOW, "f", REPORT_TIMEOUT, "Failed", &words).await?;
    ns.edit(TOOL, "pay", json!({"spec": {"approval": null}})).await?;
    ns.await_running(FLOW, "f").await?;
    Ok(())
}
