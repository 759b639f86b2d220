//! Runtime behind a sidecar, which alone authenticates callers.

use axum::{
    body::Body,
    extract::{ConnectInfo, Request},
};
use tower::ServiceExt as _;

use super::*;

#[tokio::test]
async fn behind_a_sidecar_others_than_the_pod_get_their_probes_and_nothing_else() {
    let service = build_app(RunnerConfig::read(&|_| None).unwrap()).service().behind_sidecar();
    let ask = async |peer: &str, path: &str| {
        let peer: SocketAddr = peer.parse().unwrap();
        let mut request = Request::get(path).header("host", "a").body(Body::empty()).unwrap();
        request.extensions_mut().insert(ConnectInfo(peer));
        service.router.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    for inside in ["127.0.0.1:9", "[::1]:9", "[::ffff:127.0.0.1]:9"] {
        assert_eq!(ask(inside, "/metrics").await, 200, "{inside}");
        assert_eq!(ask(inside, "/.well-known/agent-card.json").await, 200, "{inside}");
    }
    for outside in ["10.0.0.9:9", "[fd00::1]:9", "[::ffff:10.0.0.9]:9"] {
        assert_eq!((ask(outside, "/healthz").await, ask(outside, "/readyz").await), (200, 200), "{outside}");
        for path in ["/metrics", "/chat", "/v1/models", "/.well-known/agent-card.json", "/healthz/x", "/nothing"] {
            assert_eq!(ask(outside, path).await, 403, "{outside} {path}");
        }
    }
}
