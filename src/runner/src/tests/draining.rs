//! Drain after SIGTERM: new requests are refused, those in flight are finished.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
};
use tokio_util::task::TaskTracker;

use super::Runner;
use crate::{
    agent::Agent,
    caller::CallerKey,
    metrics::RunnerMetrics,
    models::{Chunk, Model, ModelError, ModelRequest},
    server::AgentApp,
    tools::Toolbox,
    usage::UsageAccount,
};

/// Model that says `one`, waits for the gate, says `two`.
struct Gated(Arc<Notify>);

#[async_trait]
impl Model for Gated {
    fn respond(&self, _: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let gate = self.0.clone();
        let after = stream::once(async move {
            gate.notified().await;
            Ok(Chunk::Token("two".into()))
        });
        stream::iter([Ok(Chunk::Token("one ".into()))]).chain(after).boxed()
    }

    async fn title(&self, _: &str, _: Option<CallerKey>, _: UsageAccount) -> String {
        String::new()
    }
}

struct Scene {
    runner: Runner,
    gate: Arc<Notify>,
    stop: Arc<Notify>,
    requests: TaskTracker,
}

async fn scene(grace: Duration) -> Scene {
    let (gate, stop, metrics) = (Arc::new(Notify::new()), Arc::new(Notify::new()), RunnerMetrics::default());
    let tools = Toolbox::new(Vec::new(), Arc::new(|_: &str| None), metrics.clone());
    let model: Arc<dyn Model> = Arc::new(Gated(gate.clone()));
    let agent = Ok(Arc::new(Agent::with(model.clone(), model, None, tools)));
    let requests = TaskTracker::new();
    let stopped = stop.clone();
    let app = AgentApp {
        name: "tester".into(),
        namespace: "shop".into(),
        card: Arc::default(),
        agent,
        metrics,
        requests: requests.clone(),
    };
    let runner = Runner::start(app, async move { stopped.notified().await }, grace).await;
    Scene { runner, gate, stop, requests }
}

impl Scene {
    /// Opens a stream and waits for its first token.
    async fn open_stream(&self) -> reqwest::Response {
        let request = self.runner.client.post(self.runner.url("/chat")).header("accept", "text/event-stream");
        let mut response = request.body(json!({"message": "go"}).to_string()).send().await.unwrap();
        assert!(String::from_utf8_lossy(&response.chunk().await.unwrap().unwrap()).contains("one "));
        response
    }

    async fn draining(&self) {
        self.stop.notify_one();
        while !self.requests.is_closed() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_stream_is_finished_while_others_are_refused() {
    let scene = scene(Duration::from_secs(60)).await;
    let mut live = TcpStream::connect(scene.runner.address).await.unwrap();
    live.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut buffer = [0; 1024];
    assert!(live.read(&mut buffer).await.unwrap() > 0);
    let stream = scene.open_stream().await;

    scene.draining().await;
    live.write_all(b"POST /chat HTTP/1.1\r\nhost: a\r\ncontent-length: 15\r\n\r\n{\"message\":\"a\"}").await.unwrap();
    let mut refused = String::new();
    live.read_to_string(&mut refused).await.unwrap();
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("connection: close"), "{refused}");
    let (status, why) = scene.runner.get("/readyz").await;
    assert!(status == 503 && why.contains("draining"), "{why}");
    assert_eq!(scene.runner.get("/healthz").await.0, 200);
    let (status, error) = scene.runner.get("/v1/models").await;
    assert!(status == 503 && error.contains(r#""type":"server_error""#), "{error}");

    scene.gate.notify_one();
    let rest = stream.text().await.unwrap();
    assert!(rest.contains("two") && rest.contains("event: done"), "{rest}");
    scene.runner.serving.await.unwrap().unwrap();
    assert!(TcpStream::connect(scene.runner.address).await.is_err());
}

#[tokio::test]
async fn a_task_is_finished_though_no_client_waits_for_it() {
    let scene = scene(Duration::from_secs(60)).await;
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "go" }] });
    let params = json!({ "message": message, "configuration": { "returnImmediately": true } });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params });
    scene.runner.client.post(scene.runner.url("/")).body(body.to_string()).send().await.unwrap();

    scene.draining().await;
    assert_eq!(scene.requests.len(), 1);
    scene.gate.notify_one();
    scene.runner.serving.await.unwrap().unwrap();
    assert!(scene.requests.is_empty());
}

#[tokio::test]
async fn a_request_that_never_ends_is_cut_off() {
    let scene = scene(Duration::ZERO).await;
    let stream = scene.open_stream().await;
    scene.stop.notify_one();
    scene.runner.serving.await.unwrap().unwrap();
    drop(stream);
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_turn() {
    let scene = scene(Duration::ZERO).await;
    let stream = scene.open_stream().await;
    drop(stream);
    scene.requests.close();
    scene.requests.wait().await;
}
