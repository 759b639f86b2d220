//! Transport: every request to the API server leaves here.
//!
//! Every call but a watch has a deadline; a list, which may be long, has a longer one as long as it makes progress. A call that meets it,
//! and a watch that falls silent, are signs of a dead connection. The pool may hold others like it, so the whole client is replaced. Writes
//! of the state machine also pass the write gate of the leader election and the crash points.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::AsyncBufRead;
use http::{Request, header};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body, core::Status};
use machine::ApiError;
use serde::Deserialize;

use super::{
    crash::{CrashPoint, CrashSide},
    error::{ApiOperation, RequestError, classify},
    failure_log::FailureLog,
    metrics::ApiMetrics,
    write_gate::WriteGate,
};

/// Default deadline of a call, of each frame of a list, and of the opening of a watch.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// Deadline of a page of a list whose bytes keep coming.
const LIST_DEADLINE: Duration = Duration::from_secs(60);
/// Largest page in bytes; one that is larger is requested again in smaller pages.
const MAX_PAGE_BYTES: usize = 32 << 20;

/// Longest `Retry-After` that is honoured: a proxy before the API server may name an hour.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Returns the delay that a `Retry-After` of so many seconds asks for.
fn retry_after(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(MAX_RETRY_AFTER)
}

/// Description of a request, for errors and metrics.
#[derive(Debug, Clone)]
pub struct RequestInfo {
    /// The verb, such as `apply`.
    pub verb: &'static str,
    /// The kind, such as `Deployment`.
    pub kind: &'static str,
    /// The object, such as `ns/a`; empty for a collection.
    pub object: String,
}

impl RequestInfo {
    fn describe(&self) -> String {
        format!("{} {} {}", self.verb, self.kind, self.object).trim_end().to_owned()
    }
}

/// Request with its body in memory.
pub type ApiRequest = Request<Vec<u8>>;

/// Transport of requests to the API server.
///
/// Invariant: the generation beside the client grows with each replacement, so that many time-outs on one client replace it once.
pub struct Transport {
    client: Mutex<(u64, Client)>,
    renew: Box<dyn Fn() -> Option<Client> + Send + Sync>,
    /// Gate before the writes of the state machine.
    pub write_gate: WriteGate,
    crash: CrashPoint,
    deadline: Duration,
    failure_log: FailureLog,
    /// Metrics of the requests.
    pub metrics: ApiMetrics,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport").finish_non_exhaustive()
    }
}

impl Transport {
    /// Creates a transport that sends through `client`; `renew` creates another client, with no connection yet.
    pub fn new(
        client: Client,
        renew: impl Fn() -> Option<Client> + Send + Sync + 'static,
        authority: WriteGate,
        crash: CrashPoint,
        metrics: ApiMetrics,
    ) -> Self {
        let (client, renew) = (Mutex::new((0, client)), Box::new(renew));
        Self {
            client,
            renew,
            write_gate: authority,
            crash,
            deadline: DEADLINE,
            failure_log: FailureLog::default(),
            metrics,
        }
    }

    /// Returns the transport with another deadline for each call.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Sends a request that writes nothing of the state machine's: reads, the Lease, Events.
    ///
    /// # Errors
    /// The failure that kept the response from coming, or the response if it is a refusal.
    pub async fn call(&self, call: &RequestInfo, request: ApiRequest) -> Result<Bytes, RequestError> {
        let (generation, client) = self.current();
        let exchange = async {
            let answer = client.send(request.map(Body::from)).await?;
            let (parts, body) = answer.into_parts();
            Ok::<_, kube::Error>((parts, body.collect_bytes().await?))
        };
        let outcome = tokio::time::timeout(self.deadline, exchange).await;
        let outcome = outcome.map_err(|_| self.timed_out(call, generation, self.deadline));
        self.finish(call, outcome.and_then(|answer| answer.map_err(|error| transport_error(call, &error))))
    }

    /// Requests a page of a list: a call with a longer deadline, as long as its bytes keep coming.
    ///
    /// # Errors
    /// As [`Transport::call`]; [`RequestError::Unreadable`] if the page is too large.
    pub(super) async fn page(&self, call: &RequestInfo, request: ApiRequest) -> Result<Bytes, RequestError> {
        let (generation, client) = self.current();
        let exchange = async {
            let silent = |_| self.timed_out(call, generation, self.deadline);
            let answer = tokio::time::timeout(self.deadline, client.send(request.map(Body::from))).await;
            let answer = answer.map_err(silent)?.map_err(|error| transport_error(call, &error))?;
            let (parts, mut body) = answer.into_parts();
            let mut bytes = Vec::new();
            while let Some(frame) = tokio::time::timeout(self.deadline, body.frame()).await.map_err(silent)? {
                let frame = frame.map_err(|error| transport_error(call, &error))?;
                bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                if bytes.len() > MAX_PAGE_BYTES {
                    let cause = format!("the page has more than {} MiB", MAX_PAGE_BYTES >> 20);
                    return Err(RequestError::Unreadable { what: call.describe(), cause });
                }
            }
            Ok((parts, Bytes::from(bytes)))
        };
        let late = |_| Err(RequestError::Timeout { what: call.describe(), after: LIST_DEADLINE });
        let outcome = tokio::time::timeout(LIST_DEADLINE, exchange).await.unwrap_or_else(late);
        self.finish(call, outcome)
    }

