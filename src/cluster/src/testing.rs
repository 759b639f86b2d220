//! A scripted API server: answers in order, and tells what was asked.

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

use super::{crash::CrashPoint, metrics::Metrics, transport::Transport, write_gate::Authority};

/// What was asked.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) line: String,
    pub(super) body: Value,
    /// The body as it was sent.
    pub(super) text: String,
}

/// One answer; after the last one every request is refused with 503.
pub(super) struct Answer {
    status: u16,
    body: Vec<String>,
    hangs: bool,
}

/// An answer with this body.
pub(super) fn answer(status: u16, body: String) -> Answer {
    Answer { status, body: vec![body], hangs: false }
}

/// No connection is made.
pub(super) fn away() -> Answer {
    answer(0, String::new())
}

/// A watch that brings these lines and ends.
pub(super) fn events(lines: &[&str]) -> Answer {
    Answer { status: 200, body: lines.iter().map(|line| format!("{line}\n")).collect(), hangs: false }
}

/// A watch that brings these lines and then nothing, without ending.
pub(super) fn silent(lines: &[&str]) -> Answer {
    Answer { hangs: true, ..events(lines) }
}

/// What such a server will answer.
#[derive(Default)]
pub(super) struct Script {
    pub(super) answers: Vec<Answer>,
    pub(super) authority: Option<Authority>,
}

/// A transport to such a server, and what is asked of it.
pub(super) fn scripted(answers: Vec<Answer>) -> (Arc<Transport>, UnboundedReceiver<Asked>) {
    let (client, asked) = serve(answers);
    (Arc::new(transport(client, Authority::always(), || None)), asked)
}

impl Script {
    /// A transport to such a server, with another way to renew its client.
    pub(super) fn transport(self, renew: impl Fn() -> Option<kube::Client> + Send + Sync + 'static) -> Transport {
        transport(serve(self.answers).0, self.authority.unwrap_or_else(Authority::always), renew)
    }
}

fn transport(
    client: kube::Client,
    authority: Authority,
    renew: impl Fn() -> Option<kube::Client> + Send + Sync + 'static,
) -> Transport {
    Transport::new(client, renew, authority, CrashPoint::default(), Metrics::default())
}

fn serve(answers: Vec<Answer>) -> (kube::Client, UnboundedReceiver<Asked>) {
    let (sender, receiver) = unbounded_channel();
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (answers, sender) = (answers.clone(), sender.clone());
        async move {
            let line = format!("{} {}", request.method(), request.uri());
            let body = request.into_body().collect_bytes().await.unwrap();
            let text = String::from_utf8_lossy(&body).into_owned();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let _ = sender.send(Asked { line, body, text });
            let next = answers.lock().unwrap().pop_front();
            let next = next.unwrap_or_else(|| answer(503, r#"{"message":"the script is over","code":503}"#.into()));
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
