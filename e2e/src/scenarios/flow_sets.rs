//! Tests sets of flows: a broken flow affects only itself, and the children of a removed flow are deleted.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::flows::provide_stub;
use crate::{
    kinds::{AGENT, CHILDREN, CONFIG_MAP, DEPLOYMENT, FLOW, FLOW_SET, KubeKind, POD, PROMPT},
    manifests::{agent, flow, flow_set, http_tool, prompt},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _, ObjectsByName},
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    thirty_flows_of_a_set_all_answer,
    a_broken_flow_degrades_only_itself_until_it_is_mended,
    a_flow_that_breaks_later_leaves_the_others_serving,
    a_template_that_cannot_be_read_costs_only_its_flow,
    a_set_without_a_healthy_flow_waits_and_says_why,
    what_a_removed_flow_leaves_is_taken_away,
    names_that_would_collide_are_refused,
    what_a_set_has_is_made_again_and_goes_with_it,
);

/// Returns the status of one flow: whether it is ready, and the message if not.
fn flow_state<'a>(set: &'a Object, name: &str) -> (bool, &'a str) {
    let flows = set.at("/status/flows").as_array().map(Vec::as_slice).unwrap_or_default();
    let found = flows.iter().find(|flow| flow["name"] == name);
    found.map_or((false, "not in the status"), |flow| {
        (flow["ready"] == true, flow["message"].as_str().unwrap_or_default())
    })
}

/// Waits until the set is Running and all its flows except one are served, for which the status gives this reason.
async fn degraded(ns: &Namespace, set: &str, flow: &str, why: &str) -> Result<Object> {
    let what = format!("is Running and Degraded, {flow} says {why:?}");
    let sentence = |it: &Object| {
        let ready = it.condition("Ready");
        let (served, message) = flow_state(it, flow);
        it.phase() == "Running"
            && it.is_current()
            && ready.is_false()
            && ready.reason == "Degraded"
            && ready.message.contains(&format!("flow \"{flow}\": {why}"))
            && !served
            && message.contains(why)
            && it.number("/status/readyFlows") == it.number("/status/totalFlows") - 1
    };
    ns.until(FLOW_SET, set, START_TIMEOUT, &what, sentence).await
}

async fn thirty_flows_of_a_set_all_answer(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    let names: Vec<String> = (1..=30).map(|number| format!("flow-{number}")).collect();
    let flows: Vec<Value> = names
        .iter()
        .map(|name| {
            let prompt = json!({"name": "own", "content": format!("{name}: {{{{text}}}}")});
            json!({"name": name, "prompts": [{"prompt": prompt}], "modelRef": {"name": "echo"}})
        })
        .collect();
    let running = ns.start(&flow_set("thirty", &[], json!({ "flows": flows }))).await?;
    let count = |field: &str| running.number(&format!("/status/{field}"));
    ensure!((count("readyFlows"), count("totalFlows")) == (30, 30), "{}", running.at("/status/flows"));
    for name in &names {
        ensure!(flow_state(&running, name) == (true, ""), "{name}: {:?}", flow_state(&running, name));
        let expected = format!("echo: {name}: hi");
        ns.await_response("thirty", &format!("/{name}"), json!({"text": "hi"}), &expected).await?;
    }
    Ok(())
}

