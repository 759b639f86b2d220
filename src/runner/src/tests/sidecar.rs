//! Runtime behind a sidecar, which alone authenticates callers.

use axum::{
    body::Body,
    extract::{ConnectInfo, Request},
};
use tower::ServiceExt as _;

use super::*;

#[tokio::test]
async fn behind_a_sidecar_others_than_the_pod_get_their_probes_and_nothing_else() {
    let service =
        build_app(RunnerConfig::read(&|_| None).unwrap(), Arc::new(|_: &str| None)).service().behind_sidecar(21004);
    let ask = async |peer: &str, path: &str| {
        let peer: SocketAddr = peer.parse().unwrap();
        let mut request = Request::get(path).header("host", "a").body(Body::empty()).unwrap();
        request.extensions_mut().insert(ConnectInfo(peer));
        service.router.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    for inside in ["127.0.0.1:9", "[::1]:9", "[::ffff:127.0.0.1]:9"] {
        assert_eq!(ask(inside, "/metrics").await, 200, "{inside}");
        assert_eq!(ask(inside, "/_recif/usage").await, 200, "{inside}");
        assert_eq!(ask(inside, "/.well-known/agent-card.json").await, 200, "{inside}");
    }
    for outside in ["10.0.0.9:9", "[fd00::1]:9", "[::ffff:10.0.0.9]:9"] {
        assert_eq!((ask(outside, "/healthz").await, ask(outside, "/readyz").await), (200, 200), "{outside}");
        for path in [
            "/metrics",
            "/_recif/usage",
            "/chat",
            "/v1/models",
            "/.well-known/agent-card.json",
            "/healthz/x",
            "/nothing",
        ] {
            assert_eq!(ask(outside, path).await, 403, "{outside} {path}");
        }
    }
}

#[tokio::test]
async fn without_a_sidecar_the_caller_is_not_passed_outside_of_the_pod() {
    let service = build_app(RunnerConfig::read(&|_| None).unwrap(), Arc::new(|_: &str| None)).service();
    let mut request = Request::get("/_recif/usage").header("host", "a").body(Body::empty()).unwrap();
    request.extensions_mut().insert(ConnectInfo("10.0.0.9:9".parse::<SocketAddr>().unwrap()));
    assert_eq!(service.router.oneshot(request).await.unwrap().status(), 404);
}

#[tokio::test]
async fn on_a_developers_machine_pages_of_others_get_nothing() {
    let service = build_app(RunnerConfig::read(&|_| None).unwrap(), Arc::new(|_: &str| None)).service().local();
    let ask = async |fields: &[(&str, &str)]| {
        let mut status = Vec::new();
        for path in ["/healthz", "/metrics", "/.well-known/agent-card.json", "/v1/models"] {
            let request =
                fields.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
            let request = request.body(Body::empty()).unwrap();
            status.push(service.router.clone().oneshot(request).await.unwrap().status().as_u16());
        }
        status
    };
    for own in [
        &[("host", "127.0.0.1:21005")][..],
        &[("host", "localhost")],
        &[("host", "localhost:5173"), ("origin", "http://localhost:5173"), ("sec-fetch-site", "same-origin")],
    ] {
        assert_eq!(ask(own).await, [200; 4], "{own:?}");
    }
    for foreign in [
        &[("host", "evil.example")][..],
        &[("host", "localhost"), ("origin", "http://evil.example"), ("x-forwarded-prefix", "/v1/agents/a/b")],
        &[("host", "localhost"), ("sec-fetch-site", "same-site")],
        &[("host", "localhost"), ("sec-fetch-site", "cross-site")],
    ] {
        assert_eq!(ask(foreign).await, [403; 4], "{foreign:?}");
    }
}
