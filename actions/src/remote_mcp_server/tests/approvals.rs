//! Entries of `toolServers` whose `approval.tools` name tools that the server does not list.

use super::{tool_servers::flow_needs, *};

/// End of the sentence on patterns that match nothing.
const REMEDY: &str =
    "none of its tools: write names as the server has them, without prefix; patterns such as delete_* are allowed";

/// Returns an entry with these patterns in `approval.tools`.
fn entry(patterns: Value, more: Value) -> Value {
    let mut entry = json!({"name": "everything", "approval": {"when": "Always", "tools": patterns}});
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    entry
}

/// Returns an Agent with this entry and an image that asks.
fn user(entry: Value) -> Value {
    agent(json!({"image": fake::settings().runner_image, "toolServers": [entry]}))
}

fn sentence(what: &str) -> String {
    format!("approval.tools of remotemcpserver \"everything\": {what} {REMEDY}")
}

/// Returns the condition `ToolsResolved` of an object whose globs match nothing.
fn unmatched(message: String) -> Option<(String, String, String)> {
    Some(("False".into(), "ApprovalUnmatched".into(), message))
}

fn cluster_of(tools: &[(&str, &str)], on_change: &str) -> Sim {
    let sim = Sim::new();
    sim.serve(URL, lists_tools(tools));
    sim.store().create(&server_id(), server(json!({"onChange": on_change})));
    sim
}

