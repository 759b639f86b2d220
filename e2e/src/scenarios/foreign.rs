//! Tests that objects of other owners with the names of our children are never changed.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::audit::OPERATOR;
use serde_json::{Value, json};

use crate::{
    kinds::{AGENT, CHILDREN, CONFIG_MAP, DEPLOYMENT, KubeKind, NETWORK_POLICY, ROLE_BINDING, SECRET, SERVICE},
    manifests::{agent, http_tool},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_foreign_object_under_a_childs_name_is_left_untouched,
    an_agent_called_kubernetes_leaves_the_api_servers_service_alone,
    a_foreign_object_that_another_controller_owns_is_left_untouched,
    the_operators_account_may_change_only_what_is_ours,
    the_operators_account_may_make_nothing_of_its_own_wherever_it_is_installed,
);

async fn a_foreign_object_under_a_childs_name_is_left_untouched(ns: Namespace) -> Result<()> {
    ns.provide(&http_tool("weather")).await?;
    let mut strangers = Vec::new();
    for kind in CHILDREN {
        let agent = format!("wants-{}", kind.kind.to_lowercase());
        let name = kind.child_of(&agent);
        ns.create_object(&stranger(kind, &name)).await?;
        let settled = |it: &Object| {
            kind != DEPLOYMENT
                || (it.is_current() && it.at("/status/conditions").as_array().is_some_and(|all| all.len() >= 2))
        };
        strangers.push((kind, agent, ns.until(kind, &name, REPORT_TIMEOUT, "has settled", settled).await?));
    }
    for (_, name, _) in &strangers {
        ns.apply(&agent(name, json!({"tools": ["weather"]}))).await?;
    }
    for (kind, agent, before) in &strangers {
        let name = kind.child_of(agent);
        let failed = ns
            .await_agent_not_ready(agent, REPORT_TIMEOUT, "Failed", &["NameConflict", &format!("{}/{name}", kind.kind)])
            .await?;
        ensure!(failed.condition("Stalled").is_true(), "{}", failed.describe());
        let now = ns.get(*kind, &name).await?;
        ensure!(now.revision() == before.revision(), "{}/{name} was written", kind.kind);
    }
    for (kind, agent, _) in &strangers {
        ns.delete(*kind, &kind.child_of(agent)).await?;
    }
    for (_, agent, _) in &strangers {
        ns.await_agent_running(agent).await?;
    }
    Ok(())
}

async fn an_agent_called_kubernetes_leaves_the_api_servers_service_alone(ns: Namespace) -> Result<()> {
    let default = Namespace::existing(ns.env.clone(), "default");
    let before = default.get(SERVICE, "kubernetes").await?;
    default.apply(&agent("kubernetes", json!({}))).await?;
    let failed = default
        .await_agent_not_ready("kubernetes", REPORT_TIMEOUT, "Failed", &["NameConflict", "Service/kubernetes"])
        .await;
    let now = default.get(SERVICE, "kubernetes").await;
    default.delete(AGENT, "kubernetes").await?;
    default.until_gone(AGENT, "kubernetes", Duration::from_secs(30)).await?;
    failed?;
    ensure!(now?.revision() == before.revision(), "Service/kubernetes was written");
    ensure!(
        default.get(SERVICE, "kubernetes").await?.revision() == before.revision(),
        "Service/kubernetes was written"
    );
    default.until_gone(DEPLOYMENT, "kubernetes", START_TIMEOUT).await
}

async fn a_foreign_object_that_another_controller_owns_is_left_untouched(ns: Namespace) -> Result<()> {
    // Our labels are not enough for ownership: the controller of this object is another Agent.
    let owner = ns.start(&agent("first", json!({}))).await?;
    let mut body = stranger(CONFIG_MAP, "second-config");
    body["metadata"]["labels"] = json!({
        "app.kubernetes.io/name": "second", "app.kubernetes.io/part-of": "recif",
        "app.kubernetes.io/managed-by": crds::MANAGED_BY, "recif.dev/agent": "second",
    });
    body["metadata"]["ownerReferences"] = json!([{
        "apiVersion": AGENT.api_version(), "kind": AGENT.kind, "name": "first", "uid": owner.id(), "controller": true,
    }]);
    let before = ns.create_object(&body).await?;
    ns.apply(&agent("second", json!({}))).await?;
    ns.await_agent_not_ready("second", REPORT_TIMEOUT, "Failed", &["NameConflict", "ConfigMap/second-config"]).await?;
    ensure!(ns.get(CONFIG_MAP, "second-config").await?.revision() == before.revision(), "it was written");
    Ok(())
}

async fn the_operators_account_may_change_only_what_is_ours(ns: Namespace) -> Result<()> {
    // The role of the account allows changes and deletions of all Secrets; the admission policy does not.
    ns.create_object(&stranger(SECRET, "theirs")).await?;
    let mut ours = stranger(SECRET, "ours");
    ours["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": crds::MANAGED_BY});
    ns.create_object(&ours).await?;
    as_operator(&ns, "ours", "PATCH").await?;
    for verb in ["PATCH", "DELETE"] {
        let Err(error) = as_operator(&ns, "theirs", verb).await else { bail!("{verb} of a foreign Secret is allowed") };
        ensure!(error.to_string().contains("only what it made"), "{verb} is refused with {error}");
    }
    Ok(())
}