async fn a_broken_flow_degrades_only_itself_until_it_is_mended(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    let flows: [(&str, &[&str]); 3] = [("one", &["say"]), ("broken", &["late"]), ("two", &["say"])];
    ns.apply(&flow_set("set", &flows, json!({}))).await?;
    let seen = degraded(&ns, "set", "broken", r#"prompt "late" not found"#).await?;
    ensure!(seen.condition("Available").is_true(), "its Pods do not count: {}", seen.describe());
    for name in ["one", "two"] {
        ensure!(flow_state(&seen, name) == (true, ""), "{name}: {:?}", flow_state(&seen, name));
        ns.await_response("set", &format!("/{name}"), json!({"text": "hi"}), "echo: hi").await?;
    }
    ns.provide(&prompt("late", "Late: {{text}}")).await?;
    let mended = ns.await_running(FLOW_SET, "set").await?;
    ensure!(mended.number("/status/readyFlows") == 3, "{}", mended.at("/status/flows"));
    ensure!(flow_state(&mended, "broken") == (true, ""), "{:?}", flow_state(&mended, "broken"));
    ns.await_response("set", "/broken", json!({"text": "hi"}), "echo: Late: hi").await
}

async fn a_flow_that_breaks_later_leaves_the_others_serving(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.provide(&prompt("lost", "Lost: {{text}}")).await?;
    ns.start(&flow_set("set", &[("one", &["say"]), ("two", &["lost"])], json!({}))).await?;
    ns.delete(PROMPT, "lost").await?;
    degraded(&ns, "set", "two", r#"prompt "lost" not found"#).await?;
    ns.await_response("set", "/one", json!({"text": "hi"}), "echo: hi").await?;
    ns.provide(&prompt("lost", "Found: {{text}}")).await?;
    ns.await_running(FLOW_SET, "set").await?;
    ns.await_response("set", "/two", json!({"text": "hi"}), "echo: Found: hi").await
}

async fn a_template_that_cannot_be_read_costs_only_its_flow(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    // Other Handlebars parsers accept the first template, so its Prompt is Available; our runner does not, so the operator
    // leaves its flow out. Only the runner knows whether a tool of a flow exists.
    ns.provide(&prompt("torn", "First line.\n{{^text}}never read{{/text}}")).await?;
    ns.provide(&prompt("lacking", "---\ntools: [absent]\n---\n{{text}}")).await?;
    ns.apply(&flow_set("set", &[("whole", &["say"]), ("torn", &["torn"]), ("lacking", &["lacking"])], json!({})))
        .await?;
    degraded(&ns, "set", "torn", r#"prompt "torn", line 2: this is not Handlebars"#).await?;
    ensure!(ns.get(PROMPT, "torn").await?.phase() == "Available", "the Prompt is not Available");
    ns.await_response("set", "/whole", json!({"text": "hi"}), "echo: hi").await?;
    let answer = ns.post("set", "/lacking", json!({"text": "hi"})).await?;
    ensure!(answer.status == 503 && answer.text.contains("lacking.prompt"), "{answer:?}");
    // The `/readyz` of the sidecar is about the Pod; that of the runner is about the flows.
    let pods = ns.list(POD).await?;
    let pod = pods.first().context("the set has no Pod")?;
    let ready = ns.get_from_pod(&pod.name_any(), 8080, "/readyz").await?;
    let sentence: Value = serde_json::from_str(&ready.text).with_context(|| format!("read {ready:?}"))?;
    let lacking = sentence["flows"]["lacking"].as_str();
    ensure!(lacking.is_some_and(|why| why.contains("the flow has no tool `absent`")), "/readyz says {sentence}");
    ensure!(sentence["flows"]["whole"] == "ok", "/readyz says {sentence}");
    Ok(())
}

async fn a_set_without_a_healthy_flow_waits_and_says_why(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.apply(&flow_set("set", &[("one", &["late"]), ("two", &["never"])], json!({}))).await?;
    let words = [r#"flow "one": prompt "late" not found"#, r#"flow "two": prompt "never" not found"#];
    let waiting = ns.await_not_ready(FLOW_SET, "set", REPORT_TIMEOUT, "Resolving", &words).await?;
    let reason = waiting.condition("ReferencesResolved").reason;
    ensure!(reason == "MissingDependency", "the reason is {reason}");
    ns.provide(&prompt("late", "{{text}}")).await?;
    degraded(&ns, "set", "two", r#"prompt "never" not found"#).await?;
    ns.await_response("set", "/one", json!({"text": "hi"}), "echo: hi").await
}

async fn what_a_removed_flow_leaves_is_taken_away(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    let before = ns.start(&flow_set("set", &[("kept", &["say"]), ("gone", &["say"])], json!({}))).await?;
    let of_gone = |maps: &ObjectsByName| maps.keys().filter(|name| name.starts_with("set-gone-")).count();
    let maps =
        ns.until_all(CONFIG_MAP, REPORT_TIMEOUT, "there are ConfigMaps of both flows", |it| of_gone(it) > 0).await?;
    ensure!(maps.keys().any(|name| name.starts_with("set-kept-")), "only {:?}", maps.keys());

    ns.apply(&flow_set("set", &[("kept", &["say"])], json!({}))).await?;
    ns.await_reconfigured(FLOW_SET, &before).await?;
    let maps =
        ns.until_all(CONFIG_MAP, REPORT_TIMEOUT, "those of the removed flow are gone", |it| of_gone(it) == 0).await?;
    ensure!(maps.keys().any(|name| name.starts_with("set-kept-")), "only {:?}", maps.keys());
    ns.await_status("set", "/gone", json!({"text": "hi"}), 404).await?;
    ns.await_response("set", "/kept", json!({"text": "hi"}), "echo: hi").await?;
    let children = ns.get(FLOW_SET, "set").await?;
    ensure!(!children.at("/status/children").to_string().contains("set-gone-"), "the status still lists them");
    Ok(())
}

async fn names_that_would_collide_are_refused(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    let first = ns.start(&flow_set("a", &[("b-c", &["say"])], json!({}))).await?;
    let ours: Vec<(String, u64)> = revisions(&ns).await?;
    ns.apply(&flow_set("a-b", &[("c", &["say"])], json!({}))).await?;
    ns.await_not_ready(FLOW_SET, "a-b", REPORT_TIMEOUT, "Failed", &["NameConflict", "a-b-c-"]).await?;
    // A Flow has children with the same names as an Agent of its name.
    ns.apply(&agent("a", json!({}))).await?;
    ns.await_agent_not_ready("a", REPORT_TIMEOUT, "Failed", &["NameConflict"]).await?;
    ns.apply(&flow("a", &["say"], json!({}))).await?;
    ns.await_not_ready(FLOW, "a", REPORT_TIMEOUT, "Failed", &["NameConflict"]).await?;

    let now = revisions(&ns).await?;
    ensure!(ours.iter().all(|it| now.contains(it)), "what the first one has was written: {ours:?}, then {now:?}");
    let still = ns.get(FLOW_SET, "a").await?;
    ensure!(still.revision() == first.revision(), "the first one was written: {}", still.describe());
    ns.await_response("a", "/b-c", json!({"text": "hi"}), "echo: hi").await?;

    ns.delete(FLOW, "a").await?;
    ns.delete(AGENT, "a").await?;
    ns.delete(FLOW_SET, "a").await?;
    ns.until_gone(FLOW_SET, "a", Duration::from_secs(60)).await?;
    ns.await_running(FLOW_SET, "a-b").await?;
    ns.await_response("a-b", "/c", json!({"text": "hi"}), "echo: hi").await
}

async fn what_a_set_has_is_made_again_and_goes_with_it(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.provide(&http_tool("weather")).await?;
    let mut set = flow_set("set", &[("one", &["say"]), ("two", &["say"])], json!({}));
    set["spec"]["flows"][1]["tools"] = json!([{"name": "weather"}]);
    let running = ns.start(&set).await?;
    let pods = ns.pod_uids("set").await?;
    let children: Vec<(KubeKind, String)> = CHILDREN
        .into_iter()
        .flat_map(|kind| {
            let all = running.at("/status/children").as_array().into_iter().flatten();
            let of_kind = all.filter(move |child| child["kind"] == kind.kind);
            of_kind.filter_map(move |child| Some((kind, child["name"].as_str()?.to_owned())))
        })
        .collect();
    ensure!(CHILDREN.iter().all(|kind| children.iter().any(|(it, _)| it == kind)), "only {children:?}");
    for (kind, name) in children.iter().filter(|(kind, _)| *kind != DEPLOYMENT) {
        let before = ns.get(*kind, name).await?;
        ns.delete(*kind, name).await?;
        let again = ns.until(*kind, name, START_TIMEOUT, "is there again", |it| it.id() != before.id()).await?;
        ensure!(again.at("/data") == before.at("/data"), "{} is not as it was", again.describe());
    }
    let now = ns.await_running(FLOW_SET, "set").await?;
    ensure!(now.text("/status/contentHash") == running.text("/status/contentHash"), "the content hash changed");
    ensure!(ns.pod_uids("set").await? == pods, "its Pods were replaced");
    ns.await_response("set", "/two", json!({"text": "hi"}), "echo: hi").await?;

    ns.delete(FLOW_SET, "set").await?;
    for (kind, name) in &children {
        ns.until_gone(*kind, name, START_TIMEOUT).await?;
    }
    ns.until_gone(FLOW_SET, "set", START_TIMEOUT).await
}

/// Returns the names and resource versions of the ConfigMaps of the set `a`.
async fn revisions(ns: &Namespace) -> Result<Vec<(String, u64)>> {
    let maps = ns.list(CONFIG_MAP).await?;
    let of_a = |it: &&Object| it.metadata.owner_references.iter().flatten().any(|owner| owner.name == "a");
    Ok(maps.iter().filter(of_a).map(|it| (it.metadata.name.clone().unwrap_or_default(), it.revision())).collect())
}
