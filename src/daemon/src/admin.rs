//! Admin endpoints: `/healthz`, `/readyz` and `/metrics`.
//!
//! On loopback they are for programs of this machine, and so [`loopback`] refuses what a web page sends there.

use std::{fmt, io, sync::Arc};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, StatusCode},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::get,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::net::TcpListener;

use crate::loopback;

/// Sources of the probes and metrics of a process.
pub struct Probes {
    /// Registry of all metrics.
    pub registry: Registry,
    /// Returns the reasons for which the process is not ready, one line each.
    pub unready: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Returns more lines for the response of `/readyz`; they do not affect readiness.
    pub notes: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Called before metrics are read, for gauges that are updated only then.
    pub refresh: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Probes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probes").finish_non_exhaustive()
    }
}

/// Serves the probes for ever.
///
/// # Errors
/// The listener breaks.
pub async fn serve(listener: TcpListener, probes: Probes) -> io::Result<()> {
    serve_routes(listener, router(probes)).await
}

/// Serves the routes of an admin port for ever.
///
/// # Errors
/// The listener breaks.
pub async fn serve_routes(listener: TcpListener, routes: Router) -> io::Result<()> {
    let is_local = listener.local_addr()?.ip().to_canonical().is_loopback();
    let routes = if is_local { routes.layer(middleware::from_fn(require_local)) } else { routes };
    axum::serve(listener, routes).await
}

async fn require_local(request: Request, next: Next) -> Response {
    let headers = request.headers();
    match loopback::is_local(|name| headers.get_all(name).iter().map(HeaderValue::as_bytes)) {
        true => next.run(request).await,
        false => (StatusCode::FORBIDDEN, format!("{}\n", loopback::REFUSAL)).into_response(),
    }
}

fn router(probes: Probes) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(probes))
}

async fn readyz(State(probes): State<Arc<Probes>>) -> (StatusCode, String) {
    let unready = (probes.unready)();
    let (status, first) = match unready.is_empty() {
        true => (StatusCode::OK, vec!["ok".to_owned()]),
        false => (StatusCode::SERVICE_UNAVAILABLE, unready),
    };
    let lines: Vec<String> = first.into_iter().chain((probes.notes)()).collect();
    (status, lines.join("\n") + "\n")
}

async fn metrics(
    State(probes): State<Arc<Probes>>,
) -> Result<([(&'static str, &'static str); 1], String), (StatusCode, String)> {
    (probes.refresh)();
    let mut text = String::new();
    encode(&mut text, &probes.registry).map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")], text))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };
    use tower::ServiceExt as _;

    use super::*;

    fn probes(lines: Vec<String>) -> Probes {
        let unready = Box::new(move || lines.clone());
        let notes = Box::new(|| vec!["database: away".into()]);
        Probes { registry: Registry::default(), unready, notes, refresh: Box::new(|| {}) }
    }

    async fn ready(lines: Vec<String>) -> (StatusCode, String) {
        let request = axum::http::Request::get("/readyz").body(axum::body::Body::empty()).unwrap();
        let answer = router(probes(lines)).oneshot(request).await.unwrap();
        let status = answer.status();
        let body = axum::body::to_bytes(answer.into_body(), 1000).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_process_that_is_not_ready_says_why() {
        let (status, body) = ready(Vec::new()).await;
        assert_eq!((status, body.as_str()), (StatusCode::OK, "ok\ndatabase: away\n"));
        let (status, body) = ready(vec!["watch agents: not started".into()]).await;
        let expected = "watch agents: not started\ndatabase: away\n";
        assert_eq!((status, body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, expected));
    }

    #[tokio::test]
    async fn on_loopback_programs_are_served_and_web_pages_are_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, probes(Vec::new())));
        for (fields, code) in [
            (format!("Host: {address}"), 200),
            ("Host: localhost".to_owned(), 200),
            ("Host: evil.example".to_owned(), 403),
            ("Host: localhost\r\nOrigin: http://evil.example".to_owned(), 403),
            ("Host: localhost\r\nSec-Fetch-Site: same-site".to_owned(), 403),
        ] {
            for path in ["/healthz", "/readyz", "/metrics", "/none"] {
                let mut stream = TcpStream::connect(address).await.unwrap();
                let request = format!("GET {path} HTTP/1.1\r\n{fields}\r\nConnection: close\r\n\r\n");
                stream.write_all(request.as_bytes()).await.unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.unwrap();
                let expected = if code == 200 && path == "/none" { 404 } else { code };
                assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{fields} {path}: {answer}");
            }
        }
    }
}
