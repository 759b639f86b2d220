//! Tests requests on both ways to a workload: through its Service and through the gateway.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::{
    client::{ClientTarget, HttpClientConnection, HttpClientResponse, check_websocket_echo},
    kinds::{AGENT, POD},
    manifests::workload,
    namespace::{Namespace, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    an_agent_restarted_by_its_liveness_probe_serves_again,
    an_agent_that_dies_breaks_its_streams_off,
    no_more_than_the_cap_reaches_an_agent,
    chats_streams_and_websockets_pass_as_they_are,
);

/// Returns both ways to an agent.
pub(super) async fn targets_of(ns: &Namespace, agent: &str) -> Result<[ClientTarget; 2]> {
    Ok([ClientTarget::service(ns, agent).await?, ClientTarget::gateway(ns, AGENT, agent).await?])
}

/// Sends a request from inside the cluster and returns the response.
pub(super) async fn send_request(
    ns: &Namespace,
    target: &ClientTarget,
    method: &'static str,
    path: &str,
) -> Result<HttpClientResponse> {
    let (target, path) = (target.clone(), path.to_owned());
    ns.env.netns().await?.run(async move { HttpClientConnection::request(&target, method, &path, "").await }).await
}

/// Waits until an agent responds on this way.
pub(super) async fn await_response(ns: &Namespace, target: &ClientTarget) -> Result<()> {
    poll(START_TIMEOUT, &format!("an answer through the {}", target.route), || async {
        let answer = send_request(ns, target, "GET", "/sleep?ms=0").await?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(Some(()))
    })
    .await
}

