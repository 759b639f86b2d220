//! Forwards the requests that the guard passes, and adds the caller's token where the page sends none.

use std::convert::Infallible;

use bytes::Bytes;
use cluster::access::OWN_AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{Either, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioIo, TokioTimer},
};
use tokio::net::TcpStream;

use super::origin_guard::{OriginCheck, OriginGuard};
use crate::cluster::{CallerCredentials, Forward, error_chain};

/// Hop-by-hop headers (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Content Security Policy of the page of a refusal: nothing but its own style, and in no frame.
const REFUSED_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; form-action 'none'";

type RelayBody = Either<Incoming, Full<Bytes>>;

/// Relay from a browser to the control plane.
#[derive(Clone)]
pub(super) struct Relay {
    guard: OriginGuard,
    client: Client<Forward, Incoming>,
    caller: CallerCredentials,
}

impl Relay {
    /// Returns a relay to the control plane, with the token of this caller.
    pub(super) fn new(gate: OriginGuard, forward: Forward, caller: CallerCredentials) -> Self {
        Self { guard: gate, client: forward.client(), caller }
    }

    /// Serves one connection.
    pub(super) async fn serve(self, stream: TcpStream) {
        // A connection works without the option, too.
        let _ = stream.set_nodelay(true);
        let service = service_fn(move |request| {
            let relay = self.clone();
            async move { Ok::<_, Infallible>(relay.respond(request).await) }
        });
        // An error of the connection concerns only the browser.
        let _ = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<RelayBody> {
        match self.guard.check(request.uri(), request.headers()) {
            OriginCheck::Refuse(why) => refusal(request.headers(), why),
            OriginCheck::Admit { cookie } => redirect_with_cookie(&cookie),
            OriginCheck::Pass => self.forward(request).await,
        }
    }

    async fn forward(&self, mut request: Request<Incoming>) -> Response<RelayBody> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        match format!("http://{SERVICE}{path}").parse::<Uri>() {
            Ok(uri) => *request.uri_mut() = uri,
            Err(_) => return text(StatusCode::BAD_REQUEST, "this path cannot be passed on"),
        }
        *request.version_mut() = http::Version::HTTP_11;
        keep_end_to_end(request.headers_mut());
        // The key is for this process only.
        request.headers_mut().remove(header::COOKIE);
        if ![OWN_AUTHORIZATION, header::AUTHORIZATION].iter().any(|name| request.headers().contains_key(name)) {
            match self.caller.bearer().await {
                Ok(Some(token)) => drop(request.headers_mut().insert(credential(&path), token)),
                Ok(None) => {}
                Err(error) => return text(StatusCode::BAD_GATEWAY, error.to_string()),
            }
        }
        match self.client.request(request).await {
            Ok(mut answer) => {
                keep_end_to_end(answer.headers_mut());
                answer.map(Either::Left)
            }
            Err(error) => {
                text(StatusCode::BAD_GATEWAY, format!("the control plane cannot be reached: {}", error_chain(&error)))
            }
        }
    }
}

/// Returns the header for the token: requests that the control plane passes on to workloads carry it where workloads
/// never see it.
fn credential(path: &str) -> HeaderName {
    if path.starts_with("/gateway") { OWN_AUTHORIZATION } else { header::AUTHORIZATION }
}

/// Returns the refusal of a request: to a browser that opens a page, one that says how to get in.
fn refusal(fields: &HeaderMap, why: &'static str) -> Response<RelayBody> {
    let accepted = fields.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if !accepted.flat_map(|value| value.split([',', ';'])).any(|range| range.trim() == "text/html") {
        return text(StatusCode::FORBIDDEN, why);
    }
    let mut answer = text(StatusCode::FORBIDDEN, include_str!("refused.html").replace("{why}", why));
    let fields = answer.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    fields.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(REFUSED_POLICY));
    answer
}

/// Redirects to the UI, without the key in the address.
fn redirect_with_cookie(cookie: &str) -> Response<RelayBody> {
    let mut answer = text(StatusCode::SEE_OTHER, "The web UI is at /ui/.");
    let fields = answer.headers_mut();
    fields.insert(header::LOCATION, HeaderValue::from_static("/ui/"));
    fields.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // Cannot fail: the cookie consists of visible ASCII characters.
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        fields.insert(header::SET_COOKIE, cookie);
    }
    answer
}

fn text(status: StatusCode, text: impl Into<String>) -> Response<RelayBody> {
    let mut answer = Response::new(Either::Right(Full::from(text.into() + "\n")));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

fn keep_end_to_end(fields: &mut HeaderMap) {
    let named = fields.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> =
        named.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    for name in named {
        fields.remove(name);
    }
    for name in HOP_BY_HOP {
        fields.remove(name);
    }
}

/// Name of the control plane's Service.
pub(crate) const SERVICE: &str = "recif-control-plane";

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_browser_without_the_key_is_told_how_to_get_in_and_a_program_in_one_line() {
        for (accept, is_page) in [
            (Some("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"), true),
            (Some("application/json, text/html;q=0.5"), true),
            (Some("application/json"), false),
            (Some("*/*"), false),
            (None, false),
        ] {
            let fields: HeaderMap =
                accept.map(|accept| (header::ACCEPT, HeaderValue::from_static(accept))).into_iter().collect();
            let answer = refusal(&fields, "the key is missing");
            let policy = answer.headers().contains_key(header::CONTENT_SECURITY_POLICY);
            assert_eq!((answer.status(), policy), (StatusCode::FORBIDDEN, is_page), "{accept:?}");
            let type_ = answer.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
            assert_eq!(type_.starts_with("text/html"), is_page, "{accept:?}: {type_}");
            let Either::Right(body) = answer.into_body() else { panic!("an answer of our own") };
            let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
            assert!(body.contains("the key is missing") && !body.contains("{why}"), "{body}");
            assert_eq!(body.contains("<code>?key=…</code>"), is_page, "{body}");
        }
    }
}
