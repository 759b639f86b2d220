//! Tests the identity of callers: the workload receives only headers that a gateway signed.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::gateway_auth::send_request;
use crate::{
    client::{ClientTarget, HttpClientResponse},
    kinds::{AGENT, DEPLOYMENT, NETWORK_POLICY, SECRET, TOOL},
    manifests::{object, workload},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::ObjectExt as _,
    operator,
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_name_that_no_gateway_signed_is_no_name,
    who_requires_identity_answers_gateways_alone,
    a_policy_closes_the_port_of_the_image_alone,
);

pub(super) const ALONE: &[Scenario] = scenarios!(Serial:
    a_rotation_costs_no_request_and_no_pod,
    a_deleted_secret_is_put_back_with_the_keys_that_pods_know,
);

/// Returns the `X-Recif-` headers that the workload received.
fn recif_headers(text: &str) -> Result<Vec<(String, String)>> {
    let seen: Value = serde_json::from_str(text)?;
    let headers = seen["headers"].as_array().context("no headers")?;
    let pairs = headers.iter().filter_map(|pair| Some((pair[0].as_str()?.to_owned(), pair[1].as_str()?.to_owned())));
    Ok(pairs.filter(|(name, _)| name.starts_with("x-recif-")).collect())
}

/// Returns the first response of a Service, which kube-proxy may route only a moment after its Pod is ready.
async fn first_answer(ns: &Namespace, target: &ClientTarget, path: &str) -> Result<HttpClientResponse> {
    let what = format!("an answer through the {}", target.route);
    poll(START_TIMEOUT, &what, || async { send_request(ns, target, "GET", path, "").await.map(Some) }).await
}

async fn a_name_that_no_gateway_signed_is_no_name(ns: Namespace) -> Result<()> {
    ns.start(&workload("listener", json!({}))).await?;
    let spoofed = "X-Recif-User: another-user\r\nX-Recif-Caller: x.y.z\r\nX-Recif-Via: another-user\r\n";
    let mut gateway = ClientTarget::gateway(&ns, AGENT, "listener").await?;
    gateway.headers += spoofed;
    let through = recif_headers(&send_request(&ns, &gateway, "GET", "/seen", "").await?.text)?;
    let names: Vec<&str> = through.iter().map(|(name, _)| name.as_str()).collect();
    ensure!(names == ["x-recif-via", "x-recif-user"], "{through:?}");
    ensure!(through.iter().all(|(_, value)| value != "another-user"), "{through:?}");
    let mut service = ClientTarget::service(&ns, "listener").await?;
    service.headers += spoofed;
    let around = recif_headers(&first_answer(&ns, &service, "/seen").await?.text)?;
    ensure!(around.is_empty(), "from another Pod: {around:?}");
    Ok(())
}

async fn who_requires_identity_answers_gateways_alone(ns: Namespace) -> Result<()> {
    ns.start(&workload("strict", json!({"proxy": {"requireIdentity": true}}))).await?;
    let service = ClientTarget::service(&ns, "strict").await?;
    let refused = first_answer(&ns, &service, "/seen").await?;
    ensure!(refused.status == 401 && refused.header("x-recif-reason") == Some("identity"), "{refused:?}");
    let answer = send_request(&ns, &ClientTarget::gateway(&ns, AGENT, "strict").await?, "GET", "/seen", "").await?;
    ensure!(answer.status == 200, "{answer:?}");
    let spec = json!({"name": "strict", "type": "agent", "agentRef": {"name": "strict"}});
    ns.apply(&object(TOOL, "strict", spec)).await?;
    ns.await_not_ready(
        TOOL,
        "strict",
        REPORT_TIMEOUT,
        "Error",
        &["IdentityRequired", "only requests through the gateway"],
    )
    .await
    .map(drop)
}

async fn a_policy_closes_the_port_of_the_image_alone(ns: Namespace) -> Result<()> {
    ns.start(&workload("closed", json!({}))).await?;
    let deployment = ns.get(DEPLOYMENT, "closed").await?;
    let port = deployment.at("/spec/template/spec/containers/0/ports/0/containerPort").as_i64().context("no port")?;
    let policy = ns.get(NETWORK_POLICY, "closed-sidecar").await?;
    let ports = json!([
        {"protocol": "TCP", "port": 1, "endPort": port - 1},
        {"protocol": "TCP", "port": port + 1, "endPort": 65535},
        {"protocol": "UDP"},
        {"protocol": "SCTP"},
    ]);
    let expected = json!({
        "podSelector": {"matchLabels": deployment.at("/spec/selector/matchLabels")},
        "policyTypes": ["Ingress"], "ingress": [{"ports": ports}],
    });
    ensure!(policy.at("/spec") == &expected, "{}", policy.at("/spec"));
    let deny = json!({"apiVersion": NETWORK_POLICY.api_version(), "kind": NETWORK_POLICY.kind,
        "metadata": {"name": "deny"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}});
    ns.create_object(&deny).await?;
    ns.until_gone(NETWORK_POLICY, "closed-sidecar", REPORT_TIMEOUT).await
}

async fn a_rotation_costs_no_request_and_no_pod(ns: Namespace) -> Result<()> {
    ns.start(&workload("strict", json!({"proxy": {"requireIdentity": true}}))).await?;
    let (gateway, pods) = (ClientTarget::gateway(&ns, AGENT, "strict").await?, ns.pod_uids("strict").await?);
    let done = AtomicBool::new(false);
    let calls = async {
        let mut calls = 0;
        while !done.load(Relaxed) || calls < 50 {
            let answer = send_request(&ns, &gateway, "GET", "/seen", "").await?;
            ensure!(answer.status == 200 && !recif_headers(&answer.text)?.is_empty(), "call {calls}: {answer:?}");
            calls += 1;
        }
        Ok::<_, anyhow::Error>(())
    };
    let rotation = async {
        let before = ns.env.within(operator::NAMESPACE, SECRET).get("recif-identity").await?;
        let (code, message) = ns.env.recif(&["rotate-identity"]).await?;
        let now = ns.env.within(operator::NAMESPACE, SECRET).get("recif-identity").await?;
        ensure!(code == 0 && now.at("/data/current") == before.at("/data/next"), "{code}: {message}");
        // The Pods know the current signing key, but not the one after it.
        let (code, message) = ns.env.recif(&["rotate-identity"]).await?;
        let named = format!("agent/strict -n {}", ns.name);
        ensure!(code == 3 && message.contains(&named), "{code}: {message}");
        done.store(true, Relaxed);
        Ok::<_, anyhow::Error>(())
    };
    tokio::try_join!(calls, rotation)?;
    ensure!(ns.pod_uids("strict").await? == pods, "Pods were replaced");
    Ok(())
}

async fn a_deleted_secret_is_put_back_with_the_keys_that_pods_know(ns: Namespace) -> Result<()> {
    let secrets = ns.env.within(operator::NAMESPACE, SECRET);
    let before = secrets.get("recif-identity").await?;
    secrets.delete("recif-identity", &Default::default()).await?;
    let now = poll(REPORT_TIMEOUT, "the Secret is there again", || async {
        Ok(secrets.get_opt("recif-identity").await?.filter(|it| it.id() != before.id()))
    })
    .await?;
    ensure!(now.at("/data") == before.at("/data"), "the keys are others");
    Ok(())
}