async fn chats_streams_and_websockets_pass_as_they_are(ns: Namespace) -> Result<()> {
    ns.start(&workload("carrier", json!({}))).await?;
    let inside = ns.env.netns().await?;
    for target in targets_of(&ns, "carrier").await? {
        await_response(&ns, &target).await?;
        let way = target.route;
        let all = async move {
            let chat = HttpClientConnection::request(&target, "POST", "/chat", r#"{"message": "hi"}"#).await?;
            let reply: Value = serde_json::from_str(&chat.text)?;
            ensure!(chat.status == 200 && reply == json!({"reply": "echo: hi"}), "{chat:?}");
            first_event_before_the_second_is_there(&target).await?;
            check_websocket_echo(&target, "/ws").await
        };
        inside.run(all).await.with_context(|| format!("through the {way}"))?;
    }
    Ok(())
}

/// Checks that the first event arrives before the second one is sent: the workload sends the second event only after a
/// request that follows the first one.
async fn first_event_before_the_second_is_there(target: &ClientTarget) -> Result<()> {
    let gate = format!("gate={}", target.route);
    let mut stream = HttpClientConnection::open(target).await?;
    let answer = stream.begin("GET", &format!("/events?{gate}"), "").await?;
    ensure!(answer.header("content-type") == Some("text/event-stream"), "{answer:?}");
    ensure!(stream.next().await?.as_deref() == Some("data: first\n\n"), "another first event");
    HttpClientConnection::request(target, "POST", &format!("/open?{gate}"), "").await?;
    ensure!(stream.next().await?.as_deref() == Some("data: second\n\n"), "another second event");
    ensure!(stream.next().await?.is_none() && stream.is_reusable(), "the stream does not end well");
    Ok(())
}

async fn no_more_than_the_cap_reaches_an_agent(ns: Namespace) -> Result<()> {
    const CAP: usize = 2;
    ns.start(&workload("capped", json!({"proxy": {"concurrency": CAP}}))).await?;
    let [service, gateway] = targets_of(&ns, "capped").await?;
    // A Service routes to a new Pod only a while after it is ready.
    await_response(&ns, &service).await?;
    await_response(&ns, &gateway).await?;
    let inside = ns.env.netns().await?;
    let reported = {
        let (service, gateway) = (service.clone(), gateway.clone());
        inside.run(async move {
            let mut streams = Vec::new();
            for _ in 0..CAP {
                let mut stream = HttpClientConnection::open(&service).await?;
                stream.begin("GET", "/events?gate=cap", "").await?;
                stream.next().await?;
                streams.push(stream);
            }
            // Clients of the Service get a refusal with `Retry-After`; requests through the gateway wait there.
            let refused =
                try_join_all((0..6).map(|_| HttpClientConnection::request(&service, "GET", "/sleep?ms=0", ""))).await?;
            let waiting = (0..6).map(|_| HttpClientConnection::request(&gateway, "GET", "/sleep?ms=100", ""));
            let end = async {
                tokio::time::sleep(Duration::from_millis(500)).await;
                // The request that opens the gate needs a free slot, too.
                drop(streams.pop());
                let open = || HttpClientConnection::request(&service, "POST", "/open?gate=cap", "");
                poll(START_TIMEOUT, "the gate open", || async { Ok((open().await?.status == 200).then_some(())) })
                    .await?;
                for mut stream in streams {
                    while stream.next().await?.is_some() {}
                }
                Ok(())
            };
            let (waited, ()) = tokio::try_join!(try_join_all(waiting), end)?;
            Ok((refused, waited))
        })
    };
    let (refused, waited) = reported.await?;
    for answer in &refused {
        ensure!(answer.status == 503 && answer.header("retry-after") == Some("1"), "{answer:?}");
        ensure!(answer.header("x-recif-reason") == Some("over-capacity"), "{answer:?}");
        ensure!(answer.header("x-recif-load") == Some("2/2"), "{answer:?}");
    }
    for answer in &waited {
        ensure!(answer.status == 200 && answer.header("x-recif-load").is_none(), "{answer:?}");
    }
    let stats = send_request(&ns, &service, "GET", "/stats").await?;
    let stats: Value = serde_json::from_str(&stats.text).with_context(|| format!("{stats:?}"))?;
    ensure!(stats["highest"] == CAP, "{stats}");
    Ok(())
}

async fn an_agent_that_dies_breaks_its_streams_off(ns: Namespace) -> Result<()> {
    ns.start(&workload("mortal", json!({}))).await?;
    let targets = targets_of(&ns, "mortal").await?;
    for target in &targets {
        await_response(&ns, target).await?;
    }
    let inside = ns.env.netns().await?;
    let ended = inside.run(async move {
        for target in &targets {
            let mut stream = HttpClientConnection::open(target).await?;
            stream.begin("GET", "/abort", "").await?;
            let end = stream.next().await;
            ensure!(end.is_err(), "through the {} a reset is seen as {end:?}", target.route);
        }
        let mut streams = Vec::new();
        for target in &targets {
            let mut stream = HttpClientConnection::open(target).await?;
            stream.begin("GET", "/hold?ms=600000", "").await?;
            ensure!(stream.next().await?.is_some(), "no first event");
            streams.push((target.route, stream));
        }
        // The response is lost with the process.
        let last = HttpClientConnection::request(&targets[0], "POST", "/exit", "").await?;
        ensure!(last.status == 502, "{last:?}");
        for (way, mut stream) in streams {
            let end = loop {
                match stream.next().await {
                    Ok(Some(_)) => {}
                    end => break end,
                }
            };
            ensure!(end.is_err(), "through the {way} a stream that was cut off is seen as {end:?}");
        }
        Ok(targets)
    });
    for target in &ended.await? {
        await_response(&ns, target).await?;
    }
    Ok(())
}

async fn an_agent_restarted_by_its_liveness_probe_serves_again(ns: Namespace) -> Result<()> {
    let probe = json!({"periodSeconds": 1, "failureThreshold": 1});
    let template = json!({"spec": {"containers": [{"name": "agent", "livenessProbe": probe}]}});
    ns.start(&workload("broken", json!({"podTemplate": template}))).await?;
    let targets = targets_of(&ns, "broken").await?;
    await_response(&ns, &targets[0]).await?;
    let before = ns.pod_uids("broken").await?;
    // The probe forgives nothing: on a busy machine it may have restarted the container before, and may do so again.
    let restarts = |pod: &Object| pod.number("/status/containerStatuses/0/restartCount");
    let earlier = ns.list(POD).await?.iter().map(restarts).max().context("no Pod")?;
    send_request(&ns, &targets[0], "POST", "/break").await?;
    let restarted = |pod: &Object| restarts(pod) > earlier;
    ns.until_all(POD, START_TIMEOUT, "the agent's container restarted", |pods| pods.values().all(restarted)).await?;
    for target in &targets {
        await_response(&ns, target).await?;
    }
    ensure!(ns.pod_uids("broken").await? == before, "the Pod was replaced");
    let pod = ns.list(POD).await?.pop().context("no Pod")?;
    ensure!(pod.number("/status/initContainerStatuses/0/restartCount") == 0, "the sidecar was restarted, too");
    Ok(())
}
