//! Tests that what sidecars report is stored once, with its cost, and only for their own workload.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, Request, StatusCode, Uri},
    routing::get,
};
use cluster::{ChangeSource, ObjectVersion, Versioned};
use crds::usage::{hour_of, usage_key};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use meta::Key;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::ServiceExt as _;

use super::{StoredCallers, UsageCollector};
use crate::{api, app::SharedAppState, fleet::testing::TestFleet, related, testing::app_with_history};

/// Sidecar that answers with this report, or else with this status, and remembers the queries.
#[derive(Clone, Default)]
struct Sidecar {
    report: Arc<Mutex<String>>,
    status: Arc<Mutex<StatusCode>>,
    queries: Arc<Mutex<Vec<String>>>,
}

impl Sidecar {
    /// Adds a Pod of the Agent with this sidecar.
    async fn serve(&self, app: &SharedAppState, name: &str, agent: &str) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let routes = Router::new().route("/_recif/usage", get(answer)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        let head = ObjectVersion { key: Key::new("ns", name), uid: format!("uid-{name}"), resource_version: 1 };
        let sidecar = json!({
            "name": "proxy", "ports": [{ "name": "http", "containerPort": port }],
            "env": [{ "name": "RECIF_KEY", "value": "secret" }],
        });
        let pod = json!({
            "metadata": { "name": name, "labels": { "recif.dev/agent": agent } },
            "spec": { "containers": [], "initContainers": [sidecar] }, "status": { "podIP": "127.0.0.1" },
        });
        let pod = related::pod(&head, &pod.to_string()).unwrap();
        app.related.pods.observe(Versioned::new(head, pod), ChangeSource::Watch);
    }

    fn say(&self, report: &Value) {
        *self.report.lock().unwrap() = report.to_string();
    }
}

async fn answer(State(sidecar): State<Sidecar>, headers: HeaderMap, uri: Uri) -> Result<String, StatusCode> {
    if headers["x-recif-key"] != usage_key("secret").unwrap().as_str() {
        return Err(StatusCode::NOT_FOUND);
    }
    sidecar.queries.lock().unwrap().push(uri.query().unwrap_or_default().to_owned());
    let status = *sidecar.status.lock().unwrap();
    if status != StatusCode::OK {
        return Err(status);
    }
    Ok(sidecar.report.lock().unwrap().clone())
}

/// Returns a cell of this hour with so many calls of 1000 input tokens.
fn cell(hours_ago: i64, calls: u64) -> Value {
    let hour = hour_of(Timestamp::now().as_second()) - hours_ago;
    json!({
        "key": { "hour": hour, "caller": "ada", "provider": "openai", "model": "gpt", "purpose": "turn" },
        "totals": { "calls": calls, "failed": 0, "input": 1000 * calls, "output": 0 },
    })
}

fn report(instance: &str, revision: u64, cells: &[Value]) -> Value {
    json!({ "instance": instance, "revision": revision, "cells": cells })
}

async fn usage(app: &SharedAppState, query: &str) -> Vec<Value> {
    let request = Request::get(format!("/v1/usage?{query}")).body(Body::empty()).unwrap();
    let response = api::router(app.clone()).oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200, "{query}");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    body["items"].as_array().unwrap().clone()
}

async fn round(collector: &mut UsageCollector) {
    collector.collect(true).await;
    collector.store().await;
}

#[tokio::test]
async fn reports_are_stored_once_with_their_cost_however_often_they_come() {
    let mut stage = TestFleet::new();
    stage.agent("ns", "a", "Running");
    stage.put("PluginConfig", "ns", "p", json!({ "type": "openai" }), json!(null));
    let price = json!({ "input": "3", "output": "15" });
    let model = json!({ "provider": "x", "model": "gpt", "pluginConfigRef": { "name": "p" }, "price": price });
    stage.put("Model", "ns", "m", model, json!(null));
    let (app, _database) = app_with_history(&stage.fleet).await;
    let (one, two) = (Sidecar::default(), Sidecar::default());
    one.serve(&app, "pod-1", "a").await;
    two.serve(&app, "pod-2", "a").await;
    one.say(&report("7", 1, &[cell(0, 2)]));
    two.say(&report("7", 5, &[cell(0, 1)]));
    let kept = Duration::from_secs(3600 * 24 * 400);
    let mut collector = UsageCollector::new(app.clone(), kept, StoredCallers::Names);
    round(&mut collector).await;
    round(&mut collector).await;
    assert_eq!(*one.queries.lock().unwrap(), ["instance=&after=0", "instance=7&after=1"]);
    // A control plane that starts asks for everything again, and a second one does so at the same time.
    round(&mut UsageCollector::new(app.clone(), kept, StoredCallers::Names)).await;
    let items = usage(&app, "group=agents").await;
    assert_eq!(items.len(), 1, "{items:?}");
    assert_eq!((&items[0]["namespace"], &items[0]["name"]), (&json!("ns"), &json!("a")));
    assert_eq!((&items[0]["calls"], &items[0]["input"], &items[0]["unpriced"]), (&json!(3), &json!(3000), &json!(0)));
    assert_eq!(items[0]["cost"], json!([{ "currency": "USD", "amount": "0.009000000" }]));
    // A runtime that was restarted counts from 0 again.
    one.say(&report("8", 1, &[cell(0, 4)]));
    round(&mut collector).await;
    for (query, name) in [("group=callers", "ada"), ("group=models", "gpt"), ("group=namespaces&step=hour", "ns")] {
        let items = usage(&app, query).await;
        assert_eq!((&items[0]["calls"], &items[0]["name"]), (&json!(7), &json!(name)), "{query}");
    }
    assert_eq!(usage(&app, "group=flows").await.len(), 0);
    assert_eq!(usage(&app, "namespace=other").await.len(), 0);
}

