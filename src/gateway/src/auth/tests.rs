mod approver;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use cluster::{
    access::Reviews,
    error::RequestError,
    reviews::{Identity, Right},
};
use http1::Fields;
use tokio::time::advance;

use super::*;
use crate::{
    clock::Clock,
    object::{Object, RoutedKind, testing::object},
    workload::WorkloadState,
};

/// Knows the token `good-<name>`, and allows only alice to call the agent `a`, and to approve calls of its tools if set.
#[derive(Default)]
pub(crate) struct Roles {
    asked: Mutex<Vec<String>>,
    away: AtomicBool,
    /// Set if alice may approve.
    pub(crate) approves: AtomicBool,
    /// Set if there is no answer about the right to approve.
    hangs: AtomicBool,
    /// Set if every token is revoked.
    pub(crate) revoked: AtomicBool,
}

impl Roles {
    fn note(&self, asked: String) -> Result<(), RequestError> {
        self.asked.lock().unwrap().push(asked);
        if self.away.load(Ordering::Relaxed) {
            return Err(RequestError::Transport { what: "create".into(), cause: "refused".into() });
        }
        Ok(())
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

#[async_trait]
impl Reviews for Roles {
    async fn identify(&self, token: &str, audiences: &[String]) -> Result<Option<Identity>, RequestError> {
        self.note(format!("{token} for {audiences:?}"))?;
        if token.starts_with("slow-") {
            std::future::pending::<()>().await;
        }
        let name = token.strip_prefix("good-").filter(|_| !self.revoked.load(Ordering::Relaxed));
        Ok(name.map(|name| Identity { name: name.into(), groups: vec!["g".into()], ..Identity::default() }))
    }

    async fn is_allowed(&self, who: &Identity, right: &Right<'_>) -> Result<bool, RequestError> {
        let Right { verb, resource, subresource, namespace, name } = right;
        self.note(format!("{} {:?}: {verb} {resource}/{subresource} {namespace}/{name}", who.name, who.groups))?;
        let approves = *subresource == "approve";
        if approves && self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        Ok(who.name == "alice" && *name == "a" && (!approves || self.approves.load(Ordering::Relaxed)))
    }
}

/// Creates an authorizer that asks these roles.
pub(crate) fn gate() -> (Arc<Roles>, Auth) {
    gate_of(&Arc::default())
}

/// Creates another authorizer that asks these roles.
fn gate_of(roles: &Arc<Roles>) -> (Arc<Roles>, Auth) {
    (roles.clone(), Auth::Kubernetes(Authorizer::with_reviews(roles.clone(), vec!["recif".into()])))
}

/// Returns the route of a target: an agent with an anonymous card, or an MCP server without anonymous paths.
fn route(target: &str) -> Option<Route> {
    let anonymous_paths: Box<[Box<str>]> = if target.starts_with("/v1/agents/ns/a") {
        Box::new(["/.well-known/*".into()])
    } else if target.starts_with(PROTECTED) || target.starts_with("/v1/mcp/ns/m") {
        Box::default()
    } else {
        return None;
    };
    let object = Object { anonymous_paths, ..object() };
    let workload = WorkloadState::new(RoutedKind::Agent, "ns", "a", Clock::new());
    let meter = crate::meter::Meter::of_kind("Agent");
    Some(Route {
        object: Arc::new(object),
        workload,
        meter,
        pods: Arc::new([]),
        all: Arc::new([]),
        unready: Arc::new([]),
    })
}

async fn admit(auth: &Auth, fields: &str, target: &str) -> Result<RequestCaller, LocalResponse> {
    admit_from([192, 0, 2, 1].into(), auth, fields, target).await
}

async fn admit_from(from: IpAddr, auth: &Auth, fields: &str, target: &str) -> Result<RequestCaller, LocalResponse> {
    let bytes = format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    let mut scratch = Fields::default();
    let head = RequestHead::read(bytes.as_bytes(), &mut scratch).unwrap();
    let route = route(target);
    auth.authorize(&head, &Path::read(head.target).unwrap(), route.as_ref(), || from).await
}

const PROTECTED: &str = "/.well-known/oauth-protected-resource/v1/mcp/ns/m";
const CHAT: &str = "/v1/agents/ns/a/chat";
const OTHER: &str = "/v1/flows/ns/b";
const ALICE: &str = "Authorization: Bearer good-alice\r\n";

#[tokio::test]
async fn who_has_the_right_is_let_in_and_named() {
    let (roles, auth) = gate();
    let groups = || Groups::from([Box::from("g")]);
    let let_in = RequestCaller {
        admission: Admission::Right,
        user: Some("alice".into()),
        groups: groups(),
        is_approver: false,
        hides_authorization: true,
    };
    assert_eq!(admit(&auth, ALICE, CHAT).await, Ok(let_in.clone()));
    assert_eq!(roles.asked(), ["good-alice for [\"recif\"]", "alice [\"g\"]: create agents/invoke ns/a"]);
    assert_eq!(admit(&auth, ALICE, "/v1/agents/ns/a/other?q").await, Ok(let_in));
    assert_eq!(roles.asked(), [""; 0], "the second request sends no review");
    let own = "X-Recif-Authorization: Bearer good-alice\r\nAuthorization: Basic eA==\r\n";
    let let_in = RequestCaller {
        admission: Admission::Right,
        user: Some("alice".into()),
        groups: groups(),
        is_approver: false,
        hides_authorization: false,
    };
    assert_eq!(admit(&auth, own, CHAT).await, Ok(let_in));
}

#[tokio::test]
async fn who_has_no_right_is_told_which_one() {
    let (roles, auth) = gate();
    let denied = admit(&auth, "Authorization: Bearer good-bob\r\n", CHAT).await.unwrap_err();
    assert_eq!((denied.status, denied.reason), (403, "forbidden"));
    for word in ["agents/a", "namespace ns", "create agents/invoke", "agents.recif.dev", "recif-invoker"] {
        assert!(denied.error.contains(word), "{}", denied.error);
    }
    roles.asked();
    let denied = admit(&auth, ALICE, OTHER).await.unwrap_err();
    assert_eq!(denied.status, 403, "a right on one workload is none on another");
    assert_eq!(roles.asked(), ["good-alice for [\"recif\"]", "alice [\"g\"]: create flows/invoke ns/b"]);
}

#[tokio::test]
async fn a_token_for_many_workloads_is_reviewed_once() {
    let (roles, auth) = gate();
    admit(&auth, ALICE, CHAT).await.unwrap();
    admit(&auth, ALICE, OTHER).await.unwrap_err();
    assert_eq!(roles.asked().iter().filter(|asked| asked.starts_with("good-")).count(), 1);
}

#[tokio::test]
async fn who_is_unknown_is_not_let_in() {
    let (_, auth) = gate();
    for fields in ["", "Authorization: Bearer bad\r\n", "Authorization: Basic eA==\r\n", "X-Recif-User: alice\r\n"] {
        let denied = admit(&auth, fields, CHAT).await.unwrap_err();
        assert_eq!((denied.status, denied.reason), (401, "unauthenticated"), "{fields}");
        assert_eq!(denied.field, Some(("WWW-Authenticate", "Bearer".into())));
        assert!(!denied.error.contains("bad"), "{}", denied.error);
    }
}

#[tokio::test]
async fn anonymous_paths_need_no_token_and_hide_the_gateways() {
    let (roles, auth) = gate();
    let card = "/v1/agents/ns/a/.well-known/agent-card.json?x=1";
    for (fields, hides_authorization) in
        [("", true), ("Authorization: Bearer bad\r\n", true), ("X-Recif-Authorization: Bearer bad\r\n", false)]
    {
        let let_in = RequestCaller { admission: Admission::Path, hides_authorization, ..RequestCaller::default() };
        assert_eq!(admit(&auth, fields, card).await, Ok(let_in), "{fields}");
    }
    assert_eq!(roles.asked(), [""; 0]);
    assert_eq!(admit(&auth, "", CHAT).await.unwrap_err().status, 401);
}

#[tokio::test]
async fn what_protects_an_mcp_server_is_told_to_everybody_and_nothing_else_of_it() {
    let (roles, auth) = gate();
    for target in [PROTECTED, "/v1/mcp/ns/m/.well-known/oauth-protected-resource?x"] {
        assert_eq!(admit(&auth, "", target).await.map(|caller| caller.user), Ok(None), "{target}");
    }
    assert_eq!(roles.asked(), [""; 0]);
    for target in [
        "/v1/mcp/ns/m/mcp",
        "/v1/mcp/ns/m/.well-known/oauth-protected-resource/x",
        "/v1/mcp/ns/m/.well-known//oauth-protected-resource",
        "/v1/flows/ns/m/.well-known/oauth-protected-resource",
    ] {
        assert_eq!(admit(&auth, "", target).await.unwrap_err().status, 401, "{target}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_api_server_only_the_known_are_let_in() {
    let (roles, auth) = gate();
    admit(&auth, ALICE, CHAT).await.unwrap();
    roles.away.store(true, Ordering::Relaxed);
    for _ in 0..4 {
        advance(Duration::from_secs(70)).await;
        admit(&auth, ALICE, CHAT).await.unwrap();
    }
    let denied = admit(&auth, "Authorization: Bearer good-carol\r\n", CHAT).await.unwrap_err();
    assert_eq!((denied.status, denied.reason), (503, "auth-unavailable"));
    advance(Duration::from_secs(30)).await;
    assert_eq!(admit(&auth, ALICE, CHAT).await.unwrap_err().status, 503);
    roles.away.store(false, Ordering::Relaxed);
    admit(&auth, ALICE, CHAT).await.unwrap();
}

#[tokio::test]
async fn without_auth_the_authorization_is_the_workloads() {
    let open = RequestCaller::default();
    assert_eq!(admit(&Auth::None { any_host: true }, "Authorization: Bearer x\r\n", CHAT).await, Ok(open));
}

#[tokio::test]
async fn without_auth_and_on_loopback_pages_of_others_are_refused() {
    let own = Auth::None { any_host: false };
    let ask = async |auth: &Auth, host: &str, fields: &str| {
        let bytes = format!("GET {CHAT} HTTP/1.1\r\n{host}{fields}\r\n");
        let mut scratch = Fields::default();
        let head = RequestHead::read(bytes.as_bytes(), &mut scratch).unwrap();
        let (path, route) = (Path::read(head.target).unwrap(), route(CHAT));
        let admitted = auth.authorize(&head, &path, route.as_ref(), || [127, 0, 0, 1].into()).await;
        admitted.map(drop).map_err(|refusal| (refusal.status, refusal.reason))
    };
    let refused = Err((403, "foreign-origin"));
    for (host, fields, expected) in [
        ("Host: localhost:8080\r\n", "", Ok(())),
        ("Host: 127.0.0.1:8080\r\n", "Authorization: Bearer x\r\n", Ok(())),
        ("hOST: [::1]:8080\r\n", "Origin: http://localhost:5173\r\nSec-Fetch-Site: same-origin\r\n", Ok(())),
        ("Host: evil.example\r\n", "", refused),
        ("Host:\r\n", "", refused),
        ("Host: localhost\r\n", "origin: https://evil.example\r\n", refused),
        ("Host: localhost\r\n", "Origin: null\r\n", refused),
        ("Host: localhost\r\n", "SEC-FETCH-SITE: same-site\r\n", refused),
        ("Host: localhost\r\n", "Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n", refused),
    ] {
        assert_eq!(ask(&own, host, fields).await, expected, "{host:?} {fields:?}");
        assert_eq!(ask(&Auth::None { any_host: true }, host, fields).await, Ok(()), "{host:?} {fields:?}");
    }
    // What callers are told apart by needs no such guard: a page has no token.
    let (_, auth) = gate();
    assert_eq!(ask(&auth, "Host: evil.example\r\n", ALICE).await, Ok(()));
}

#[tokio::test]
async fn who_may_not_ask_does_not_learn_what_there_is() {
    let (roles, auth) = gate();
    for target in ["/v1/agents/ns/missing", "/v1/flows/other/b/x"] {
        assert_eq!(admit(&auth, "", target).await.unwrap_err().status, 401, "{target}");
        assert_eq!(admit(&auth, ALICE, target).await.unwrap_err().status, 403, "{target}");
    }
    roles.asked();
    // A target that cannot exist is refused without a review.
    for target in ["/v1/tools/ns/a", "/v1/agents/ns/A_b", "/v1/agents/n%73/a", "/v1/agents/ns/a.b"] {
        assert_eq!(admit(&auth, ALICE, target).await.unwrap_err().status, 404, "{target}");
    }
    assert_eq!(roles.asked(), [""; 0]);
}

fn token(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[tokio::test(start_paused = true)]
async fn who_makes_up_tokens_costs_no_reviews_for_long_and_others_little() {
    let (roles, auth) = gate();
    admit(&auth, ALICE, CHAT).await.unwrap();
    for number in 0..20 {
        assert_eq!(admit(&auth, &token(&format!("bad-{number}")), CHAT).await.unwrap_err().status, 401);
    }
    roles.asked();
    for fields in [token("bad-21"), token("good-bob")] {
        let refusal = admit(&auth, &fields, CHAT).await.unwrap_err();
        assert_eq!((refusal.status, refusal.reason), (429, "too-many-unknown-tokens"));
        assert_eq!(refusal.field, Some(("Retry-After", "10".into())));
    }
    assert_eq!(roles.asked(), [""; 0]);
    // A known caller is not affected, even when a review is due again; neither is a client at another address.
    advance(Duration::from_secs(9)).await;
    admit(&auth, ALICE, CHAT).await.unwrap();
    assert_eq!(admit(&auth, ALICE, OTHER).await.unwrap_err().status, 403);
    let elsewhere = admit_from([192, 0, 2, 2].into(), &auth, &token("bad-22"), CHAT).await;
    assert_eq!(elsewhere.unwrap_err().status, 401);
    advance(Duration::from_secs(1)).await;
    assert_eq!(admit(&auth, &token("bad-21"), CHAT).await.unwrap_err().status, 401);
}

#[tokio::test(start_paused = true)]
async fn one_wrong_token_often_is_one() {
    let (_, auth) = gate();
    for _ in 0..100 {
        assert_eq!(admit(&auth, &token("bad"), CHAT).await.unwrap_err().status, 401);
        advance(Duration::from_millis(90)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reviews_of_unknown_tokens_are_bounded_and_delay_no_others() {
    let (roles, auth) = gate();
    let auth = Arc::new(auth);
    admit(&auth, ALICE, CHAT).await.unwrap();
    advance(Duration::from_secs(61)).await;
    let waiting: Vec<_> = (0..288_u16)
        .map(|number| {
            let auth = auth.clone();
            let from = [10, 0, number.to_be_bytes()[0], number.to_be_bytes()[1]].into();
            tokio::spawn(async move { admit_from(from, &auth, &token(&format!("slow-{number}")), CHAT).await })
        })
        .collect();
    while roles.asked.lock().unwrap().iter().filter(|asked| asked.starts_with("slow-")).count() < 32 {
        tokio::task::yield_now().await;
    }
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let begun = tokio::time::Instant::now();
    let refusal = admit(&auth, &token("good-carol"), CHAT).await.unwrap_err();
    assert_eq!((refusal.status, refusal.reason), (503, "auth-unavailable"), "there is no place to wait");
    admit(&auth, ALICE, CHAT).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "renewals have turns of their own");
    for caller in waiting {
        assert_eq!(caller.await.unwrap().unwrap_err().status, 503);
    }
}
