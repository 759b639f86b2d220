//! The way to the gateway: by its URL, or through the API server to one of its Pods.

use std::net::IpAddr;

use bytes::Bytes;
use cluster::access::OWN_AUTHORIZATION;
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use http::{
    HeaderValue, Method, Request, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, HOST},
};
use http_body_util::{BodyDataStream, Full};
use hyper_util::client::legacy::Client;
use url::{Host, Url};

use super::super::CliError;
use crate::cluster::{CallerCredentials, Forward, UserClient, error_chain};

/// What it is called in messages.
const COMPONENT: &str = "gateway";
/// Its Service.
const SERVICE: &str = "recif-gateway";
/// What else could be done where it is not found.
const ALTERNATIVE: &str = ", or say its URL with --gateway";
/// The token that is used instead of the kubeconfig's.
const TOKEN: &str = "RECIF_TOKEN";

/// Where the gateway is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GatewayUrl(Url);

impl GatewayUrl {
    /// Reads a URL; its path may have a prefix of the gateway's paths.
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

    /// Whether nobody on the way can read what is sent there.
    fn is_private(&self) -> bool {
        let loopback = match self.0.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
            Some(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
            None => false,
        };
        loopback || self.0.scheme() == "https"
    }

    fn join(&self, path: &str) -> String {
        format!("{}{path}", self.0.as_str().trim_end_matches('/'))
    }
}

enum GatewayRoute {
    Url(reqwest::Client, GatewayUrl),
    Pods(Client<Forward, Full<Bytes>>),
}

/// The gateway, and what it knows the caller by.
pub(super) struct GatewayClient {
    route: GatewayRoute,
    caller: CallerCredentials,
}

/// The beginning of an answer, and the rest as it comes.
pub(super) struct GatewayResponse {
    /// Status code.
    pub(super) status: StatusCode,
    /// Whether it is a stream of events.
    pub(super) is_stream: bool,
    /// Whether a token was sent.
    pub(super) has_token: bool,
    /// What broke off is an error, as a sentence.
    pub(super) body: BoxStream<'static, Result<Bytes, String>>,
}

impl GatewayClient {
    /// The gateway at this place. The kubeconfig's token goes only where nobody can read it on the way.
    ///
    /// # Errors
    /// When there can be no client.
    pub(super) fn at(place: GatewayUrl, live: Option<&UserClient>) -> Result<Self, CliError> {
        // A token must not follow a redirect.
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
        let client = client.map_err(|error| CliError::Unreachable { part: COMPONENT, why: error_chain(&error) })?;
        let caller =
            live.filter(|_| place.is_private()).map_or_else(CallerCredentials::anonymous, |live| live.caller.clone());
        Ok(Self { route: GatewayRoute::Url(client, place), caller })
    }

    /// The gateway of a cluster.
    ///
    /// # Errors
    /// It is not there, or none of its Pods is ready.
    pub(super) async fn in_cluster(live: &UserClient, namespace: &str) -> Result<Self, CliError> {
        let forward = live.forward(namespace, SERVICE);
        forward.ready_pod().await.map_err(|error| CliError::unreachable_part(COMPONENT, error, ALTERNATIVE))?;
        Ok(Self { route: GatewayRoute::Pods(forward.client()), caller: live.caller.clone() })
    }

    /// Sends a message, and waits for the beginning of the answer.
    ///
    /// # Errors
    /// [`CliError::Unreachable`].
    pub(super) async fn post(&self, path: &str, body: String) -> Result<GatewayResponse, CliError> {
        let token = self.token().await?;
        let signed = token.is_some();
        let unreachable = |why| CliError::Unreachable { part: COMPONENT, why };
        let (parts, body) = match &self.route {
            GatewayRoute::Url(client, place) => {
                let mut request = client.post(place.join(path)).header(CONTENT_TYPE, JSON).header(ACCEPT, STREAM);
                if let Some(token) = token {
                    request = request.header(OWN_AUTHORIZATION, token);
                }
                let answer = request.body(body).send().await.map_err(|error| unreachable(error_chain(&error)))?;
                let (parts, body) = http::Response::<reqwest::Body>::from(answer).into_parts();
                (parts, BodyDataStream::new(body).map_err(|error| error_chain(&error)).boxed())
            }
            GatewayRoute::Pods(client) => {
                let uri = format!("http://{SERVICE}{path}");
                let mut request = Request::builder().method(Method::POST).uri(uri).header(HOST, SERVICE);
                request = request.header(CONTENT_TYPE, JSON).header(ACCEPT, STREAM);
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
        Ok(GatewayResponse { status: parts.status, is_stream: kind.starts_with(STREAM), has_token: signed, body })
    }

    /// What the gateway knows the caller by.
    async fn token(&self) -> Result<Option<HeaderValue>, CliError> {
        match std::env::var(TOKEN) {
            Ok(token) if !token.trim().is_empty() => {
                let value = HeaderValue::try_from(format!("Bearer {}", token.trim()));
                let mut value = value.map_err(|_| CliError::Usage(format!("${TOKEN} holds no token")))?;
                value.set_sensitive(true);
                Ok(Some(value))
            }
            _ => Ok(self.caller.bearer().await?),
        }
    }
}

const JSON: &str = "application/json";
const STREAM: &str = "text/event-stream";

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
    fn a_token_goes_only_where_nobody_reads_it_on_the_way() {
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