async fn the_operators_account_may_make_nothing_of_its_own_wherever_it_is_installed(ns: Namespace) -> Result<()> {
    let owner = ns.create_object(&agent("owner", json!({"replicas": 0}))).await?;
    let owned = |mut object: Value| {
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "agents.recif.dev/v1", "kind": "Agent", "name": "owner", "uid": owner.id(), "controller": true,
        }]);
        object
    };
    let token = |mut secret: Value| {
        secret["type"] = json!("kubernetes.io/service-account-token");
        secret["metadata"]["annotations"] = json!({"kubernetes.io/service-account.name": "default"});
        secret
    };
    let mut agent = agent("owner", json!({"replicas": 0}));
    agent["spec"]["systemPrompt"] = json!("changed");
    let mut binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "recif-operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}, "subjects": [],
    });
    ns.create_object(&binding).await?;
    binding["subjects"] = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}]);
    let mut held = binding.clone();
    held["metadata"]["finalizers"] = json!([crds::FINALIZER]);
    held["subjects"] = json!([]);
    // The account has every permission except those that the policies deny, in its own namespace and in any other.
    for account in [OPERATOR.to_owned(), format!("system:serviceaccount:{}:recif-operator", ns.name)] {
        for (what, object, refusal) in [
            ("a Deployment of its own", stranger(DEPLOYMENT, "own"), Some("what an object of that group controls")),
            ("a Secret of its own", stranger(SECRET, "own"), Some("what an object of that group controls")),
            ("a token", token(owned(stranger(SECRET, "own"))), Some("service-account-token")),
            ("a child", owned(stranger(SECRET, "child")), None),
            ("another spec", agent.clone(), Some("may change no spec")),
            ("more rights", binding.clone(), Some("but its own finalizer")),
            ("its finalizer", held.clone(), None),
        ] {
            let sent = apply_as(&ns, &account, &object).await;
            match (sent, refusal) {
                (Ok(_), None) => {}
                (Err(error), Some(words)) if error.to_string().contains(words) => {}
                (sent, _) => bail!("{what}, by {account}: {sent:?}"),
            }
        }
        let elsewhere = apply_as(&ns, &account, &stranger(SECRET, "recif-identity")).await;
        ensure!(elsewhere.is_ok() == (account != OPERATOR), "the gateways' keys, by {account}: {elsewhere:?}");
    }
    ns.edit(ROLE_BINDING, "recif-operator", json!({"metadata": {"finalizers": null}})).await?;
    ns.delete(AGENT, "owner").await
}

/// Sends a dry run of a server-side apply as this account, which has every permission for it.
async fn apply_as(ns: &Namespace, account: &str, object: &Value) -> Result<Value> {
    let kind = KubeKind::of(object).context("a kind")?;
    let (group, name) = (kind.api_version(), object["metadata"]["name"].as_str().unwrap_or_default());
    let root = if group.contains('/') { "apis" } else { "api" };
    let path = format!("/{root}/{group}/namespaces/{}/{}/{name}", ns.name, kind.plural);
    let request = http::Request::patch(format!("{path}?fieldManager=e2e&force=true&dryRun=All"))
        .header("impersonate-user", account)
        .header("impersonate-group", "system:masters")
        .header("content-type", "application/apply-patch+yaml");
    Ok(ns.env.client.request(request.body(object.to_string().into_bytes())?).await?)
}

/// Sends a request as the operator's account.
async fn as_operator(ns: &Namespace, secret: &str, verb: &str) -> Result<Value> {
    let path = format!("/api/v1/namespaces/{}/secrets/{secret}", ns.name);
    let request = http::Request::builder()
        .method(verb)
        .uri(path)
        .header("impersonate-user", OPERATOR)
        .header("content-type", "application/merge-patch+json");
    let body = if verb == "PATCH" { json!({"data": {"key": "Y2hhbmdlZA=="}}).to_string() } else { String::new() };
    Ok(ns.env.client.request(request.body(body.into_bytes())?).await?)
}

/// Returns an object of another owner.
fn stranger(kind: KubeKind, name: &str) -> Value {
    let mut body = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": name}});
    let labels = json!({"app": "stranger"});
    if kind == CONFIG_MAP || kind == SECRET {
        body["data"] = json!({"key": "dmFsdWU="});
    } else if kind == SERVICE {
        body["spec"] = json!({"selector": labels, "ports": [{"port": 80}]});
    } else if kind == NETWORK_POLICY {
        body["spec"] = json!({"podSelector": {"matchLabels": labels}, "policyTypes": ["Egress"], "egress": [{}]});
    } else if kind == DEPLOYMENT {
        body["spec"] = json!({
            "replicas": 0, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "none"}]}},
        });
    }
    body
}
