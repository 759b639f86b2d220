//! Publication of a server's tools as Tools.

use super::*;

fn published(sim: &Sim, name: &str) -> Value {
    at(sim, &tool_id(name), "")
}

/// Starts a cluster with a server that publishes its two tools and an Agent that uses one of them, and runs it until all are at
/// rest.
async fn publishing() -> (Sim, Operator) {
    let sim = Sim::new();
    sim.serve(URL, lists_tools(&[("echo", "Echoes"), ("add", "Adds")]));
    sim.store().create(&server_id(), server(json!({"publish": {"enabled": true}})));
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["echo"]})));
    let mut operator = Operator::start(&sim);
    operator.run(2 * MINUTE).await;
    assert_eq!((phase(&sim, &tool_id("add")), phase(&sim, &agent_id("a"))), (json!("Available"), json!("Running")));
    (sim, operator)
}

#[tokio::test(start_paused = true)]
async fn published_tools_are_tools_that_an_agent_lists_and_then_cost_nothing() {
    let sim = Sim::new();
    sim.serve(URL, lists_tools(&[("get_time", "Tells the time"), ("set_time", "Sets it"), ("admin", "Anything")]));
    let publish = json!({"enabled": true, "prefix": "clock-", "include": ["*_time"], "exclude": ["set_*"]});
    sim.store().create(&server_id(), server(json!({"publish": publish})));
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["clock-get-time"]})));
    let mut operator = Operator::start(&sim);
    operator.run(2 * MINUTE).await;
    assert_eq!(at(&sim, &server_id(), "/status/publishedTools"), 1);
    assert_eq!(phase(&sim, &tool_id("clock-get-time")), "Available");
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    let tool = published(&sim, "clock-get-time");
    assert_eq!(
        tool["spec"]["mcpServerRef"],
        json!({"kind": "RemoteMCPServer", "name": "everything", "toolName": "get_time"})
    );
    assert_eq!((&tool["spec"]["name"], &tool["spec"]["description"]), (&json!("get_time"), &json!("Tells the time")));
    assert_eq!(tool["metadata"]["ownerReferences"][0]["kind"], "RemoteMCPServer");
    assert_eq!((published(&sim, "clock-set-time"), published(&sim, "clock-admin")), (Value::Null, Value::Null));
    sim.take_requests();
    Operator::start(&sim).run(30 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
}

#[tokio::test(start_paused = true)]
async fn published_tools_follow_the_server_and_stay_in_error_while_they_are_used() {
    let (sim, mut operator) = publishing().await;
    sim.store().delete(&tool_id("add"), Cascade::Background);
    operator.run(2 * MINUTE).await;
    assert_eq!(phase(&sim, &tool_id("add")), "Available", "deleted by another client, it is created again");
    sim.store().edit(&tool_id("add"), |body| body["spec"]["description"] = json!("Mine"));
    operator.run(2 * MINUTE).await;
    assert_eq!(at(&sim, &tool_id("add"), "/spec/description"), "Adds");

    sim.serve(URL, lists_tools(&[("more", "More")]));
    operator.run(2 * MINUTE).await;
    assert_eq!((published(&sim, "add"), phase(&sim, &tool_id("more"))), (Value::Null, json!("Available")));
    assert_eq!(condition(&sim, &tool_id("echo"), "Ready").unwrap().1, "ToolNotFound");
    let (holds, reason, message) = condition(&sim, &server_id(), "ToolsPublished").unwrap();
    assert_eq!((holds.as_str(), reason.as_str()), ("False", "StillUsed"));
    assert!(message.contains("echo"), "{message}");
    sim.store().edit(&agent_id("a"), |body| body["spec"]["tools"] = json!(["more"]));
    operator.run(3 * MINUTE).await;
    assert_eq!(published(&sim, "echo"), Value::Null);
    assert_eq!((phase(&sim, &agent_id("a")), phase(&sim, &server_id())), (json!("Running"), json!("Available")));

    sim.store().edit(&agent_id("a"), |body| body["spec"]["tools"] = json!([]));
    sim.store().edit(&server_id(), |body| body["spec"]["publish"]["enabled"] = json!(false));
    operator.run(3 * MINUTE).await;
    assert_eq!((published(&sim, "more"), condition(&sim, &server_id(), "ToolsPublished")), (Value::Null, None));
}

/// Returns an operator whose watch of servers lags: it has listed the server but does not receive `edit`, which another operator
/// has received and handled.
async fn past_and_present(sim: &Sim, edit: impl FnOnce(&mut Value)) -> Operator {
    let mut past = Operator::start(sim);
    past.lagging = vec!["RemoteMCPServer"];
    past.run(2 * MINUTE).await;
    sim.store().edit(&server_id(), edit);
    Operator::start(sim).run(2 * MINUTE).await;
    sim.take_requests();
    past
}

