//! Applies a fault schedule: a tower layer around any service that sends requests to the API server.

use std::{
    collections::HashMap,
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
use http_body_util::{BodyExt, BodyStream, StreamBody};
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::{Layer, Service};

use super::{
    body::{BodyFrames, ConnectionLostError, FaultBody, connection_lost},
    call::ApiCall,
    log::CallLog,
    schedule::{FaultSchedule, ProxyFault},
    watch::disturb_events,
};

/// Tower layer that injects faults.
#[derive(Debug, Clone)]
pub struct FaultLayer {
    /// Rules of the faults.
    pub schedule: Arc<FaultSchedule>,
    /// Log of all calls.
    pub log: Arc<CallLog>,
    /// All responses to each list since [`ProxyFault::Past`] is active, by URI.
    earlier_lists: Arc<Mutex<HashMap<String, Vec<Bytes>>>>,
}

impl FaultLayer {
    /// Creates a layer without rules; decisions are drawn from this seed.
    pub fn new(seed: u64) -> Self {
        Self { schedule: Arc::new(FaultSchedule::new(seed)), log: Arc::default(), earlier_lists: Arc::default() }
    }
}

impl<S> Layer<S> for FaultLayer {
    type Service = FaultService<S>;

    fn layer(&self, inner: S) -> FaultService<S> {
        FaultService { faults: self.clone(), inner }
    }
}

/// Service whose requests and responses meet faults.
#[derive(Debug, Clone)]
pub struct FaultService<S> {
    faults: FaultLayer,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for FaultService<S>
where
    S: Service<Request<Bytes>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: std::fmt::Display + Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display + Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: std::fmt::Display + Send,
{
    type Response = Response<FaultBody>;
    type Error = ConnectionLostError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<FaultBody>, ConnectionLostError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionLostError>> {
        self.inner.poll_ready(cx).map_err(connection_lost)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let fresh = self.inner.clone();
        let (faults, inner) = (self.faults.clone(), std::mem::replace(&mut self.inner, fresh));
        Box::pin(disturb(faults, inner, request))
    }
}

async fn disturb<S, B, R>(
    faults: FaultLayer,
    mut inner: S,
    request: Request<B>,
) -> Result<Response<FaultBody>, ConnectionLostError>
where
    S: Service<Request<Bytes>, Response = Response<R>>,
    S::Error: std::fmt::Display,
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: std::fmt::Display + Send,
{
    let call = ApiCall::read(request.method(), request.uri());
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(connection_lost)?.to_bytes();
    let met = faults.schedule.decide(&call);
    let document: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (guarded, phase) = (has_precondition(&document), written_phase(&document));
    let hits = met.iter().map(|(fault, _)| *fault).collect();
    let number = faults.log.record(call.clone(), guarded, phase.clone(), hits);
    for (fault, drawn) in &met {
        match fault {
            ProxyFault::Delay(longest) => sleep(longest.mul_f64(*drawn)).await,
            ProxyFault::Refuse(code, reason, after) => return Ok(refusal(*code, reason, *after)),
            ProxyFault::Drop => return Err(connection_lost("before the request was sent")),
            ProxyFault::Silence => pending().await,
            _ => {}
        }
    }
    if met.iter().any(|(fault, _)| *fault == ProxyFault::Repeat) {
        let first = inner.call(Request::from_parts(parts.clone(), body.clone())).await.map_err(connection_lost)?;
        let number = faults.log.record(call.clone(), guarded, phase, Vec::new());
        faults.log.record_status(number, first.status().as_u16());
        first.into_body().collect().await.map_err(connection_lost)?;
    }
    let asked = parts.uri.to_string();
    let answer = inner.call(Request::from_parts(parts, body)).await.map_err(connection_lost)?;
    faults.log.record_status(number, answer.status().as_u16());
    let (mut head, body) = answer.into_parts();
    let mut frames: BodyFrames = Box::pin(BodyStream::new(body.map_err(connection_lost)));
    if call.verb == "list" && head.status.is_success() && faults.schedule.is_in_force(ProxyFault::Past) {
        let body = BodyExt::collect(StreamBody::new(frames)).await?.to_bytes();
        head.headers.remove(CONTENT_LENGTH);
        let mut past = faults.earlier_lists.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = past.entry(asked).or_default();
        answers.push(body.clone());
        let drawn = met.iter().find_map(|(fault, drawn)| (*fault == ProxyFault::Past).then_some(*drawn));
        let given = drawn.map_or(body.clone(), |drawn| answers[(drawn * answers.len() as f64) as usize].clone());
        drop(past);
        if given != body {
            faults.log.count_changed_event(number);
        }
        frames = Box::pin(stream::iter([Ok(Frame::data(given))]));
    }
    for (fault, _) in &met {
        match fault {
            ProxyFault::LoseAnswer | ProxyFault::AnswerWith(_) => {
                // The response is read to its end, so the write is certainly done.
                while frames.next().await.is_some() {}
                match fault {
                    ProxyFault::AnswerWith(code) => return Ok(refusal(*code, "Timeout", None)),
                    _ => return Err(connection_lost("after the request was carried out")),
                }
            }
            ProxyFault::Cut(length) => frames = truncate_body(frames, *length),
            _ => {}
        }
    }
    let of_events: Vec<_> = met.into_iter().map(|(fault, _)| fault).filter(ProxyFault::is_of_events).collect();
    if call.verb == "watch" && !of_events.is_empty() {
        frames = disturb_events(frames, call, of_events, (faults.schedule, faults.log), number);
    }
    Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
}

/// Reports whether the body of a write has a precondition on the uid or the resource version of the object.
fn has_precondition(body: &Value) -> bool {
    // The API server refuses a whole JSON Patch if one of its `test` operations fails.
    body.as_array().into_iter().flatten().any(|operation| operation["op"] == "test")
        || ["/metadata/uid", "/metadata/resourceVersion", "/preconditions/uid", "/preconditions/resourceVersion"]
            .iter()
            .any(|path| body.pointer(path).is_some_and(|value| value.is_string()))
}

/// Returns the phase that a JSON Patch sets in the status.
fn written_phase(body: &Value) -> Option<String> {
    let mut added = body.as_array().into_iter().flatten().filter(|operation| operation["op"] == "add");
    let phase = added.find_map(|operation| match operation["path"].as_str()? {
        "/status" => operation["value"]["phase"].as_str(),
        "/status/phase" => operation["value"].as_str(),
        _ => None,
    });
    phase.map(str::to_owned)
}

/// Truncates a body after this many bytes, then resets the connection.
fn truncate_body(frames: BodyFrames, length: usize) -> BodyFrames {
    let mut left = length;
    Box::pin(frames.flat_map(move |frame| {
        let parts = match frame.and_then(|frame| frame.into_data().map_err(|_| connection_lost("in the trailers"))) {
            Ok(data) if data.len() <= left => {
                left -= data.len();
                vec![Ok(Frame::data(data))]
            }
            Ok(data) => vec![
                Ok(Frame::data(data.slice(..std::mem::take(&mut left)))),
                Err(connection_lost("within the answer")),
            ],
            Err(error) => vec![Err(error)],
        };
        stream::iter(parts)
    }))
}

/// Returns a refusal in the format of the API server (`Status`).
fn refusal(code: u16, reason: &str, after: Option<u32>) -> Response<FaultBody> {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("the fault proxy says {code}"), "reason": reason, "code": code,
    });
    // The API server reports a terminating namespace in this form.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phase_is_the_one_that_is_set_and_not_the_one_that_is_tested() {
        let tested = json!({"op": "test", "path": "/status/phase", "value": "Deploying"});
        for (operation, expected) in [
            (json!({"op": "add", "path": "/status/phase", "value": "Running"}), Some("Running")),
            (json!({"op": "add", "path": "/status", "value": {"phase": "Pending"}}), Some("Pending")),
            (json!({"op": "add", "path": "/status/replicas", "value": 1}), None),
        ] {
            let patch = json!([tested, operation]);
            assert_eq!(written_phase(&patch).as_deref(), expected, "{patch}");
        }
        assert_eq!(written_phase(&json!({"status": {"phase": "Running"}})), None, "an apply");
    }
}
