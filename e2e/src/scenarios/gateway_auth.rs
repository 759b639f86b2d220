//! Who may call a workload through the gateway, and what the gateway writes about it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::audit::listed;
use kube::client::Body;
use serde_json::{Value, json};

use super::{Scenario, scenarios};
use crate::{
    client::{Answer, Connection, Target},
    kinds::{AGENT, ROLE, ROLE_BINDING, SERVICE_ACCOUNT},
    manifests::agent,
    namespace::{Namespace, SAID},
    object::Read as _,
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Shared:
    calls_are_noted_at_most_every_ten_seconds,
    a_caller_needs_a_token_and_the_right,
    a_right_may_be_on_one_workload_alone,
    anonymous_paths_need_no_token,
    what_is_the_sidecars_is_not_reachable,
    the_gateway_writes_one_field_and_no_other,
);

/// The user that the gateway's requests are made by.
const ACCOUNT: &str = "system:serviceaccount:recif-system:recif-gateway";
/// How long a new right may take: a no is remembered for 5 s.
const GRANTED: Duration = Duration::from_secs(20);
/// A chat's request.
const HI: &str = r#"{"message":"hi"}"#;

/// The answer to a request from inside the cluster.
pub(super) async fn ask(
    ns: &Namespace,
    target: &Target,
    method: &'static str,
    path: &str,
    body: &'static str,
) -> Result<Answer> {
    let (target, path) = (target.clone(), path.to_owned());
    let inside = ns.env.inside().await?;
    inside.run(async move { Connection::request(&target, method, &path, body).await }).await
}

/// The workload as somebody with this header calls it.
pub(super) fn with(target: &Target, header: &str, token: &str) -> Target {
    Target { headers: format!("{header}: Bearer {token}\r\n"), ..target.clone() }
}

/// The workload as somebody calls it who does not say who he is.
pub(super) fn nobody(target: &Target) -> Target {
    Target { headers: String::new(), ..target.clone() }
}

/// A token of a service account that is made for it.
pub(super) async fn token(ns: &Namespace, account: &str) -> Result<String> {
    let manifest = json!({"apiVersion": "v1", "kind": SERVICE_ACCOUNT.kind, "metadata": {"name": account}});
    ns.create_object(&manifest).await?;
    token_for(ns, account, &[]).await
}

/// A token of a service account for these audiences; none: the API server's.
async fn token_for(ns: &Namespace, account: &str, audiences: &[&str]) -> Result<String> {
    let path = format!("/api/v1/namespaces/{}/serviceaccounts/{account}/token", ns.name);
    let spec = json!({"audiences": audiences});
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let request =
        http::Request::post(path).header("content-type", "application/json").body(request.to_string().into())?;
    let answer: Value = ns.env.client.request(request).await.context("ask for a token")?;
    Ok(answer["status"]["token"].as_str().context("no token")?.to_owned())
}

/// Gives a service account of the namespace a role.
pub(super) async fn bind(ns: &Namespace, account: &str, kind: &str, role: &str) -> Result<()> {
    let binding = json!({
        "apiVersion": ROLE_BINDING.api_version(), "kind": ROLE_BINDING.kind, "metadata": {"name": account},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": ns.name}],
    });
    ns.create_object(&binding).await.map(drop)
}

/// Waits until a chat is answered.
async fn chats(ns: &Namespace, target: &Target) -> Result<()> {
    poll(GRANTED, "an answer through the gateway", || async {
        let answer = ask(ns, target, "POST", "/chat", HI).await?;
        ensure!(answer.status == 200 && answer.text.contains("echo: hi"), "{answer:?}");
        Ok(Some(()))
    })
    .await
}

async fn refused(ns: &Namespace, target: &Target, status: u16, words: &[&str]) -> Result<Answer> {
    let answer = ask(ns, target, "POST", "/chat", HI).await?;
    ensure!(answer.status == status && words.iter().all(|word| answer.text.contains(word)), "{answer:?}");
    Ok(answer)
}

