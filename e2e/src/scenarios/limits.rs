//! Tests the limits of a workload: what is beyond them, and whose requests they count.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use super::gateway_auth::{bind, send_request, token, with_token};
use crate::{
    client::ClientTarget,
    kinds::{AGENT, MODEL},
    manifests::{agent, model, object, plugin_config, workload},
    namespace::Namespace,
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_caller_beyond_the_limit_waits_and_others_do_not,
    once_its_tokens_are_spent_an_agent_is_refused_until_they_are_raised,
    a_turn_that_spends_the_tokens_asks_no_model_again,
    the_tokens_that_a_gateway_names_are_those_of_requests_by_the_service_too,
    once_its_cost_is_spent_an_agent_is_refused_and_without_a_price_it_says_so,
    an_image_that_reports_no_usage_is_named_while_it_has_a_budget,
);

/// Longest wait until a new permission or limit is effective.
const EFFECTIVE: Duration = Duration::from_secs(20);
/// Body of a chat request.
const HI: &str = r#"{"message":"hi"}"#;
/// Body of a chat request that takes two requests to the model: one for the call of a tool, and one for the answer.
const COUNT: &str = r#"{"message":"/tool calculator {\"expression\": \"6*7\"}"}"#;

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
    let (mut answered, begun) = (1, Instant::now());
    let refused = loop {
        let answer = send_request(&ns, &one, "POST", "/chat", HI).await?;
        match answer.status {
            200 => answered += 1,
            // What the other gateway has not read for 50 ms, on a busy machine, counts twice until it has.
            429 if answered < 10 && begun.elapsed() < EFFECTIVE => {}
            _ => break answer,
        }
        ensure!(answered <= 15, "no request was refused");
    };
    // Each of the two gateways may admit a few before it hears of the other's.
    ensure!((10..=15).contains(&answered), "{answered} were answered, then {refused:?}");
    ensure!(refused.status == 429 && refused.header("x-recif-reason") == Some("rate"), "{refused:?}");
    let wait: u64 = refused.header("retry-after").unwrap_or_default().parse()?;
    ensure!((1..=70).contains(&wait) && refused.text.contains("10 requests in a minute"), "{refused:?}");
    let completion = r#"{"model":"limited","messages":[{"role":"user","content":"hi"}]}"#;
    let refused = poll(EFFECTIVE, "a refusal in the form of OpenAI", || async {
        // The other gateway may admit what it has not heard of yet.
        let answer = send_request(&ns, &one, "POST", "/v1/chat/completions", completion).await?;
        Ok((answer.status != 200).then_some(answer))
    })
    .await?;
    ensure!(refused.status == 429 && refused.text.contains("rate_limit_exceeded"), "{refused:?}");
    let answer = send_request(&ns, &other, "POST", "/chat", HI).await?;
    ensure!(answer.status == 200, "another caller is refused: {answer:?}");

    let seq = ns.get(AGENT, "limited").await?.last_seq();
    ns.edit(AGENT, "limited", json!({"spec": {"limits": limits(1000)}})).await?;
    await_answer(&ns, &one).await?;
    let edited = ns.until(AGENT, "limited", EFFECTIVE, "runs with the edit", Object::is_running).await?;
    ensure!(ns.pod_uids("limited").await? == pods, "an edit of limits replaces Pods");
    let moves = edited.transitions_after(seq);
    ensure!(moves.is_empty(), "an edit of limits leaves Running: {moves:?}");
    Ok(())
}

