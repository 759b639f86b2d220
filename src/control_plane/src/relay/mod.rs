//! Reverse proxy of `/gateway/*`: forwards requests to the gateway with paths and bodies unchanged, and streams both ways, so
//! that a browser needs to know one origin only.
//!
//! The caller's token is forwarded, and the gateway judges it. Only pages of this origin may send requests through the proxy.
//! The header fields in which a browser describes the page are removed, because a workload would take the page for one of
//! another origin. A workload's response must not act with the rights of the UI, on whose origin it arrives: a browser that
//! opens it as a page does so in a sandbox.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header, uri::PathAndQuery};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio::io::copy_bidirectional;
use url::Url;

use super::{api::problem::Problem, serve::Peer};

/// Path prefix in front of the gateway's own paths.
pub(super) const PREFIX: &str = "/gateway";
/// Timeout for a connection to the gateway.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Header fields that only concern one connection (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Header fields in which a browser describes the page that sends the request.
const PAGE_HEADERS: [&str; 7] =
    ["origin", "referer", "cookie", "sec-fetch-dest", "sec-fetch-mode", "sec-fetch-site", "sec-fetch-user"];

/// Header fields of a response that would affect the whole origin, which is the UI's, or lead a browser elsewhere on it.
const ORIGIN_HEADERS: [&str; 5] = ["clear-site-data", "link", "refresh", "service-worker-allowed", "set-cookie"];

/// HTTP client of the gateway.
#[derive(Debug, Clone)]
pub(super) struct Relay {
    client: Client<HttpsConnector<HttpConnector>, Body>,
    gateway: Option<Arc<Uri>>,
}

/// Flags that do not describe a usable gateway.
#[derive(Debug, thiserror::Error)]
pub enum GatewayFlagError {
    /// The URL cannot be that of a gateway.
    #[error("--gateway-url {0}: give http://host:port or https://host:port, without a path")]
    Url(String),
    /// An https gateway without a certificate authority to verify it by.
    #[error(
        "--gateway-url {0}: an https gateway needs --gateway-ca FILE, the PEM file of the authority that signs its certificate"
    )]
    NoAuthority(String),
    /// The file of the authority cannot be read.
    #[error("--gateway-ca {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file holds no usable certificate.
    #[error("--gateway-ca {}: it holds no certificate in PEM form", .0.display())]
    NoCertificate(PathBuf),
    /// TLS cannot be set up.
    #[error("--gateway-ca: {0}")]
    Tls(#[from] rustls::Error),
}

impl Relay {
    /// Creates a proxy to this URL, if there is one; over TLS for a gateway whose certificate is signed by an authority in this
    /// file.
    ///
    /// # Errors
    /// [`GatewayFlagError`].
    pub(super) fn new(gateway: &str, authorities: Option<&Path>) -> Result<Self, GatewayFlagError> {
        let bad = || GatewayFlagError::Url(gateway.to_owned());
        let url = match gateway {
            "" => None,
            text => {
                let uri: Uri = text.parse().map_err(|_| bad())?;
                let fits = matches!(uri.scheme_str(), Some("http" | "https"))
                    && uri.host().is_some_and(|host| !host.is_empty())
                    && uri.path() == "/"
                    && uri.query().is_none();
                Some(uri).filter(|_| fits).ok_or_else(bad).map(Some)?
            }
        };
        if authorities.is_none() && url.as_ref().and_then(Uri::scheme_str) == Some("https") {
            return Err(GatewayFlagError::NoAuthority(gateway.to_owned()));
        }
        let roots = authorities.map_or_else(|| Ok(RootCertStore::empty()), read_roots)?;
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let tls = tls.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth();
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(connector);
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector), gateway: url.map(Arc::new) })
    }

    /// Forwards a request to the gateway and returns its response.
    pub(super) async fn proxy_request(&self, request: Request) -> Response {
        self.try_proxy_request(request).await.unwrap_or_else(|problem| problem.into_response())
    }

    async fn try_proxy_request(&self, mut request: Request) -> Result<Response, Problem> {
        let Some(gateway) = &self.gateway else {
            let detail = "no gateway is known here: start the control plane with --gateway-url";
            return Err(Problem::new(StatusCode::NOT_FOUND, detail));
        };
        if !is_same_origin(request.headers()) {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                "pages of other origins may not send requests through here",
            ));
        }
        let here: Vec<String> = own_authorities(request.headers()).map(str::to_owned).collect();
        *request.uri_mut() = gateway_uri(gateway, request.uri())
            .ok_or_else(|| Problem::new(StatusCode::BAD_REQUEST, "this path cannot be passed on"))?;
        let upgrade = requested_upgrade(request.headers());
        let from = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        let peer = request.extensions().get::<Peer>().copied();
        set_forwarded_headers(request.headers_mut(), upgrade.clone(), peer);
        let mut answer = self.client.request(request).await.map_err(|error| {
            tracing::debug!(error = %error_chain(&error), "the gateway cannot be reached");
            Problem::new(StatusCode::BAD_GATEWAY, "the gateway cannot be reached, or broke off: try again")
        })?;
        // A browser repeats the request with the caller's token when it follows a redirect on this origin (Fetch, section 4.4):
        // so a workload could have calls made to other workloads.
        if answer.status().is_redirection() && redirects_to_own_origin(answer.headers(), &here) {
            let detail =
                "the workload redirects to another path of this address, which is not followed: call that path itself";
            return Err(Problem::new(StatusCode::BAD_GATEWAY, detail));
        }
        let switching = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
        let switched = requested_upgrade(answer.headers());
        let to = hyper::upgrade::on(&mut answer);
        let mut answer = answer.map(Body::new);
        strip_hop_by_hop(answer.headers_mut(), switched.filter(|_| switching));
        sandbox(answer.headers_mut());
        if let Some(from) = from.filter(|_| switching) {
            tokio::spawn(async move {
                if let (Ok(from), Ok(to)) = futures::join!(from, to) {
                    // An I/O error on either side ends both directions.
                    let _ = copy_bidirectional(&mut TokioIo::new(from), &mut TokioIo::new(to)).await;
                }
            });
        }
        Ok(answer)
    }
}