    /// Counts the outcome of a call, and turns a refusal into an error.
    fn finish(
        &self,
        call: &RequestInfo,
        outcome: Result<(http::response::Parts, Bytes), RequestError>,
    ) -> Result<Bytes, RequestError> {
        let code = outcome.as_ref().map_or(0, |(parts, _)| parts.status.as_u16());
        self.metrics.request(call.verb, call.kind, code);
        let (parts, body) = outcome?;
        if parts.status.is_success() {
            return Ok(body);
        }
        let seconds = parts.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Err(refusal(call, code, &body, seconds.map(retry_after)))
    }

    /// Replaces the client after a time-out, because its other connections may be as dead, and returns the error.
    fn timed_out(&self, call: &RequestInfo, generation: u64, after: Duration) -> RequestError {
        self.replace_client(generation);
        RequestError::Timeout { what: call.describe(), after }
    }

    /// Logs a failure of a watch, as a warning unless its cause was logged within the last minute.
    pub(super) fn log_watch_failure(&self, kind: &str, error: &RequestError) {
        match self.failure_log.should_log(error) {
            Some(kept) => tracing::warn!(kind, %error, kept, "a watch failed: it is tried again"),
            None => tracing::debug!(kind, %error, "a watch failed: it is tried again"),
        }
    }

    /// Sends a write of the state machine. `take` stores the response before the caller receives it.
    ///
    /// # Errors
    /// As [`Transport::call`], classified by `operation`; also if this replica does not hold the Lease.
    pub async fn write<T>(
        &self,
        call: &RequestInfo,
        operation: ApiOperation,
        mut request: ApiRequest,
        take: impl FnOnce(&[u8]) -> Result<T, serde_json::Error>,
    ) -> Result<T, ApiError> {
        if !self.write_gate.allows_writes() {
            return Err(classify(operation, RequestError::NotLeading { what: call.describe() }));
        }
        // Checked again when the body goes out; see `client`.
        request.extensions_mut().insert(self.write_gate.clone());
        let number = self.crash.begin();
        self.crash.pass(number, CrashSide::Before);
        let answer = self.call(call, request).await;
        self.crash.pass(number, CrashSide::Unacked);
        let answer = answer.map_err(|error| classify(operation, error))?;
        let taken = take(&answer).map_err(|error| {
            let cause = error.to_string();
            classify(operation, RequestError::Unreadable { what: call.describe(), cause })
        })?;
        self.crash.pass(number, CrashSide::After);
        Ok(taken)
    }

    /// Opens a watch. The caller has to notice that it does not end; see [`Transport::watch_timed_out`].
    ///
    /// # Errors
    /// As [`Transport::call`].
    pub async fn stream(
        &self,
        call: &RequestInfo,
        request: ApiRequest,
    ) -> Result<(u64, impl AsyncBufRead + Send + use<>), RequestError> {
        let (generation, client) = self.current();
        match tokio::time::timeout(self.deadline, client.request_stream(request)).await {
            Ok(Ok(stream)) => {
                self.metrics.request(call.verb, call.kind, 200);
                Ok((generation, stream))
            }
            Ok(Err(kube::Error::Api(status))) => {
                self.metrics.request(call.verb, call.kind, status.code);
                let seconds = status.details.as_ref().map(|details| details.retry_after_seconds).filter(|s| *s > 0);
                let after = seconds.map(|seconds| retry_after(seconds.into()));
                Err(RequestError::Refused { what: call.describe(), code: status.code, status, after })
            }
            Ok(Err(error)) => {
                self.metrics.request(call.verb, call.kind, 0);
                Err(transport_error(call, &error))
            }
            Err(_) => {
                self.metrics.request(call.verb, call.kind, 0);
                Err(self.timed_out(call, generation, self.deadline))
            }
        }
    }

    /// Replaces the client of this generation, because a watch on it did not end when it should have.
    pub fn watch_timed_out(&self, generation: u64) {
        self.replace_client(generation);
    }

