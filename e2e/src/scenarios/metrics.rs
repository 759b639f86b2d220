//! Tests the metrics and their monitoring with Debian's Prometheus: queries have answers, names that there are not leave no series, and the
//! documentation names what there is.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};

use super::{
    gateway_auth,
    traffic::{await_response, send_request},
};
use crate::{
    client::{ClientTarget, HttpClientConnection},
    kinds::{AGENT, MODEL},
    manifests::{agent, model, object, plugin_config, text, workload},
    namespace::{Namespace, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    prometheus::Prometheus,
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Serial:
    queries_of_dashboard_and_alerts_find_series_and_unknown_names_add_none,
);

/// Parts of queries about what may happen nowhere here: they may find nothing.
const RARE: [&str; 3] = ["recif_oscillating", "recif_watch_restarts_total", "recif_runner_approvals_total"];

async fn queries_of_dashboard_and_alerts_find_series_and_unknown_names_add_none(ns: Namespace) -> Result<()> {
    ns.apply(&agent("waiting", json!({"tools": ["missing"]}))).await?;
    ns.apply(&agent("broken", json!({"storage": "postgresql"}))).await?;
    ns.await_agent_not_ready("broken", START_TIMEOUT, "Failed", &["MissingDatabaseUrl"]).await?;
    let scaling =
        json!({"minReplicas": 0, "maxReplicas": 2, "concurrency": 1, "stableWindow": "2s", "scaleToZeroAfter": "5s"});
    ns.start(&workload("steady", json!({}))).await?;
    ns.start(&workload("called", json!({"scaling": scaling}))).await?;
    let gateway = ClientTarget::gateway(&ns, AGENT, "called").await?;
    await_response(&ns, &gateway).await?;
    let asleep = |it: &Object| it.condition("Ready").reason == "ScaledToZero";
    ns.until(AGENT, "called", START_TIMEOUT, "sleeps", asleep).await?;
    // A terminating Pod answers the next request, which is no cold start then.
    ns.await_no_pod("called").await?;
    await_response(&ns, &gateway).await?;
    // The gateway finds a Pod before its EndpointSlice does, and without one a request waits as long as for a cold start.
    ns.until(AGENT, "called", START_TIMEOUT, "is ready again", |it| it.condition("Ready").is_true() && !asleep(it))
        .await?;
    let broken = ClientTarget::gateway(&ns, AGENT, "broken").await?;
    ensure!(send_request(&ns, &broken, "GET", "/").await?.status == 503, "a failed agent answers");

    // Two are served at a time, a hundred may wait, for 10 s at most, and the rest is refused.
    let calls = (0..120).map(|_| send_request(&ns, &gateway, "GET", "/sleep?ms=1000"));
    let refused = try_join_all(calls).await?.iter().filter(|answer| answer.status == 503).count();
    ensure!(refused > 0, "there was room for every request");

    spend_a_budget(&ns).await?;
    fall_back_and_lose_spans(&ns).await?;
    let prometheus = Prometheus::start(&ns).await?;
    for query in queries(&ns)?.iter().filter(|query| !RARE.iter().any(|rare| query.contains(rare))) {
        poll(START_TIMEOUT, &format!("an answer to {query}"), || async {
            Ok((!prometheus.query(&ns.env, query).await?.is_empty()).then_some(()))
        })
        .await?;
    }
    let named = format!("recif_object_failed{{kind=\"Agent\",namespace=\"{}\",name=\"broken\"}}", ns.name);
    ensure!(!prometheus.query(&ns.env, &named).await?.is_empty(), "no series {named}");

    let page = text(&ns.env.file("docs/metrics.md"))?;
    let of_ours = "group by (__name__) ({job=~\"recif-.*\",__name__=~\"recif_.*|process_.*\"})";
    for series in prometheus.query(&ns.env, of_ours).await? {
        let name = series["metric"]["__name__"].as_str().context("a series without a name")?;
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
        ensure!(page.contains(&format!("`{base}`")), "docs/metrics.md does not name {base}");
    }
    unknown_names_add_no_series(&ns, &prometheus).await
}

/// Lets an agent of Récif's runner use up its tokens, which have a price.
async fn spend_a_budget(ns: &Namespace) -> Result<()> {
    ns.provide(&plugin_config("stub", json!({}))).await?;
    let mut echo = model("echo", "stub");
    echo["spec"]["price"] = json!({"currency": "EUR", "input": "1", "output": "1"});
    ns.provide(&echo).await?;
    let limits = json!([{"per": "workload", "tokensPerDay": 1, "costPerDay": "1000"}]);
    ns.start(&agent("talks", json!({"modelRef": {"name": "echo"}, "limits": limits}))).await?;
    ns.until(AGENT, "talks", START_TIMEOUT, "has prices", |it| !it.text("/status/prices").is_empty()).await?;
    let gateway = ClientTarget::gateway(ns, AGENT, "talks").await?;
    poll(START_TIMEOUT, "a refusal by the gateway", || async {
        let answer = gateway_auth::send_request(ns, &gateway, "POST", "/chat", r#"{"message": "hi"}"#).await?;
        Ok((answer.status == 429).then_some(()))
    })
    .await
}

/// Lets a fallback answer for a model whose provider is down, in a turn whose spans no collector takes.
async fn fall_back_and_lose_spans(ns: &Namespace) -> Result<()> {
    ns.start(&workload("provider", json!({}))).await?;
    let provider = format!("http://provider.{}.svc.cluster.local:8000", ns.name);
    let down = json!({"type": "openai", "extraConfig": {"endpoint": format!("{provider}/unavailable")}});
    ns.provide(&plugin_config("down", down)).await?;
    let spec = json!({
        "provider": "openai", "model": "gpt", "pluginConfigRef": {"name": "down"}, "fallbackRefs": [{"name": "echo"}],
    });
    ns.provide(&object(MODEL, "first", spec)).await?;
    // The workload answers 404 there, so that the runner does not send the spans again.
    let env = json!([{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": format!("{provider}/nowhere")}]);
    ns.start(&agent("falls-back", json!({"modelRef": {"name": "first"}, "env": env}))).await?;
    let service = ClientTarget::service(ns, "falls-back").await?;
    let answer = gateway_auth::send_request(ns, &service, "POST", "/chat", r#"{"message": "hi"}"#).await?;
    ensure!(answer.status == 200 && answer.header("x-recif-model") == Some("stub/echo"), "{answer:?}");
    Ok(())
}

async fn unknown_names_add_no_series(ns: &Namespace, prometheus: &Prometheus) -> Result<()> {
    let root = ClientTarget::gateway_root(&ns.env).await?;
    let call = async |target: ClientTarget, from: usize, to: usize| {
        let inside = ns.env.netns().await?;
        let namespace = ns.name.clone();
        let calls = async move {
            let mut connection = HttpClientConnection::open(&target).await?;
            for at in from..to {
                if !connection.is_reusable() {
                    connection = HttpClientConnection::open(&target).await?;
                }
                let answer = connection.send("GET", &format!("/v1/agents/{namespace}/none-{at}/"), "").await?;
                ensure!(answer.status == 404, "{answer:?}");
            }
            Ok(())
        };
        inside.run(calls).await
    };
    let number = async |query: &str| {
        let found = prometheus.query(&ns.env, query).await?;
        let value = found.first().and_then(|series| series["value"][1].as_str()).unwrap_or("0");
        Ok::<usize, anyhow::Error>(value.parse()?)
    };
    // Those of workloads that are there come and go by themselves.
    let series = "count({__name__=~\"recif_gateway_.*\",kind=\"none\"})";
    // The first to each gateway adds the series of requests that lead to no workload; a connection leads to any of them.
    let unknown = "recif_gateway_requests_total{kind=\"none\",code=\"404\"}";
    let everywhere = format!("count({unknown}) == count(up{{job=\"recif-gateway\"}} == 1)");
    let counted = format!("sum({unknown})");
    let sent = AtomicUsize::new(number(&counted).await?);
    poll(START_TIMEOUT, "an unknown name counted by each gateway", || async {
        call(root.clone(), 0, 1).await?;
        sent.fetch_add(1, Ordering::Relaxed);
        Ok((!prometheus.query(&ns.env, &everywhere).await?.is_empty()).then_some(()))
    })
    .await?;
    let before = number(series).await?;
    ensure!(before > 0, "no series of the gateway");
    call(root, 1, 10_000).await?;
    poll(START_TIMEOUT, "every unknown name counted", || async {
        Ok((number(&counted).await? >= sent.load(Ordering::Relaxed) + 9_999).then_some(()))
    })
    .await?;
    let after = number(series).await?;
    ensure!(after == before, "{before} series before 10 000 unknown names, and {after} after them");
    let named = number("count({__name__=~\"recif_.*\",name=~\"none-.*\"})").await?;
    ensure!(named == 0, "{named} series have an unknown name");
    Ok(())
}

/// Returns an expression without the comparison with its threshold.
fn threshold_free(expression: &str) -> String {
    let query = expression.split('>').next().unwrap_or(expression);
    query.split("!= ").next().unwrap_or(query).trim().to_owned()
}

/// Returns the queries of the dashboard, and the expressions of the alerts up to their thresholds.
fn queries(ns: &Namespace) -> Result<Vec<String>> {
    let dashboard: Value = serde_json::from_str(&text(&ns.env.file("config/monitoring/dashboard.json"))?)?;
    let panels = dashboard["panels"].as_array().context("the dashboard has no panels")?.iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let mut queries: Vec<String> = targets.filter_map(|target| target["expr"].as_str()).map(str::to_owned).collect();
    let rules: Value = serde_yaml::from_str(&text(&ns.env.file("config/monitoring/rules.yaml"))?)?;
    for group in rules["spec"]["groups"].as_array().context("there are no alerts")? {
        for rule in group["rules"].as_array().into_iter().flatten() {
            let expression = rule["expr"].as_str().context("an alert without an expression")?;
            // The alert on a missing operator finds nothing while there is one.
            if !expression.starts_with("absent(") {
                let compared = expression.split(" == ").flat_map(|part| part.split(" and "));
                queries.extend(compared.map(threshold_free));
            }
        }
    }
    let with_values = |query: String| {
        let query = query.replace("$__rate_interval", "30s").replace("[15m]", "[30s]").replace("[5m]", "[30s]");
        ["$kind", "$namespace", "$name"].iter().fold(query, |query, variable| query.replace(variable, ".*"))
    };
    Ok(queries.into_iter().map(with_values).collect())
}
