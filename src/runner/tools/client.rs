//! The HTTP client of the tools, and where it will not go.
//!
//! It is built at the first use: loading the system's certificates costs time and memory that an agent without such
//! tools need not pay. Redirects stay on their host and never go from https to http, so a credential in a header
//! cannot leave with one.
//!
//! Port 8888 of the Pod's own loopback belongs to its sidecar and is refused. A name is checked where it is resolved,
//! not before, so an address that changes between check and use is no way around it.

use std::net::IpAddr;
use std::sync::{Mutex, OnceLock, PoisonError};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Response};
use url::{Host, Url};

use super::ToolError;
use super::capped::Capped;
use crate::mcp::Trust;

/// The port that is refused on loopback.
const SIDECAR: u16 = 8888;
const REFUSAL: &str = "port 8888 on loopback belongs to the sidecar";

/// The clients, each built when first used.
#[derive(Default)]
pub(super) struct HttpClient {
    /// For every port but [`SIDECAR`].
    open: OnceLock<Result<Client, String>>,
    /// For that port: its resolver knows no loopback, and it uses no proxy, which would resolve by itself.
    guarded: OnceLock<Result<Client, String>>,
    /// For servers that are judged in another way; with the sidecar's port or without.
    judging: Mutex<Vec<(Trust, bool, Client)>>,
}

impl HttpClient {
    /// The client for `url`.
    ///
    /// # Errors
    /// [`ToolError::Refused`] when the URL may not be reached from here.
    pub(super) fn for_url(&self, url: &Url) -> Result<&Client, ToolError> {
        let client = match is_guarded(url)? {
            true => self.guarded.get_or_init(|| build(guard)),
            false => self.open.get_or_init(|| build(|builder| builder)),
        };
        client.as_ref().map_err(no_client)
    }

    /// The client for `url` that judges its server's certificate like this.
    ///
    /// # Errors
    /// As [`HttpClient::for_url`]; and certificates that cannot be read.
    pub(super) fn for_server(&self, url: &Url, trust: &Trust) -> Result<Client, ToolError> {
        if *trust == Trust::System {
            return self.for_url(url).cloned();
        }
        let is_guarded = is_guarded(url)?;
        let mut known = self.judging.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., client)) = known.iter().find(|(known, guarded, _)| known == trust && *guarded == is_guarded) {
            return Ok(client.clone());
        }
        let judge = trust.judge().map_err(|problem| ToolError::Failed(problem.to_string()))?;
        let built = match is_guarded {
            true => build(|builder| guard(judge(builder))),
            false => build(judge),
        };
        let client = built.as_ref().map_err(no_client)?.clone();
        known.push((trust.clone(), is_guarded, client.clone()));
        Ok(client)
    }
}

/// Whether `url` has the sidecar's port, so that where its name leads is to be looked at.
fn is_guarded(url: &Url) -> Result<bool, ToolError> {
    let own = match url.host() {
        Some(Host::Ipv4(address)) => is_own(address.into()),
        Some(Host::Ipv6(address)) => is_own(address.into()),
        _ => false,
    };
    match url.scheme() {
        "http" | "https" if url.port_or_known_default() != Some(SIDECAR) => Ok(false),
        "http" | "https" if own => Err(ToolError::Refused(REFUSAL.into())),
        "http" | "https" => Ok(true),
        _ => Err(ToolError::Refused("only http and https URLs can be fetched".into())),
    }
}

fn guard(builder: ClientBuilder) -> ClientBuilder {
    builder.no_proxy().dns_resolver(NoLoopback)
}

fn no_client(problem: &String) -> ToolError {
    ToolError::Failed(format!("no HTTP client: {problem}"))
}

/// The text of `response`, read up to the cap.
///
/// # Errors
/// [`ToolError::Failed`] for a status other than 2xx, with what the server said, and for a body that breaks off.
pub(super) async fn read(mut response: Response) -> Result<String, ToolError> {
    let status = response.status();
    let mut body = Capped::default();
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
        Some(location) => format!("HTTP {status} to {location}, which is another host and was not followed"),
        None => format!("HTTP {status}: {text}"),
    }))
}

/// A failed request as text: the whole chain of causes, without the URL, which the model wrote itself.
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

fn build(with: impl Fn(ClientBuilder) -> ClientBuilder) -> Result<Client, String> {
    let builder = || {
        with(Client::builder())
            .user_agent(concat!("recif-runner/", env!("CARGO_PKG_VERSION")))
            .redirect(same_host())
            .pool_max_idle_per_host(4)
    };
    // An image without CA certificates can still call plain http.
    builder().build().or_else(|_| builder().tls_certs_only([]).build()).map_err(|error| error.to_string())
}

fn same_host() -> Policy {
    Policy::custom(|attempt| {
        let next = attempt.url();
        let stays = attempt.previous().last().is_some_and(|from| {
            let same_port = from.port_or_known_default() == next.port_or_known_default();
            let upgrade = from.scheme() == "http" && next.scheme() == "https";
            from.host() == next.host() && (upgrade || from.scheme() == next.scheme() && same_port)
        });
        let sidecar = next.port_or_known_default() == Some(SIDECAR);
        if !stays || sidecar || attempt.previous().len() > 5 { attempt.stop() } else { attempt.follow() }
    })
}

/// Whether a connection to `address` ends in this Pod: loopback, mapped loopback, and the unspecified address, which
/// the kernel takes for loopback.
fn is_own(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || address.is_unspecified()
}

/// Resolves as the system does and drops addresses of this Pod.
struct NoLoopback;

impl Resolve for NoLoopback {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            if found.iter().any(|address| is_own(address.ip())) {
                return Err(REFUSAL.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_sidecars_port_is_refused_however_it_is_written() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = HttpClient::default();
        for host in ["127.0.0.1", "127.9.9.9", "2130706433", "0x7f.1", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]"]
        {
            let url = Url::parse(&format!("http://{host}:8888/")).unwrap();
            assert_eq!(client.for_url(&url).unwrap_err(), ToolError::Refused(REFUSAL.into()), "{host}");
        }
        let url = Url::parse("http://localhost:8888/").unwrap();
        let error = failed(client.for_url(&url).unwrap().get(url).send().await.unwrap_err());
        assert!(error.to_string().contains(REFUSAL), "{error}");
        assert!(client.for_url(&Url::parse("http://127.0.0.1:8889/").unwrap()).is_ok());
        assert!(client.for_url(&Url::parse("file:///x").unwrap()).is_err());
    }
}
