//! By what a workload's sidecar knows who calls.

use super::*;
use crate::{
    gateway::{admin::Admin, auth::tests::gate},
    identity::{KeySet, Verifier, audience, public_keys, unix_now},
};

const AS_ALICE: &[u8] =
    b"GET /v1/agents/ns/a/x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer good-alice\r\nX-Recif-Caller: x\r\nX-Recif-User: admin\r\n\r\n";

/// What the Pod is told after these bytes.
async fn told(gateway: &Gateway, pod: &mut Pod, bytes: &[u8]) -> String {
    let mut client = gateway.asks(bytes).await;
    let (mut io, head) = pod.next().await;
    io.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await.unwrap();
    whole(&mut client).await;
    head
}

#[tokio::test]
async fn three_gateways_vouch_for_a_caller_alike() {
    let keys = Arc::new(KeySet::generate().unwrap());
    let sidecar = Verifier::new(public_keys(&keys.public()).unwrap(), audience("Agent", "ns", "a"));
    let mut pod = Pod::start().await;
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let gateway = Gateway::guarded(gate().1, &[], &[pod.address]).await;
        gateway.shared.keys.set(keys.clone());
        for _ in 0..2 {
            let head = told(&gateway, &mut pod, AS_ALICE).await;
            assert_eq!(head.matches("X-Recif-Caller: ").count(), 1, "what the client says goes: {head}");
            assert_eq!(field(&head, "X-Recif-User"), Some("alice"), "for sidecars without keys");
            let token = field(&head, "X-Recif-Caller").unwrap();
            assert_eq!(sidecar.verify(token.as_bytes(), unix_now()).unwrap().user.as_deref(), Some("alice"));
            tokens.push(token.to_owned());
        }
    }
    assert_eq!(tokens[0], tokens[1], "it is signed once");
}

#[tokio::test]
async fn who_is_let_in_without_a_name_is_vouched_for_without_one() {
    let keys = Arc::new(KeySet::generate().unwrap());
    let sidecar = Verifier::new(public_keys(&keys.public()).unwrap(), audience("Agent", "ns", "a"));
    let mut pod = Pod::start().await;
    let gateway = Gateway::start(&[], &[pod.address]).await;
    assert_eq!(field(&told(&gateway, &mut pod, GET).await, "X-Recif-Caller"), None, "there are no keys yet");
    gateway.shared.keys.set(keys);
    let head = told(&gateway, &mut pod, GET).await;
    let token = field(&head, "X-Recif-Caller").unwrap();
    assert_eq!(sidecar.verify(token.as_bytes(), unix_now()).unwrap().user, None);
    assert_eq!(field(&head, "X-Recif-User"), None);
}

#[tokio::test]
async fn one_that_asks_who_calls_is_ready_only_with_keys() {
    let gateway = Gateway::guarded(gate().1, &[], &[]).await;
    let ready = async || {
        use tower::ServiceExt as _;
        let admin = Admin::new(gateway.shared.clone());
        let request = http::Request::get("/readyz").body(axum::body::Body::empty()).unwrap();
        admin.router().oneshot(request).await.unwrap().status().as_u16()
    };
    assert_eq!(ready().await, 503);
    gateway.shared.keys.set(Arc::new(KeySet::generate().unwrap()));
    assert_eq!(ready().await, 200);
}
