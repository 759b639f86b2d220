//! Tests the authorization of calls through the gateway, and the status field that the gateway writes for a call.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::audit::describe_requests;
use kube::client::Body;
use serde_json::{Value, json};

use crate::{
    client::{ClientTarget, HttpClientConnection, HttpClientResponse},
    kinds::{AGENT, CLUSTER_ROLE, ROLE, ROLE_BINDING, SERVICE_ACCOUNT},
    manifests::agent,
    namespace::{Namespace, REPORT_TIMEOUT},
    object::ObjectExt as _,
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    calls_are_noted_at_most_every_ten_seconds,
    a_caller_needs_a_token_and_the_right,
    a_right_may_be_on_one_workload_alone,
    anonymous_paths_need_no_token,
    what_is_the_sidecars_is_not_reachable,
    the_gateway_writes_one_field_and_no_other,
);

/// User of the gateway's requests.
const ACCOUNT: &str = "system:serviceaccount:recif-system:recif-gateway";
/// Longest wait until a new permission is effective: a denial is cached for 5 s.
pub(super) const GRANTED: Duration = Duration::from_secs(20);
/// Body of a chat request.
const HI: &str = r#"{"message":"hi"}"#;

/// Sends a request from inside the cluster and returns the response.
pub(super) async fn send_request(
    ns: &Namespace,
    target: &ClientTarget,
    method: &'static str,
    path: &str,
    body: &str,
) -> Result<HttpClientResponse> {
    let (target, path, body) = (target.clone(), path.to_owned(), body.to_owned());
    let inside = ns.env.netns().await?;
    inside.run(async move { HttpClientConnection::request(&target, method, &path, &body).await }).await
}

/// Returns the target with only this token in this header.
pub(super) fn with_token(target: &ClientTarget, header: &str, token: &str) -> ClientTarget {
    ClientTarget { headers: format!("{header}: Bearer {token}\r\n"), ..target.clone() }
}

/// Returns the target without credentials.
pub(super) fn without_token(target: &ClientTarget) -> ClientTarget {
    ClientTarget { headers: String::new(), ..target.clone() }
}

/// Creates a ServiceAccount and returns a token of it.
pub(super) async fn token(ns: &Namespace, account: &str) -> Result<String> {
    let manifest = json!({"apiVersion": "v1", "kind": SERVICE_ACCOUNT.kind, "metadata": {"name": account}});
    ns.create_object(&manifest).await?;
    token_for(ns, account, &[]).await
}

/// Returns a token of a ServiceAccount for these audiences; without audiences for that of the API server.
async fn token_for(ns: &Namespace, account: &str, audiences: &[&str]) -> Result<String> {
    let path = format!("/api/v1/namespaces/{}/serviceaccounts/{account}/token", ns.name);
    let spec = json!({"audiences": audiences});
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let request =
        http::Request::post(path).header("content-type", "application/json").body(request.to_string().into())?;
    let answer: Value = ns.env.client.request(request).await.context("ask for a token")?;
    Ok(answer["status"]["token"].as_str().context("no token")?.to_owned())
}

/// Binds a role to a ServiceAccount of the namespace, and waits until the API server has heard of it: until then it denies the account,
/// and each gateway that asked keeps that verdict for 5 s.
pub(super) async fn bind(ns: &Namespace, account: &str, kind: &str, role: &str) -> Result<()> {
    let binding = json!({
        "apiVersion": ROLE_BINDING.api_version(), "kind": ROLE_BINDING.kind,
        "metadata": {"name": format!("{account}-{role}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": ns.name}],
    });
    ns.create_object(&binding).await?;
    let role = match kind == ROLE.kind {
        true => ns.get(ROLE, role).await?,
        false => ns.env.all(CLUSTER_ROLE).get(role).await?,
    };
    let rule = role.at("/rules/0");
    let attributes = json!({
        "namespace": ns.name, "verb": rule["verbs"][0], "group": rule["apiGroups"][0], "name": rule["resourceNames"][0],
        "resource": rule["resources"][0].as_str().and_then(|it| it.split('/').next()),
        "subresource": rule["resources"][0].as_str().and_then(|it| it.split('/').nth(1)),
    });
    let user = format!("system:serviceaccount:{}:{account}", ns.name);
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    });
    poll(REPORT_TIMEOUT, "the right of the binding", || async {
        let request = http::Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
            .header("content-type", "application/json")
            .body(review.to_string().into_bytes())?;
        let verdict: Value = ns.env.client.request(request).await.context("ask for a right")?;
        ensure!(verdict["status"]["allowed"] == true, "{verdict}");
        Ok(Some(()))
    })
    .await
}