async fn once_its_tokens_are_spent_an_agent_is_refused_until_they_are_raised(ns: Namespace) -> Result<()> {
    let limits = |tokens: u64| json!([{"per": "workload", "tokensPerDay": tokens}]);
    ns.start(&agent("thrifty", json!({"limits": limits(50)}))).await?;
    let pods = ns.pod_uids("thrifty").await?;
    let gateway = ClientTarget::gateway(&ns, AGENT, "thrifty").await?;
    await_answer(&ns, &gateway).await?;
    let (mut sent, mut answered) = (1, 1);
    let refused = loop {
        let answer = send_request(&ns, &gateway, "POST", "/chat", HI).await?;
        sent += 1;
        match (answer.status, answer.header("x-recif-reason")) {
            (200, _) => {
                answered += 1;
                let headers = (answer.header("x-recif-usage"), answer.header("x-recif-spent"));
                ensure!(matches!(headers, (Some(_), None)), "{answer:?}");
            }
            // The Pod knows of answers of which this gateway has not heard yet.
            (429, None) => ensure!(answer.text.contains("the tokens of today are spent"), "{answer:?}"),
            _ => break answer,
        }
        ensure!(sent <= 100, "no request was refused by the gateway");
    };
    ensure!(refused.status == 429 && refused.header("x-recif-reason") == Some("budget"), "{answered}, {refused:?}");
    ensure!(refused.header("x-should-retry") == Some("false"), "{refused:?}");
    let wait: u64 = refused.header("retry-after").unwrap_or_default().parse()?;
    ensure!((1..=86_400).contains(&wait) && refused.text.contains("may use 50 tokens a day"), "{refused:?}");
    let completion = r#"{"model":"thrifty","messages":[{"role":"user","content":"hi"}]}"#;
    let refused = poll(EFFECTIVE, "a refusal in the form of OpenAI", || async {
        // The other gateway may admit what it has not heard of yet.
        let answer = send_request(&ns, &gateway, "POST", "/v1/chat/completions", completion).await?;
        Ok((answer.status != 200).then_some(answer))
    })
    .await?;
    ensure!(refused.status == 429 && refused.text.contains("insufficient_quota"), "{refused:?}");

    let words = "its token budget of today (50) is spent";
    let is_spent = |it: &Object| {
        let condition = it.condition("WithinLimits");
        condition.is_false() && condition.contains(words)
    };
    ns.until(AGENT, "thrifty", EFFECTIVE, "says that its budget is spent", is_spent).await?;
    let (code, why) = ns.env.recif(&["why", "agent/thrifty", "-n", &ns.name]).await?;
    ensure!(code == 0 && why.contains(words) && why.contains("raise limits[workload].tokensPerDay"), "{why}");

    ns.edit(AGENT, "thrifty", json!({"spec": {"limits": limits(10_000_000_000_000)}})).await?;
    await_answer(&ns, &gateway).await?;
    let is_within = |it: &Object| it.condition("WithinLimits").is_true();
    ns.until(AGENT, "thrifty", EFFECTIVE, "says that tokens are left", is_within).await?;
    ensure!(ns.pod_uids("thrifty").await? == pods, "an edit of limits replaces Pods");
    Ok(())
}

async fn a_turn_that_spends_the_tokens_asks_no_model_again(ns: Namespace) -> Result<()> {
    let limits = |tokens: u64| json!([{"per": "workload", "tokensPerDay": tokens}]);
    ns.start(&agent("spender", json!({"tools": ["calculator"], "limits": limits(1)}))).await?;
    let gateway = ClientTarget::gateway(&ns, AGENT, "spender").await?;
    let refused = poll(EFFECTIVE, "the end of a turn by its budget", || async {
        let answer = send_request(&ns, &gateway, "POST", "/chat", COUNT).await?;
        ensure!(answer.status != 200, "the turn went on: {answer:?}");
        Ok((answer.status == 429).then_some(answer))
    })
    .await?;
    ensure!(refused.text.contains("the model did not answer: the tokens of today are spent"), "{refused:?}");
    ensure!(refused.header("x-should-retry") == Some("false"), "{refused:?}");
    let wait: u64 = refused.header("retry-after").unwrap_or_default().parse()?;
    ensure!((1..=86_400).contains(&wait), "{refused:?}");

    ns.edit(AGENT, "spender", json!({"spec": {"limits": limits(10_000_000_000_000)}})).await?;
    poll(EFFECTIVE, "the answer after the tool", || async {
        let answer = send_request(&ns, &gateway, "POST", "/chat", COUNT).await?;
        ensure!(answer.status == 200 && answer.text.contains("42"), "{answer:?}");
        Ok(Some(()))
    })
    .await
}

async fn the_tokens_that_a_gateway_names_are_those_of_requests_by_the_service_too(ns: Namespace) -> Result<()> {
    let limits = |tokens: u64| json!([{"per": "workload", "tokensPerDay": tokens}]);
    ns.start(&agent("inner", json!({"limits": limits(200)}))).await?;
    let gateway = ClientTarget::gateway(&ns, AGENT, "inner").await?;
    await_answer(&ns, &gateway).await?;
    let service = ClientTarget::service(&ns, "inner").await?;
    let mut answered = 0;
    let refused = loop {
        let answer = send_request(&ns, &service, "POST", "/chat", HI).await?;
        match answer.status {
            200 => answered += 1,
            _ => break answer,
        }
        ensure!(answered <= 200, "no request was refused");
    };
    ensure!(answered > 0 && refused.status == 429, "{answered}, {refused:?}");
    ensure!(refused.text.contains("the tokens of today are spent"), "{refused:?}");

    ns.edit(AGENT, "inner", json!({"spec": {"limits": limits(10_000_000_000_000)}})).await?;
    await_answer(&ns, &gateway).await?;
    let answer = send_request(&ns, &service, "POST", "/chat", HI).await?;
    ensure!(answer.status == 200, "the gateway has named more: {answer:?}");
    Ok(())
}

