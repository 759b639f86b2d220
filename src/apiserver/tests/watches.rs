//! Watches, under paused time.

#![allow(clippy::unwrap_used)]

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use bytes::Bytes;
use common::{Lines, MAPS, MERGE, call, map, patch, server, server_at};
use futures::Stream as _;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::ServiceExt as _;

fn labelled(name: &str, label: &str) -> Value {
    let mut object = map(name, "1");
    object["metadata"]["labels"] = json!({ "l": label });
    object
}

fn short(what: &str, name: &str) -> Option<(String, String)> {
    Some((what.to_owned(), name.to_owned()))
}

#[tokio::test(start_paused = true)]
async fn a_watch_shows_each_change_after_its_version() {
    let server = server();
    let (_, first) = call(&server, &format!("POST {MAPS}"), map("a", "1")).await;
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    call(&server, &format!("POST {MAPS}"), map("b", "1")).await;
    let mut lines = Lines::open(&server, &format!("{MAPS}?watch=1&resourceVersion={version}&timeoutSeconds=5")).await;
    assert_eq!(lines.next_short().await, short("ADDED", "b"));
    let (_, changed) = patch(&server, &format!("{MAPS}/a"), MERGE, json!({ "data": { "k": "2" } })).await;
    assert_eq!(lines.next().await, Some(json!({ "type": "MODIFIED", "object": changed })));
    call(&server, &format!("DELETE {MAPS}/a"), Value::Null).await;
    let deleted = lines.next().await.unwrap();
    let number = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!((&deleted["type"], &deleted["object"]["data"]), (&json!("DELETED"), &changed["data"]));
    assert!(number(&deleted["object"]) > number(&changed), "a deletion has a version of its own");
    assert_eq!(lines.next().await, None, "the time is over");
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_label_goes_is_deleted_for_the_watch() {
    let server = server();
    let mut lines = Lines::open(&server, &format!("{MAPS}?watch=true&labelSelector=l%3Dx&timeoutSeconds=9")).await;
    call(&server, &format!("POST {MAPS}"), labelled("a", "x")).await;
    call(&server, &format!("POST {MAPS}"), labelled("b", "y")).await;
    let label = |value: &str| json!({ "metadata": { "labels": { "l": value } } });
    let (_, gone) = patch(&server, &format!("{MAPS}/a"), MERGE, label("y")).await;
    patch(&server, &format!("{MAPS}/b"), MERGE, label("x")).await;
    assert_eq!(lines.next_short().await, short("ADDED", "a"));
    let deleted = lines.next().await.unwrap();
    assert_eq!((&deleted["type"], &deleted["object"]["metadata"]["labels"]["l"]), (&json!("DELETED"), &json!("x")));
    assert_eq!(deleted["object"]["metadata"]["resourceVersion"], gone["metadata"]["resourceVersion"]);
    assert_eq!(lines.next_short().await, short("ADDED", "b"));
    assert_eq!(lines.next_short().await, None);
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_bookmark() {
    let server = server();
    call(&server, &format!("POST {MAPS}"), map("a", "1")).await;
    let options = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut lines = Lines::open(&server, &format!("{MAPS}?{options}&timeoutSeconds=70")).await;
    assert_eq!(lines.next_short().await, short("ADDED", "a"));
    let bookmark = lines.next().await.unwrap();
    assert_eq!(bookmark["object"]["metadata"]["annotations"], json!({ "k8s.io/initial-events-end": "true" }));
    let (_, other) =
        call(&server, "POST /api/v1/namespaces/default/serviceaccounts", json!({ "metadata": { "name": "s" } })).await;
    let later = lines.next().await.unwrap();
    assert_eq!((&later["type"], later["object"]["metadata"].get("annotations")), (&json!("BOOKMARK"), None));
    let versions = (&later["object"]["metadata"]["resourceVersion"], &other["metadata"]["resourceVersion"]);
    assert_eq!(versions.0, versions.1, "a bookmark passes over changes of other kinds");
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_that_is_not_kept_says_so_and_ends() {
    let server = server();
    let (_, first) = call(&server, &format!("POST {MAPS}"), map("a", "0")).await;
    for value in 0..4096 {
        patch(&server, &format!("{MAPS}/a"), MERGE, json!({ "data": { "k": format!("{value}.") } })).await;
    }
    let version: u64 = first["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let mut lines = Lines::open(&server, &format!("{MAPS}?watch=true&resourceVersion={version}")).await;
    assert_eq!(lines.next_short().await, short("MODIFIED", "a"), "the oldest that is kept");
    let mut lines = Lines::open(&server, &format!("{MAPS}?watch=true&resourceVersion={}", version - 1)).await;
    let error = lines.next().await.unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(error["object"]["reason"], "Expired");
    assert_eq!(lines.next().await, None);
}

/// Counts how often a task is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_is_woken_by_changes_of_its_kind_alone() {
    let server = server();
    let request = Request::get(format!("{MAPS}?watch=true")).body(Full::new(Bytes::new())).unwrap();
    let mut body = Box::pin(server.clone().oneshot(request).await.unwrap().into_body().into_data_stream());
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    assert!(body.as_mut().poll_next(&mut context).is_pending());
    for path in ["/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/serviceaccounts"] {
        assert_eq!(call(&server, &format!("POST {path}"), json!({ "metadata": { "name": "a" } })).await.0, 201);
    }
    call(&server, &format!("GET {MAPS}"), Value::Null).await;
    assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
    call(&server, &format!("POST {MAPS}"), map("a", "1")).await;
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert!(matches!(body.as_mut().poll_next(&mut context), Poll::Ready(Some(Ok(_)))));
}

#[tokio::test(start_paused = true)]
async fn a_watch_loses_nothing_by_many_changes_of_other_kinds() {
    let server = server();
    call(&server, &format!("POST {MAPS}"), map("a", "0")).await;
    let (_, list) = call(&server, &format!("GET {MAPS}"), Value::Null).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let secret = "/api/v1/namespaces/default/secrets";
    call(&server, &format!("POST {secret}"), json!({ "metadata": { "name": "s" } })).await;
    for value in 0..5000 {
        patch(&server, &format!("{secret}/s"), MERGE, json!({ "stringData": { "k": format!("{value}") } })).await;
    }
    call(&server, &format!("DELETE {MAPS}/a"), Value::Null).await;
    let mut lines =
        Lines::open(&server, &format!("{MAPS}?watch=true&timeoutSeconds=1&resourceVersion={version}")).await;
    assert_eq!(lines.next_short().await, short("DELETED", "a"));
    assert_eq!(lines.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_deleted_one_hour_after_its_last_change() {
    let seconds = Arc::new(AtomicI64::new(1_800_000_000));
    let server = server_at(seconds.clone());
    let events = "/api/v1/namespaces/default/events";
    let view = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({ "metadata": { "name": "e" }, "involvedObject": { "namespace": "default" }, "message": "m" });
    let mut lines = Lines::open(&server, &format!("{view}?watch=true&timeoutSeconds=5")).await;
    call(&server, &format!("POST {events}"), event).await;
    seconds.fetch_add(1800, Ordering::Relaxed);
    patch(&server, &format!("{events}/e"), MERGE, json!({ "count": 2 })).await;
    seconds.fetch_add(3599, Ordering::Relaxed);
    assert_eq!(call(&server, &format!("GET {events}/e"), Value::Null).await.0, 200);
    seconds.fetch_add(1, Ordering::Relaxed);
    assert_eq!(call(&server, &format!("GET {events}/e"), Value::Null).await.0, 404);
    let (_, list) = call(&server, &format!("GET {view}"), Value::Null).await;
    assert_eq!(list["items"], json!([]));
    for what in ["ADDED", "MODIFIED", "DELETED"] {
        assert_eq!(lines.next_short().await, short(what, "e"));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_version_a_watch_begins_with_what_is_there() {
    let server = server();
    call(&server, &format!("POST {MAPS}"), map("a", "1")).await;
    for version in ["", "&resourceVersion=0"] {
        let mut lines = Lines::open(&server, &format!("{MAPS}?watch=true&timeoutSeconds=1{version}")).await;
        assert_eq!(lines.next_short().await, short("ADDED", "a"));
        let start = tokio::time::Instant::now();
        assert_eq!(lines.next().await, None);
        assert_eq!(start.elapsed().as_secs(), 1);
    }
    let none = "watch=true&timeoutSeconds=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    assert_eq!(Lines::open(&server, &format!("{MAPS}?{none}")).await.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_may_ask_for_more_time_than_a_clock_can_tell() {
    let server = server();
    let mut lines = Lines::open(&server, &format!("{MAPS}?watch=true&timeoutSeconds={}", u64::MAX)).await;
    call(&server, &format!("POST {MAPS}"), map("a", "1")).await;
    assert_eq!(lines.next_short().await, short("ADDED", "a"));
}

#[tokio::test]
async fn options_that_contradict_each_other_are_refused() {
    let server = server();
    for (query, message) in [
        ("sendInitialEvents=true", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        (
            "watch=true&resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    ] {
        let (code, status) = call(&server, &format!("GET {MAPS}?{query}"), Value::Null).await;
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {message}");
        assert_eq!((code, &status["message"]), (422, &json!(message)));
    }
}
