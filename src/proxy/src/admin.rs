//! Endpoints that the proxy serves itself: probes, metrics, load report, and the hooks of the Pod.

use std::{io, net::IpAddr};

use http1::RequestHead;

use super::{drain::DrainStage, exposition::joined, state::ProxyContext, upstream::WorkloadReadiness};
use crate::local_response::SidecarResponse;

/// Path at which gateways probe a Pod that is not ready yet.
const STARTED: &[u8] = crds::READY_PATH.as_bytes();
/// Path at which the control plane reads what the workload's models used.
const USAGE: &[u8] = crds::usage::USAGE_PATH.as_bytes();

/// Request to the proxy itself.
#[derive(Debug, Clone)]
pub(super) enum AdminRequest {
    Health,
    Ready,
    Metrics,
    InFlight,
    Started,
    LameDuck,
    Drain,
    /// Report of what the workload's models used, with the query of the request.
    Usage(String),
}

impl AdminRequest {
    /// Parses a request for one of the proxy's own paths. Returns `None` for other paths, or the refusal if `peer` may
    /// not call it.
    pub(super) fn parse(
        head: &RequestHead<'_>,
        peer: &str,
        shared: &ProxyContext,
    ) -> Option<Result<Self, SidecarResponse>> {
        let path = head.target.split(|byte| *byte == b'?').next().unwrap_or_default();
        let known = matches!(path, b"/healthz" | b"/readyz" | b"/metrics") || path.starts_with(b"/_recif/");
        if !known {
            return None;
        }
        if !matches!(head.method, b"GET" | b"HEAD") {
            return Some(Err(SidecarResponse::refusal(405, "only GET is answered here", "method")));
        }
        let proven = || head.value("x-recif-key").is_some_and(|key| shared.config.key.matches(key));
        // Other users may read the Pod's template, which contains the key, so the hook must also come from inside the
        // Pod.
        let inside = || shared.config.hook_by_network || peer.parse().is_ok_and(|peer: IpAddr| peer.is_loopback());
        Some(Ok(match path {
            b"/healthz" => Self::Health,
            b"/readyz" => Self::Ready,
            b"/metrics" => Self::Metrics,
            b"/_recif/inflight" => Self::InFlight,
            STARTED => match head.value("x-recif-workload") {
                Some(named) if shared.config.is_workload(named) => Self::Started,
                Some(_) => return Some(Err(misdirected())),
                None => {
                    return Some(Err(SidecarResponse::refusal(
                        400,
                        "X-Recif-Workload must name the workload",
                        "unnamed",
                    )));
                }
            },
            b"/_recif/lame-duck" if proven() && inside() => Self::LameDuck,
            b"/_recif/drain" if proven() => Self::Drain,
            // It names callers, so it is for those who may read the Pod, as the control plane does.
            USAGE if head.value("x-recif-key").is_some_and(|key| shared.config.usage_key.matches(key)) => {
                Self::Usage(usage_query(head.target))
            }
            _ => return Some(Err(SidecarResponse::refusal(404, "unknown path", "unknown"))),
        }))
    }

    /// Responds to the request.
    pub(super) async fn respond(&self, shared: &ProxyContext) -> SidecarResponse {
        match self {
            Self::Health => SidecarResponse::text(200, "ok\n"),
            Self::Ready => ready(shared).await,
            Self::Metrics => match shared.metrics.encode(&shared.load) {
                Ok(text) => {
                    let runners = if shared.config.has_runner { shared.upstream.metrics().await } else { None };
                    SidecarResponse {
                        content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8",
                        ..SidecarResponse::text(200, joined(text, runners))
                    }
                }
                Err(error) => SidecarResponse::refusal(500, &error.to_string(), "metrics"),
            },
            Self::InFlight => match serde_json::to_string(&shared.load.report()) {
                Ok(body) => SidecarResponse { content_type: "application/json", ..SidecarResponse::text(200, body) },
                Err(error) => SidecarResponse::refusal(500, &error.to_string(), "inflight"),
            },
            Self::Started => started(shared).await,
            Self::LameDuck => {
                shared.drain.begin_lame_duck();
                SidecarResponse::text(200, "lame duck\n")
            }
            Self::Drain => {
                shared.drain.drain().await;
                SidecarResponse::text(200, "drained\n")
            }
            Self::Usage(query) => {
                // On the heap, as the future of each connection would have room for it.
                match Box::pin(usage_report(query, shared)).await {
                    Ok(Some(body)) => {
                        SidecarResponse { content_type: "application/json", ..SidecarResponse::text(200, body) }
                    }
                    Ok(None) => {
                        SidecarResponse::refusal(404, "the workload does not count what its models use", "unknown")
                    }
                    Err(_) => SidecarResponse::refusal(503, "the workload does not respond", "upstream"),
                }
            }
        }
    }
}

/// Returns the report of what the workload's models used: what its responses have reported, or its own. `None`: it does not count.
///
/// # Errors
/// The workload does not respond.
async fn usage_report(query: &str, shared: &ProxyContext) -> io::Result<Option<String>> {
    if let Some(counted) = shared.usage.report(query) {
        return Ok(serde_json::to_string(&counted).ok());
    }
    if !shared.config.has_runner {
        return Ok(None);
    }
    let report = shared.upstream.usage(query).await?;
    if report.is_some() {
        shared.usage.leave_to_workload();
    }
    Ok(report)
}

/// Returns the query of a request target as far as it consists of names and numbers.
fn usage_query(target: &[u8]) -> String {
    let query = target.split(|byte| *byte == b'?').nth(1).unwrap_or_default();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'=' | b'&' | b'-');
    query.iter().copied().take_while(is_plain).map(char::from).collect()
}

/// Creates the response to a request that names another workload.
pub(super) fn misdirected() -> SidecarResponse {
    SidecarResponse::refusal(421, "the request is for another workload, whose address this was", "misdirected")
}

/// Responds whether this Pod can serve, for a gateway with waiting requests.
async fn started(shared: &ProxyContext) -> SidecarResponse {
    let ready = shared.startup.is_ready().await;
    match (shared.drain.stage(), ready) {
        (_, None) => SidecarResponse::refusal(404, "only the kubelet knows whether this Pod is ready", "unknown"),
        (DrainStage::Serving, Some(true)) => {
            let body = serde_json::json!({ "pod": shared.config.pod_uid }).to_string();
            SidecarResponse { content_type: "application/json", ..SidecarResponse::text(200, body) }
        }
        (_, Some(_)) => SidecarResponse::refusal(503, "the workload is not ready", "upstream"),
    }
}

async fn ready(shared: &ProxyContext) -> SidecarResponse {
    match shared.drain.stage() {
        DrainStage::Draining | DrainStage::Restarting => SidecarResponse::refusal(503, "draining", "draining"),
        DrainStage::Serving | DrainStage::LameDuck => match shared.upstream.readiness().await {
            WorkloadReadiness::Ready => SidecarResponse::text(200, "ok\n"),
            WorkloadReadiness::Closed => {
                SidecarResponse::refusal(503, "the workload does not accept connections", "upstream")
            }
            WorkloadReadiness::Never => SidecarResponse::refusal(
                503,
                "the workload can never answer as it is configured: its log says why",
                "never",
            ),
        },
    }
}
