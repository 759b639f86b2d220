//! Client of the gateway: by its URL, or through the API server to one of its Pods.

use std::net::IpAddr;

use bytes::Bytes;
use cluster::access::OWN_AUTHORIZATION;
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use http::{
    HeaderValue, Method, Request, StatusCode,
    header::{CONTENT_TYPE, HOST},
};
use http_body_util::{BodyDataStream, Full};
use hyper_util::client::legacy::Client;
use url::{Host, Url};

use crate::{
    cluster::{CallerCredentials, DevCluster, Forward, UserClient, error_chain},
    error::CliError,
};

/// Name of the gateway in messages.
const COMPONENT: &str = "gateway";
/// Name of its Service.
const SERVICE: &str = "recif-gateway";
/// Alternative that an error names where the gateway is not found.
const ALTERNATIVE: &str = ", or say its URL with --gateway";
/// Header of a refusal by the gateway or a sidecar. The sidecar removes it from the workload's responses.
const REASON: &str = "x-recif-reason";
/// Environment variable with a token that is used instead of the kubeconfig's.
const TOKEN: &str = "RECIF_TOKEN";

/// URL of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GatewayUrl(Url);

impl GatewayUrl {
    /// Parses a URL; its path may be a prefix of the gateway's paths.
    ///
    /// # Errors
    /// [`CliError::Usage`].
    pub(super) fn parse(text: &str) -> Result<Self, CliError> {
        let url = Url::parse(text).ok().filter(|url| {
            let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
            matches!(url.scheme(), "http" | "https") && url.has_host() && plain && url.fragment().is_none()
        });
        let bad = || CliError::Usage(format!("--gateway {text:?}: give a URL such as https://recif.example.com"));
        url.map(Self).ok_or_else(bad)
    }

    /// Returns the gateway of a `recif dev`.
    pub(super) fn of(dev: &DevCluster) -> Self {
        Self(dev.gateway.clone())
    }

    /// Reports whether requests to the URL cannot be read on the network: it is https, or on the loopback interface.
    fn is_private(&self) -> bool {
        self.is_loopback() || self.0.scheme() == "https"
    }

    fn is_loopback(&self) -> bool {
        match self.0.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
            Some(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
            None => false,
        }
    }

    fn join(&self, path: &str) -> String {
        format!("{}{path}", self.0.as_str().trim_end_matches('/'))
    }
}

enum GatewayRoute {
    Url(reqwest::Client, GatewayUrl),
    /// By forwarded connections to its Pods, with its namespace.
    Pods(Client<Forward, Full<Bytes>>, String),
}

/// Client of the gateway, with the caller's credentials.
pub(super) struct GatewayClient {
    route: GatewayRoute,
    caller: CallerCredentials,
}

/// Head of a response, and the stream of its body.
pub(super) struct GatewayResponse {
    /// Status code.
    pub(super) status: StatusCode,
    /// Set if the body is a stream of events.
    pub(super) is_stream: bool,
    /// Set if a token was sent.
    pub(super) has_token: bool,
    /// Set if the gateway or the sidecar refused the request, and not the workload.
    pub(super) is_refusal: bool,
    /// Body; a connection that breaks gives an error, as a sentence.
    pub(super) body: BoxStream<'static, Result<Bytes, String>>,
}

