//! Tests the responses of the gateway itself, and the changes that it makes to a request.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::traffic::{await_response, send_request};
use crate::{
    client::{ClientTarget, HttpClientConnection, HttpClientResponse},
    kinds::{AGENT, SERVICE},
    manifests::{agent, workload},
    namespace::{Namespace, REPORT_TIMEOUT},
    object::ObjectExt as _,
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    who_cannot_be_reached_is_said_in_a_sentence,
    nothing_of_the_sidecar_is_reached_through_it,
    a_service_with_a_workloads_labels_gets_none_of_its_requests,
    the_rest_of_the_path_and_the_headers_arrive_as_they_should,
);

/// Returns the reason and the message of a refusal.
fn refusal(answer: &HttpClientResponse) -> Result<(String, String)> {
    let body: Value = serde_json::from_str(&answer.text).with_context(|| format!("{answer:?}"))?;
    let word = |key: &str| body[key].as_str().map(ToOwned::to_owned).with_context(|| format!("no {key} in {body}"));
    Ok((word("reason")?, word("error")?))
}

async fn who_cannot_be_reached_is_said_in_a_sentence(ns: Namespace) -> Result<()> {
    let missing = ClientTarget::gateway(&ns, AGENT, "missing").await?;
    // The first scenarios begin before the node forwards the gateway's Service. What it answers then has to be right at once.
    let answer = poll(REPORT_TIMEOUT, "an answer of the gateway", || async {
        Ok(Some(send_request(&ns, &missing, "GET", "/").await?))
    })
    .await?;
    let (_, error) = refusal(&answer)?;
    ensure!(answer.status == 404 && !error.is_empty(), "{answer:?}");

    ns.apply(&agent("waiting", json!({"tools": ["not-yet-there"]}))).await?;
    ns.apply(&agent("stopped", json!({"replicas": 0}))).await?;
    ns.apply(&agent("invalid", json!({"tools": ["no/name"]}))).await?;
    for (name, words) in [("waiting", "not-yet-there"), ("stopped", "stopped"), ("invalid", "no/name")] {
        let target = ClientTarget::gateway(&ns, AGENT, name).await?;
        poll(REPORT_TIMEOUT, &format!("the gateway says of {name} {words:?}"), || async {
            let answer = send_request(&ns, &target, "GET", "/").await?;
            let (reason, error) = refusal(&answer)?;
            ensure!(answer.status == 503 && !reason.is_empty() && error.contains(words), "{answer:?}");
            ensure!(answer.header("retry-after").is_some(), "{answer:?}");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}

async fn nothing_of_the_sidecar_is_reached_through_it(ns: Namespace) -> Result<()> {
    ns.start(&workload("guarded", json!({}))).await?;
    let gateway = ClientTarget::gateway(&ns, AGENT, "guarded").await?;
    await_response(&ns, &gateway).await?;
    let paths =
        ["/_recif/inflight", "/_recif/drain", "/_recif/lame-duck", "/_recif", "/metrics", "/_recif/inflight?x=1"];
    let written_otherwise = ["/%5Frecif/inflight", "/_recif%2Finflight", "//_recif/inflight", "/%6Detrics"];
    for path in paths.into_iter().chain(written_otherwise) {
        let answer = send_request(&ns, &gateway, "GET", path).await?;
        let of_the_sidecar = answer.text.contains("uptimeMs") || answer.text.contains("recif_proxy");
        ensure!(answer.status == 404 && !of_the_sidecar, "{path}: {answer:?}");
    }
    for path in ["/x/../_recif/inflight", "/%2e%2e/metrics", "/x/..%2f_recif/inflight", "/./metrics"] {
        let answer = send_request(&ns, &gateway, "GET", path).await?;
        ensure!(answer.status == 400, "{path}: {answer:?}");
    }
    // The hooks, which drain the Pod, require a key, also for requests that reach the sidecar directly.
    let service = ClientTarget::service(&ns, "guarded").await?;
    await_response(&ns, &service).await?;
    for path in ["/_recif/drain", "/_recif/lame-duck"] {
        let answer = send_request(&ns, &service, "GET", path).await?;
        ensure!(answer.status == 404, "{path}: {answer:?}");
    }
    await_response(&ns, &gateway).await
}

async fn a_service_with_a_workloads_labels_gets_none_of_its_requests(ns: Namespace) -> Result<()> {
    for name in ["owner", "stranger"] {
        ns.start(&workload(name, json!({}))).await?;
    }
    let (gateway, stranger) =
        (ClientTarget::gateway(&ns, AGENT, "owner").await?, ClientTarget::service(&ns, "stranger").await?);
    await_response(&ns, &gateway).await?;
    await_response(&ns, &stranger).await?;
    let (owned, theirs) = (ns.get(SERVICE, "owner").await?, ns.get(SERVICE, "stranger").await?);
    // An EndpointSlice has the labels of its Service.
    let thief = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "thief", "labels": owned.metadata.labels},
        "spec": {"selector": theirs.at("/spec/selector"), "ports": theirs.at("/spec/ports")
            .as_array().into_iter().flatten().map(|port| json!({"name": port["name"], "port": port["port"],
                "targetPort": port["targetPort"]})).collect::<Vec<_>>()},
    });
    ns.create_object(&thief).await?;
    let thief = ClientTarget::service(&ns, "thief").await?;
    await_response(&ns, &thief).await?;
    let completed = async || -> Result<Value> {
        let stats = send_request(&ns, &stranger, "GET", "/stats").await?;
        Ok(serde_json::from_str::<Value>(&stats.text).with_context(|| format!("{stats:?}"))?["completed"].clone())
    };
    let before = completed().await?;
    for _ in 0..30 {
        let answer = send_request(&ns, &gateway, "GET", "/sleep?ms=0").await?;
        ensure!(answer.status == 200, "{answer:?}");
    }
    let after = completed().await?;
    ensure!(before.is_u64() && before == after, "the stranger got {after} requests, {before} before");
    Ok(())
}

