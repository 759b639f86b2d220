//! Scripted API server: sends responses in order, and records the requests.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{crash::CrashPoint, metrics::ApiMetrics, transport::Transport, write_gate::WriteGate};

/// Recorded request.
#[derive(Debug)]
pub(super) struct ScriptedRequest {
    pub(super) line: String,
    pub(super) body: Value,
    /// The body as it was sent.
    pub(super) text: String,
}

/// Response; after the last one every request is refused with 503.
pub(super) struct ScriptedResponse {
    status: u16,
    body: Vec<String>,
    hangs: bool,
}

/// Returns a response with this body.
pub(super) fn response(status: u16, body: String) -> ScriptedResponse {
    ScriptedResponse { status, body: vec![body], hangs: false }
}

/// Returns a failure to connect.
pub(super) fn no_connection() -> ScriptedResponse {
    response(0, String::new())
}

/// Returns a watch that delivers these lines and ends.
pub(super) fn watch_events(lines: &[&str]) -> ScriptedResponse {
    ScriptedResponse { status: 200, body: lines.iter().map(|line| format!("{line}\n")).collect(), hangs: false }
}

/// Returns a watch that delivers these lines and then nothing, without ending.
pub(super) fn hanging_watch(lines: &[&str]) -> ScriptedResponse {
    ScriptedResponse { hangs: true, ..watch_events(lines) }
}

/// Script of such a server.
#[derive(Default)]
pub(super) struct ScriptedServer {
    pub(super) responses: Vec<ScriptedResponse>,
    pub(super) write_gate: Option<WriteGate>,
}

/// Creates a transport to such a server, and returns it with the requests that arrive.
pub(super) fn scripted(answers: Vec<ScriptedResponse>) -> (Arc<Transport>, UnboundedReceiver<ScriptedRequest>) {
    let (client, asked) = serve(answers);
    (Arc::new(transport(client, WriteGate::always(), || None)), asked)
}

impl ScriptedServer {
    /// Creates a transport to such a server, with another function to renew its client.
    pub(super) fn transport(self, renew: impl Fn() -> Option<kube::Client> + Send + Sync + 'static) -> Transport {
        transport(serve(self.responses).0, self.write_gate.unwrap_or_else(WriteGate::always), renew)
    }
}

fn transport(
    client: kube::Client,
    authority: WriteGate,
    renew: impl Fn() -> Option<kube::Client> + Send + Sync + 'static,
) -> Transport {
    Transport::new(client, renew, authority, CrashPoint::default(), ApiMetrics::default())
}

fn serve(answers: Vec<ScriptedResponse>) -> (kube::Client, UnboundedReceiver<ScriptedRequest>) {
    let (sender, receiver) = unbounded_channel();
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (answers, sender) = (answers.clone(), sender.clone());
        async move {
            let line = format!("{} {}", request.method(), request.uri());
            let body = request.into_body().collect_bytes().await.unwrap();
            let text = String::from_utf8_lossy(&body).into_owned();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let _ = sender.send(ScriptedRequest { line, body, text });
            let next = answers.lock().unwrap().pop_front();
            let next = next.unwrap_or_else(|| response(503, r#"{"message":"the script is over","code":503}"#.into()));
            if next.status == 0 {
                return Err(std::io::Error::other("connection refused"));
            }
            let chunks = stream::iter(next.body).map(|chunk| Ok::<_, std::io::Error>(Frame::data(Bytes::from(chunk))));
            let end = stream::once(async move {
                if next.hangs {
                    std::future::pending::<()>().await;
                }
                Ok(Frame::data(Bytes::new()))
            });
            let body = StreamBody::new(Box::pin(chunks.chain(end)));
            Ok::<_, std::io::Error>(Response::builder().status(next.status).body(body).unwrap())
        }
    });
    (kube::Client::new(service, "default"), receiver)
}