impl GatewayClient {
    /// Returns a client of the gateway at this URL. The kubeconfig's token is sent only if it cannot be read on the
    /// network.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub(super) fn at(place: GatewayUrl, live: Option<&UserClient>) -> Result<Self, CliError> {
        let client = token_client(place.is_loopback());
        let client = client.map_err(|error| CliError::Unreachable { part: COMPONENT, why: error_chain(&error) })?;
        let caller =
            live.filter(|_| place.is_private()).map_or_else(CallerCredentials::anonymous, |live| live.caller.clone());
        Ok(Self { route: GatewayRoute::Url(client, place), caller })
    }

    /// Returns a client of the gateway of a cluster.
    ///
    /// # Errors
    /// The gateway is not installed, or none of its Pods is ready.
    pub(super) async fn in_cluster(live: &UserClient, namespace: &str) -> Result<Self, CliError> {
        let forward = live.forward(namespace, SERVICE);
        forward.ready_pod().await.map_err(|error| CliError::unreachable_part(COMPONENT, error, ALTERNATIVE))?;
        Ok(Self { route: GatewayRoute::Pods(forward.client(), namespace.to_owned()), caller: live.caller.clone() })
    }

    /// Returns the URL of a path, as programs call it.
    pub(super) fn url_of(&self, path: &str) -> String {
        match &self.route {
            GatewayRoute::Url(_, place) => place.join(path),
            GatewayRoute::Pods(_, namespace) => format!("http://{SERVICE}.{namespace}{path}"),
        }
    }

    /// Sends a message and waits for the head of the response, which may be a stream.
    ///
    /// # Errors
    /// [`CliError::Unreachable`].
    pub(super) async fn post(&self, path: &str, body: String) -> Result<GatewayResponse, CliError> {
        self.send(Method::POST, path, &[("content-type", JSON), ("accept", STREAM)], body).await
    }

    /// Sends a request and waits for the head of the response.
    ///
    /// # Errors
    /// [`CliError::Unreachable`].
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Result<GatewayResponse, CliError> {
        let token = caller_token(&self.caller).await?;
        let signed = token.is_some();
        let unreachable = |why| CliError::Unreachable { part: COMPONENT, why };
        let (parts, body) = match &self.route {
            GatewayRoute::Url(client, place) => {
                let mut request = client.request(method, place.join(path));
                for (name, value) in headers {
                    request = request.header(*name, *value);
                }
                if let Some(token) = token {
                    request = request.header(OWN_AUTHORIZATION, token);
                }
                let answer = request.body(body).send().await.map_err(|error| unreachable(error_chain(&error)))?;
                let (parts, body) = http::Response::<reqwest::Body>::from(answer).into_parts();
                (parts, BodyDataStream::new(body).map_err(|error| error_chain(&error)).boxed())
            }
            GatewayRoute::Pods(client, _) => {
                let uri = format!("http://{SERVICE}{path}");
                // A connection that is forwarded comes from loopback, by which a gateway without sign-in judges it.
                let mut request = Request::builder().method(method).uri(uri).header(HOST, "localhost");
                for (name, value) in headers {
                    request = request.header(*name, *value);
                }
                if let Some(token) = token {
                    request = request.header(OWN_AUTHORIZATION, token);
                }
                let request = request.body(Full::from(body)).map_err(|error| unreachable(error_chain(&error)))?;
                let answer = client.request(request).await.map_err(|error| unreachable(error_chain(&error)))?;
                let (parts, body) = answer.into_parts();
                (parts, BodyDataStream::new(body).map_err(|error| error_chain(&error)).boxed())
            }
        };
        let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let (is_stream, is_refusal) = (kind.starts_with(STREAM), parts.headers.contains_key(REASON));
        Ok(GatewayResponse { status: parts.status, is_stream, has_token: signed, is_refusal, body })
    }
}

/// Returns the caller's token: that of the environment, else that of the kubeconfig.
///
/// # Errors
/// It cannot be read, or is none.
pub(crate) async fn caller_token(caller: &CallerCredentials) -> Result<Option<HeaderValue>, CliError> {
    match std::env::var(TOKEN) {
        Ok(token) if !token.trim().is_empty() => {
            let value = HeaderValue::try_from(format!("Bearer {}", token.trim()));
            let mut value = value.map_err(|_| CliError::Usage(format!("${TOKEN} holds no token")))?;
            value.set_sensitive(true);
            Ok(Some(value))
        }
        _ => Ok(caller.bearer().await?),
    }
}

/// Builds a client of requests that carry the caller's token; `is_loopback`: their address is on this machine.
///
/// # Errors
/// The HTTP client cannot be built.
pub(crate) fn token_client(is_loopback: bool) -> reqwest::Result<reqwest::Client> {
    // A token must not follow a redirect.
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    // No proxy of the environment leads to loopback.
    let builder = if is_loopback { builder.no_proxy() } else { builder };
    builder.build()
}

/// Content type of JSON.
pub(super) const JSON: &str = "application/json";
/// Content type of a stream of events.
pub(super) const STREAM: &str = "text/event-stream";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_have_a_prefix() {
        let joined = |url: &str| GatewayUrl::parse(url).unwrap().join("/v1/agents/a/b/chat");
        assert_eq!(joined("http://localhost:8080"), "http://localhost:8080/v1/agents/a/b/chat");
        assert_eq!(joined("https://x.example/gateway/"), "https://x.example/gateway/v1/agents/a/b/chat");
        for url in ["", "localhost:8080", "ftp://x", "http://user:secret@x", "http://x/?a=b", "/gateway"] {
            assert_eq!(GatewayUrl::parse(url).unwrap_err().code(), super::super::Exit::Usage, "{url}");
        }
    }

    #[test]
    fn a_token_is_sent_only_over_private_connections() {
        for (url, private) in [
            ("https://gateway.example", true),
            ("http://127.0.0.1:8080", true),
            ("http://[::1]:8080", true),
            ("http://localhost", true),
            ("http://gateway.example", false),
            ("http://localhost.example", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(GatewayUrl::parse(url).unwrap().is_private(), private, "{url}");
        }
    }
}
