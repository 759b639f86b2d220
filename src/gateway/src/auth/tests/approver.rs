//! Right to approve calls of tools, which is reviewed of workloads alone whose tools ask.

use super::*;

/// Admits a request to the agent `a`, whose tools ask or not.
async fn admit_asking(auth: &Auth, fields: &str, asks: bool) -> Result<RequestCaller, LocalResponse> {
    let bytes = format!("GET {CHAT} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    let mut scratch = Fields::default();
    let head = RequestHead::read(bytes.as_bytes(), &mut scratch).unwrap();
    let mut route = route(CHAT).unwrap();
    route.object = Arc::new(Object { approvals: asks, ..object() });
    auth.authorize(&head, &Path::read(head.target).unwrap(), Some(&route), || [192, 0, 2, 1].into()).await
}

#[tokio::test]
async fn the_right_to_approve_is_reviewed_where_tools_ask_and_cached() {
    let (roles, auth) = gate();
    roles.approves.store(true, Ordering::Relaxed);
    assert!(!admit_asking(&auth, ALICE, false).await.unwrap().is_approver);
    assert_eq!(roles.asked(), ["good-alice for [\"recif\"]", "alice [\"g\"]: create agents/invoke ns/a"]);
    for _ in 0..3 {
        let caller = admit_asking(&auth, ALICE, true).await.unwrap();
        assert_eq!((caller.is_approver, caller.user.as_deref()), (true, Some("alice")));
    }
    assert_eq!(roles.asked(), ["alice [\"g\"]: create agents/approve ns/a"]);
    assert!(!admit_asking(&auth, ALICE, false).await.unwrap().is_approver, "the tools ask no more");
}

#[tokio::test(start_paused = true)]
async fn who_may_not_approve_is_admitted_and_gets_the_right_within_seconds() {
    let (roles, auth) = gate();
    for _ in 0..3 {
        assert!(!admit_asking(&auth, ALICE, true).await.unwrap().is_approver);
    }
    assert_eq!(roles.asked().len(), 3, "the token and two rights, once each");
    roles.approves.store(true, Ordering::Relaxed);
    advance(Duration::from_secs(6)).await;
    assert!(admit_asking(&auth, ALICE, true).await.unwrap().is_approver);
    let denied = admit_asking(&auth, "Authorization: Bearer good-bob\r\n", true).await.unwrap_err();
    assert_eq!(denied.status, 403, "the right to call is another one");
    assert!(!roles.asked().iter().any(|asked| asked.contains("bob") && asked.contains("agents/approve")));
}

#[tokio::test(start_paused = true)]
async fn a_review_of_the_right_to_approve_that_fails_fails_no_request() {
    let (roles, auth) = gate();
    roles.approves.store(true, Ordering::Relaxed);
    admit_asking(&auth, ALICE, false).await.unwrap();
    roles.away.store(true, Ordering::Relaxed);
    assert!(!admit_asking(&auth, ALICE, true).await.unwrap().is_approver);
    roles.away.store(false, Ordering::Relaxed);
    assert!(admit_asking(&auth, ALICE, true).await.unwrap().is_approver);

    roles.hangs.store(true, Ordering::Relaxed);
    let (_, late) = gate_of(&roles);
    let begun = tokio::time::Instant::now();
    assert!(!admit_asking(&late, ALICE, true).await.unwrap().is_approver);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}
