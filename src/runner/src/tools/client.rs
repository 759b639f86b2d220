//! HTTP client of the tools.
//!
//! It is built on first use: loading the system's certificates costs time and memory that an agent without such tools
//! need not pay. Redirects are followed only to the same host and port, or from http to https at the default ports, so
//! that a redirect cannot carry a credential in a header to another server. The addresses that it may connect to are
//! decided by [`egress`](super::egress), which also checks the host of each redirect.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use mcp::{DnsResolver, Trust, build_client};
use reqwest::{
    Client, ClientBuilder, Response,
    redirect::{Action, Attempt, Policy},
};
use tokio::time::Instant;
use url::Url;

use super::{
    bounded_buffer::BoundedBuffer,
    egress::{EgressPolicy, UrlSource},
    error::ToolError,
    listed_hosts::ListedHosts,
};

/// Time without a call after which a client with certificate authorities of its own is dropped.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// Cache of HTTP clients, each built on first use. Invariant: at most one client per source of the URL and trust.
pub(super) struct HttpClient {
    egress: EgressPolicy,
    built: Mutex<Vec<CachedClient>>,
}

/// Client for URLs from this source that verifies certificates by this trust.
struct CachedClient {
    source: UrlSource,
    trust: Trust,
    client: Client,
    used: Instant,
}

impl HttpClient {
    /// Creates an empty cache; its clients connect only to addresses that `reach` allows.
    pub(super) fn new(reach: EgressPolicy) -> Self {
        Self { egress: reach, built: Mutex::default() }
    }

    /// Returns the client for a URL from a Tool.
    ///
    /// # Errors
    /// [`ToolError::Refused`] when the URL may not be reached from here.
    pub(super) async fn for_url(&self, url: &Url) -> Result<Client, ToolError> {
        self.client(url, UrlSource::Tool, &Trust::System).await
    }

    /// Returns the client for a URL chosen by a model.
    ///
    /// # Errors
    /// The same as [`HttpClient::for_url`].
    pub(super) async fn for_model_url(&self, url: &Url) -> Result<Client, ToolError> {
        self.client(url, UrlSource::Model, &Trust::System).await
    }

    /// Returns the client for `url` that verifies the server's certificate by `trust`.
    ///
    /// # Errors
    /// The same as [`HttpClient::for_url`], and certificates that cannot be parsed.
    pub(super) async fn for_server(&self, url: &Url, trust: &Trust) -> Result<Client, ToolError> {
        self.client(url, UrlSource::Tool, trust).await
    }

    async fn client(&self, url: &Url, who: UrlSource, trust: &Trust) -> Result<Client, ToolError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(ToolError::Refused("only http and https URLs can be fetched".into()));
        }
        self.egress.check_url(url, who).await.map_err(ToolError::Refused)?;
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(known) = built.iter_mut().find(|known| known.source == who && known.trust == *trust) {
            known.used = now;
            return Ok(known.client.clone());
        }
        let configure = trust.client_config().map_err(|problem| ToolError::Failed(problem.to_string()))?;
        let resolve = |builder| configure(builder).dns_resolver(DnsResolver(self.egress.connection_check(who)));
        let client = build(&self.egress.hosts(), resolve)
            .map_err(|problem| ToolError::Failed(format!("no HTTP client: {problem}")))?;
        // Authorities are rotated, and no call uses the former ones again.
        built.retain(|known| {
            !matches!(known.trust, Trust::Additional(_) | Trust::Only(_)) || now - known.used < IDLE_TIMEOUT
        });
        built.push(CachedClient { source: who, trust: trust.clone(), client: client.clone(), used: now });
        Ok(client)
    }
}

/// Reads the text of `response` up to the cap.
///
/// # Errors
/// [`ToolError::Failed`] for a status other than 2xx, with the server's text, and for a body that breaks off.
pub(super) async fn read(mut response: Response) -> Result<String, ToolError> {
    let status = response.status();
    let mut body = BoundedBuffer::default();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if !body.push(&chunk) {
            break;
        }
    }
    let text = body.into_text();
    if status.is_success() {
        return Ok(text);
    }
    let location = response.headers().get("location").and_then(|value| value.to_str().ok());
    Err(ToolError::Failed(match location.filter(|_| status.is_redirection()) {
        Some(location) => format!("HTTP {status} to {location}, which is another host or port and was not followed"),
        None => format!("HTTP {status}: {text}"),
    }))
}

/// Converts a failed request: the text has the whole chain of causes, without the URL, which the model wrote itself.
pub(super) fn failed(error: reqwest::Error) -> ToolError {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    ToolError::Failed(text)
}

fn build(hosts: &ListedHosts, with: impl Fn(ClientBuilder) -> ClientBuilder) -> Result<Client, String> {
    let redirects = || {
        let hosts = hosts.clone();
        Policy::custom(move |attempt| follow(attempt, &hosts))
    };
    build_client("recif-runner", |builder| with(builder).redirect(redirects()).pool_max_idle_per_host(4))
        .map_err(|error| error.to_string())
}

/// Decides on a redirect.
fn follow(attempt: Attempt<'_>, hosts: &ListedHosts) -> Action {
    let stays = attempt.previous().last().is_some_and(|from| is_same_server(from, attempt.url()));
    if !stays || attempt.previous().len() > 5 {
        return attempt.stop();
    }
    match hosts.check(attempt.url()) {
        Ok(()) => attempt.follow(),
        Err(refusal) => attempt.error(format!("refused: {refusal}")),
    }
}

/// Reports whether a redirect stays at the host and port, or leads to https at the default ports.
fn is_same_server(from: &Url, next: &Url) -> bool {
    let ports = (from.port_or_known_default(), next.port_or_known_default());
    let upgrade = from.scheme() == "http" && next.scheme() == "https" && ports == (Some(80), Some(443));
    from.host() == next.host() && (upgrade || from.scheme() == next.scheme() && ports.0 == ports.1)
}

#[cfg(test)]
mod tests {
    use testing::certificates::certificate;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn clients_of_former_authorities_are_dropped() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = HttpClient::new(EgressPolicy::new(&|_: &str| None));
        let url = Url::parse("https://127.0.0.1:9/").unwrap();
        let (one, two) = (certificate("one"), certificate("two"));
        let both = Trust::Only([one.clone(), two.clone()].concat());
        for (trust, expected) in
            [(&Trust::System, 1), (&Trust::Additional(one), 2), (&Trust::Additional(two), 3), (&both, 3), (&both, 3)]
        {
            client.for_server(&url, trust).await.unwrap();
            assert_eq!(client.built.lock().unwrap().len(), expected);
            advance(IDLE_TIMEOUT / 2).await;
        }
    }
}