async fn the_rest_of_the_path_and_the_headers_arrive_as_they_should(ns: Namespace) -> Result<()> {
    ns.start(&workload("seer", json!({}))).await?;
    let mut gateway = ClientTarget::gateway(&ns, AGENT, "seer").await?;
    await_response(&ns, &gateway).await?;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    gateway.headers += "X-Recif-User: another-user\r\nX-Recif-Anything: x\r\nTE: gzip\r\nConnection: X-Mine\r\n\
                        X-Mine: for you only\r\nX-Theirs: a, b\r\nX-Forwarded-For: 192.0.2.1\r\n";
    gateway.headers += &format!("traceparent: {trace}\r\n");
    let rest = "/seen/a%2Fb//c;d=1/%E2%82%AC?q=%20+&&x=//..";
    let (target, host) = (gateway.clone(), gateway.address.to_string());
    let inside = ns.env.netns().await?;
    let answer = inside.run(async move { HttpClientConnection::request(&target, "PATCH", rest, "{}").await }).await?;
    // The response is not printed on a failure: it would contain the token if the gateway had forwarded it.
    let seen: Value = serde_json::from_str(&answer.text)?;
    ensure!(!answer.text.contains(ns.env.token()?), "the token was passed on");
    ensure!(seen["line"] == format!("PATCH {rest} HTTP/1.1"), "{seen}");
    let headers = seen["headers"].as_array().context("no headers")?;
    let values = |name: &str| -> Vec<&str> {
        headers.iter().filter(|header| header[0] == name).filter_map(|header| header[1].as_str()).collect()
    };
    let one = |name: &str| values(name).first().copied().unwrap_or_default().to_owned();
    ensure!(values("host") == [host.as_str()], "{seen}");
    ensure!(values("x-forwarded-prefix") == [gateway.prefix.as_str()], "{seen}");
    ensure!(values("x-forwarded-host") == [host.as_str()] && values("x-forwarded-proto") == ["http"], "{seen}");
    ensure!(one("x-forwarded-for").starts_with("192.0.2.1, "), "{seen}");
    ensure!(values("x-theirs") == ["a, b"] && values("content-length") == ["2"], "{seen}");
    ensure!(values("traceparent") == [trace], "{seen}");
    ensure!(values("te") == ["trailers"] && values("connection") == ["TE"], "{seen}");
    ensure!(!one("x-recif-user").is_empty() && one("x-recif-user") != "another-user", "{seen}");
    for name in ["authorization", "x-recif-anything", "x-mine"] {
        ensure!(values(name).is_empty(), "{name} was passed on: {seen}");
    }
    Ok(())
}
