//! Carries a plan out: a tower layer around whatever sends requests to the API server.

use std::{
    collections::HashMap,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{StreamExt as _, future::pending, stream};
use http::{
    Request, Response,
    header::{CONTENT_LENGTH, RETRY_AFTER},
};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, BodyStream, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::{Layer, Service};

use super::{
    Call, Fault, Log, Plan,
    watch::{Frames, disturbed},
};

/// What a disturbed call is answered with.
pub type FaultyBody = UnsyncBoxBody<Bytes, Lost>;

/// A call whose connection is to be reset: there is no answer, or no more of it.
#[derive(Debug, thiserror::Error)]
#[error("the connection was lost: {0}")]
pub struct Lost(String);

impl From<Lost> for io::Error {
    fn from(lost: Lost) -> Self {
        Self::new(io::ErrorKind::ConnectionReset, lost)
    }
}

/// The layer.
#[derive(Debug, Clone)]
pub struct Faults {
    /// What is to be done.
    pub plan: Arc<Plan>,
    /// What was asked.
    pub log: Arc<Log>,
    /// Every answer to each list, for [`Fault::Past`].
    past: Arc<Mutex<HashMap<String, Vec<Bytes>>>>,
}

impl Faults {
    /// Without rules; decisions are drawn from this seed.
    pub fn new(seed: u64) -> Self {
        Self { plan: Arc::new(Plan::new(seed)), log: Arc::default(), past: Arc::default() }
    }
}

impl<S> Layer<S> for Faults {
    type Service = Faulty<S>;

    fn layer(&self, inner: S) -> Faulty<S> {
        Faulty { faults: self.clone(), inner }
    }
}

/// A service under faults.
#[derive(Debug, Clone)]
pub struct Faulty<S> {
    faults: Faults,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for Faulty<S>
where
    S: Service<Request<Bytes>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: std::fmt::Display + Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display + Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: std::fmt::Display + Send,
{
    type Response = Response<FaultyBody>;
    type Error = Lost;
    type Future = Pin<Box<dyn Future<Output = Result<Response<FaultyBody>, Lost>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        self.inner.poll_ready(cx).map_err(lost)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let fresh = self.inner.clone();
        let (faults, inner) = (self.faults.clone(), std::mem::replace(&mut self.inner, fresh));
        Box::pin(disturb(faults, inner, request))
    }
}

async fn disturb<S, B, R>(faults: Faults, mut inner: S, request: Request<B>) -> Result<Response<FaultyBody>, Lost>
where
    S: Service<Request<Bytes>, Response = Response<R>>,
    S::Error: std::fmt::Display,
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: std::fmt::Display + Send,
{
    let call = Call::read(request.method(), request.uri());
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(lost)?.to_bytes();
    let met = faults.plan.decide(&call);
    let guarded = is_guarded(&body);
    let number = faults.log.begin(call.clone(), guarded, met.iter().map(|(fault, _)| *fault).collect());
    for (fault, drawn) in &met {
        match fault {
            Fault::Delay(longest) => sleep(longest.mul_f64(*drawn)).await,
            Fault::Refuse(code, reason, after) => return Ok(refusal(*code, reason, *after)),
            Fault::Drop => return Err(lost("before the request was sent")),
            Fault::Silence => pending().await,
            _ => {}
        }
    }
    if met.iter().any(|(fault, _)| *fault == Fault::Repeat) {
        let first = inner.call(Request::from_parts(parts.clone(), body.clone())).await.map_err(lost)?;
        let number = faults.log.begin(call.clone(), guarded, Vec::new());
        faults.log.answered(number, first.status().as_u16());
        first.into_body().collect().await.map_err(lost)?;
    }
    let asked = parts.uri.to_string();
    let answer = inner.call(Request::from_parts(parts, body)).await.map_err(lost)?;
    faults.log.answered(number, answer.status().as_u16());
    let (mut head, body) = answer.into_parts();
    let mut frames: Frames = Box::pin(BodyStream::new(body.map_err(lost)));
    if call.verb == "list" && head.status.is_success() && faults.plan.still(Fault::Past) {
        let body = BodyExt::collect(StreamBody::new(frames)).await?.to_bytes();
        head.headers.remove(CONTENT_LENGTH);
        let mut past = faults.past.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = past.entry(asked).or_default();
        answers.push(body.clone());
        let drawn = met.iter().find_map(|(fault, drawn)| (*fault == Fault::Past).then_some(*drawn));
        let given = drawn.map_or(body.clone(), |drawn| answers[(drawn * answers.len() as f64) as usize].clone());
        drop(past);
        if given != body {
            faults.log.disturbed(number);
        }
        frames = Box::pin(stream::iter([Ok(Frame::data(given))]));
    }
    for (fault, _) in &met {
        match fault {
            Fault::LoseAnswer | Fault::AnswerWith(_) => {
                // All of it, so that the write is surely done.
                while frames.next().await.is_some() {}
                match fault {
                    Fault::AnswerWith(code) => return Ok(refusal(*code, "Timeout", None)),
                    _ => return Err(lost("after the request was carried out")),
                }
            }
            Fault::Cut(length) => frames = cut(frames, *length),
            _ => {}
        }
    }
    let of_events: Vec<_> = met.into_iter().map(|(fault, _)| fault).filter(Fault::is_of_events).collect();
    if call.verb == "watch" && !of_events.is_empty() {
        frames = disturbed(frames, call, of_events, &faults, number);
    }
    Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
}

/// Whether a write says which object or version it means.
fn is_guarded(body: &[u8]) -> bool {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    // A JSON Patch is refused whole where a test of what was read fails.
    body.as_array().into_iter().flatten().any(|operation| operation["op"] == "test")
        || ["/metadata/uid", "/metadata/resourceVersion", "/preconditions/uid", "/preconditions/resourceVersion"]
            .iter()
            .any(|path| body.pointer(path).is_some_and(|value| value.is_string()))
}

/// So many bytes of a body, and then a reset.
fn cut(frames: Frames, length: usize) -> Frames {
    let mut left = length;
    Box::pin(frames.flat_map(move |frame| {
        let parts = match frame.and_then(|frame| frame.into_data().map_err(|_| lost("in the trailers"))) {
            Ok(data) if data.len() <= left => {
                left -= data.len();
                vec![Ok(Frame::data(data))]
            }
            Ok(data) => vec![Ok(Frame::data(data.slice(..std::mem::take(&mut left)))), Err(lost("within the answer"))],
            Err(error) => vec![Err(error)],
        };
        stream::iter(parts)
    }))
}

/// A refusal as the API server words it.
fn refusal(code: u16, reason: &str, after: Option<u32>) -> Response<FaultyBody> {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("the fault proxy says {code}"), "reason": reason, "code": code,
    });
    // As the API server says it of a namespace that goes.
    if reason == "NamespaceTerminating" {
        status["reason"] = "Forbidden".into();
        status["details"] = json!({"causes": [{"reason": reason, "field": "metadata.namespace"}]});
    }
    if let Some(seconds) = after {
        status["details"] = json!({"retryAfterSeconds": seconds});
    }
    let body = Bytes::from(status.to_string());
    let frames = stream::iter([Ok(Frame::data(body))]);
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    if let Some(seconds) = after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

fn lost(why: impl std::fmt::Display) -> Lost {
    Lost(why.to_string())
}