#[tokio::test(start_paused = true)]
async fn nothing_is_published_for_a_servers_past() {
    let (sim, _) = publishing().await;
    let mut past = past_and_present(&sim, |body| body["spec"]["publish"]["exclude"] = json!(["add"])).await;
    assert_eq!(published(&sim, "add"), Value::Null);
    past.run(2 * MINUTE).await;
    assert_eq!(published(&sim, "add"), Value::Null, "it made it of what it knew");
    assert!(!sim.take_requests().is_empty(), "it tried");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_withdrawn_for_a_servers_past() {
    let (sim, mut operator) = publishing().await;
    sim.store().edit(&server_id(), |body| body["spec"]["publish"]["exclude"] = json!(["add"]));
    operator.run(2 * MINUTE).await;
    let mut past = past_and_present(&sim, |body| body["spec"]["publish"]["exclude"] = json!([])).await;
    let uid = published(&sim, "add")["metadata"]["uid"].clone();
    past.run(2 * MINUTE).await;
    assert_eq!(published(&sim, "add")["metadata"]["uid"], uid, "it deleted what it knew nothing of");
    assert!(!sim.take_requests().is_empty(), "it tried");
}

#[tokio::test(start_paused = true)]
async fn no_definitions_are_kept_for_a_servers_past() {
    let other = "http://other.example/mcp";
    let (sim, _) = publishing().await;
    sim.serve(other, lists_tools(&[("sub", "Subtracts")]));
    let mut past = past_and_present(&sim, |body| body["spec"]["url"] = json!(other)).await;
    let tools = id("ConfigMap", &crds::tool_server::tools_config_map("RemoteMCPServer", "everything"));
    let held = at(&sim, &tools, "/data");
    assert!(held.to_string().contains("Subtracts"), "{held}");
    past.run(2 * MINUTE).await;
    assert_eq!(at(&sim, &tools, "/data"), held, "it wrote what it knew");
    assert!(!sim.take_requests().is_empty(), "it tried");
}

#[tokio::test(start_paused = true)]
async fn fields_of_others_stay_and_cost_nothing() {
    let (sim, mut operator) = publishing().await;
    let tools = crds::tool_server::tools_config_map("RemoteMCPServer", "everything");
    sim.store().edit_as(&tool_id("add"), "/spec/timeout", Some(json!(60)), "kubectl");
    sim.store().edit_as(&tool_id("echo"), "/spec/category", Some(json!("mine")), "kubectl");
    sim.store().edit_as(&id("ConfigMap", &tools), "/data/note", Some(json!("mine")), "kubectl");
    sim.take_requests();
    operator.run(2 * MINUTE).await;
    sim.take_requests();
    Operator::start(&sim).run(30 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
    assert_eq!(at(&sim, &tool_id("add"), "/spec/timeout"), 60);

    sim.serve(URL, lists_tools(&[("echo", "Echoes"), ("add", "")]));
    operator.run(2 * MINUTE).await;
    assert_eq!(at(&sim, &tool_id("add"), "/spec/description"), Value::Null, "what is no longer listed is removed");
    assert_eq!(at(&sim, &tool_id("add"), "/spec/timeout"), 60);
    assert_eq!(at(&sim, &id("ConfigMap", &tools), "/data/note"), "mine");
}

#[tokio::test(start_paused = true)]
async fn a_tool_of_an_older_build_that_is_as_it_should_be_is_not_written() {
    let (sim, _) = publishing().await;
    sim.store().edit(&tool_id("add"), |body| drop(body["metadata"]["annotations"].take()));
    sim.take_requests();
    Operator::start(&sim).run(30 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
}

#[tokio::test(start_paused = true)]
async fn another_writer_of_our_fields_starts_no_write_war_and_is_said() {
    let tools = id("ConfigMap", &crds::tool_server::tools_config_map("RemoteMCPServer", "everything"));
    for (object, field, expected) in
        [(tool_id("add"), "/spec/description", "ToolsPublished"), (tools, "/data/tools.json", "ToolsDiscovered")]
    {
        let (sim, mut operator) = publishing().await;
        sim.take_requests();
        for _ in 0..20 * 60 {
            sim.store().edit_as(&object, field, Some(json!("[]")), "other-operator");
            operator.run(Duration::from_secs(1)).await;
        }
        let applied = format!("Apply {object}");
        let applies = sim.take_writes().into_iter().filter(|write| *write == applied).count();
        assert!((5..16).contains(&applies), "{object}: {applies} in 20 minutes");
        let (_, reason, message) = condition(&sim, &server_id(), expected).unwrap();
        assert_eq!(reason, "Contested", "{message}");
        assert!(message.contains(&object.name), "{message}");
        operator.run(20 * MINUTE).await;
        assert_eq!(condition(&sim, &server_id(), expected).unwrap().0, "True", "when it stops");
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreign_tool_is_left_alone_and_reported() {
    let sim = Sim::new();
    sim.serve(URL, lists_tools(&[("echo", "Echoes"), ("add", "Adds")]));
    sim.store().create(&tool_id("echo"), crate::fake::tool("http://mine"));
    sim.store().create(&server_id(), server(json!({"publish": {"enabled": true}})));
    let mut operator = Operator::start(&sim);
    operator.run(2 * MINUTE).await;
    assert_eq!(at(&sim, &tool_id("echo"), "/spec/endpoint"), "http://mine");
    let (_, reason, message) = condition(&sim, &server_id(), "ToolsPublished").unwrap();
    assert_eq!(reason, "NameConflict");
    assert!(message.contains("tool \"echo\" exists and has another owner"), "{message}");
    assert_eq!((phase(&sim, &server_id()), phase(&sim, &tool_id("add"))), (json!("Available"), json!("Available")));
}

#[tokio::test(start_paused = true)]
async fn tools_that_a_crash_left_behind_are_found_when_publishing_is_switched_off() {
    let sim = Sim::new();
    sim.serve(URL, lists_tools(&[("echo", "Echoes"), ("add", "Adds")]));
    sim.store().create(&server_id(), server(json!({"publish": {"enabled": true}})));
    let mut died = false;
    sim.plan(move |request, _| {
        let dies = !died && request.is_write() && request.id.kind == "Tool";
        died |= dies;
        if dies { crate::fake::RequestFault::DieUnanswered } else { crate::fake::RequestFault::No }
    });
    let mut operator = Operator::start(&sim);
    operator.run(2 * MINUTE).await;
    assert!(published(&sim, "add").is_object() || published(&sim, "echo").is_object(), "one of them was made");
    sim.store().edit(&server_id(), |body| body["spec"]["publish"]["enabled"] = json!(false));
    sim.clear_faults();
    Operator::start(&sim).run(2 * MINUTE).await;
    assert_eq!((published(&sim, "add"), published(&sim, "echo")), (Value::Null, Value::Null));
    assert_eq!(at(&sim, &server_id(), "/status/publishedTools"), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn publishing_that_is_switched_off_while_the_server_is_down_takes_its_tools_back() {
    let (sim, mut operator) = publishing().await;
    sim.serve(URL, down());
    operator.run(2 * MINUTE).await;
    sim.store().edit(&server_id(), |body| body["spec"]["publish"]["enabled"] = json!(false));
    operator.run(2 * MINUTE).await;
    assert_eq!((phase(&sim, &server_id()), published(&sim, "add")), (json!("Error"), Value::Null));
    assert_eq!(condition(&sim, &server_id(), "Stalled").unwrap().1, "ServerTimeout");
    let (_, reason, message) = condition(&sim, &server_id(), "ToolsPublished").unwrap();
    assert_eq!((reason.as_str(), message.as_str()), ("StillUsed", "no longer published, and still used: echo"));
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    sim.take_requests();
    operator.run(30 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);

    sim.store().edit(&agent_id("a"), |body| body["spec"]["tools"] = json!([]));
    operator.run(3 * MINUTE).await;
    assert_eq!((phase(&sim, &server_id()), published(&sim, "echo")), (json!("Error"), Value::Null));
    assert_eq!(at(&sim, &server_id(), "/status/publishedTools"), Value::Null);
    assert_eq!(condition(&sim, &server_id(), "ToolsPublished"), None);
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_published_tool_is_its_makers() {
    let (sim, mut operator) = publishing().await;
    let mut copy = served("add");
    copy["metadata"]["labels"] = published(&sim, "add")["metadata"]["labels"].clone();
    sim.store().create(&tool_id("mine"), copy);
    operator.run(3 * MINUTE).await;
    assert!(published(&sim, "mine").is_object(), "it has the labels and not the owner");
}

#[tokio::test(start_paused = true)]
async fn a_crd_that_drops_what_publishing_goes_by_starts_no_loop() {
    let sim = Sim::new();
    sim.store().unknown = &["publishedTools"];
    sim.serve(URL, lists_tools(&[("echo", "Echoes")]));
    sim.store().create(&server_id(), server(json!({"publish": {"enabled": true}})));
    let mut operator = Operator::start(&sim);
    operator.run(10 * MINUTE).await;
    let written = sim.take_writes().into_iter().filter(|write| write.starts_with("Status RemoteMCPServer")).count();
    assert!(written < 20, "{written} writes in ten minutes");
    sim.store().unknown = &[];
    operator.run(15 * MINUTE).await;
    assert_eq!(phase(&sim, &tool_id("echo")), "Available");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_refused_keeps_no_other_from_being_published() {
    use machine::ApiError;

    use crate::fake::{RequestFault, Verb};
    for error in [ApiError::Refused("not today".into()), ApiError::Invalid("too long".into())] {
        let sim = Sim::new();
        sim.serve(URL, lists_tools(&[("add", "Adds"), ("echo", "Echoes")]));
        sim.plan(move |request, _| match request.verb {
            Verb::Apply if request.id == tool_id("add") => RequestFault::Refuse(error.clone()),
            _ => RequestFault::No,
        });
        sim.store().create(&server_id(), server(json!({"publish": {"enabled": true}})));
        Operator::start(&sim).run(2 * MINUTE).await;
        assert_eq!([server_id(), tool_id("echo")].map(|id| phase(&sim, &id)), ["Available", "Available"]);
        assert_eq!(at(&sim, &server_id(), "/status/publishedTools"), 1);
        let (holds, _, message) = condition(&sim, &server_id(), "ToolsPublished").unwrap();
        assert!(holds == "False" && message.contains("tool \"add\""), "{message}");
    }
}
