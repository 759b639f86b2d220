//! Tests what an agent says of itself, where its system prompt may come from, and where its probes go.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::gateway_auth::send_request;
use crate::{
    client::ClientTarget,
    environment::has,
    kinds::{AGENT, CONFIG_MAP},
    manifests::{agent, secret, tool, workload},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    an_edit_of_the_key_that_holds_the_system_prompt_rolls_the_pods,
    an_agent_tells_others_what_it_does,
    the_probes_go_where_the_spec_says,
);

/// Exit code of `recif why` for an object that is not Ready.
const NOT_READY: i32 = 3;

async fn an_edit_of_the_key_that_holds_the_system_prompt_rolls_the_pods(ns: Namespace) -> Result<()> {
    const PROMPT: &str = "CORAIL_SYSTEM_PROMPT";
    let source = json!({"configMapKeyRef": {"name": "prompts", "key": "seller"}});
    ns.apply(&workload("reader", json!({"systemPromptFrom": source}))).await?;
    let missing = r#"configmap "prompts" not found"#;
    ns.await_agent_not_ready("reader", REPORT_TIMEOUT, "Resolving", &[missing]).await?;
    let prompts = |data: Value| json!({"apiVersion": "v1", "kind": CONFIG_MAP.kind, "metadata": {"name": "prompts"}, "data": data});
    ns.apply(&prompts(json!({"buyer": "You buy kettles."}))).await?;
    let missing = r#"configmap "prompts" has no key "seller""#;
    ns.await_agent_not_ready("reader", REPORT_TIMEOUT, "Resolving", &[missing]).await?;
    ns.edit(CONFIG_MAP, "prompts", json!({"data": {"seller": "You sell kettles."}})).await?;
    let before = ns.await_running(AGENT, "reader").await?;
    has(&ns, "reader", PROMPT, Some("sell kettles")).await?;

    ns.edit(CONFIG_MAP, "prompts", json!({"data": {"seller": "You sell pots."}})).await?;
    let pots = ns.await_reconfigured(AGENT, &before).await?;
    has(&ns, "reader", PROMPT, Some("sell pots")).await?;

    ns.apply(&secret("prompts", json!({"seller": "You sell cups."}))).await?;
    let source = json!({"configMapKeyRef": null, "secretKeyRef": {"name": "prompts", "key": "seller"}});
    ns.edit(AGENT, "reader", json!({"spec": {"systemPromptFrom": source}})).await?;
    let cups = ns.await_reconfigured(AGENT, &pots).await?;
    has(&ns, "reader", PROMPT, Some("sell cups")).await?;

    let pods = ns.pod_uids("reader").await?;
    ns.edit(CONFIG_MAP, "prompts", json!({"data": {"seller": "You sell nothing."}})).await?;
    ns.edit(AGENT, "reader", json!({"spec": {"systemPromptFrom": null}})).await?;
    ns.await_reconfigured(AGENT, &cups).await?;
    has(&ns, "reader", PROMPT, None).await?;
    ensure!(ns.pod_uids("reader").await? != pods, "the Pods with the prompt are still there");
    Ok(())
}

async fn an_agent_tells_others_what_it_does(ns: Namespace) -> Result<()> {
    let skills = json!([{"id": "sell-kettles", "name": "Sell kettles"}]);
    let seller = agent("seller", json!({"description": "Sells kettles.", "card": {"skills": skills}}));
    ns.start(&seller).await?;
    ns.provide(&tool("ask", json!({"type": "agent", "agentRef": {"name": "seller"}}))).await?;
    let before = ns.start(&workload("asker", json!({"tools": ["ask"]}))).await?;
    has(&ns, "asker", "CORAIL_TOOLS", Some("Sells kettles.")).await?;
    let gateway = ClientTarget::gateway(&ns, AGENT, "seller").await?;
    let card = |words: &'static [&'static str]| {
        let (ns, gateway) = (&ns, &gateway);
        poll(START_TIMEOUT, "the card", move || async move {
            let card = send_request(ns, gateway, "GET", "/.well-known/agent-card.json", "").await?;
            let is_told = card.status == 200 && words.iter().all(|word| card.text.contains(word));
            ensure!(is_told, "without {words:?}: {card:?}");
            Ok(Some(()))
        })
    };
    card(&["Sells kettles.", "sell-kettles", "Sell kettles"]).await?;

    ns.edit(AGENT, "seller", json!({"spec": {"description": "Sells pots.", "card": null}})).await?;
    ns.await_reconfigured(AGENT, &before).await?;
    has(&ns, "asker", "CORAIL_TOOLS", Some("Sells pots.")).await?;
    card(&["Sells pots.", r#""id":"chat""#]).await
}

async fn the_probes_go_where_the_spec_says(ns: Namespace) -> Result<()> {
    ns.start(&workload("listens", json!({"readiness": {}}))).await?;
    ns.start(&workload("answers", json!({"readiness": {"path": "/stats"}}))).await?;
    ns.apply(&workload("lost", json!({"readiness": {"path": "/absent"}}))).await?;
    ns.await_agent_not_ready("lost", START_TIMEOUT, "Deploying", &["NotReady"]).await?;
    poll(START_TIMEOUT, "the probe named by recif why", || async {
        let (code, text) = ns.env.recif(&["why", "agent/lost", "-n", &ns.name]).await?;
        ensure!(code == NOT_READY && text.contains("NotReady"), "exit code {code}: {text}");
        Ok(text.contains("its readiness probe does not pass").then_some(()))
    })
    .await?;
    ns.edit(AGENT, "lost", json!({"spec": {"readiness": {"path": null}}})).await?;
    ns.await_running(AGENT, "lost").await.map(drop)
}
