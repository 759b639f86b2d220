//! What the proxy answers itself: probes, metrics, its load, and the hooks of the Pod.

use std::net::IpAddr;

use http1::RequestHead;

use super::{life::Stage, state::Shared, upstream::Readiness};
use crate::local_response::{Answer, END};

/// Where gateways ask whether a Pod that is not ready yet can serve.
const STARTED: &[u8] = crds::READY_PATH.as_bytes();

/// What the proxy is asked itself.
#[derive(Debug, Clone, Copy)]
pub(super) enum Own {
    Health,
    Ready,
    Metrics,
    InFlight,
    Started,
    LameDuck,
    Drain,
}

impl Own {
    /// Whether a request is for one of the proxy's own paths, and what `peer` asks, or why it is refused.
    pub(super) fn of(head: &RequestHead<'_>, peer: &str, shared: &Shared) -> Option<Result<Self, Answer>> {
        let path = head.target.split(|byte| *byte == b'?').next().unwrap_or_default();
        let known = matches!(path, b"/healthz" | b"/readyz" | b"/metrics") || path.starts_with(b"/_recif/");
        if !known {
            return None;
        }
        if !matches!(head.method, b"GET" | b"HEAD") {
            return Some(Err(Answer::refusal(405, "only GET is answered here", "method")));
        }
        let proven = || head.value("x-recif-key").is_some_and(|key| shared.config.key.is(key));
        // The key stands in the Pod's template, which others may read; who is inside of the Pod has to say it too.
        let inside = || shared.config.hook_by_network || peer.parse().is_ok_and(|peer: IpAddr| peer.is_loopback());
        Some(Ok(match path {
            b"/healthz" => Self::Health,
            b"/readyz" => Self::Ready,
            b"/metrics" => Self::Metrics,
            b"/_recif/inflight" => Self::InFlight,
            STARTED => match head.value("x-recif-workload") {
                Some(named) if shared.config.is_workload(named) => Self::Started,
                Some(_) => return Some(Err(misdirected())),
                None => return Some(Err(Answer::refusal(400, "X-Recif-Workload must name the workload", "unnamed"))),
            },
            b"/_recif/lame-duck" if proven() && inside() => Self::LameDuck,
            b"/_recif/drain" if proven() => Self::Drain,
            _ => return Some(Err(Answer::refusal(404, "there is no such path", "unknown"))),
        }))
    }

    /// The answer.
    pub(super) async fn answer(self, shared: &Shared) -> Answer {
        match self {
            Self::Health => Answer::text(200, "ok\n"),
            Self::Ready => ready(shared).await,
            Self::Metrics => match shared.metrics.encode(&shared.load) {
                Ok(text) => {
                    let runners = if shared.config.has_runner { shared.upstream.metrics().await } else { None };
                    Answer {
                        content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8",
                        ..Answer::text(200, joined(text, runners))
                    }
                }
                Err(error) => Answer::refusal(500, &error.to_string(), "metrics"),
            },
            Self::InFlight => match serde_json::to_string(&shared.load.report()) {
                Ok(body) => Answer { content_type: "application/json", ..Answer::text(200, body) },
                Err(error) => Answer::refusal(500, &error.to_string(), "inflight"),
            },
            Self::Started => started(shared).await,
            Self::LameDuck => {
                shared.life.begin_lame_duck();
                Answer::text(200, "lame duck\n")
            }
            Self::Drain => {
                shared.life.drain().await;
                Answer::text(200, "drained\n")
            }
        }
    }
}

/// To a request that names another workload.
pub(super) fn misdirected() -> Answer {
    Answer::refusal(421, "the request is for another workload, whose address this was", "misdirected")
}

/// Whether this Pod can serve, for a gateway in which requests wait.
async fn started(shared: &Shared) -> Answer {
    let ready = shared.startup.is_ready().await;
    match (shared.life.stage(), ready) {
        (_, None) => Answer::refusal(404, "only the kubelet can tell whether this Pod is ready", "unknown"),
        (Stage::Serving, Some(true)) => {
            let body = serde_json::json!({ "pod": shared.config.pod_uid }).to_string();
            Answer { content_type: "application/json", ..Answer::text(200, body) }
        }
        (_, Some(_)) => Answer::refusal(503, "the workload is not ready", "upstream"),
    }
}

/// Two expositions as one: what ends the first is not the end.
fn joined(own: String, other: Option<String>) -> String {
    match (own.strip_suffix(END), other) {
        (Some(own), Some(other)) => own.to_owned() + &other,
        (_, _) => own,
    }
}

async fn ready(shared: &Shared) -> Answer {
    match shared.life.stage() {
        Stage::Draining | Stage::Restarting => Answer::refusal(503, "draining", "draining"),
        Stage::Serving | Stage::LameDuck => match shared.upstream.readiness().await {
            Readiness::Ready => Answer::text(200, "ok\n"),
            Readiness::Closed => Answer::refusal(503, "the workload does not accept connections", "upstream"),
            Readiness::Never => {
                Answer::refusal(503, "the workload can never answer as it is configured: its log says why", "never")
            }
        },
    }
}
