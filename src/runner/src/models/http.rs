//! HTTP client for model providers, with timeouts and retries by [exponential back-off with
//! jitter](https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
//!
//! A transient failure (no connection, 408, 429, 5xx, a stream that fails at its start) is retried, at most three times
//! and never after the first piece of an answer, which the user has already seen. A `Retry-After` of the provider
//! replaces the back-off, up to 30 s.
//!
//! The message of a failed response goes to the log of the process, truncated and with credentials masked, because only
//! the provider knows the cause; it may quote the conversation, so callers get only the status and the remedy.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use backoff::{BackoffBuilder, ExponentialBuilder};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use mcp::{Trust, build_client};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Response};
use serde_json::{Map, Value};
use telemetry::AttributeValue;
use telemetry::semconv::{ERROR_TYPE, EVENT_RETRY, RECIF_WAIT_MS};
use url::Url;

use super::error::{ModelError, ModelErrorKind};
use super::fallback::Breakers;
use super::refusal;
use crate::secret_values::SecretValues;
use crate::traces::TraceScope;
use crate::usage::UsageLedger;

/// Timeout of the connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest silence of a provider that sets none.
const SILENCE: Duration = Duration::from_secs(60);
/// The same, to the first byte, while another model can answer: the gateway waits 60 s for the first byte of all of them.
const SILENCE_WITH_FALLBACK: Duration = Duration::from_secs(15);
/// Timeout for reading the body of a refusal.
const REFUSAL: Duration = Duration::from_secs(2);
/// Maximum number of retries.
const RETRIES: usize = 3;
/// Upper bound of a `Retry-After`.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Longest wait before a retry while another model can answer.
const LONGEST_WAIT_WITH_FALLBACK: Duration = Duration::from_secs(2);

/// Time limits of one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// Longest silence before the first byte.
    pub(super) first: Duration,
    /// Longest silence between two pieces of an answer.
    pub(super) idle: Duration,
}

impl Timeouts {
    /// Returns the limits for a provider with this longest silence.
    pub(super) fn new(silence: Option<Duration>, has_fallback: bool) -> Self {
        let first = if has_fallback { SILENCE_WITH_FALLBACK } else { SILENCE };
        Self { first: silence.unwrap_or(first), idle: silence.unwrap_or(SILENCE) }
    }
}

/// HTTP client that is built once.
type SharedClient = Arc<OnceLock<Result<Client, String>>>;

/// HTTP client of all models, built on first use: loading the system's certificates costs time and memory that a stub
/// need not pay.
#[derive(Clone)]
pub(crate) struct Http {
    client: SharedClient,
    /// Client that no proxy stands before, for servers of the Pod and its node.
    direct: SharedClient,
    /// Clients that verify certificates in another way than by the system's authorities.
    others: Arc<Mutex<Vec<(Trust, SharedClient)>>>,
    /// Breakers of the models.
    pub(super) breakers: Breakers,
    /// Counter of what the models use.
    pub(super) usage: UsageLedger,
    /// Values that no span may hold, to which the credentials of models are added, if spans hold content.
    pub(super) secrets: Option<SecretValues>,
    /// Sleeps before a retry; tests replace it.
    pause: Arc<dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync>,
}

impl Default for Http {
    fn default() -> Self {
        let pause = Arc::new(|time| tokio::time::sleep(time).boxed());
        let (client, direct) = Default::default();
        let (others, breakers, usage) = Default::default();
        Self { client, direct, others, breakers, usage, secrets: None, pause }
    }
}

/// Request to a provider, always a POST of JSON.
#[derive(Clone)]
pub(super) struct ProviderRequest {
    /// URL.
    pub(super) url: Url,
    /// Headers of the provider, including credentials.
    pub(super) headers: HeaderMap,
    /// Body, as it is sent and signed.
    pub(super) body: Bytes,
}

impl ProviderRequest {
    /// Creates the request with this JSON as its body.
    pub(super) fn new(url: Url, mut headers: HeaderMap, body: Map<String, Value>) -> Self {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self { url, headers, body: Value::from(body).to_string().into() }
    }
}

#[cfg(test)]
impl Http {
    /// Creates a client for plain http only, without loading certificates; `pause` is called instead of sleeping.
    pub(super) fn plain(pause: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        let client = build_client("recif-runner", |builder| configure(builder).tls_certs_only([]));
        let client = OnceLock::from(client.map_err(|error| error.to_string()));
        let pause = move |time| {
            pause(time);
            futures::future::ready(()).boxed()
        };
        let client = Arc::new(client);
        Self { direct: client.clone(), client, pause: Arc::new(pause), ..Self::default() }
    }
}

impl Http {
    /// Creates a client whose models are counted in this ledger.
    pub(crate) fn counting(usage: UsageLedger) -> Self {
        Self { usage, ..Self::default() }
    }

    /// Returns the same client, whose models add their credentials to these values.
    pub(crate) fn noting(self, secrets: Option<SecretValues>) -> Self {
        Self { secrets, ..self }
    }

