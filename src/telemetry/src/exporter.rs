//! Task that sends spans to a collector.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backoff::{BackoffBuilder, ExponentialBuilder};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use mcp::{Trust, build_client, is_localhost};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};
use url::{Host, Url};

use crate::config::{ExportProtocol, TelemetryConfig, TelemetryError};
use crate::otlp;
use crate::span::FinishedSpan;
use crate::span_counters::SpanCounters;

/// Time for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Attempts after the first one.
const RETRIES: usize = 4;
/// Wait before the second attempt; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Longest wait before an attempt.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Bytes of texts at which a batch is sent: receivers bound a body, the control plane to 4 MiB.
const FULL_BATCH: usize = 1 << 20;
/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 64 << 10;

/// Entry of the exporter's queue.
pub(crate) enum QueueEntry {
    /// Span to send.
    Span(Box<FinishedSpan>),
    /// Request to send all before it, and to say when that is done.
    Flush(oneshot::Sender<()>),
}

/// Sender of spans to a collector.
pub(crate) struct SpanExporter {
    client: Client,
    endpoint: Url,
    protocol: ExportProtocol,
    headers: HeaderMap,
    token_file: Option<PathBuf>,
    timeout: Duration,
    has_compression: bool,
    max_batch: usize,
    delay: Duration,
    resource: Vec<(String, String)>,
    counters: SpanCounters,
    /// Bytes of texts of the spans that wait, from which those of each batch are taken.
    waiting: Arc<AtomicUsize>,
    /// Set while the collector takes nothing, so that this is logged once.
    is_failing: bool,
}

/// Failure of one attempt.
struct SendFailure {
    text: String,
    /// Set if another attempt may succeed.
    is_transient: bool,
    /// Wait that the collector asks for.
    retry_after: Option<Duration>,
}

impl SpanExporter {
    /// Creates the sender.
    ///
    /// # Errors
    /// The certificates cannot be read.
    pub(crate) fn new(
        endpoint: &Url,
        config: &TelemetryConfig,
        resource: Vec<(String, String)>,
        counters: SpanCounters,
        waiting: Arc<AtomicUsize>,
    ) -> Result<Self, TelemetryError> {
        let name = config.certificate.as_ref().map_or("OTEL_EXPORTER_OTLP_ENDPOINT", |(name, _)| name);
        let refused = |problem: String| TelemetryError::Certificate { name, problem };
        let trust = match &config.certificate {
            None => Trust::System,
            Some((_, path)) => {
                let pem = fs::read(path).map_err(|error| refused(format!("read {}: {error}", path.display())))?;
                Trust::Additional(pem)
            }
        };
        let verify = trust.client_config().map_err(|error| refused(error.to_string()))?;
        let client = build_client("recif-telemetry", |builder| {
            let builder = verify(builder).connect_timeout(CONNECT).redirect(Policy::none()).pool_max_idle_per_host(1);
            if is_near(endpoint) { builder.no_proxy() } else { builder }
        });
        let mut headers = config.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(config.protocol.content_type()));
        if config.has_compression {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Ok(Self {
            client: client.map_err(|error| refused(format!("no HTTP client: {error}")))?,
            endpoint: endpoint.clone(),
            protocol: config.protocol,
            headers,
            token_file: config.token_file.clone(),
            timeout: config.timeout,
            has_compression: config.has_compression,
            max_batch: config.max_batch,
            delay: config.delay,
            resource,
            counters,
            waiting,
            is_failing: false,
        })
    }

    /// Sends what comes through the queue, in batches, until it is closed.
    pub(crate) async fn run(mut self, mut queue: mpsc::Receiver<QueueEntry>) {
        while let Some(first) = queue.recv().await {
            let deadline = Instant::now() + self.delay;
            let mut batch = SpanBatch::default();
            let mut flush = batch.add(first);
            while flush.is_none() && batch.spans.len() < self.max_batch && batch.bytes < FULL_BATCH {
                match timeout_at(deadline, queue.recv()).await {
                    Ok(Some(entry)) => flush = batch.add(entry),
                    Ok(None) | Err(_) => break,
                }
            }
            self.waiting.fetch_sub(batch.bytes, Ordering::Relaxed);
            if !batch.spans.is_empty() {
                self.export(batch.spans).await;
            }
            if let Some(done) = flush {
                // The process that asked for it may be gone.
                let _ = done.send(());
            }
        }
    }

