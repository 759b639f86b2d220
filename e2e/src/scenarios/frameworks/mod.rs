//! Tests the samples of frameworks: programs of others run unchanged, answer, stream, know their caller and lose no stream in a rollout.

mod protocol;
mod sample;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use self::{
    protocol::Protocol,
    sample::{Sample, apply},
};
use super::gateway_auth::send_request;
use crate::{
    client::ClientTarget,
    kinds::{AGENT, FLOW_SET, MCP_SERVER},
    manifests::{agent, tool},
    namespace::{Namespace, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
};

/// Those whose images are built soon.
pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_program_in_fastapi_is_an_agent,
    an_agent_uses_mcp_servers_and_an_agent_of_others,
);
/// The others.
pub(super) const LONG: &[Scenario] = scenarios!(Parallel:
    a_program_in_adk_is_an_agent,
    a_program_in_langgraph_is_an_agent,
    a_program_in_genkit_for_javascript_runs_flows,
    an_agent_asks_programs_in_all_frameworks,
);

async fn a_program_in_fastapi_is_an_agent(ns: Namespace) -> Result<()> {
    Sample { name: "fastapi", kind: AGENT, protocol: Protocol::Chat }.check(&ns).await?;
    let gateway = ClientTarget::gateway(&ns, AGENT, "fastapi").await?;
    let answer = send_request(&ns, &gateway, "POST", "/chat", r#"{"message": "three small words"}"#).await?;
    let used = answer.header("x-recif-usage").unwrap_or_default();
    ensure!(answer.status == 200 && used.starts_with("in=3, out=5, model="), "{answer:?}");
    Ok(())
}

async fn a_program_in_adk_is_an_agent(ns: Namespace) -> Result<()> {
    Sample { name: "adk", kind: AGENT, protocol: Protocol::A2a }.check(&ns).await?;
    is_a_tool(&ns, "adk").await
}

async fn a_program_in_langgraph_is_an_agent(ns: Namespace) -> Result<()> {
    Sample { name: "langgraph", kind: AGENT, protocol: Protocol::A2a }.check(&ns).await?;
    let gateway = ClientTarget::gateway(&ns, AGENT, "langgraph").await?;
    let answer = send_request(&ns, &gateway, "GET", "/.well-known/agent-card.json", "").await?;
    let card: Value = serde_json::from_str(&answer.text)?;
    let url = format!("http://{}{}/", gateway.address, gateway.prefix);
    ensure!(card["supportedInterfaces"][0]["url"] == url, "the card leads elsewhere than to {url}: {card}");
    is_a_tool(&ns, "langgraph").await
}

async fn a_program_in_genkit_for_javascript_runs_flows(ns: Namespace) -> Result<()> {
    Sample { name: "genkit-js", kind: FLOW_SET, protocol: Protocol::Flow }.check(&ns).await?;
    let greeting = json!({"name": "Ada"});
    ns.await_response("genkit-js", "/greet", greeting, "greet heard: Greet Ada.").await
}

/// Checks that an agent of ours can ask the sample.
async fn is_a_tool(ns: &Namespace, sample: &str) -> Result<()> {
    ns.provide(&tool("ask", json!({"type": "agent", "agentRef": {"name": sample}}))).await?;
    ns.start(&agent("asker", json!({"tools": ["ask"]}))).await?;
    let reply = ns.chat("asker", r#"/tool ask {"message": "hi"}"#).await?;
    ensure!(reply == format!("{sample} heard: hi."), "{reply}");
    Ok(())
}

async fn an_agent_uses_mcp_servers_and_an_agent_of_others(ns: Namespace) -> Result<()> {
    apply(&ns, "concierge").await?;
    for server in ["mcp-go", "mcp-node"] {
        let lists = |it: &Object| it.is_running() && it.number("/status/toolCount") == 3;
        ns.until(MCP_SERVER, server, START_TIMEOUT, "lists its three tools", lists).await?;
    }
    for name in ["fastapi", "concierge"] {
        ns.await_agent_running(name).await?;
    }
    for (call, words) in [
        (r#"/tool ask_fastapi {"message": "hi"}"#, "fastapi heard: hi."),
        (r#"/tool reverse {"text": "abc"}"#, "cba"),
        (r#"/tool count_words {"text": "a b c d e f g"}"#, "7"),
    ] {
        // All have started at once: the node may not lead to each Service yet.
        ns.await_reply("concierge", call, |reply| reply.contains(words)).await?;
    }
    Ok(())
}

async fn an_agent_asks_programs_in_all_frameworks(ns: Namespace) -> Result<()> {
    apply(&ns, ".").await?;
    for name in ["fastapi", "adk", "langgraph", "concierge"] {
        ns.await_agent_running(name).await?;
    }
    ns.await_running(FLOW_SET, "genkit-js").await?;
    for (call, words) in [
        (r#"/tool ask_fastapi {"message": "hi"}"#, "fastapi heard: hi."),
        (r#"/tool ask_adk {"message": "hi"}"#, "adk heard: hi."),
        (r#"/tool ask_langgraph {"message": "hi"}"#, "langgraph heard: hi."),
        (r#"/tool greet {"name": "Ada"}"#, "greet heard: Greet Ada."),
    ] {
        // All have started at once: the node may not lead to each Service yet.
        ns.await_reply("concierge", call, |reply| reply.contains(words)).await?;
    }
    Ok(())
}
