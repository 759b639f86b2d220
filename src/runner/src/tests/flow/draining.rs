//! Drain after SIGTERM: a flow finishes the requests in flight.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::ContractFolder;

#[tokio::test]
async fn a_request_in_flight_is_finished_while_others_are_refused() {
    let (called, gate, stop) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (reached, opened) = (called.clone(), gate.clone());
    let slow = async move || {
        reached.notify_one();
        opened.notified().await;
        "at last"
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", any(slow))).await });

    let contract = ContractFolder::flow(&[("main", "/tool slow"), ("quick", "hi")]).with_tool("", "slow", &url);
    let stopped = stop.clone();
    let runner = contract.serve_until(&[], async move { stopped.notified().await }, Duration::from_secs(60)).await;
    let request = runner.client.post(runner.url("/")).send();
    let request = tokio::spawn(request);
    called.notified().await;

    stop.notify_one();
    while runner.get("/readyz").await.0 == 200 {
        tokio::task::yield_now().await;
    }
    assert_eq!(runner.refused("/quick", "").await, (503, "this runtime is shutting down; try again".into()));
    gate.notify_one();
    let answer = request.await.unwrap().unwrap();
    assert_eq!((answer.status().as_u16(), answer.text().await.unwrap().as_str()), (200, "at last"));
    runner.serving.await.unwrap().unwrap();
}