async fn once_its_cost_is_spent_an_agent_is_refused_and_without_a_price_it_says_so(ns: Namespace) -> Result<()> {
    ns.provide(&plugin_config("stub", json!({}))).await?;
    ns.provide(&model("echo", "stub")).await?;
    let limits = |cost: &str| json!([{"per": "workload", "costPerDay": cost}]);
    ns.start(&agent("dear", json!({"modelRef": {"name": "echo"}, "limits": limits("0.01")}))).await?;
    let pods = ns.pod_uids("dear").await?;
    let lacks_price = |it: &Object| it.condition("WithinLimits").contains("model \"echo\" has no spec.price");
    ns.until(AGENT, "dear", EFFECTIVE, "says that its model has no price", lacks_price).await?;
    let gateway = ClientTarget::gateway(&ns, AGENT, "dear").await?;
    await_answer(&ns, &gateway).await?;

    let priced = |amount: &str| {
        let price = json!({"currency": "EUR", "input": amount, "output": amount});
        let spec = json!({"provider": "stub", "model": "echo", "pluginConfigRef": {"name": "stub"}, "price": price});
        object(MODEL, "echo", spec)
    };
    ns.provide(&priced("1000")).await?;
    let is_priced = |it: &Object| it.condition("WithinLimits").is_true();
    let prices = ns.until(AGENT, "dear", EFFECTIVE, "has prices", is_priced).await?.text("/status/prices").to_owned();
    let refused = poll(EFFECTIVE, "a refusal by the gateway", || async {
        let answer = send_request(&ns, &gateway, "POST", "/chat", HI).await?;
        Ok(answer.header("x-recif-reason").is_some().then_some(answer))
    })
    .await?;
    ensure!(refused.status == 429 && refused.header("x-recif-reason") == Some("budget"), "{refused:?}");
    ensure!(refused.text.contains("may cost 0.01 EUR a day"), "{refused:?}");
    let words = "its cost budget of today (0.01 EUR) is spent";
    let is_spent = |it: &Object| {
        let condition = it.condition("WithinLimits");
        condition.is_false() && condition.contains(words)
    };
    ns.until(AGENT, "dear", EFFECTIVE, "says that its budget is spent", is_spent).await?;
    // The price was a typo: what was used costs less.
    ns.provide(&priced("0.001")).await?;
    await_answer(&ns, &gateway).await?;
    ns.edit(AGENT, "dear", json!({"spec": {"limits": limits("999999")}})).await?;
    await_answer(&ns, &gateway).await?;

    ns.provide(&priced("1000")).await?;
    let has_them = |it: &Object| it.text("/status/prices") == prices;
    ns.until(AGENT, "dear", EFFECTIVE, "has the first prices again", has_them).await?;
    ns.edit(MODEL, "echo", json!({"spec": {"price": null}})).await?;
    let holds = |it: &Object| {
        let condition = it.condition("WithinLimits");
        condition.contains("model \"echo\" has no spec.price") && condition.contains("the last prices hold")
    };
    ns.until(AGENT, "dear", EFFECTIVE, "says that the last prices hold", holds).await?;
    ns.edit(AGENT, "dear", json!({"spec": {"limits": limits("0.01")}})).await?;
    poll(EFFECTIVE, "a refusal by the last prices", || async {
        let answer = send_request(&ns, &gateway, "POST", "/chat", HI).await?;
        Ok((answer.status == 429 && answer.text.contains("may cost 0.01 EUR a day")).then_some(()))
    })
    .await?;
    ensure!(ns.pod_uids("dear").await? == pods, "neither limits nor prices replace Pods");
    Ok(())
}

async fn an_image_that_reports_no_usage_is_named_while_it_has_a_budget(ns: Namespace) -> Result<()> {
    ns.start(&workload("mute", json!({"limits": [{"per": "workload", "tokensPerDay": 1000}]}))).await?;
    let gateway = ClientTarget::gateway(&ns, AGENT, "mute").await?;
    await_answer(&ns, &gateway).await?;
    // Each of the two gateways counts for itself.
    for _ in 0..50 {
        let answer = send_request(&ns, &gateway, "POST", "/chat", HI).await?;
        ensure!(answer.status == 200, "{answer:?}");
    }
    let words = "its image reports no usage of models";
    let is_named = |it: &Object| {
        let condition = it.condition("LimitsEnforced");
        condition.is_false() && condition.contains(words)
    };
    ns.until(AGENT, "mute", EFFECTIVE, "says that its budget has no effect", is_named).await?;
    let (code, why) = ns.env.recif(&["why", "agent/mute", "-n", &ns.name]).await?;
    ensure!(code == 0 && why.contains(words), "{why}");

    ns.edit(AGENT, "mute", json!({"spec": {"limits": [{"per": "caller", "requestsPerMinute": 1000}]}})).await?;
    let is_gone = |it: &Object| !it.condition("LimitsEnforced").is_false();
    ns.until(AGENT, "mute", EFFECTIVE, "says nothing of a budget any more", is_gone).await?;
    Ok(())
}
