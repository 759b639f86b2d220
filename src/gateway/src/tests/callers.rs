//! Tests of the token by which a workload's sidecar knows the caller.

use identity::{COLD_DEMAND_PATH, DEMAND_AUDIENCE, DEMAND_PATH, KeySet, Verifier, audience, public_keys, unix_now};

use super::*;
use crate::{admin::Admin, auth::tests::gate};

const AS_ALICE: &[u8] =
    b"GET /v1/agents/ns/a/x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer good-alice\r\nX-Recif-Caller: x\r\nX-Recif-User: admin\r\n\r\n";

/// Sends these bytes and returns the head that the Pod gets.
async fn reported(gateway: &TestGateway, pod: &mut TestPod, bytes: &[u8]) -> String {
    let mut client = gateway.send(bytes).await;
    let (mut io, head) = pod.next().await;
    io.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await.unwrap();
    whole(&mut client).await;
    head
}

#[tokio::test]
async fn three_gateways_vouch_for_a_caller_alike() {
    let keys = Arc::new(KeySet::generate().unwrap());
    let sidecar = Verifier::new(public_keys(&keys.public()).unwrap(), audience("Agent", "ns", "a"));
    let mut pod = TestPod::start().await;
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let gateway = TestGateway::with_auth(gate().1, &[], &[pod.address]).await;
        gateway.shared.keys.set(keys.clone());
        for _ in 0..2 {
            let head = reported(&gateway, &mut pod, AS_ALICE).await;
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
async fn the_token_says_who_may_approve_where_tools_ask() {
    let keys = Arc::new(KeySet::generate().unwrap());
    let sidecar = Verifier::new(public_keys(&keys.public()).unwrap(), audience("Agent", "ns", "a"));
    let mut pod = TestPod::start().await;
    let (roles, auth) = gate();
    roles.approves.store(true, std::sync::atomic::Ordering::Relaxed);
    let gateway = TestGateway::with_auth(auth, &[], &[pod.address]).await;
    gateway.shared.keys.set(keys);
    let spoofed =
        String::from_utf8(AS_ALICE.to_vec()).unwrap().replace("X-Recif-User: admin", "x-recif-approver: true");
    for asks in [false, true, false] {
        gateway.object(Some(Object { approvals: asks, ..object() }));
        let head = reported(&gateway, &mut pod, spoofed.as_bytes()).await;
        let caller = sidecar.verify(field(&head, "X-Recif-Caller").unwrap().as_bytes(), unix_now()).unwrap();
        assert_eq!((caller.user.as_deref(), caller.is_approver), (Some("alice"), asks), "{head}");
        assert_eq!(field(&head, "X-Recif-Approver"), None, "only the signature says so");
    }
}

#[tokio::test]
async fn who_is_let_in_without_a_name_is_vouched_for_without_one() {
    let keys = Arc::new(KeySet::generate().unwrap());
    let sidecar = Verifier::new(public_keys(&keys.public()).unwrap(), audience("Agent", "ns", "a"));
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    assert_eq!(field(&reported(&gateway, &mut pod, GET).await, "X-Recif-Caller"), None, "there are no keys yet");
    gateway.shared.keys.set(keys);
    let head = reported(&gateway, &mut pod, GET).await;
    let token = field(&head, "X-Recif-Caller").unwrap();
    assert_eq!(sidecar.verify(token.as_bytes(), unix_now()).unwrap().user, None);
    assert_eq!(field(&head, "X-Recif-User"), None);
}

#[tokio::test]
async fn one_that_asks_who_calls_is_ready_only_with_keys() {
    let gateway = TestGateway::with_auth(gate().1, &[], &[]).await;
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

#[tokio::test]
async fn what_is_demanded_is_answered_only_to_those_who_have_the_keys() {
    use tower::ServiceExt as _;

    let gateway = TestGateway::with_auth(gate().1, &[], &[]).await;
    let ask = async |token: Option<String>| {
        let answers = [DEMAND_PATH, COLD_DEMAND_PATH].map(|path| {
            let mut request = axum::http::Request::get(path);
            if let Some(token) = &token {
                request = request.header("X-Recif-Caller", token);
            }
            let request = request.body(axum::body::Body::empty()).unwrap();
            Admin::new(gateway.shared.clone()).router().oneshot(request)
        });
        let [demand, cold] = answers.map(|answer| async { answer.await.unwrap().status().as_u16() });
        let (demand, cold) = tokio::join!(demand, cold);
        assert_eq!(demand, cold);
        demand
    };
    assert_eq!(ask(None).await, 401, "it has no keys yet");
    let keys = Arc::new(KeySet::generate().unwrap());
    gateway.shared.keys.set(keys.clone());
    let later = unix_now() + 60;
    let token = |keys: &KeySet, audience: &str, until| Some(keys.token(audience, None, until));
    assert_eq!(ask(token(&keys, DEMAND_AUDIENCE, later)).await, 200);
    assert_eq!(ask(None).await, 401);
    assert_eq!(ask(token(&keys, &audience("Agent", "ns", "a"), later)).await, 401, "a workload hands its own on");
    assert_eq!(ask(token(&keys, DEMAND_AUDIENCE, unix_now() - 61)).await, 401, "it has expired");
    assert_eq!(ask(token(&KeySet::generate().unwrap(), DEMAND_AUDIENCE, later)).await, 401, "keys of another");
    let data = keys.data().into_iter().map(|(name, value)| (name.to_owned(), value.into_bytes())).collect();
    let rotated = KeySet::read(&data).unwrap().rotated().unwrap();
    assert_eq!(ask(token(&rotated, DEMAND_AUDIENCE, later)).await, 200, "the operator saw the rotation first");
}
