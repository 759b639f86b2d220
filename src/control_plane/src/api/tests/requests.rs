//! Tests of invalid requests and unknown paths, and of responses against the OpenAPI document.

use std::{sync::atomic::Ordering::Relaxed, time::Instant};

use http::Method;
use serde_json::Value;
use store::{ObjectKey, SpanRow, StoreError};

use super::{Api, bytes, stage};
use crate::api::table::OPERATIONS;

#[tokio::test]
async fn a_wrong_request_is_told_what_is_wrong() {
    let api = Api::new(&stage());
    let (_, page) = api.get("/v1/fleet?limit=1").await;
    let place = page["continue"].as_str().unwrap();
    for (path, status, parameter) in [
        ("/v1/fleet?colour=red".to_owned(), 400, "colour"),
        ("/v1/agents?kind=Agent".into(), 400, "kind"),
        ("/v1/fleet?kind=Pod".into(), 400, "kind"),
        ("/v1/fleet?phase=Sleeping".into(), 400, "phase"),
        ("/v1/fleet?sort=colour".into(), 400, "sort"),
        ("/v1/fleet?order=up".into(), 400, "order"),
        ("/v1/fleet?limit=0".into(), 400, "limit"),
        ("/v1/fleet?limit=1001".into(), 400, "limit"),
        ("/v1/fleet?limit=5&limit=5".into(), 400, "limit"),
        ("/v1/fleet?continue=%21".into(), 400, "continue"),
        (format!("/v1/fleet?q=x&continue={place}"), 400, "continue"),
        (format!("/v1/agents?continue={place}"), 400, "continue"),
        ("/v1/tools/a/ask/trace?since=-1".into(), 400, "since"),
        ("/v1/tools/a/ask?pretty=1".into(), 400, "pretty"),
        ("/v1/me?x".into(), 400, "x"),
        ("/v1/pods".into(), 404, ""),
        ("/v1/tools/a/lost".into(), 404, ""),
        ("/v1/tools/a/ask/colour".into(), 404, ""),
        ("/v1/toolservers/a/lost/tools".into(), 404, ""),
        ("/v1/machines/Pod".into(), 404, ""),
        ("/v2".into(), 404, ""),
    ] {
        let answer = api.send(Method::GET, &path, &[]).await;
        assert_eq!(answer.headers()["content-type"], "application/problem+json", "{path}");
        assert_eq!(answer.status(), status, "{path}");
        let problem: Value = serde_json::from_slice(&bytes(answer).await).unwrap();
        assert_eq!(problem["status"], status, "{path}");
        assert_eq!(problem["parameter"].as_str().unwrap_or_default(), parameter, "{path}");
        assert!(!problem["detail"].as_str().unwrap().is_empty() && problem["title"].is_string(), "{path}");
    }
    let answer = api.send(Method::POST, "/v1/fleet", &[]).await;
    assert_eq!((answer.status().as_u16(), &answer.headers()["allow"]), (405, &"GET,HEAD".parse().unwrap()));
    assert_eq!(api.send(Method::GET, "/v1/fleet", &[("accept", "text/html")]).await.status(), 406);
}

#[tokio::test]
async fn who_has_not_signed_in_learns_nothing_from_metrics() {
    let api = Api::new(&stage());
    for path in ["/metrics", "/readyz", "/healthz"] {
        assert_eq!(api.get(path).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn the_root_leads_to_the_ui() {
    let api = Api::new(&stage());
    let root = api.send(Method::GET, "/", &[]).await;
    assert_eq!((root.status().as_u16(), &root.headers()["location"]), (302, &"/ui/".parse().unwrap()));
    for path in ["/ui", "/ui/", "/ui/objects"] {
        let page = api.send(Method::GET, path, &[]).await;
        // Without a built UI the response is a text that says so, with the same policy.
        assert!(page.headers().contains_key("content-security-policy"), "{path}: {}", page.status());
    }
}

#[tokio::test]
async fn before_every_watch_has_begun_nothing_is_answered() {
    let api = Api::new(&stage());
    api.app.synced.store(false, Relaxed);
    let answer = api.send(Method::GET, "/v1/fleet", &[]).await;
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (503, &"1".parse().unwrap()));
}

fn span(trace: &str) -> SpanRow {
    SpanRow {
        trace: trace.into(),
        span: "b7ad6b7169203331".into(),
        workload: ObjectKey { kind: "Agent", namespace: "a".into(), name: "two".into() },
        conversation: "c".into(),
        started: 1_800_000_000_000_000_000,
        ended: 1_800_000_001_000_000_000,
        has_failed: false,
        received: 1_800_000_001_000,
        is_of_platform: false,
        document:
            r#"{"name":"chat m","side":"client","attributes":{"gen_ai.request.model":"m"},"events":[],"links":[]}"#
                .into(),
    }
}

/// Each operation of the document exists, and its response conforms to its schema.
#[tokio::test]
async fn answers_are_as_the_document_says() {
    let stage = stage();
    let (api, mut database) = Api::with_history(&stage).await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    database.writer.write_spans(&[span(trace)]).await.unwrap();
    let (_, document) = api.get("/openapi.json").await;
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), OPERATIONS.len());
    for (path, operation) in paths {
        let media = operation.pointer("/get/responses/200/content").unwrap();
        let filled = path.replace("{plural}", "tools").replace("{namespace}", "a").replace("{kind}", "Agent");
        let filled = filled.replace("{trace}", trace);
        let filled = filled.replace("{name}", if path.contains("toolservers") { "docs" } else { "ask" });
        let answer = api.send(Method::GET, &filled, &[]).await;
        assert_eq!(answer.status(), 200, "{filled}");
        let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
        let schema = media[&kind]["schema"].clone();
        assert!(!schema.is_null(), "{filled}: {kind} is not in the document");
        if kind == "application/json" {
            let mut whole = schema;
            whole["components"] = document["components"].clone();
            let value: Value = serde_json::from_slice(&bytes(answer).await).unwrap();
            let validator = jsonschema::validator_for(&whole).unwrap();
            let errors: Vec<_> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{filled}: {errors:?}");
        }
    }
}

#[tokio::test]
async fn a_history_that_is_not_written_says_so() {
    let api = Api::new(&stage());
    let (status, history) = api.get("/v1/history").await;
    assert_eq!((status, &history["problem"]), (200, &Value::Null));
    let refused = StoreError::Refused { code: "6410".into(), message: "disk I/O error".into() };
    let begun = Instant::now().checked_sub(std::time::Duration::from_secs(900)).unwrap();
    api.app.mirror.record_failure(&refused, begun);
    let (status, history) = api.get("/v1/history").await;
    assert_eq!((status, history["problem"].as_str()), (200, Some("the database refuses writes")), "{history}");
    assert!(history["behindSeconds"].as_u64().is_some_and(|behind| behind >= 900), "{history}");
}