async fn a_caller_needs_a_token_and_the_right(ns: Namespace) -> Result<()> {
    ns.start(&agent("guarded", json!({}))).await?;
    let guarded = Target::gateway(&ns, AGENT, "guarded").await?;
    chats(&ns, &guarded).await?;
    for unknown in [nobody(&guarded), with(&guarded, "Authorization", "wrong")] {
        let answer = refused(&ns, &unknown, 401, &["unauthenticated"]).await?;
        ensure!(answer.header("www-authenticate") == Some("Bearer"), "{answer:?}");
    }
    let token = token(&ns, "bot").await?;
    let bot = with(&guarded, "Authorization", &token);
    refused(&ns, &bot, 403, &["forbidden", "agents/guarded", &ns.name, "agents/invoke"]).await?;
    bind(&ns, "bot", "ClusterRole", "recif-invoker").await?;
    chats(&ns, &bot).await?;
    chats(&ns, &with(&guarded, "X-Recif-Authorization", &token)).await?;
    // One that is good for Récif alone, which the API server takes from nobody.
    let own = token_for(&ns, "bot", &["recif"]).await?;
    chats(&ns, &with(&guarded, "X-Recif-Authorization", &own)).await?;
    let control_plane = Target::control_plane(&ns.env).await?;
    let me = ask(&ns, &with(&control_plane, "Authorization", &own), "GET", "/v1/me", "").await?;
    ensure!(me.status == 200 && me.text.contains(&format!("{}:bot", ns.name)), "{me:?}");
    let others = token_for(&ns, "bot", &["vault"]).await?;
    refused(&ns, &with(&guarded, "Authorization", &others), 401, &["unauthenticated"]).await?;
    // The right is on this namespace, and what is elsewhere is not even shown to be missing.
    let elsewhere = Target { prefix: "/v1/agents/default/nobody".into(), ..bot };
    refused(&ns, &elsewhere, 403, &["agents/nobody"]).await.map(drop)
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
    let one = with(&Target::gateway(&ns, AGENT, "one").await?, "Authorization", &token);
    chats(&ns, &one).await?;
    let other = with(&Target::gateway(&ns, AGENT, "other").await?, "Authorization", &token);
    refused(&ns, &other, 403, &["agents/other"]).await.map(drop)
}

async fn anonymous_paths_need_no_token(ns: Namespace) -> Result<()> {
    ns.start(&agent("open", json!({"expose": {"anonymousPaths": ["/.well-known/*"]}}))).await?;
    let target = Target::gateway(&ns, AGENT, "open").await?;
    chats(&ns, &target).await?;
    let anybody = nobody(&target);
    let card = ask(&ns, &anybody, "GET", "/.well-known/agent-card.json", "").await?;
    ensure!(card.status == 200 && card.text.contains("open"), "{card:?}");
    for path in ["/chat", "/.well-known", "/.well-known/%61gent-card.json", "/.well-known//agent-card.json"] {
        let answer = ask(&ns, &anybody, "GET", path, "").await?;
        ensure!(answer.status == 401, "{path}: {answer:?}");
    }
    Ok(())
}

async fn what_is_the_sidecars_is_not_reachable(ns: Namespace) -> Result<()> {
    ns.start(&agent("plain", json!({}))).await?;
    let target = Target::gateway(&ns, AGENT, "plain").await?;
    chats(&ns, &target).await?;
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
        let answer = ask(&ns, &target, "GET", path, "").await?;
        ensure!(answer.status == status && answer.text.contains(r#""error""#), "{path}: {answer:?}");
    }
    Ok(())
}

async fn calls_are_noted_at_most_every_ten_seconds(ns: Namespace) -> Result<()> {
    ns.start(&agent("busy", json!({}))).await?;
    ns.told("busy", "Running").await?;
    let target = Target::gateway(&ns, AGENT, "busy").await?;
    let recorder = ns.record(AGENT, "busy").await?;
    let mark = ns.mark().await?;
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    // That it is not written more often can only be watched for a while: three periods and a bit.
    for _ in 0..66 {
        ticks.tick().await;
        chats(&ns, &target).await?;
    }
    let writes = ns.env.audit.by(ACCOUNT, mark, Some(&ns.name)).await?;
    let writes: Vec<_> = writes.into_iter().filter(|request| request.is_write() && request.succeeded()).collect();
    ensure!(writes.iter().all(|it| it.resource() == "agents/status" && it.name() == "busy"), "{}", listed(&writes));
    // Writes at 0, 10, 20 and 30 s, whichever replica made them.
    ensure!((3..=4).contains(&writes.len()), "in 33 s {} writes: {}", writes.len(), listed(&writes));
    let seen = recorder.up_to(&ns.get(AGENT, "busy").await?).await?;
    let mut noted: Vec<&str> = seen.iter().map(|object| object.text("/status/lastInvocationAt")).collect();
    noted.retain(|at| !at.is_empty());
    ensure!(noted.is_sorted(), "it went back: {noted:?}");
    noted.dedup();
    ensure!(noted.len() == writes.len(), "{} writes brought {noted:?}", writes.len());
    let woken = ns.operator_requests(mark).await?;
    ensure!(woken.is_empty(), "the operator was woken: {}", listed(&woken));
    ensure!(seen.last().is_some_and(crate::object::Read::is_running), "it does not run any more");
    Ok(())
}

async fn the_gateway_writes_one_field_and_no_other(ns: Namespace) -> Result<()> {
    ns.start(&agent("noted", json!({}))).await?;
    let patch = async |subresource: &str, patch: Value| -> Result<(u16, String)> {
        let path = format!("/apis/{}/namespaces/{}/agents/noted{subresource}", AGENT.api_version(), ns.name);
        let request = http::Request::patch(path)
            .header("content-type", "application/merge-patch+json")
            .header("impersonate-user", ACCOUNT);
        let answer = ns.env.impatient.send(request.body(Body::from(patch.to_string().into_bytes()))?).await?;
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
    ns.until(AGENT, "noted", SAID, "is noted", noted).await.map(drop)
}