/// Reads the certificate authorities of a PEM file.
fn read_roots(path: &Path) -> Result<RootCertStore, GatewayFlagError> {
    let pem = std::fs::read(path).map_err(|source| GatewayFlagError::Unreadable { path: path.into(), source })?;
    let none = || GatewayFlagError::NoCertificate(path.into());
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>().map_err(|_| none())?;
    let mut roots = RootCertStore::empty();
    match roots.add_parsable_certificates(found) {
        (0, _) => Err(none()),
        _ => Ok(roots),
    }
}

/// Maps a request's URI to the same path at the gateway, without decoding it.
fn gateway_uri(gateway: &Uri, asked: &Uri) -> Option<Uri> {
    let path = asked.path_and_query()?.as_str().strip_prefix(PREFIX)?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let mut parts = gateway.clone().into_parts();
    parts.path_and_query = Some(path.parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}

/// Reports whether the request has no `Origin`, or one whose authority is that of `Host` or of `X-Forwarded-Host`, to which a
/// proxy in front may have moved the name that the browser knows. A page of another origin can set neither field.
fn is_same_origin(fields: &HeaderMap) -> bool {
    let Some(origin) = fields.get(header::ORIGIN) else { return true };
    let authority = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    authority.is_some_and(|authority| own_authorities(fields).any(|host| host.eq_ignore_ascii_case(authority)))
}

/// Returns the authorities (host and port) by which the caller may know this origin.
fn own_authorities(fields: &HeaderMap) -> impl Iterator<Item = &str> {
    [header::HOST.as_str(), "x-forwarded-host"].into_iter().filter_map(|name| fields.get(name)?.to_str().ok())
}

/// Reports whether a response redirects a browser to the origin of one of these names. It counts as such if `Location` cannot
/// be parsed or no name is known.
fn redirects_to_own_origin(answer: &HeaderMap, here: &[String]) -> bool {
    let is_here = |place: &HeaderValue| {
        let place = String::from_utf8_lossy(place.as_bytes());
        // The URL is parsed as in a browser, which treats a backslash as a slash and drops tabs.
        here.is_empty()
            || here.iter().any(|name| ["http", "https"].iter().any(|scheme| resolves_to_origin(scheme, name, &place)))
    };
    answer.get_all(header::LOCATION).iter().any(is_here)
}

/// Reports whether `place` leads to the origin of this name from a page of that scheme. The scheme decides which URLs are
/// relative: `https:/x` is on an https page.
fn resolves_to_origin(scheme: &str, name: &str, place: &str) -> bool {
    let Ok(base) = Url::parse(&format!("{scheme}://{name}/")) else { return true };
    base.join(place).map_or(true, |to| {
        let is_default = base.port().is_none() && matches!(to.port_or_known_default(), Some(80 | 443));
        to.host() == base.host() && (is_default || to.port_or_known_default() == base.port_or_known_default())
    })
}

/// Returns the protocol of an `Upgrade`, if `Connection` asks for one.
fn requested_upgrade(fields: &HeaderMap) -> Option<HeaderValue> {
    let asks = fields.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let asks = asks.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case("upgrade"));
    fields.get(header::UPGRADE).filter(|_| asks).cloned()
}

/// Sets the header fields of the request to the gateway: hop-by-hop and page fields are removed, `X-Forwarded-*` are set.
fn set_forwarded_headers(fields: &mut HeaderMap, upgrade: Option<HeaderValue>, peer: Option<Peer>) {
    let host = fields.remove(header::HOST);
    strip_hop_by_hop(fields, upgrade);
    for name in PAGE_HEADERS {
        fields.remove(name);
    }
    // The host under which the caller reaches the workload. The gateway believes it only if it trusts this process.
    match host {
        Some(host) => fields.insert("x-forwarded-host", host),
        None => fields.remove("x-forwarded-host"),
    };
    let proto = peer.map_or("http", |peer| peer.proto);
    fields.insert("x-forwarded-proto", HeaderValue::from_static(proto));
    fields.insert("x-forwarded-prefix", HeaderValue::from_static(PREFIX));
    if let Some(Peer { address, .. }) = peer {
        let before = fields.get_all("x-forwarded-for").iter().map(HeaderValue::as_bytes);
        let address = address.to_string();
        let hops: Vec<&[u8]> = before.chain([address.as_bytes()]).collect();
        // Each part is a valid field value, so the joined value is valid, too.
        if let Ok(hops) = HeaderValue::from_bytes(&hops.join(&b", "[..])) {
            fields.insert("x-forwarded-for", hops);
        }
    }
}

/// Removes and sets header fields so that a response cannot act on the origin on which it arrives.
fn sandbox(fields: &mut HeaderMap) {
    for name in ORIGIN_HEADERS {
        fields.remove(name);
    }
    fields.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    fields.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

fn strip_hop_by_hop(fields: &mut HeaderMap, upgrade: Option<HeaderValue>) {
    let named: Vec<HeaderName> = fields
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        fields.remove(name);
    }
    for name in HOP_BY_HOP {
        fields.remove(name);
    }
    if let Some(protocol) = upgrade {
        fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        fields.insert(header::UPGRADE, protocol);
    }
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