    fn current(&self) -> (u64, Client) {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the client of that generation with all its connections, unless that was done already.
    fn replace_client(&self, generation: u64) {
        let mut current = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 == generation
            && let Some(client) = (self.renew)()
        {
            tracing::info!("the API server did not answer in time: opening new connections");
            *current = (generation + 1, client);
        }
    }
}

fn transport_error(call: &RequestInfo, error: &kube::Error) -> RequestError {
    RequestError::Transport { what: call.describe(), cause: chain(error) }
}

fn refusal(call: &RequestInfo, code: u16, body: &[u8], after: Option<Duration>) -> RequestError {
    let plain = || Box::new(Status { code, message: excerpt(body), ..Status::default() });
    let status: Box<Status> = serde_json::from_slice(body).unwrap_or_else(|_| plain());
    let after = after.or_else(|| {
        let seconds = status.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| retry_after(seconds.into()))
    });
    RequestError::Refused { what: call.describe(), code, status, after }
}

/// Returns the beginning of a body that is no Status, such as a proxy's error page.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(200).collect()
}

/// Returns the error with its sources, without repeating what is in the text already.
fn chain(error: &kube::Error) -> String {
    let error: &dyn std::error::Error = match error {
        kube::Error::Service(inner) => inner.as_ref(),
        other => other,
    };
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// Decodes a JSON body.
///
/// # Errors
/// [`RequestError::Unreadable`].
pub fn read_json<'a, T: Deserialize<'a>>(call: &RequestInfo, body: &'a [u8]) -> Result<T, RequestError> {
    serde_json::from_slice(body)
        .map_err(|error| RequestError::Unreadable { what: call.describe(), cause: error.to_string() })
}

/// Builds a request. The target is made of names that the API server has accepted before, so it is always well formed.
pub fn api_request(
    method: http::Method,
    target: String,
    content_type: Option<&'static str>,
    body: Vec<u8>,
) -> ApiRequest {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = target.parse().unwrap_or_default();
    if let Some(content_type) = content_type {
        request.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    }
    request
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use super::*;
    use crate::testing::{ScriptedServer, hanging_watch, response, scripted};

    fn call() -> RequestInfo {
        RequestInfo { verb: "get", kind: "Agent", object: "ns/a".into() }
    }

    fn get() -> ApiRequest {
        api_request(http::Method::GET, "/x".into(), None, Vec::new())
    }

    #[test]
    fn a_retry_after_counts_for_a_minute_at_most_wherever_it_stands() {
        assert_eq!([7, 60, 3600].map(|seconds| retry_after(seconds).as_secs()), [7, 60, 60]);
        let body = br#"{"kind":"Status","code":429,"details":{"retryAfterSeconds":3600}}"#;
        assert_eq!(refusal(&call(), 429, body, None).retry_after(), Some(MAX_RETRY_AFTER));
        assert_eq!(refusal(&call(), 429, body, Some(retry_after(7))).retry_after(), Some(retry_after(7)));
        assert_eq!(refusal(&call(), 429, b"too much", None).retry_after(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_ends_in_time_and_leaves_its_connections_behind() {
        let renewals = Arc::new(AtomicU32::new(0));
        let count = renewals.clone();
        let script =
            ScriptedServer { responses: vec![hanging_watch(&[]), hanging_watch(&[])], ..ScriptedServer::default() };
        let transport = script.transport(move || {
            count.fetch_add(1, Ordering::Relaxed);
            Some(scripted(vec![response(200, "{}".into())]).0.current().1)
        });
        let begun = tokio::time::Instant::now();
        let (call, other) = (call(), call());
        let (first, second) = tokio::join!(transport.call(&call, get()), transport.call(&other, get()));
        let text = first.unwrap_err().to_string();
        assert_eq!((text.as_str(), begun.elapsed()), ("get Agent ns/a: no answer within 10 s", DEADLINE));
        assert!(second.is_err());
        assert_eq!(renewals.load(Ordering::Relaxed), 1, "once for all that were on the old client");
        transport.call(&call, get()).await.unwrap();
    }

    #[tokio::test]
    async fn a_replica_that_does_not_lead_sends_no_write() {
        let script = ScriptedServer { write_gate: Some(WriteGate::by_lease()), ..ScriptedServer::default() };
        let transport = script.transport(|| None);
        let written = transport.write(&call(), ApiOperation::Apply, get(), |_| Ok(())).await;
        assert!(matches!(written, Err(ApiError::Transient { .. })), "{written:?}");
    }

    #[tokio::test]
    async fn a_page_of_a_proxy_is_an_error_with_its_first_line() {
        let (transport, _) = scripted(vec![response(502, "<h1>Bad gateway</h1>\nmore".into())]);
        let error = transport.call(&call(), get()).await.unwrap_err();
        assert_eq!(error.to_string(), "get Agent ns/a: <h1>Bad gateway</h1> (502)");
    }
}
