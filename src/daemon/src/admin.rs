//! Admin endpoints: `/healthz`, `/readyz` and `/metrics`.

use std::{fmt, sync::Arc};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::net::TcpListener;

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
pub async fn serve(listener: TcpListener, probes: Probes) -> std::io::Result<()> {
    axum::serve(listener, router(probes)).await
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
    use tower::ServiceExt as _;

    use super::*;

    async fn ready(lines: Vec<String>) -> (StatusCode, String) {
        let unready = Box::new(move || lines.clone());
        let notes = Box::new(|| vec!["database: away".into()]);
        let probes = Probes { registry: Registry::default(), unready, notes, refresh: Box::new(|| {}) };
        let request = axum::http::Request::get("/readyz").body(axum::body::Body::empty()).unwrap();
        let answer = router(probes).oneshot(request).await.unwrap();
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
}
