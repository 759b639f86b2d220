//! Tests who may ask an agent from another namespace, and which headers of a caller reach the tools of an agent.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{LogParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    gateway_auth::send_request,
    mcp_servers::{await_available, remote, start_mcp_workload},
};
use crate::{
    client::ClientTarget,
    gateway,
    kinds::{AGENT, NAMESPACE, POD, TOOL},
    manifests::{agent, tool},
    namespace::{Namespace, REPORT_TIMEOUT},
    object::ObjectExt as _,
    operator,
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    an_agent_of_another_namespace_is_asked_while_it_admits_those_who_ask,
    headers_of_the_caller_reach_the_tools_that_name_them_and_no_log,
);

async fn an_agent_of_another_namespace_is_asked_while_it_admits_those_who_ask(ns: Namespace) -> Result<()> {
    ns.start(&agent("asked", json!({}))).await?;
    let other = Namespace::create(ns.env.clone(), &format!("{}-other", ns.name)).await?;
    let result = asked_from(&ns, &other).await;
    other.delete_itself().await?;
    result
}

async fn asked_from(ns: &Namespace, other: &Namespace) -> Result<()> {
    let pods = ns.pod_uids("asked").await?;
    let asked = json!({"namespace": ns.name, "name": "asked"});
    other.apply(&tool("ask", json!({"type": "agent", "agentRef": asked}))).await?;
    let refusal = format!("agent \"{}/asked\" may not be used from namespace \"{}\"", ns.name, other.name);
    let is_refused =
        async || other.await_not_ready(TOOL, "ask", REPORT_TIMEOUT, "Resolving", &[refusal.as_str()]).await;
    let allow = async |allowed: Value| ns.edit(AGENT, "asked", json!({"spec": {"allowedNamespaces": allowed}})).await;
    is_refused().await?;
    allow(json!({"from": "Selector", "selector": {"matchLabels": {"team": "a"}}})).await?;
    is_refused().await?;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"team": "a"}}}));
    other.env.all(NAMESPACE).patch(&other.name, &PatchParams::default(), &patch).await?;
    other.until(TOOL, "ask", REPORT_TIMEOUT, "is Available", |it| it.phase() == "Available").await?;
    other.start(&agent("boss", json!({"tools": ["ask"]}))).await?;
    let reply = other.chat("boss", r#"/tool ask {"message": "are you there?"}"#).await?;
    ensure!(reply.contains("echo: are you there?"), "the agent of the other namespace replied {reply:?}");
    ensure!(ns.pod_uids("asked").await? == pods, "the Pods of the asked agent were replaced");

    other.edit(AGENT, "boss", json!({"spec": {"allowedNamespaces": {"from": "All"}}})).await?;
    ns.apply(&tool("back", json!({"type": "agent", "agentRef": {"namespace": other.name, "name": "boss"}}))).await?;
    ns.edit(AGENT, "asked", json!({"spec": {"tools": ["back"]}})).await?;
    let cycle = format!("Tool/back → Agent/{}/boss", other.name);
    ns.await_not_ready(TOOL, "back", REPORT_TIMEOUT, "Resolving", &["cycle: ", cycle.as_str()]).await?;
    ns.edit(AGENT, "asked", json!({"spec": {"tools": []}})).await?;
    ns.until(TOOL, "back", REPORT_TIMEOUT, "is Available", |it| it.phase() == "Available").await?;
    ns.delete(TOOL, "back").await?;

    allow(Value::Null).await?;
    is_refused().await?;
    Ok(())
}

/// Value that no log has.
const CANARY: &str = "canary-5d0f";

async fn headers_of_the_caller_reach_the_tools_that_name_them_and_no_log(ns: Namespace) -> Result<()> {
    start_mcp_workload(&ns, "echo").await?;
    ns.apply(&remote(&ns, "remote", "", json!({}))).await?;
    await_available(&ns, "remote", 1).await?;
    let seen = json!({
        "type": "http", "endpoint": format!("http://mcp.{}.svc.cluster.local:8000/seen", ns.name),
        "forwardHeaders": ["X-Tenant", "Authorization", "X-Recif-User"],
    });
    ns.provide(&tool("seen", seen.clone())).await?;
    let mut plain = seen;
    plain["forwardHeaders"] = json!([]);
    ns.provide(&tool("plain", plain)).await?;
    let servers = json!([{"name": "remote", "forwardHeaders": ["X-Tenant"]}]);
    ns.start(&agent("caller", json!({"tools": ["seen", "plain"], "toolServers": servers}))).await?;

    let mut gateway = ClientTarget::gateway(&ns, AGENT, "caller").await?;
    let signed_in = gateway.headers.replace("Authorization: ", "X-Recif-Authorization: ");
    let token = gateway.headers.trim_start_matches("Authorization: Bearer ").trim().to_owned();
    let tenant = format!("X-Tenant: {CANARY}\r\n");
    gateway.headers += &tenant;
    let reply = ask(&ns, &gateway, r#"{"message": "/tool seen"}"#).await?;
    ensure!(reply.contains(CANARY), "the http tool has seen {reply}");
    ensure!(!reply.contains(&token), "the token of the gateway was sent to a tool");
    let reply = ask(&ns, &gateway, r#"{"message": "/tool echo {\"message\": \"hello\"}"}"#).await?;
    ensure!(reply.contains(&format!("echo says hello to {CANARY}")), "the MCP server replied {reply}");
    let reply = ask(&ns, &gateway, r#"{"message": "/tool plain"}"#).await?;
    ensure!(!reply.contains(CANARY), "a tool that does not name the header has seen {reply}");

    gateway.headers = format!("{signed_in}Authorization: Bearer of-the-tool-{CANARY}\r\n");
    let reply = ask(&ns, &gateway, r#"{"message": "/tool seen"}"#).await?;
    ensure!(reply.contains(&format!("Bearer of-the-tool-{CANARY}")), "the http tool has seen {reply}");
    let reply = ask(&ns, &gateway, r#"{"message": "/tool echo {\"message\": \"hello\"}"}"#).await?;
    ensure!(!reply.contains(CANARY), "another caller's header reached the MCP server: {reply}");

    let logged = logs(&ns).await?;
    ensure!(logged.contains("answered"), "no turn is in the logs: {logged}");
    ensure!(!logged.contains(CANARY), "a header of the caller is in a log");
    Ok(())
}

/// Sends a message and returns the whole answer.
async fn ask(ns: &Namespace, target: &ClientTarget, body: &'static str) -> Result<String> {
    let answer = send_request(ns, target, "POST", "/chat", body).await?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(answer.text)
}

/// Returns what the namespace's Pods, the gateway and the operator have logged.
async fn logs(ns: &Namespace) -> Result<String> {
    let api: Api<Pod> = Api::namespaced(ns.env.client.clone(), &ns.name);
    let mut all = operator::logs(&ns.env).await?;
    for pod in ns.list(POD).await? {
        for container in ["agent", "proxy"] {
            let which = LogParams { container: Some(container.to_owned()), ..LogParams::default() };
            let log = api.logs(&pod.name_any(), &which).await;
            all += &log.with_context(|| format!("read the log of {container} in {}", pod.name_any()))?;
        }
    }
    let gateways: Api<Pod> = Api::namespaced(ns.env.client.clone(), operator::NAMESPACE);
    for pod in gateway::pods(&ns.env).await? {
        let log = gateways.logs(&pod.name_any(), &LogParams::default()).await;
        all += &log.with_context(|| format!("read the log of {}", pod.name_any()))?;
    }
    Ok(all)
}