/// Returns the names and approvals of the tools that are rendered for an Agent.
fn rendered(sim: &Sim, agent: &str) -> Vec<(String, bool)> {
    let text = at(sim, &id("ConfigMap", &format!("{agent}-config")), "/data/CORAIL_TOOLS");
    let Some(text) = text.as_str() else { return Vec::new() };
    let tools: Vec<Value> = serde_json::from_str(text).unwrap();
    tools.iter().map(|tool| (tool["name"].as_str().unwrap().to_owned(), tool["approval"].is_object())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_name_that_the_server_does_not_list_is_waited_for_and_named() {
    let sim = cluster_of(&[("delete", "Deletes"), ("echo", "Echoes")], "Adopt");
    let waiting = [
        ("typo", entry(json!(["delete", "delte"]), json!({})), r#""delte" matches"#),
        (
            "prefixed",
            entry(json!(["x_delete", "x_*", "x_echo"]), json!({"prefix": "x_"})),
            r#""x_delete", "x_*", "x_echo" match"#,
        ),
    ];
    let never = json!({"approval": {"when": "Never", "tools": ["delte"]}});
    let others =
        [("excluded", entry(json!(["delete"]), json!({"exclude": ["delete"]}))), ("never", entry(json!([]), never))];
    for (name, entry, _) in &waiting {
        sim.store().create(&agent_id(name), user(entry.clone()));
    }
    for (name, entry) in &others {
        sim.store().create(&agent_id(name), user(entry.clone()));
    }
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    for (name, _, what) in &waiting {
        let id = agent_id(name);
        let expected = ("False".into(), "MissingDependency".into(), sentence(what));
        assert_eq!((phase(&sim, &id), condition(&sim, &id, "Ready")), (json!("Resolving"), Some(expected)), "{name}");
        assert!(rendered(&sim, name).is_empty(), "{name}: no tool can be called unasked");
    }
    for (name, _) in &others {
        let id = agent_id(name);
        assert_eq!(phase(&sim, &id), "Running", "{name}: {}", message(&sim, &id));
        assert_eq!(condition(&sim, &id, "ToolsResolved").unwrap().0, "True", "{name}");
    }
    sim.take_requests();
    operator.run(60 * MINUTE).await;
    assert_eq!(sim.take_writes(), [""; 0], "it waits without a write");

    sim.serve(URL, lists_tools(&[("delete", "Deletes"), ("delte", "Deletes too"), ("echo", "Echoes")]));
    operator.run(2 * MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("typo")), "Running", "the server lists it");
    let asks = [("delete", true), ("delte", true), ("echo", false)].map(|(name, asks)| (name.to_owned(), asks));
    assert_eq!(rendered(&sim, "typo"), asks);
    let mended = json!(["delete"]);
    sim.store().edit(&agent_id("prefixed"), |body| body["spec"]["toolServers"][0]["approval"]["tools"] = mended);
    operator.run(2 * MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("prefixed")), "Running", "the spec is mended");
    let asks = [("x_delete", true), ("x_delte", false), ("x_echo", false)].map(|(name, asks)| (name.to_owned(), asks));
    assert_eq!(rendered(&sim, "prefixed"), asks);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_the_server_loses_is_waited_for_while_the_pods_go_on() {
    let sim = cluster_of(&[("delete", "Deletes"), ("echo", "Echoes")], "Adopt");
    sim.store().create(&agent_id("a"), user(entry(json!(["delete"]), json!({}))));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    let before = rendered(&sim, "a");
    sim.serve(URL, lists_tools(&[("echo", "Echoes")]));
    operator.run(2 * MINUTE).await;
    assert_eq!(
        (phase(&sim, &agent_id("a")), message(&sim, &agent_id("a"))),
        (json!("Resolving"), sentence(r#""delete" matches"#))
    );
    assert_eq!(rendered(&sim, "a"), before);
    sim.serve(URL, lists_tools(&[("delete", "Deletes"), ("echo", "Echoes")]));
    operator.run(2 * MINUTE).await;
    assert_eq!((phase(&sim, &agent_id("a")), rendered(&sim, "a")), (json!("Running"), before));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_waits_to_be_accepted_is_listed_too() {
    let sim = cluster_of(&[("echo", "Echoes")], "Hold");
    sim.store().create(&agent_id("a"), user(entry(json!(["delete"]), json!({}))));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(
        (phase(&sim, &agent_id("a")), message(&sim, &agent_id("a"))),
        (json!("Resolving"), sentence(r#""delete" matches"#))
    );
    sim.serve(URL, lists_tools(&[("delete", "Deletes"), ("echo", "Echoes")]));
    operator.run(2 * MINUTE).await;
    assert_eq!(at(&sim, &server_id(), "/status/heldCount"), 1);
    assert_eq!(phase(&sim, &agent_id("a")), "Running", "{}", message(&sim, &agent_id("a")));
    assert_eq!(rendered(&sim, "a"), [("echo".to_owned(), false)]);
}

#[tokio::test(start_paused = true)]
async fn a_glob_that_matches_no_tool_is_named_while_the_agent_runs() {
    let sim = cluster_of(&[("delete", "Deletes"), ("echo", "Echoes")], "Adopt");
    let patterns = json!(["delete", "drop_*", "wip?"]);
    sim.store().create(&agent_id("a"), user(entry(patterns, json!({"exclude": ["drop_*", "wip*"]}))));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let resolved = || condition(&sim, &agent_id("a"), "ToolsResolved");
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    assert_eq!(resolved(), unmatched(sentence(r#""drop_*", "wip?" match"#)));
    assert_eq!(condition(&sim, &agent_id("a"), "Ready").unwrap().0, "True");
    let template = || at(&sim, &id("Deployment", "a"), "/spec/template");
    let before = template();
    sim.take_requests();
    operator.run(60 * MINUTE).await;
    assert_eq!(sim.take_requests(), [], "equal answers");

    sim.serve(URL, lists_tools(&[("delete", "Deletes"), ("drop_all", "Drops"), ("echo", "Echoes")]));
    operator.run(2 * MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    assert_eq!(resolved(), unmatched(sentence(r#""wip?" matches"#)), "the server lists a tool for the other one");
    sim.serve(URL, lists_tools(&[("delete", "Deletes"), ("drop_all", "Drops"), ("echo", "Echoes"), ("wipe", "Wipes")]));
    operator.run(2 * MINUTE).await;
    assert_eq!(resolved(), Some(("True".into(), "Resolved".into(), String::new())));
    assert_eq!(template(), before, "no Pod is replaced: both tools are in exclude");
}

#[tokio::test(start_paused = true)]
async fn a_flow_waits_for_a_name_and_names_a_glob() {
    let sim = cluster_of(&[("delete", "Deletes"), ("echo", "Echoes")], "Adopt");
    let mut spec = flow_needs(&sim);
    for (name, pattern) in [("f", "delte"), ("g", "delte*")] {
        spec["toolServers"] = json!([entry(json!([pattern]), json!({}))]);
        sim.store().create(&id("Flow", name), object("Flow", spec.clone()));
    }
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let (waits, runs) = (id("Flow", "f"), id("Flow", "g"));
    assert_eq!((phase(&sim, &waits), message(&sim, &waits)), (json!("Resolving"), sentence(r#""delte" matches"#)));
    assert_eq!(phase(&sim, &runs), "Running");
    assert_eq!(condition(&sim, &runs, "ToolsResolved"), unmatched(sentence(r#""delte*" matches"#)));
    sim.store().edit(&waits, |body| body["spec"]["toolServers"][0]["approval"] = Value::Null);
    operator.run(2 * MINUTE).await;
    assert_eq!(phase(&sim, &waits), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_running_agent_goes_on_as_it_is_while_it_waits_for_a_name() {
    let sim = cluster_of(&[("delete", "Deletes"), ("echo", "Echoes")], "Adopt");
    let id = agent_id("a");
    sim.store().create(&id, user(json!({"name": "everything"})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let before = rendered(&sim, "a");
    assert_eq!((phase(&sim, &id), before.len()), (json!("Running"), 2));
    sim.store().edit(&id, |body| body["spec"]["toolServers"][0] = entry(json!(["delte"]), json!({})));
    operator.run(2 * MINUTE).await;
    assert_eq!((phase(&sim, &id), message(&sim, &id)), (json!("Resolving"), sentence(r#""delte" matches"#)));
    assert_eq!(rendered(&sim, "a"), before);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_two_entries_take_asks_if_one_of_them_says_so() {
    let sim = cluster_of(&[("delete", "Deletes"), ("echo", "Echoes")], "Adopt");
    let (silent, asking) = (json!({"name": "everything"}), entry(json!(["delete"]), json!({})));
    let prefixed = entry(json!(["delete"]), json!({"prefix": "x_"}));
    let first_wins = vec![("delete", true), ("echo", false)];
    let of_each = vec![("delete", false), ("echo", false), ("x_delete", true), ("x_echo", false)];
    let cases = [
        ("later", json!([silent, asking]), "NameConflict", &first_wins),
        ("first", json!([asking, silent]), "NameConflict", &first_wins),
        ("prefixed", json!([silent, prefixed]), "Resolved", &of_each),
    ];
    for (name, entries, ..) in &cases {
        let spec = json!({"image": fake::settings().runner_image, "toolServers": entries});
        sim.store().create(&agent_id(name), agent(spec));
    }
    Operator::start(&sim).run(MINUTE).await;
    for (name, _, reason, expected) in cases {
        let expected: Vec<_> = expected.iter().map(|(tool, asks)| ((*tool).to_owned(), *asks)).collect();
        assert_eq!(rendered(&sim, name), expected, "{name}");
        assert_eq!(condition(&sim, &agent_id(name), "ToolsResolved").unwrap().1, reason, "{name}");
    }
}
