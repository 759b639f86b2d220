//! Listener of the API server: TLS on loopback, for those who have the token of the kubeconfig.
//!
//! The API server starts programs, so a client that reaches it has the rights of the user. Without the token there is `/livez` only; a request has to name
//! this machine, and comes from no web page.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use apiserver::ApiServer;
use daemon::loopback;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

/// Longest time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Path of the liveness check, which needs no token.
const LIVEZ: &str = "/livez";

/// API server with the token of its user.
#[derive(Clone)]
pub(crate) struct GuardedServer {
    server: ApiServer,
    /// Digest of the token: digests are compared, for which time says nothing on the token.
    token: Arc<[u8; 32]>,
}

/// Body of a response: that of the API server, or a text of this listener.
type Body = Either<apiserver::ResponseBody, Full<Bytes>>;

/// Decision on a request.
#[derive(Debug, PartialEq, Eq)]
enum RequestCheck {
    Served,
    Alive,
    Refused(StatusCode, &'static str, &'static str),
}

impl GuardedServer {
    /// Guards a server by this token.
    pub(crate) fn new(server: ApiServer, token: &str) -> Self {
        Self { server, token: Arc::new(Sha256::digest(token).into()) }
    }

    /// Serves until the future is dropped; open connections end with it.
    pub(crate) async fn serve(self, listener: TcpListener, tls: Arc<ServerConfig>) {
        let acceptor = TlsAcceptor::from(tls);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(self.clone().connection(stream, acceptor.clone()));
                    }
                    Err(error) => {
                        // Usually no file descriptor is left; some will be released.
                        tracing::warn!(%error, "a connection to the API server cannot be taken");
                        sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
    }

    async fn connection(self, stream: TcpStream, acceptor: TlsAcceptor) {
        // Without TCP_NODELAY the connection works, too.
        let _ = stream.set_nodelay(true);
        // A client that speaks no TLS has got its alert.
        let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await else { return };
        let is_h2 = daemon::tls::negotiated_h2(&stream);
        let io = TokioIo::new(stream);
        let service = service_fn(move |request| self.clone().answer(request));
        // An error ends this connection, and concerns its client alone.
        let _ = match is_h2 {
            true => {
                let mut server = http2::Builder::new(TokioExecutor::new());
                server.timer(TokioTimer::new()).serve_connection(io, service).await
            }
            false => http1::Builder::new().timer(TokioTimer::new()).serve_connection(io, service).await,
        };
    }

    async fn answer(mut self, mut request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        Ok(match self.judge(&request) {
            RequestCheck::Served => {
                request.headers_mut().remove(header::AUTHORIZATION);
                match self.server.call(request).await {
                    Ok(response) => response.map(Either::Left),
                    // The client did not send all of its request.
                    Err(error) => status(StatusCode::BAD_REQUEST, "BadRequest", &error.to_string()),
                }
            }
            RequestCheck::Alive => Response::new(Either::Right(Full::new(Bytes::from_static(b"ok")))),
            RequestCheck::Refused(code, reason, message) => status(code, reason, message),
        })
    }

    fn judge<B>(&self, request: &Request<B>) -> RequestCheck {
        let fields = request.headers();
        // Over HTTP/2 the host is in the target.
        let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        let is_local = loopback::is_local(|name| {
            let host = authority.filter(|_| name == "host");
            fields.get_all(name).iter().map(HeaderValue::as_bytes).chain(host)
        });
        if !is_local {
            return RequestCheck::Refused(StatusCode::FORBIDDEN, "Forbidden", loopback::REFUSAL);
        }
        let token = fields.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let is_user = token.is_some_and(|token| Sha256::digest(token).as_slice() == self.token.as_slice());
        match request.uri().path() {
            _ if is_user => RequestCheck::Served,
            LIVEZ => RequestCheck::Alive,
            _ => RequestCheck::Refused(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized"),
        }
    }
}

/// Returns a refusal as the API server words it.
fn status(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    let mut response = Response::new(Either::Right(Full::new(Bytes::from(status.to_string()))));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Binds the port of the API server.
///
/// # Errors
/// The port is taken.
pub(crate) fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded() -> GuardedServer {
        GuardedServer::new(ApiServer::new(jiff::Timestamp::now, |_| None), "secret")
    }

    fn judged(target: &str, fields: &[(&str, &str)]) -> RequestCheck {
        let mut request = Request::builder().uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        guarded().judge(&request.body(()).unwrap())
    }

    #[test]
    fn only_the_token_opens_the_server() {
        let unauthorized = RequestCheck::Refused(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized");
        let host = ("host", "127.0.0.1:6443");
        for (fields, expected) in [
            (vec![host, ("authorization", "Bearer secret")], RequestCheck::Served),
            (vec![host, ("authorization", "Bearer other")], unauthorized),
            (
                vec![host, ("authorization", "Basic secret")],
                RequestCheck::Refused(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized"),
            ),
            (vec![host], RequestCheck::Refused(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")),
        ] {
            assert_eq!(judged("/api", &fields), expected, "{fields:?}");
        }
        assert_eq!(judged("/livez", &[host]), RequestCheck::Alive);
    }

    #[test]
    fn other_hosts_and_web_pages_are_refused_even_with_the_token() {
        let token = ("authorization", "Bearer secret");
        let refused = |check: RequestCheck| matches!(check, RequestCheck::Refused(StatusCode::FORBIDDEN, ..));
        assert!(refused(judged("/api", &[("host", "evil.example"), token])));
        assert!(refused(judged("https://evil.example/api", &[token])), "over HTTP/2");
        assert!(refused(judged("/livez", &[("host", "evil.example")])));
        assert!(refused(judged("/api", &[("host", "localhost:1"), ("sec-fetch-site", "cross-site"), token])));
        assert_eq!(judged("https://localhost:6443/api", &[token]), RequestCheck::Served);
    }
}
