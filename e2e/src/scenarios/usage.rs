//! Tests that tokens and cost are counted for who used them, outlive the Pods that counted them, and are shown by `recif top`.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::gateway_auth::send_request;
use crate::{
    client::ClientTarget,
    env::run_to_exit,
    kinds::MODEL,
    manifests::{agent, object, plugin_config, workload},
    namespace::{Namespace, START_TIMEOUT},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    tokens_and_cost_are_counted_once_and_outlive_the_pods,
    an_image_of_others_is_counted_by_what_its_responses_report,
);

async fn tokens_and_cost_are_counted_once_and_outlive_the_pods(ns: Namespace) -> Result<()> {
    let priced = |input: &str| {
        let price = json!({"currency": "EUR", "input": input, "output": "15"});
        let spec = json!({"provider": "stub", "model": "echo", "pluginConfigRef": {"name": "stub"}, "price": price});
        object(MODEL, "echo", spec)
    };
    ns.provide(&plugin_config("stub", json!({}))).await?;
    ns.provide(&priced("3")).await?;
    ns.start(&agent("talks", json!({"modelRef": {"name": "echo"}}))).await?;
    for _ in 0..3 {
        let mut command = ns.env.recif_command();
        command.args(["chat", "agent/talks", "hello", "-n", &ns.name]).env_remove("RECIF_GATEWAY");
        let said = run_to_exit(command, None).await?;
        ensure!(said.code == 0, "{said:?}");
    }
    let service = ClientTarget::service(&ns, "talks").await?;
    let answer = send_request(&ns, &service, "POST", "/chat", r#"{"message": "hello"}"#).await?;
    let used = answer.header("x-recif-usage").unwrap_or_default();
    ensure!(used.contains("calls=1") && used.contains("model=\"stub/echo\"") && used.ends_with(", est"), "{answer:?}");

    let metrics = send_request(&ns, &service, "GET", "/metrics", "").await?;
    let words = r#"recif_runner_model_seconds_count{model="stub/echo"} "#;
    ensure!(metrics.status == 200 && metrics.text.contains(words), "{metrics:?}");

    let first = await_calls(&ns, 4).await?;
    ensure!(first["name"] == "talks" && first["namespace"] == ns.name.as_str(), "{first}");
    let tokens =
        |item: &Value| item["input"].as_u64().unwrap_or_default() + item["output"].as_u64().unwrap_or_default();
    ensure!(tokens(&first) > 0 && first["estimated"] == tokens(&first) && first["unpriced"] == 0, "{first}");
    ensure!(first["cost"][0]["currency"] == "EUR" && first["cost"][0]["amount"] != "0.000000000", "{first}");
    let (code, table) = ns.env.recif(&["top", "models", "-n", &ns.name]).await?;
    ensure!(code == 0 && table.contains("NAME") && table.contains("stub/echo") && table.contains("EUR"), "{table}");

    // An edit of the price replaces no Pod, and a rollout loses nothing.
    let pods = ns.pod_uids("talks").await?;
    ns.provide(&priced("4")).await?;
    ensure!(ns.pod_uids("talks").await? == pods, "a price replaced the Pods");
    let (code, text) = ns.env.recif(&["rollout", "agent/talks", "--wait", "-n", &ns.name]).await?;
    ensure!(code == 0, "{text}");
    let answer = send_request(&ns, &service, "POST", "/chat", r#"{"message": "hello"}"#).await?;
    ensure!(answer.status == 200, "{answer:?}");
    let last = await_calls(&ns, 5).await?;
    ensure!(tokens(&last) > tokens(&first), "{first} {last}");

    for (arguments, words) in [(["top", "pods"], "agents, flows"), (["top", "--since=soon"], "24h or 30d")] {
        let (code, text) = ns.env.recif(&arguments).await?;
        ensure!(code == 2 && text.contains(words), "{arguments:?}: {code} {text}");
    }
    Ok(())
}

async fn an_image_of_others_is_counted_by_what_its_responses_report(ns: Namespace) -> Result<()> {
    ns.start(&workload("foreign", json!({}))).await?;
    let service = ClientTarget::service(&ns, "foreign").await?;
    for _ in 0..3 {
        let answer = send_request(&ns, &service, "POST", "/usage", "").await?;
        ensure!(answer.status == 200 && answer.header("x-recif-usage").is_some(), "{answer:?}");
    }
    let sums = await_calls(&ns, 3).await?;
    ensure!(sums["name"] == "foreign" && sums["input"] == 21 && sums["output"] == 15, "{sums}");
    ensure!(sums["estimated"] == 0 && sums["unpriced"] == 36, "{sums}");
    let (code, table) = ns.env.recif(&["top", "models", "-n", &ns.name]).await?;
    ensure!(code == 0 && table.contains("stub/echo"), "{table}");
    Ok(())
}

/// Waits until the agent of the namespace has so many calls, and returns its sums. A Pod that had nothing to report is not asked for a
/// minute.
async fn await_calls(ns: &Namespace, calls: u64) -> Result<Value> {
    poll(START_TIMEOUT * 2, "calls of the agent's models", || async {
        let (code, text) = ns.env.recif(&["top", "-o", "json", "-n", &ns.name]).await?;
        ensure!(code == 0, "{text}");
        let shown: Value = serde_json::from_str(text.trim()).with_context(|| text.clone())?;
        let item = shown["items"][0].clone();
        ensure!(item["calls"] == calls, "{item}");
        Ok(Some(item))
    })
    .await
}