    /// Sends a batch, and counts what became of it.
    async fn export(&mut self, batch: Vec<FinishedSpan>) {
        let spans = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let Some(body) = self.body(batch) else {
            self.counters.failed(spans);
            return;
        };
        let waits = ExponentialBuilder::new().with_min_delay(FIRST_WAIT).with_max_delay(LONGEST_WAIT);
        let mut waits = waits.with_max_times(RETRIES).with_jitter().build();
        loop {
            let failure = match self.send(body.clone()).await {
                Ok(rejected) => {
                    let rejected = rejected.min(spans);
                    self.counters.sent(spans - rejected);
                    self.counters.failed(rejected);
                    if std::mem::take(&mut self.is_failing) {
                        tracing::info!("spans are sent again");
                    }
                    return;
                }
                Err(failure) => failure,
            };
            let wait = waits.next().filter(|_| failure.is_transient);
            let Some(wait) = wait else {
                self.counters.failed(spans);
                if !std::mem::replace(&mut self.is_failing, true) {
                    let (host, why) = (self.endpoint.host_str(), failure.text);
                    tracing::warn!(host, why, "spans cannot be sent; they are counted as failed");
                }
                return;
            };
            sleep(failure.retry_after.unwrap_or(wait)).await;
        }
    }

    /// Encodes a batch; `None` if it cannot be compressed.
    fn body(&self, batch: Vec<FinishedSpan>) -> Option<Bytes> {
        let body = otlp::encode_traces(self.protocol, &self.resource, batch);
        match self.has_compression {
            true => otlp::gzip(&body).ok().map(Bytes::from),
            false => Some(body.into()),
        }
    }

    /// Sends a body once. Returns how many of its spans were refused.
    async fn send(&self, body: Bytes) -> Result<u64, SendFailure> {
        let mut headers = self.headers.clone();
        if let Some(file) = &self.token_file {
            headers.insert(AUTHORIZATION, authorization(file)?);
        }
        let request = self.client.post(self.endpoint.clone()).headers(headers);
        let response = request.timeout(self.timeout).body(body).send().await.map_err(|error| SendFailure {
            text: if error.is_timeout() { "no answer in time".into() } else { "it cannot be reached".into() },
            is_transient: true,
            retry_after: None,
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(rejected(response).await);
        }
        let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        Err(SendFailure {
            text: format!("HTTP {}", status.as_u16()),
            is_transient: matches!(status.as_u16(), 429 | 502 | 503 | 504),
            retry_after: asked.and_then(|text| parse_retry_after(text, Timestamp::now())),
        })
    }
}

/// Reads the token of a file, as the value of `Authorization`.
fn authorization(file: &Path) -> Result<HeaderValue, SendFailure> {
    let failure = |text: String| SendFailure { text, is_transient: true, retry_after: None };
    let token = fs::read_to_string(file).map_err(|error| failure(format!("read {}: {error}", file.display())))?;
    let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
    let mut value = value.map_err(|_| failure(format!("{} holds no token", file.display())))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Spans of one request.
#[derive(Default)]
struct SpanBatch {
    spans: Vec<FinishedSpan>,
    /// Bytes of their texts.
    bytes: usize,
}

impl SpanBatch {
    /// Adds an entry of the queue; returns it if it asks for a flush.
    fn add(&mut self, entry: QueueEntry) -> Option<oneshot::Sender<()>> {
        match entry {
            QueueEntry::Span(span) => {
                self.bytes += span.text_bytes();
                self.spans.push(*span);
                None
            }
            QueueEntry::Flush(done) => Some(done),
        }
    }
}

/// Reports whether the URL is of this Pod or machine; such requests bypass the proxy.
fn is_near(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => is_localhost(name),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Reads from an answer how many spans were refused. A long answer is not read to its end.
async fn rejected(mut response: Response) -> u64 {
    let kind =
        response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        if body.len() + chunk.len() > MAX_ANSWER {
            return 0;
        }
        body.extend_from_slice(&chunk);
    }
    otlp::rejected_spans(&kind, &body)
}

/// Parses `Retry-After`, a number of seconds or a date (RFC 9110, section 10.2.3), bounded by [`LONGEST_WAIT`].
fn parse_retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    let asked = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let then = DateTimeParser::new().parse_timestamp(text).ok()?;
            Duration::try_from(then.duration_since(now)).unwrap_or_default()
        }
    };
    Some(asked.min(LONGEST_WAIT))
}
