//! Tests that the control plane shows the state of the cluster to users with the permission to see it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::gateway_auth::{bind, send_request, token, with_token, without_token};
use crate::{
    client::{ClientTarget, HttpClientConnection},
    kinds::{AGENT, EVENT},
    manifests::agent,
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    lists_and_objects_are_as_the_cluster_has_them,
    why_and_trace_say_what_the_commands_say,
    changes_are_told_live_and_a_client_goes_on_where_it_was,
    what_hangs_on_an_object_is_shown,
    a_caller_sees_what_he_may_see,
    a_chat_goes_through_to_the_gateway,
    the_shipped_history_outlives_its_objects,
);

/// Longest wait for a change or a new permission to be visible: a denial is cached for 5 s.
const SHOWN: Duration = Duration::from_secs(20);

async fn get(ns: &Namespace, target: &ClientTarget, path: &str) -> Result<(u16, Value)> {
    let answer = send_request(ns, target, "GET", path, "").await?;
    let value = serde_json::from_str(&answer.text).with_context(|| format!("{path}: {answer:?}"))?;
    Ok((answer.status, value))
}

/// Waits until the shown value satisfies the predicate, and returns it.
async fn await_shown(
    ns: &Namespace,
    target: &ClientTarget,
    path: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Result<Value> {
    poll(SHOWN, path, || async {
        let (status, value) = get(ns, target, path).await?;
        ensure!(status == 200 && wanted(&value), "{status}: {value}");
        Ok(Some(value))
    })
    .await
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().into_iter().flatten().filter_map(|item| item["name"].as_str()).collect()
}

async fn lists_and_objects_are_as_the_cluster_has_them(ns: Namespace) -> Result<()> {
    let target = ClientTarget::control_plane(&ns.env).await?;
    let secret = json!({ "env": [{ "name": "MY_TOKEN", "value": "shown-to-no-client" }] });
    ns.start(&agent("runs", secret)).await?;
    ns.apply(&agent("waits", json!({"tools": ["nowhere"]}))).await?;
    ns.await_agent_not_ready("waits", REPORT_TIMEOUT, "Resolving", &["nowhere"]).await?;
    let list = format!("/v1/fleet?namespace={}", ns.name);
    let fleet = await_shown(&ns, &target, &list, |fleet| {
        names(fleet) == ["waits", "runs"]
            && fleet["items"][0]["phase"] == "Resolving"
            && fleet["items"][0]["why"].as_str().is_some_and(|why| why.contains("nowhere"))
            && fleet["items"][1]["phase"] == "Running"
    })
    .await?;
    ensure!(fleet["items"][1]["why"].is_null(), "{fleet}");
    ensure!(fleet["counts"] == json!({"Agent": {"Resolving": 1, "Running": 1}}), "{fleet}");
    let path = format!("/v1/agents/{}/waits/references", ns.name);
    let around = await_shown(&ns, &target, &path, |around| !around["edges"].is_null()).await?;
    let (from, to) = (format!("Agent/{}/waits", ns.name), format!("Tool/{}/nowhere", ns.name));
    ensure!(around["edges"] == json!([{"from": from, "to": to, "broken": true}]), "{around}");
    let path = format!("/v1/agents/{}/runs", ns.name);
    // A write in between is awaited, too.
    let (stored, object) = poll(SHOWN, &path, || async {
        let stored = ns.get(AGENT, "runs").await?;
        let (status, object) = get(&ns, &target, &path).await?;
        let version = object["metadata"]["resourceVersion"].as_str();
        ensure!(status == 200 && version == stored.metadata.resource_version.as_deref(), "{status}: {object}");
        Ok(Some((stored, object)))
    })
    .await?;
    ensure!(object["status"] == *stored.at("/status"), "{object}");
    ensure!(object["spec"]["image"] == *stored.at("/spec/image"), "{object}");
    ensure!(!object.to_string().contains("shown-to-no-client"), "{object}");
    // With a page size of one, each object is returned once.
    let mut seen = Vec::new();
    let mut next = String::new();
    for _ in 0..3 {
        let (_, page) = get(&ns, &target, &format!("/v1/agents?namespace={}&limit=1&continue={next}", ns.name)).await?;
        seen.extend(names(&page).into_iter().map(str::to_owned));
        match page["continue"].as_str() {
            Some(place) => next = place.to_owned(),
            None => break,
        }
    }
    ensure!(seen == ["runs", "waits"], "{seen:?}");
    let (status, problem) = get(&ns, &target, "/v1/fleet?colour=red").await?;
    ensure!(status == 400 && problem["parameter"] == "colour", "{problem}");
    Ok(())
}

async fn why_and_trace_say_what_the_commands_say(ns: Namespace) -> Result<()> {
    let target = ClientTarget::control_plane(&ns.env).await?;
    ns.apply(&agent("waits", json!({"tools": ["nowhere"]}))).await?;
    ns.apply(&agent("fails", json!({"storage": "postgresql"}))).await?;
    ns.await_agent_not_ready("waits", REPORT_TIMEOUT, "Resolving", &["nowhere"]).await?;
    ns.await_agent_not_ready("fails", REPORT_TIMEOUT, "Failed", &["MissingDatabaseUrl"]).await?;
    ns.start(&agent("runs", json!({}))).await?;
    for name in ["runs", "waits", "fails"] {
        let path = format!("/v1/agents/{}/{name}/why", ns.name);
        poll(SHOWN, &path, || async {
            let (_, message) = ns.env.recif(&["why", &format!("agent/{name}"), "-n", &ns.name]).await?;
            let mut lines = message.lines();
            let (_, why) = get(&ns, &target, &path).await?;
            ensure!(why["sentence"].as_str() == lines.next(), "{why} instead of {message}");
            let details: Vec<&str> = lines.map(str::trim).filter(|line| !line.contains(" says: ")).collect();
            ensure!(why["waitingFor"] == json!(details), "{why} instead of {message}");
            Ok(Some(()))
        })
        .await?;
        let seqs = |entries: &Value| -> Vec<i64> {
            entries.as_array().into_iter().flatten().filter_map(|entry| entry["seq"].as_i64()).collect()
        };
        let path = format!("/v1/agents/{}/{name}/trace", ns.name);
        let trace = poll(SHOWN, &path, || async {
            let expected = seqs(ns.get(AGENT, name).await?.at("/status/history"));
            let (status, trace) = get(&ns, &target, &path).await?;
            ensure!(status == 200 && seqs(&trace["entries"]).ends_with(&expected), "{status}: {trace}");
            Ok(Some(trace))
        })
        .await?;
        ensure!(trace["gaps"] == json!([]), "{trace}");
    }
    Ok(())
}

/// Client of the event stream, with the text that it has received.
struct EventStreamClient {
    connection: HttpClientConnection,
    received: String,
}

impl EventStreamClient {
    async fn start(target: &ClientTarget, last: &str) -> Result<Self> {
        let mut target = target.clone();
        if !last.is_empty() {
            target.headers += &format!("Last-Event-ID: {last}\r\n");
        }
        let mut connection = HttpClientConnection::open(&target).await?;
        let answer = connection.begin("GET", "/v1/events", "").await?;
        ensure!(answer.header("content-type") == Some("text/event-stream"), "{answer:?}");
        Ok(Self { connection, received: String::new() })
    }

    /// Reads until one event contains all of `wanted`.
    async fn await_event(&mut self, deadline: Duration, wanted: &[&str]) -> Result<()> {
        tokio::time::timeout(deadline, async {
            while !self.received.split("\n\n").any(|event| wanted.iter().all(|word| event.contains(word))) {
                self.received += &self.connection.next().await?.context("the stream ended")?;
            }
            Ok(())
        })
        .await
        .with_context(|| format!("no event with {wanted:?} in {}", self.received))?
    }

    /// Returns the id of the last received event.
    fn last(&self) -> &str {
        self.received.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap_or_default()
    }
}

async fn changes_are_told_live_and_a_client_goes_on_where_it_was(ns: Namespace) -> Result<()> {
    let target = ClientTarget::control_plane(&ns.env).await?;
    let inside = ns.env.netns().await?;
    let namespace = format!("\"namespace\":\"{}\"", ns.name);
    let to = target.clone();
    let mut follower = inside.run(async move { EventStreamClient::start(&to, "").await }).await?;
    let wanted = namespace.clone();
    // It reads while the agent starts: the control plane ends a stream to which it could write nothing for 30 s.
    let followed = inside.run(async move {
        follower.await_event(START_TIMEOUT, &["event: transition", &wanted, "\"from\":\"Pending\""]).await?;
        follower.await_event(START_TIMEOUT, &["event: change", &wanted, "\"phase\":\"Running\""]).await?;
        Ok(follower.last().to_owned())
    });
    let seen = agent("seen", json!({}));
    let (place, _) = tokio::try_join!(followed, ns.start(&seen))?;
    ns.delete(AGENT, "seen").await?;
    ns.until_gone(AGENT, "seen", SHOWN).await?;
    inside
        .run(async move {
            let mut resumed = EventStreamClient::start(&target, &place).await?;
            resumed.await_event(SHOWN, &["event: change", "\"type\":\"deleted\"", &namespace]).await?;
            let mut lost = EventStreamClient::start(&target, "elsewhere-1").await?;
            lost.await_event(SHOWN, &["event: reset"]).await
        })
        .await
}

async fn what_hangs_on_an_object_is_shown(ns: Namespace) -> Result<()> {
    let target = ClientTarget::control_plane(&ns.env).await?;
    ns.start(&agent("runs", json!({"databaseUrl": "postgresql://u:hunter2@db/x", "storage": "memory"}))).await?;
    let at = |part: &str| format!("/v1/agents/{}/runs/{part}", ns.name);
    let children = await_shown(&ns, &target, &at("children"), |children| {
        let items = children["items"].as_array().cloned().unwrap_or_default();
        let has = |kind: &str, state: &str| items.iter().any(|item| item["kind"] == kind && item["state"] == state);
        has("Deployment", "1/1 ready")
            && has("Pod", "Ready")
            && has("Service", "Applied")
            && has("ConfigMap", "Applied")
    })
    .await?;
    let recorded = ns.get(AGENT, "runs").await?.at("/status/children").as_array().map_or(0, Vec::len);
    ensure!(children["items"].as_array().is_some_and(|items| items.len() == recorded + 1), "{children}");
    let rendered = await_shown(&ns, &target, &at("rendered"), |rendered| !rendered["files"].is_null()).await?;
    let text = rendered.to_string();
    ensure!(text.contains("CORAIL_AGENT_NAME") && !text.contains("hunter2"), "{rendered}");
    await_shown(&ns, &target, &at("events"), |events| {
        events["items"].as_array().is_some_and(|items| items.iter().any(|event| event["reason"] == "Running"))
    })
    .await?;
    ns.apply(&agent("lost", json!({"image": "nowhere:1"}))).await?;
    // The kubelet reports the image only after the sidecar has started.
    let lost = |event: &Object| {
        event.text("/involvedObject/name").starts_with("lost-") && event.text("/message").contains("nowhere:1")
    };
    let what = "the kubelet's warning of the image";
    ns.until_all(EVENT, START_TIMEOUT, what, |events| events.values().any(lost)).await?;
    await_shown(&ns, &target, &format!("/v1/agents/{}/lost/events", ns.name), |events| {
        let has = |event: &Value, field: &str, word: &str| event[field].as_str().is_some_and(|it| it.contains(word));
        let is_it = |event: &Value| has(event, "object", "Pod/lost-") && has(event, "message", "nowhere:1");
        events["items"].as_array().is_some_and(|items| items.iter().any(is_it))
    })
    .await?;
    await_shown(&ns, &target, &at("load"), |load| {
        load["inFlight"] == 0 && load["silent"] == 0 && load["pods"].as_array().is_some_and(|pods| pods.len() == 1)
    })
    .await?;
    Ok(())
}

async fn a_caller_sees_what_he_may_see(ns: Namespace) -> Result<()> {
    let target = ClientTarget::control_plane(&ns.env).await?;
    ns.start(&agent("mine", json!({}))).await?;
    for unknown in [without_token(&target), with_token(&target, "Authorization", "wrong")] {
        let answer = send_request(&ns, &unknown, "GET", "/v1/fleet", "").await?;
        ensure!(answer.status == 401 && answer.header("www-authenticate") == Some("Bearer"), "{answer:?}");
    }
    let token = token(&ns, "bot").await?;
    let bot = with_token(&target, "Authorization", &token);
    let object = format!("/v1/agents/{}/mine", ns.name);
    let (status, problem) = get(&ns, &bot, &object).await?;
    ensure!(
        status == 403 && problem["detail"].as_str().is_some_and(|message| message.contains("get agents")),
        "{problem}"
    );
    let (status, problem) = get(&ns, &bot, &format!("/v1/agents?namespace={}", ns.name)).await?;
    ensure!(
        status == 403 && problem["detail"].as_str().is_some_and(|message| message.contains("list agents")),
        "{problem}"
    );
    let (status, me) = get(&ns, &bot, "/v1/me").await?;
    ensure!(status == 200 && me["user"] == format!("system:serviceaccount:{}:bot", ns.name), "{me}");
    bind(&ns, "bot", "ClusterRole", "recif-view").await?;
    await_shown(&ns, &bot, &object, |object| object["kind"] == "Agent").await?;
    // The fleet contains only the objects of the namespace that the ServiceAccount may read.
    let counts = json!({"Agent": {"Running": 1}});
    let fleet =
        await_shown(&ns, &bot, "/v1/fleet", |fleet| names(fleet) == ["mine"] && fleet["counts"] == counts).await?;
    ensure!(fleet["total"] == 1, "{fleet}");
    Ok(())
}

async fn a_chat_goes_through_to_the_gateway(ns: Namespace) -> Result<()> {
    ns.start(&agent("chats", json!({}))).await?;
    let target = ClientTarget::control_plane(&ns.env).await?;
    let path = format!("/gateway/v1/agents/{}/chats/chat", ns.name);
    poll(SHOWN, "an answer through both", || async {
        let answer = send_request(&ns, &target, "POST", &path, r#"{"message":"hi"}"#).await?;
        ensure!(answer.status == 200 && answer.text.contains("echo: hi"), "{answer:?}");
        Ok(Some(()))
    })
    .await?;
    let answer = send_request(&ns, &without_token(&target), "POST", &path, r#"{"message":"hi"}"#).await?;
    ensure!(answer.status == 401, "the gateway judges: {answer:?}");
    Ok(())
}

async fn the_shipped_history_outlives_its_objects(ns: Namespace) -> Result<()> {
    // The Deployment of `config/`, with its read-only root filesystem, is tested: the history of a deleted object is a row
    // of its database.
    let target = ClientTarget::control_plane(&ns.env).await?;
    ns.apply(&agent("gone", json!({"replicas": 0}))).await?;
    let stopped = |it: &Object| it.phase() == "Terminated";
    let uid = ns.until(AGENT, "gone", START_TIMEOUT, "is stopped", stopped).await?.id();
    ns.delete(AGENT, "gone").await?;
    ns.until_gone(AGENT, "gone", SHOWN).await?;
    let path = format!("/v1/agents/{}/gone/trace", ns.name);
    await_shown(&ns, &target, &path, |trace| {
        trace["entries"].as_array().is_some_and(|entries| entries.iter().any(|entry| entry["to"] == "Terminated"))
    })
    .await?;
    await_shown(&ns, &target, "/v1/transitions?limit=1000", |page| {
        page["items"].as_array().is_some_and(|items| items.iter().any(|item| item["uid"] == uid.as_str()))
    })
    .await?;
    let (status, history) = get(&ns, &target, "/v1/history").await?;
    ensure!(status == 200 && history["problem"].is_null(), "{history}");
    let root =
        ns.env.kubectl(&["-n", "recif-system", "get", "deployment", "recif-control-plane", "-o", "yaml"]).await?;
    ensure!(root.contains("readOnlyRootFilesystem: true"), "{root}");
    Ok(())
}
