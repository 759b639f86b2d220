//! Receiver of spans: `POST /v1/traces` of [OTLP](https://opentelemetry.io/docs/specs/otlp/#otlphttp) 1.11, in protocol buffers or JSON.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use jiff::Timestamp;
use store::SpanRow;
use telemetry::{
    ExportProtocol,
    otlp::{ExportTraceServiceRequest, ResourceSpans, decode_traces, encode_response, gunzip},
};
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

use super::{
    document,
    keeper::SpanQueue,
    message_count,
    metrics::SpanMetrics,
    sender::{SpanSender, SpanSenders, is_platform, named_object, named_workload},
};
use crate::{
    api::problem::Problem,
    app::{AppState, SharedAppState},
    serve::Peer,
};

/// Path of requests with spans.
const PATH: &str = "/v1/traces";
/// Limit of a body, compressed and not, in bytes.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// Limit of the messages in a body: spans, and their attributes, events and links.
const MAX_MESSAGES: usize = 100_000;
/// Longest time in which a body has to come.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests of workloads that are read at the same time.
const CONCURRENT_REQUESTS: usize = 4;
/// Those of gateways and operator, besides: a Pod that sends slowly does not keep them out.
const CONCURRENT_OF_PLATFORM: usize = 2;

/// Receiver of spans.
pub(crate) struct SpanReceiver {
    app: SharedAppState,
    senders: SpanSenders,
    queue: SpanQueue,
    metrics: SpanMetrics,
    turns: Semaphore,
    platform_turns: Semaphore,
}

impl SpanReceiver {
    /// Creates a receiver that puts spans into this queue.
    pub(crate) fn new(app: SharedAppState, senders: SpanSenders, queue: SpanQueue, metrics: SpanMetrics) -> Self {
        let [turns, platform_turns] = [CONCURRENT_REQUESTS, CONCURRENT_OF_PLATFORM].map(Semaphore::new);
        Self { app, senders, queue, metrics, turns, platform_turns }
    }

    /// Returns the routes of its port.
    pub(crate) fn router(self) -> Router {
        let take = |State(receiver): State<Arc<Self>>, request: Request| async move {
            receiver.take(request).await.unwrap_or_else(|problem| problem.into_response())
        };
        // Pages of other sites are refused on every path, so there is one handler.
        Router::new().fallback(take).with_state(Arc::new(self))
    }

    async fn take(&self, request: Request) -> Result<Response, Problem> {
        self.senders.refuse_pages(&self.app, request.headers())?;
        if request.uri().path() != PATH {
            return Err(Problem::missing("spans are taken by POST /v1/traces, and nothing else is here"));
        }
        if request.method() != Method::POST {
            return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "only POST is answered here"));
        }
        if !self.app.synced.load(Relaxed) {
            let detail = "not every watch has begun yet: try again";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
        }
        let (parts, body) = request.into_parts();
        let peer = parts.extensions.get::<Peer>().map(|peer| peer.address);
        let sender = self.senders.identify(&self.app, &parts.headers, peer).await?;
        let protocol = protocol(&parts.headers)?;
        let is_compressed = is_compressed(&parts.headers)?;
        let turns = if sender == SpanSender::Platform { &self.platform_turns } else { &self.turns };
        let Ok(_turn) = turns.try_acquire() else { return Err(behind()) };
        let body = read(body).await?;
        let (app, received) = (self.app.clone(), Timestamp::now().as_millisecond());
        // Megabytes take a while, and the API is served by the same threads.
        let read = spawn_blocking(move || {
            let request = decode(protocol, is_compressed, &body)?;
            Ok::<_, Problem>(rows(&app, &sender, request, received))
        });
        let (rows, refused) = read.await.map_err(|error| Problem::defect(&error))??;
        self.queue.push(rows).map_err(|_| behind())?;
        self.metrics.refused.inc_by(refused);
        let reason = if refused > 0 { "spans without ids, or of no known workload" } else { "" };
        let answer = encode_response(protocol, i64::try_from(refused).unwrap_or(i64::MAX), reason);
        let mut response = Response::new(Body::from(answer));
        let content_type = HeaderValue::from_static(protocol.content_type());
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
        Ok(response)
    }
}

fn protocol(fields: &HeaderMap) -> Result<ExportProtocol, Problem> {
    let protocol = ExportProtocol::of_content_type(text(fields, header::CONTENT_TYPE));
    protocol.ok_or_else(|| {
        let detail = "the content type is neither application/x-protobuf nor application/json: send OTLP over HTTP";
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
    })
}

fn is_compressed(fields: &HeaderMap) -> Result<bool, Problem> {
    match text(fields, header::CONTENT_ENCODING) {
        "" | "identity" => Ok(false),
        "gzip" => Ok(true),
        _ => Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send the body in gzip, or as it is")),
    }
}

fn text(fields: &HeaderMap, name: HeaderName) -> &str {
    fields.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn behind() -> Problem {
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "spans come faster than they can be stored: try again later")
}

async fn read(body: Body) -> Result<Bytes, Problem> {
    let late = |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body does not come");
    let large = |_| Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the body has more than 4 MiB: send fewer at once");
    timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY)).await.map_err(late)?.map_err(large)
}

/// Decodes a body, unless it would take too much memory.
fn decode(protocol: ExportProtocol, is_compressed: bool, body: &[u8]) -> Result<ExportTraceServiceRequest, Problem> {
    let refused = |error: &dyn std::fmt::Display| Problem::new(StatusCode::BAD_REQUEST, error.to_string());
    let plain;
    let body = if is_compressed {
        plain = gunzip(body, MAX_BODY as u64).map_err(|error| refused(&error))?;
        plain.as_slice()
    } else {
        body
    };
    let messages = match protocol {
        ExportProtocol::Protobuf => message_count::in_protobuf(body),
        ExportProtocol::Json => message_count::in_json(body),
    };
    if messages > MAX_MESSAGES {
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the body has too many spans: send fewer at once"));
    }
    decode_traces(protocol.content_type(), body).map_err(|error| refused(&error))
}

/// Returns the rows of the spans of a request, and the number of spans that are refused.
fn rows(app: &AppState, sender: &SpanSender, request: ExportTraceServiceRequest, received: i64) -> (Vec<SpanRow>, u64) {
    let (mut rows, mut refused) = (Vec::new(), 0);
    for ResourceSpans { resource, scope_spans, .. } in request.resource_spans {
        let process = resource.map(|resource| resource.attributes).unwrap_or_default();
        let is_platform = match sender {
            SpanSender::Workload(_) => false,
            SpanSender::Platform => true,
            SpanSender::SelfNamed => is_platform(&process),
        };
        let workload = match sender {
            SpanSender::Workload(workload) => Some(workload.clone()),
            SpanSender::SelfNamed if !is_platform => named_workload(app, &process),
            SpanSender::SelfNamed | SpanSender::Platform => None,
        };
        for span in scope_spans.iter().flat_map(|scope| &scope.spans) {
            let named = if is_platform { named_object(&span.attributes) } else { None };
            match named.as_ref().or(workload.as_ref()).and_then(|object| document::row(span, object, received)) {
                Some(row) => rows.push(SpanRow { is_of_platform: is_platform, ..row }),
                None => refused += 1,
            }
        }
    }
    (rows, refused)
}