#[tokio::test]
async fn without_names_the_tokens_of_all_callers_are_summed() {
    let stage = TestFleet::new();
    let (app, _database) = app_with_history(&stage.fleet).await;
    let sidecar = Sidecar::default();
    sidecar.serve(&app, "pod-1", "a").await;
    let mut of_ben = cell(0, 3);
    of_ben["key"]["caller"] = json!("ben");
    sidecar.say(&report("1", 2, &[cell(0, 1), of_ben]));
    let mut collector = UsageCollector::new(app.clone(), Duration::from_secs(3600), StoredCallers::Off);
    round(&mut collector).await;
    sidecar.say(&report("1", 3, &[cell(0, 2)]));
    round(&mut collector).await;
    let items = usage(&app, "group=callers").await;
    assert_eq!((items.len(), &items[0]["name"], &items[0]["calls"]), (1, &json!(""), &json!(5)), "{items:?}");
}

#[tokio::test]
async fn what_cannot_be_is_not_stored_and_harms_no_other_report() {
    let stage = TestFleet::new();
    let (app, _database) = app_with_history(&stage.fleet).await;
    let (honest, wrong, garbage) = (Sidecar::default(), Sidecar::default(), Sidecar::default());
    honest.serve(&app, "pod-1", "a").await;
    wrong.serve(&app, "pod-2", "b").await;
    garbage.serve(&app, "pod-3", "c").await;
    honest.say(&report("1", 1, &[cell(0, 1)]));
    let mut huge = cell(0, 1);
    huge["totals"]["output"] = json!(u64::MAX);
    wrong.say(&report("1", 1, &[cell(40, 1), cell(-3, 1), huge]));
    garbage.say(&json!("nothing"));
    let mut collector = UsageCollector::new(app.clone(), Duration::from_secs(3600), StoredCallers::Names);
    round(&mut collector).await;
    let items = usage(&app, "since=90d").await;
    assert_eq!((items.len(), &items[0]["name"], &items[0]["unpriced"]), (1, &json!("a"), &json!(1000)));
    round(&mut collector).await;
    assert_eq!(garbage.queries.lock().unwrap().len(), 1, "it is left alone for a while");
}

#[tokio::test]
async fn a_pod_whose_runtime_is_starting_is_asked_again_in_the_next_round() {
    let stage = TestFleet::new();
    let (app, _database) = app_with_history(&stage.fleet).await;
    let (starting, foreign) = (Sidecar::default(), Sidecar::default());
    starting.serve(&app, "pod-1", "a").await;
    foreign.serve(&app, "pod-2", "b").await;
    *starting.status.lock().unwrap() = StatusCode::SERVICE_UNAVAILABLE;
    *foreign.status.lock().unwrap() = StatusCode::NOT_FOUND;
    let mut collector = UsageCollector::new(app.clone(), Duration::from_secs(3600), StoredCallers::Names);
    round(&mut collector).await;
    for (sidecar, agent) in [(&starting, "a"), (&foreign, "b")] {
        *sidecar.status.lock().unwrap() = StatusCode::OK;
        sidecar.say(&report(agent, 1, &[cell(0, 1)]));
    }
    round(&mut collector).await;
    let items = usage(&app, "group=agents").await;
    assert_eq!(
        (items.len(), &items[0]["name"]),
        (1, &json!("a")),
        "an image that does not count is left alone: {items:?}"
    );
}

#[tokio::test]
async fn a_question_that_cannot_be_answered_says_what_to_ask() {
    let stage = TestFleet::new();
    let (app, _database) = app_with_history(&stage.fleet).await;
    for (query, parameter) in [
        ("since=yesterday", "since"),
        ("until=1h&since=30m&x=1", "x"),
        ("group=pods", "group"),
        ("since=1h&until=3h", "since"),
    ] {
        let request = Request::get(format!("/v1/usage?{query}")).body(Body::empty()).unwrap();
        let response = api::router(app.clone()).oneshot(request).await.unwrap();
        assert_eq!(response.status(), 400, "{query}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["parameter"], parameter, "{query}");
    }
}