    /// Returns the client that verifies certificates by `trust`, with the same connections for the same trust.
    ///
    /// # Errors
    /// The certificates cannot be read.
    pub(super) fn with_trust(&self, trust: &Trust) -> Result<Self, String> {
        if *trust == Trust::System {
            return Ok(self.clone());
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let known = others.iter().find(|(known, _)| known == trust).map(|(_, client)| client.clone());
        let client = match known {
            Some(client) => client,
            None => {
                let verify = trust.client_config().map_err(|error| error.to_string())?;
                let client = build(|builder| verify(configure(builder)))?;
                let client = SharedClient::new(OnceLock::from(Ok(client)));
                others.push((trust.clone(), client.clone()));
                client
            }
        };
        Ok(Self { client, ..self.clone() })
    }

    /// Returns the client, built by now.
    ///
    /// # Errors
    /// It cannot be built.
    pub(super) fn client(&self) -> Result<&Client, ModelError> {
        built(self.client.get_or_init(|| build(configure)))
    }

    /// Returns the client that uses no proxy, built by now.
    ///
    /// # Errors
    /// It cannot be built.
    pub(super) fn direct_client(&self) -> Result<&Client, ModelError> {
        built(self.direct.get_or_init(|| build(|builder| configure(builder).no_proxy())))
    }

    /// Sends `call` and returns the response once its header reports success.
    ///
    /// # Errors
    /// No response within `silence`, or one that is not a success.
    pub(super) async fn send(&self, call: &ProviderRequest, silence: Duration) -> Result<Response, ModelError> {
        let client = self.client()?;
        let request = client.post(call.url.clone()).headers(call.headers.clone()).body(call.body.clone());
        let response = tokio::time::timeout(silence, request.send())
            .await
            .map_err(|_| silent(silence))?
            .map_err(connection_error)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let retry_after = retry_after(header, Timestamp::now());
        let is_final = header("x-should-retry") == Some("false");
        let (said, code) =
            tokio::time::timeout(REFUSAL, refusal::read(response, &call.headers)).await.unwrap_or_default();
        let mut error = ModelError::status(status, code);
        error.retry_after = retry_after;
        error.is_transient &= !is_final;
        let host = call.url.host_str();
        tracing::warn!(status = status.as_u16(), host, said, "a model's provider refuses the request");
        Err(error)
    }

    /// Runs `attempt` until it succeeds, fails permanently, or the retries are used up: one retry, after a short wait, while
    /// another model can answer. Each is an event of the span of `trace`.
    ///
    /// # Errors
    /// The last failure.
    pub(super) async fn retrying<T, F>(
        &self,
        has_fallback: bool,
        trace: &TraceScope,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, ModelError>
    where
        F: Future<Output = Result<T, ModelError>>,
    {
        let (retries, longest) = if has_fallback { (1, LONGEST_WAIT_WITH_FALLBACK) } else { (RETRIES, LONGEST_WAIT) };
        let pauses = ExponentialBuilder::new().with_min_delay(Duration::from_millis(500)).with_max_times(retries);
        let mut pauses = pauses.with_jitter().build();
        loop {
            let error = match attempt().await {
                Err(error) if error.is_transient => error,
                settled => return settled,
            };
            let Some(pause) = pauses.next() else { return Err(error) };
            let pause = error.retry_after.unwrap_or(pause);
            if pause > longest {
                return Err(error);
            }
            tracing::debug!(?pause, "trying again: {error}");
            let wait = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            let why = AttributeValue::Text(error.word());
            trace.event(EVENT_RETRY, vec![(ERROR_TYPE, why), (RECIF_WAIT_MS, wait.into())]);
            (self.pause)(pause).await;
        }
    }
}

fn built(client: &Result<Client, String>) -> Result<&Client, ModelError> {
    client.as_ref().map_err(|problem| {
        tracing::error!("no HTTP client for models: {problem}");
        ModelError::new(ModelErrorKind::Unavailable, "this runtime has no HTTP client; its log says why")
    })
}

/// Creates the error for an idle timeout.
pub(super) fn silent(silence: Duration) -> ModelError {
    let text = format!("the provider sent nothing for {} s; try again later", silence.as_secs());
    ModelError::new(ModelErrorKind::Timeout, text)
}

fn connection_error(error: reqwest::Error) -> ModelError {
    tracing::debug!(connect = error.is_connect(), timeout = error.is_timeout(), "a model's provider was not reached");
    ModelError::new(
        ModelErrorKind::Unavailable,
        "the provider cannot be reached; check the base URL and that the network allows it",
    )
}

/// Returns the wait that the headers ask for: `retry-after-ms`, else `Retry-After`.
fn retry_after<'h>(header: impl Fn(&'static str) -> Option<&'h str>, now: Timestamp) -> Option<Duration> {
    let millis = header("retry-after-ms").and_then(|text| text.trim().parse().ok());
    let millis = millis.map(|millis| Duration::from_millis(millis).min(LONGEST_WAIT));
    millis.or_else(|| parse_retry_after(header(RETRY_AFTER.as_str())?, now))
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

fn build(configure: impl Fn(ClientBuilder) -> ClientBuilder) -> Result<Client, String> {
    build_client("recif-runner", configure).map_err(|error| error.to_string())
}

fn configure(builder: ClientBuilder) -> ClientBuilder {
    builder
        .connect_timeout(CONNECT)
        // A key must not follow a redirect to another host.
        .redirect(Policy::none())
        .pool_max_idle_per_host(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_seconds_or_a_date_and_at_most_30_s() {
        let now: Timestamp = "1994-11-06T08:49:30Z".parse().unwrap();
        for (text, seconds) in [
            ("7", Some(7)),
            (" 0 ", Some(0)),
            ("3600", Some(30)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7)),
            ("Sun, 06 Nov 1994 09:49:37 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            assert_eq!(parse_retry_after(text, now), seconds.map(Duration::from_secs), "{text}");
        }
    }
}
