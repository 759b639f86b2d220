//! Tests the audit of the gateway: one line for each request to a workload, and nothing in it of what was said.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::gateway_auth::{send_request, without_token};
use crate::{
    client::ClientTarget,
    gateway,
    kinds::{AGENT, MODEL},
    manifests::{agent, object, plugin_config},
    namespace::{Namespace, START_TIMEOUT},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    each_request_has_a_line_with_its_caller_and_nothing_that_was_said,
);

/// Path of a chat request, with a query.
const CHAT: &str = "/chat?canary=query";
/// Body of a chat request.
const HI: &str = r#"{"message":"canary prompt"}"#;

async fn each_request_has_a_line_with_its_caller_and_nothing_that_was_said(ns: Namespace) -> Result<()> {
    ns.provide(&plugin_config("stub", json!({}))).await?;
    let price = json!({"currency": "EUR", "input": "3", "output": "15"});
    let spec = json!({"provider": "stub", "model": "echo", "pluginConfigRef": {"name": "stub"}, "price": price});
    ns.provide(&object(MODEL, "echo", spec)).await?;
    let limits = json!([{"per": "workload", "costPerDay": "999999"}]);
    ns.start(&agent("audited", json!({"modelRef": {"name": "echo"}, "limits": limits}))).await?;
    let mut target = ClientTarget::gateway(&ns, AGENT, "audited").await?;
    let anonymous = without_token(&target);
    target.headers.push_str("X-Own: canary header\r\n");
    poll(START_TIMEOUT, "an answer through the gateway", || async {
        let answer = send_request(&ns, &target, "POST", CHAT, HI).await?;
        ensure!(answer.status == 200 && answer.text.contains("canary"), "{answer:?}");
        Ok(Some(()))
    })
    .await?;
    let refused = send_request(&ns, &anonymous, "POST", CHAT, HI).await?;
    ensure!(refused.status == 401, "{refused:?}");

    let stream = ClientTarget { headers: format!("{}Accept: text/event-stream\r\n", target.headers), ..target.clone() };
    let streamed = send_request(&ns, &stream, "POST", CHAT, HI).await?;
    ensure!(streamed.status == 200 && streamed.text.contains("event: done"), "{streamed:?}");

    let lines = poll(START_TIMEOUT, "the lines of all requests", || async {
        let lines = gateway::audit(&ns.env, &ns.name).await?;
        let count = |code: u16| lines.iter().filter(|line| line["code"] == code).count();
        Ok((count(200) >= 2 && count(401) >= 1).then_some(lines))
    })
    .await?;
    let of = |code: u16| lines.iter().filter(move |line| line["code"] == code);
    for served in of(200) {
        ensure!(served["kind"] == "Agent" && served["name"] == "audited" && served["method"] == "POST", "{served}");
        ensure!(served["verdict"] == "allowed" && served["aborted"] == false, "{served}");
        ensure!(served["caller"].as_str().is_some_and(|caller| !caller.is_empty()), "{served}");
        ensure!(served["model"] == "stub/echo" && served["tokens"]["out"].as_u64() > Some(0), "{served}");
        ensure!(served["bytes_in"] == HI.len() && served["bytes_out"].as_u64() > Some(0), "{served}");
        served["pod"].as_str().context("no Pod")?;
    }
    let denied = of(401).next().context("no line of the request without a token")?;
    ensure!(denied["verdict"] == "denied" && denied["reason"] == "unauthenticated", "{denied}");
    ensure!(denied["caller"].is_null(), "{denied}");
    poll(START_TIMEOUT, "a line with the cost, once the gateway knows the prices", || async {
        let answer = send_request(&ns, &target, "POST", CHAT, HI).await?;
        ensure!(answer.status == 200, "{answer:?}");
        let lines = gateway::audit(&ns.env, &ns.name).await?;
        Ok(lines.iter().any(|line| line["cost"]["currency"] == "EUR").then_some(()))
    })
    .await?;
    for line in gateway::audit(&ns.env, &ns.name).await? {
        ensure!(!line.to_string().contains("canary"), "{line}");
    }
    Ok(())
}