/// Waits until a chat request is answered.
async fn await_chat(ns: &Namespace, target: &ClientTarget) -> Result<()> {
    poll(GRANTED, "an answer through the gateway", || async {
        let answer = send_request(ns, target, "POST", "/chat", HI).await?;
        ensure!(answer.status == 200 && answer.text.contains("echo: hi"), "{answer:?}");
        Ok(Some(()))
    })
    .await
}

async fn check_refusal(
    ns: &Namespace,
    target: &ClientTarget,
    status: u16,
    words: &[&str],
) -> Result<HttpClientResponse> {
    let answer = send_request(ns, target, "POST", "/chat", HI).await?;
    ensure!(answer.status == status && words.iter().all(|word| answer.text.contains(word)), "{answer:?}");
    Ok(answer)
}

async fn a_caller_needs_a_token_and_the_right(ns: Namespace) -> Result<()> {
    ns.start(&agent("guarded", json!({}))).await?;
    let guarded = ClientTarget::gateway(&ns, AGENT, "guarded").await?;
    await_chat(&ns, &guarded).await?;
    for unknown in [without_token(&guarded), with_token(&guarded, "Authorization", "wrong")] {
        let answer = check_refusal(&ns, &unknown, 401, &["unauthenticated"]).await?;
        ensure!(answer.header("www-authenticate") == Some("Bearer"), "{answer:?}");
    }
    let token = token(&ns, "bot").await?;
    let bot = with_token(&guarded, "Authorization", &token);
    check_refusal(&ns, &bot, 403, &["forbidden", "agents/guarded", &ns.name, "agents/invoke"]).await?;
    bind(&ns, "bot", "ClusterRole", "recif-invoker").await?;
    await_chat(&ns, &bot).await?;
    await_chat(&ns, &with_token(&guarded, "X-Recif-Authorization", &token)).await?;
    // A token with the audience `recif`, which the API server itself does not accept.
    let own = token_for(&ns, "bot", &["recif"]).await?;
    await_chat(&ns, &with_token(&guarded, "X-Recif-Authorization", &own)).await?;
    let control_plane = ClientTarget::control_plane(&ns.env).await?;
    let me = send_request(&ns, &with_token(&control_plane, "Authorization", &own), "GET", "/v1/me", "").await?;
    ensure!(me.status == 200 && me.text.contains(&format!("{}:bot", ns.name)), "{me:?}");
    let others = token_for(&ns, "bot", &["vault"]).await?;
    check_refusal(&ns, &with_token(&guarded, "Authorization", &others), 401, &["unauthenticated"]).await?;
    // The permission is for this namespace only, and for another one the gateway does not even report that an object is
    // missing.
    let elsewhere = ClientTarget { prefix: "/v1/agents/default/nobody".into(), ..bot };
    check_refusal(&ns, &elsewhere, 403, &["agents/nobody"]).await.map(drop)
}

async fn a_right_may_be_on_one_workload_alone(ns: Namespace) -> Result<()> {
    ns.start(&agent("one", json!({}))).await?;
    let role = json!({
        "apiVersion": ROLE.api_version(), "kind": ROLE.kind, "metadata": {"name": "calls-one"},
        "rules": [{
            "apiGroups": [crds::GROUP], "resources": ["agents/invoke"], "resourceNames": ["one"], "verbs": ["create"],
        }],
    });
    ns.create_object(&role).await?;
    let token = token(&ns, "bot").await?;
    bind(&ns, "bot", ROLE.kind, "calls-one").await?;
    let one = with_token(&ClientTarget::gateway(&ns, AGENT, "one").await?, "Authorization", &token);
    await_chat(&ns, &one).await?;
    let other = with_token(&ClientTarget::gateway(&ns, AGENT, "other").await?, "Authorization", &token);
    check_refusal(&ns, &other, 403, &["agents/other"]).await.map(drop)
}

async fn anonymous_paths_need_no_token(ns: Namespace) -> Result<()> {
    ns.start(&agent("open", json!({"expose": {"anonymousPaths": ["/.well-known/*"]}}))).await?;
    let target = ClientTarget::gateway(&ns, AGENT, "open").await?;
    await_chat(&ns, &target).await?;
    let anonymous = without_token(&target);
    let card = send_request(&ns, &anonymous, "GET", "/.well-known/agent-card.json", "").await?;
    ensure!(card.status == 200 && card.text.contains("open"), "{card:?}");
    for path in ["/chat", "/.well-known", "/.well-known/%61gent-card.json", "/.well-known//agent-card.json"] {
        let answer = send_request(&ns, &anonymous, "GET", path, "").await?;
        ensure!(answer.status == 401, "{path}: {answer:?}");
    }
    Ok(())
}

