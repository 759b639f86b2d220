//! Tests the limits of a workload: what is beyond them, and whose requests they count.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::gateway_auth::{bind, send_request, token, with_token};
use crate::{
    client::ClientTarget,
    kinds::AGENT,
    manifests::agent,
    namespace::Namespace,
    object::ObjectExt as _,
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_caller_beyond_the_limit_waits_and_others_do_not,
);

/// Longest wait until a new permission or limit is effective.
const EFFECTIVE: Duration = Duration::from_secs(20);
/// Body of a chat request.
const HI: &str = r#"{"message":"hi"}"#;

/// Waits until a chat request is answered.
async fn await_answer(ns: &Namespace, target: &ClientTarget) -> Result<()> {
    poll(EFFECTIVE, "an answer through the gateway", || async {
        let answer = send_request(ns, target, "POST", "/chat", HI).await?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(Some(()))
    })
    .await
}

async fn a_caller_beyond_the_limit_waits_and_others_do_not(ns: Namespace) -> Result<()> {
    let limits = |requests: u32| json!([{"per": "caller", "requestsPerMinute": requests}]);
    ns.start(&agent("limited", json!({"limits": limits(10)}))).await?;
    let pods = ns.pod_uids("limited").await?;
    let one = ClientTarget::gateway(&ns, AGENT, "limited").await?;
    let other_token = token(&ns, "bot").await?;
    bind(&ns, "bot", "ClusterRole", "recif-invoker").await?;
    let other = with_token(&one, "Authorization", &other_token);
    await_answer(&ns, &other).await?;

    await_answer(&ns, &one).await?;
    let mut answered = 1;
    let refused = loop {
        let answer = send_request(&ns, &one, "POST", "/chat", HI).await?;
        match answer.status {
            200 => answered += 1,
            _ => break answer,
        }
        ensure!(answered <= 15, "no request was refused");
    };
    // Each of the two gateways may admit a few before it hears of the other's.
    ensure!((10..=15).contains(&answered), "{answered} were answered, then {refused:?}");
    ensure!(refused.status == 429 && refused.header("x-recif-reason") == Some("rate"), "{refused:?}");
    let wait: u64 = refused.header("retry-after").unwrap_or_default().parse()?;
    ensure!((1..=70).contains(&wait) && refused.text.contains("10 requests in a minute"), "{refused:?}");
    let completion = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let refused = send_request(&ns, &one, "POST", "/v1/chat/completions", completion).await?;
    ensure!(refused.status == 429 && refused.text.contains("rate_limit_exceeded"), "{refused:?}");
    let answer = send_request(&ns, &other, "POST", "/chat", HI).await?;
    ensure!(answer.status == 200, "another caller is refused: {answer:?}");

    ns.edit(AGENT, "limited", json!({"spec": {"limits": limits(1000)}})).await?;
    await_answer(&ns, &one).await?;
    ensure!(ns.pod_uids("limited").await? == pods, "an edit of limits replaces Pods");
    ensure!(ns.get(AGENT, "limited").await?.is_running(), "an edit of limits leaves Running");
    Ok(())
}
