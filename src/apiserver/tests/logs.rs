//! Logs of containers: what a source is asked, how its log becomes a response, and what is refused.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::{Arc, Mutex};

use apiserver::{ApiServer, LogError, LogOptions, LogStream, PodLogs};
use bytes::Bytes;
use common::{PODS, call, pod, server};
use futures::{FutureExt, StreamExt, channel::mpsc};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

/// A node whose containers write what a test sends, and which remembers what it was asked.
#[derive(Default)]
struct Node {
    log: Mutex<Option<Result<mpsc::UnboundedReceiver<Bytes>, LogError>>>,
    asked: Mutex<Vec<(String, String, LogOptions)>>,
}

impl PodLogs for Node {
    fn read(&self, namespace: &str, pod: &str, options: &LogOptions) -> Result<LogStream, LogError> {
        self.asked.lock().unwrap().push((namespace.to_owned(), pod.to_owned(), options.clone()));
        self.log.lock().unwrap().take().unwrap_or(Err(LogError::NotFound)).map(StreamExt::boxed)
    }
}

impl Node {
    /// Answers the next request for a log, and returns what writes it.
    fn writes(&self) -> mpsc::UnboundedSender<Bytes> {
        let (sender, receiver) = mpsc::unbounded();
        *self.log.lock().unwrap() = Some(Ok(receiver));
        sender
    }
}

/// Makes a server of a node with the Pod `p` of one container `c`.
async fn with_node() -> (ApiServer, Arc<Node>) {
    let node = Arc::new(Node::default());
    let server = server().with_logs(node.clone());
    call(&server, &format!("POST {PODS}"), pod("p")).await;
    (server, node)
}

#[tokio::test]
async fn a_log_comes_as_it_is_written_and_ends_with_its_source() {
    let (server, node) = with_node().await;
    let log = node.writes();
    let request = Request::get(format!("{PODS}/p/log?follow=true")).body(Full::new(Bytes::new())).unwrap();
    let response = server.oneshot(request).await.unwrap();
    let media_type = response.headers()[header::CONTENT_TYPE].to_str().unwrap();
    assert_eq!((response.status(), media_type), (StatusCode::OK, "text/plain"));
    let mut body = Box::pin(response.into_body().into_data_stream());
    assert!(body.next().now_or_never().is_none(), "nothing is written yet");
    for line in ["one\n", "two\n"] {
        log.unbounded_send(line.into()).unwrap();
        assert_eq!(body.next().now_or_never().unwrap().unwrap().unwrap(), line);
    }
    drop(log);
    assert!(body.next().await.is_none());
}

#[tokio::test]
async fn the_source_is_dropped_when_the_client_goes() {
    let (server, node) = with_node().await;
    let log = node.writes();
    let request = Request::get(format!("{PODS}/p/log?follow=true")).body(Full::new(Bytes::new())).unwrap();
    let response = server.oneshot(request).await.unwrap();
    assert!(!log.is_closed());
    drop(response);
    assert!(log.is_closed());
}

#[tokio::test]
async fn the_source_gets_the_options_and_the_response_is_cut_at_the_limit() {
    let (server, node) = with_node().await;
    let log = node.writes();
    log.unbounded_send("12345".into()).unwrap();
    let query = "previous=true&tailLines=2&sinceTime=2026-01-01T00:00:00Z&timestamps=true&limitBytes=3";
    let (code, text) = call(&server, &format!("GET {PODS}/p/log?{query}"), Value::Null).await;
    assert_eq!((code, text), (200, json!(123)), "the source could go on");
    let options = LogOptions {
        container: "c".to_owned(),
        follow: false,
        previous: true,
        tail_lines: Some(2),
        since: Some("2026-01-01T00:00:00Z".parse().unwrap()),
        timestamps: true,
        limit_bytes: Some(3),
    };
    assert_eq!(*node.asked.lock().unwrap(), [("default".to_owned(), "p".to_owned(), options)]);
}

#[tokio::test]
async fn what_the_node_does_not_have_is_told_in_the_words_of_the_kubelet() {
    let (server, node) = with_node().await;
    let cases = [
        (LogError::NotAvailable, 400, "container \"c\" in pod \"p\" is not available"),
        (
            LogError::Waiting("CrashLoopBackOff".to_owned()),
            400,
            "container \"c\" in pod \"p\" is waiting to start: CrashLoopBackOff",
        ),
        (LogError::NoPrevious, 400, "previous terminated container \"c\" in pod \"p\" not found"),
        (LogError::NotFound, 404, "the server could not find the requested resource ( pods/log p)"),
    ];
    for (error, code, message) in cases {
        *node.log.lock().unwrap() = Some(Err(error));
        let (found, status) = call(&server, &format!("GET {PODS}/p/log"), Value::Null).await;
        assert_eq!((found, &status["message"]), (code, &json!(message)));
    }
}

#[tokio::test]
async fn a_pod_without_node_has_an_empty_log_and_only_reads_are_allowed() {
    let (server, node) = with_node().await;
    let mut waiting = pod("w");
    waiting["spec"]["nodeName"] = Value::Null;
    call(&server, &format!("POST {PODS}"), waiting).await;
    assert_eq!(call(&server, &format!("GET {PODS}/w/log"), Value::Null).await, (204, json!("")));
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        assert_eq!(call(&server, &format!("{method} {PODS}/p/log"), json!({})).await.0, 405, "{method}");
    }
    assert_eq!(node.asked.lock().unwrap().len(), 0);
}