async fn what_is_the_sidecars_is_not_reachable(ns: Namespace) -> Result<()> {
    ns.start(&agent("plain", json!({}))).await?;
    let target = ClientTarget::gateway(&ns, AGENT, "plain").await?;
    await_chat(&ns, &target).await?;
    for (path, status) in [
        ("/_recif/inflight", 404),
        ("/_recif/drain", 404),
        ("/_recif/lame-duck", 404),
        ("/_recif", 404),
        ("/metrics", 404),
        ("//metrics", 404),
        ("/%5frecif%2Finflight", 404),
        ("/x/../_recif/inflight", 400),
        ("/x/%2e%2e/metrics", 400),
    ] {
        let answer = send_request(&ns, &target, "GET", path, "").await?;
        ensure!(answer.status == status && answer.text.contains(r#""error""#), "{path}: {answer:?}");
    }
    Ok(())
}

async fn calls_are_noted_at_most_every_ten_seconds(ns: Namespace) -> Result<()> {
    ns.start(&agent("busy", json!({}))).await?;
    ns.await_event("busy", "Running").await?;
    let target = ClientTarget::gateway(&ns, AGENT, "busy").await?;
    let recorder = ns.record(AGENT, "busy").await?;
    let mark = ns.mark().await?;
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    // The absence of further writes can only be observed for a limited time: a little more than three periods.
    for _ in 0..66 {
        ticks.tick().await;
        await_chat(&ns, &target).await?;
    }
    // A write of the last call may come while they are counted: they are counted again then.
    let (last, writes) = loop {
        let before = ns.get(AGENT, "busy").await?;
        let mut writes = ns.env.audit.requests_by(ACCOUNT, mark, Some(&ns.name)).await?;
        writes.retain(|request| request.is_write() && request.succeeded());
        let after = ns.get(AGENT, "busy").await?;
        if before.revision() == after.revision() {
            break (after, writes);
        }
    };
    ensure!(
        writes.iter().all(|it| it.resource() == "agents/status" && it.name() == "busy"),
        "{}",
        describe_requests(&writes)
    );
    // The writes are at 0, 10, 20 and 30 s, independent of the replica that made them.
    ensure!((3..=4).contains(&writes.len()), "in 33 s {} writes: {}", writes.len(), describe_requests(&writes));
    let seen = recorder.up_to(&last).await?;
    let mut noted: Vec<&str> = seen.iter().map(|object| object.text("/status/lastInvocationAt")).collect();
    noted.retain(|at| !at.is_empty());
    ensure!(noted.is_sorted(), "it went back: {noted:?}");
    noted.dedup();
    ensure!(noted.len() == writes.len(), "{} writes brought {noted:?}", writes.len());
    let woken = ns.operator_requests(mark).await?;
    ensure!(woken.is_empty(), "the operator was woken: {}", describe_requests(&woken));
    ensure!(seen.last().is_some_and(crate::object::ObjectExt::is_running), "it does not run any more");
    Ok(())
}

async fn the_gateway_writes_one_field_and_no_other(ns: Namespace) -> Result<()> {
    ns.start(&agent("noted", json!({}))).await?;
    let patch = async |subresource: &str, patch: Value| -> Result<(u16, String)> {
        let path = format!("/apis/{}/namespaces/{}/agents/noted{subresource}", AGENT.api_version(), ns.name);
        let request = http::Request::patch(path)
            .header("content-type", "application/merge-patch+json")
            .header("impersonate-user", ACCOUNT);
        let answer =
            ns.env.client_without_retry.send(request.body(Body::from(patch.to_string().into_bytes()))?).await?;
        let status = answer.status().as_u16();
        let text = answer.into_body().collect_bytes().await?;
        Ok((status, String::from_utf8_lossy(&text).into_owned()))
    };
    for status in [
        json!({"phase": "Failed"}),
        json!({"phase": null}),
        json!({"conditions": []}),
        json!({"lastInvocationAt": "2026-01-02T03:04:05Z", "endpoint": "http://elsewhere"}),
    ] {
        let (code, text) = patch("/status", json!({"status": status})).await?;
        ensure!(matches!(code, 403 | 422) && text.contains("lastInvocationAt"), "{status}: {code} {text}");
    }
    let (code, text) = patch("/status", json!({"status": {"lastInvocationAt": "2026-01-02T03:04:05Z"}})).await?;
    ensure!(code == 200, "{code} {text}");
    let (code, text) = patch("", json!({"spec": {"replicas": 0}})).await?;
    ensure!(code == 403, "{code} {text}");
    let noted = |it: &crate::object::Object| it.text("/status/lastInvocationAt") == "2026-01-02T03:04:05Z";
    ns.until(AGENT, "noted", REPORT_TIMEOUT, "is noted", noted).await.map(drop)
}
