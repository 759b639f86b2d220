//! Tests the protocols in which agents are talked to, by `recif chat` and as tools.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::{
    kinds::{AGENT, TOOL},
    manifests::{agent, tool, workload},
    namespace::{Namespace, REPORT_TIMEOUT},
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    an_agent_that_speaks_agent2agent_is_asked_in_it,
    an_agent_that_speaks_plain_http_is_no_tool_and_not_chatted_with,
);

/// Part of the error of an agent that does not speak what its spec says.
const NO_CARD: &str = "has no agent card: is it an A2A agent?";

async fn an_agent_that_speaks_agent2agent_is_asked_in_it(ns: Namespace) -> Result<()> {
    // Our runtime speaks both protocols.
    ns.start(&agent("speaks", json!({"protocol": "a2a"}))).await?;
    let (code, output) = ns.env.recif(&["chat", "agent/speaks", "hello", "-n", &ns.name]).await?;
    ensure!(code == 0 && output.contains("echo: hello\n"), "{code}: {output}");
    let id = output.split("--conversation ").nth(1).with_context(|| output.clone())?.trim();
    let (code, output) = ns.env.recif(&["chat", "agent/speaks", "again", "--conversation", id, "-n", &ns.name]).await?;
    ensure!(code == 0 && output.contains("echo: again\n") && output.contains(id), "{code}: {output}");

    let url = format!("http://speaks.{}.svc.cluster.local:8000", ns.name);
    ns.provide(&tool("inside", json!({"type": "agent", "agentRef": {"name": "speaks"}}))).await?;
    ns.provide(&tool("anywhere", json!({"type": "agent", "endpoint": url}))).await?;
    ns.start(&agent("asker", json!({"tools": ["inside", "anywhere"]}))).await?;
    for tool in ["inside", "anywhere"] {
        let reply = ns.chat("asker", &format!(r#"/tool {tool} {{"message": "hi"}}"#)).await?;
        ensure!(reply == "echo: hi", "{tool}: {reply}");
    }
    Ok(())
}

async fn an_agent_that_speaks_plain_http_is_no_tool_and_not_chatted_with(ns: Namespace) -> Result<()> {
    ns.start(&workload("plain", json!({"protocol": "http"}))).await?;
    ns.apply(&tool("refused", json!({"type": "agent", "agentRef": {"name": "plain"}}))).await?;
    let message = r#"agent "plain" speaks plain http: only chat and a2a agents can be tools"#;
    ns.await_not_ready(TOOL, "refused", REPORT_TIMEOUT, "Error", &["PlainHttp", message]).await?;
    let (code, output) = ns.env.recif(&["chat", "agent/plain", "hi", "-n", &ns.name]).await?;
    let address = format!("/v1/agents/{}/plain/\n", ns.name);
    let is_told = output.contains("agent/plain speaks plain HTTP: call it at http") && output.contains(&address);
    ensure!(code == 1 && is_told, "{code}: {output}");

    ns.edit(AGENT, "plain", json!({"spec": {"protocol": "a2a"}})).await?;
    let (code, output) = ns.env.recif(&["chat", "agent/plain", "hi", "-n", &ns.name]).await?;
    ensure!(code == 1 && output.contains(NO_CARD), "{code}: {output}");
    ns.provide(&tool("ask", json!({"type": "agent", "agentRef": {"name": "plain"}}))).await?;
    ns.start(&agent("asker", json!({"tools": ["ask"]}))).await?;
    let reply = ns.chat("asker", r#"/tool ask {"message": "hi"}"#).await?;
    ensure!(reply.contains(NO_CARD), "{reply}");
    Ok(())
}
