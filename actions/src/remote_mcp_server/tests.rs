//! A RemoteMCPServer, the Tools of it and an Agent that has them, over the simulated cluster.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    discovery::{Definition, Outcome, Undiscovered},
    fake::{self, Cascade, Id, Operator, Sim, agent, agent_id, id, live, object, secret, tool_id},
};

const MINUTE: Duration = Duration::from_secs(60);
const URL: &str = "https://mcp.example/mcp";

fn server_id() -> Id {
    id("RemoteMCPServer", "everything")
}

fn definitions() -> Id {
    id("ConfigMap", "everything.mcp-tools")
}

fn definition(name: &str, description: &str) -> Definition {
    let input_schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    Definition { name: name.into(), description: description.into(), input_schema, output_schema: None }
}

fn tells(tools: &[(&str, &str)]) -> Outcome {
    fake::tells(&tools.iter().map(|(name, description)| definition(name, description)).collect::<Vec<_>>())
}

fn down() -> Outcome {
    Err(Undiscovered { reason: "ServerTimeout", message: "the server did not answer within 30 s".into() })
}

fn server(more: Value) -> Value {
    let mut spec = json!({"url": URL});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    object("RemoteMCPServer", spec)
}

fn served(tool: &str) -> Value {
    let server = json!({"name": "everything", "toolName": tool});
    object("Tool", json!({"name": format!("my-{tool}"), "type": "mcp", "mcpServerRef": server}))
}

fn at(sim: &Sim, id: &Id, pointer: &str) -> Value {
    sim.store().at(id, pointer)
}

fn phase(sim: &Sim, id: &Id) -> Value {
    at(sim, id, "/status/phase")
}

fn condition(sim: &Sim, id: &Id, type_: &str) -> Option<(String, String, String)> {
    let all = at(sim, id, "/status/conditions");
    let found = all.as_array()?.iter().find(|found| found["type"] == type_)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

fn message(sim: &Sim, id: &Id) -> String {
    condition(sim, id, "Ready").map(|(.., message)| message).unwrap_or_default()
}

/// A server with two tools, a Tool for each, and an Agent that has one of them.
fn world() -> Sim {
    let sim = Sim::new();
    sim.serve(URL, tells(&[("echo", "Echoes"), ("add", "Adds")]));
    sim.store().create(&server_id(), server(json!({})));
    sim.store().create(&tool_id("echo"), served("echo"));
    sim.store().create(&tool_id("add"), served("add"));
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["echo"]})));
    sim
}

#[tokio::test(start_paused = true)]
async fn tools_are_discovered_kept_and_rendered_and_then_cost_nothing() {
    let sim = world();
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!((phase(&sim, &server_id()), phase(&sim, &agent_id("a"))), (json!("Available"), json!("Running")));
    assert_eq!(at(&sim, &server_id(), "/status/toolCount"), 2);
    assert_eq!(at(&sim, &server_id(), "/status/discoveredTools/0/name"), "add");
    assert_eq!(at(&sim, &server_id(), "/status/era"), "initialize");
    let owner = at(&sim, &definitions(), "/metadata/ownerReferences/0");
    assert_eq!((&owner["kind"], &owner["blockOwnerDeletion"]), (&json!("RemoteMCPServer"), &json!(false)));
    let tools = at(&sim, &id("ConfigMap", "a-config"), "/data/CORAIL_TOOLS");
    let expected = json!([{
        "name": "my-echo", "type": "mcp", "description": "Echoes", "mcpEndpoint": URL, "mcpTool": "echo",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}, "timeout": 30,
    }]);
    assert_eq!(serde_json::from_str::<Value>(tools.as_str().unwrap()).unwrap(), expected);
    sim.take_requests();
    Operator::start(&sim).run(60 * MINUTE).await;
    assert_eq!(sim.take_requests(), [], "a restart and sixty equal answers");
}

#[tokio::test(start_paused = true)]
async fn other_tools_are_told_in_place_and_move_only_their_users() {
    let sim = world();
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.take_requests();
    sim.serve(URL, tells(&[("echo", "Echoes"), ("add", "Adds two numbers")]));
    operator.run(2 * MINUTE).await;
    assert_eq!(sim.take_writes(), ["Apply ConfigMap/everything.mcp-tools", "Status RemoteMCPServer/everything"]);
    sim.serve(URL, tells(&[("echo", "Echoes a text"), ("add", "Adds two numbers")]));
    operator.run(2 * MINUTE).await;
    assert!(sim.take_writes().contains(&"Apply Deployment/a".to_owned()));
    let tools = at(&sim, &id("ConfigMap", "a-config"), "/data/CORAIL_TOOLS");
    assert!(tools.as_str().unwrap().contains("Echoes a text"));
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_keeps_its_tools_and_drags_nobody_along() {
    let sim = world();
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.serve(URL, down());
    operator.run(2 * MINUTE).await;
    let stalled = ("True".into(), "ServerTimeout".into(), "the server did not answer within 30 s".into());
    assert_eq!(condition(&sim, &server_id(), "Stalled"), Some(stalled));
    assert_eq!(at(&sim, &server_id(), "/status/toolCount"), 2);
    let reachable = condition(&sim, &tool_id("echo"), "ServerReachable").unwrap();
    assert_eq!((reachable.0.as_str(), reachable.1.as_str()), ("False", "ServerTimeout"));
    assert_eq!((phase(&sim, &tool_id("echo")), phase(&sim, &agent_id("a"))), (json!("Available"), json!("Running")));
    sim.take_requests();
    operator.run(60 * MINUTE).await;
    assert_eq!(sim.take_requests(), [], "looking writes nothing");
    assert_eq!(at(&sim, &agent_id("a"), "/metadata/generation"), 1);

    sim.store().create(&agent_id("b"), agent(json!({"tools": ["add"]})));
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("b")), "Running", "what is known is enough for a new one");
    sim.serve(URL, tells(&[("echo", "Echoes"), ("add", "Adds")]));
    operator.run(2 * MINUTE).await;
    assert_eq!(phase(&sim, &server_id()), "Available");
    assert_eq!(condition(&sim, &tool_id("echo"), "ServerReachable").unwrap().0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_in_error_while_its_server_does_not_have_it() {
    let sim = world();
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.serve(URL, tells(&[("add", "Adds")]));
    operator.run(2 * MINUTE).await;
    assert_eq!((phase(&sim, &tool_id("echo")), phase(&sim, &tool_id("add"))), (json!("Error"), json!("Available")));
    assert_eq!(message(&sim, &tool_id("echo")), r#"remotemcpserver "everything" has no tool "echo": it has add"#);
    assert_eq!(phase(&sim, &agent_id("a")), "Resolving");
    sim.take_requests();
    operator.run(60 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
    sim.serve(URL, tells(&[("echo", "Echoes"), ("add", "Adds")]));
    operator.run(2 * MINUTE).await;
    assert_eq!((phase(&sim, &tool_id("echo")), phase(&sim, &agent_id("a"))), (json!("Available"), json!("Running")));
}

#[tokio::test(start_paused = true)]
async fn a_tool_waits_for_a_server_that_is_not_there() {
    let sim = Sim::new();
    sim.store().create(&tool_id("echo"), served("echo"));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &tool_id("echo")), "Resolving");
    assert_eq!(message(&sim, &tool_id("echo")), r#"remotemcpserver "everything" not found"#);
    sim.serve(URL, tells(&[("echo", "Echoes")]));
    sim.store().create(&server_id(), server(json!({})));
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &tool_id("echo")), "Available");
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_missing_is_waited_for_and_one_that_changes_is_used_at_once() {
    let sim = Sim::new();
    sim.serve(URL, tells(&[("echo", "Echoes")]));
    let header = json!({"name": "Authorization", "valueFrom": {"type": "Secret", "name": "keys", "key": "token"}});
    sim.store().create(&server_id(), server(json!({"headersFrom": [header], "resync": "1h"})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(message(&sim, &server_id()), r#"secret "keys" not found"#);
    sim.store().create(&id("Secret", "keys"), secret(json!({"token": "MQ=="})));
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &server_id()), "Available");
    sim.serve(URL, tells(&[("echo", "Echoes"), ("secret", "Only with the new token")]));
    sim.store().edit(&id("Secret", "keys"), |body| body["data"]["token"] = json!("Mg=="));
    operator.run(MINUTE).await;
    assert_eq!(at(&sim, &server_id(), "/status/toolCount"), 2, "long before its resync");
}

#[tokio::test(start_paused = true)]
async fn an_edit_asks_the_new_server() {
    let sim = world();
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.serve("http://other/", tells(&[("echo", "Echoes")]));
    sim.store().edit(&server_id(), |body| body["spec"]["url"] = json!("http://other/"));
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &server_id()), "Available");
    let tools = at(&sim, &id("ConfigMap", "a-config"), "/data/CORAIL_TOOLS");
    assert!(tools.as_str().unwrap().contains(r#""mcpEndpoint":"http://other/""#), "{tools}");
    assert_eq!(phase(&sim, &tool_id("add")), "Error", "the new server has no such tool");
}

#[tokio::test(start_paused = true)]
async fn definitions_that_somebody_deletes_or_changes_come_back_and_those_of_others_stay() {
    let sim = world();
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let kept = at(&sim, &definitions(), "/data");
    sim.store().delete(&definitions(), Cascade::Background);
    operator.run(MINUTE).await;
    assert_eq!(at(&sim, &definitions(), "/data"), kept);
    sim.store().meddle(&definitions(), "/data/tools.json", Some(json!("[]")), "kubectl");
    operator.run(MINUTE).await;
    assert_eq!(at(&sim, &definitions(), "/data"), kept);

    let sim = Sim::new();
    sim.serve(URL, tells(&[("echo", "Echoes")]));
    let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {"mine": "1"}});
    sim.store().create(&definitions(), foreign);
    sim.store().create(&server_id(), server(json!({})));
    let mut operator = Operator::start(&sim);
    operator.run(10 * MINUTE).await;
    assert_eq!(condition(&sim, &server_id(), "Ready").unwrap().1, "NameConflict");
    assert_eq!(at(&sim, &definitions(), "/data"), json!({"mine": "1"}));
    sim.store().delete(&definitions(), Cascade::Background);
    operator.run(10 * MINUTE).await;
    assert_eq!(phase(&sim, &server_id()), "Available");
}

#[tokio::test(start_paused = true)]
async fn it_ends_the_same_wherever_the_operator_dies() {
    let calm = world();
    live(&calm, 5 * MINUTE).await;
    for nth in 0.. {
        let sim = world();
        let mut died = false;
        sim.plan(move |request, _| {
            let dies = !died && request.is_write() && request.nth_write == nth;
            died |= dies;
            if dies { crate::fake::Fault::DieUnanswered } else { crate::fake::Fault::No }
        });
        live(&sim, 5 * MINUTE).await;
        for id in [server_id(), tool_id("echo"), agent_id("a")] {
            assert_eq!(phase(&sim, &id), phase(&calm, &id), "{id} after write {nth}");
        }
        assert_eq!(at(&sim, &definitions(), "/data"), at(&calm, &definitions(), "/data"));
        if nth > 12 {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_made_again_under_its_name_is_asked_anew() {
    let sim = world();
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.serve(URL, tells(&[("echo", "Another"), ("add", "Adds")]));
    sim.store().delete(&server_id(), Cascade::Background);
    sim.store().create(&server_id(), server(json!({})));
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &server_id()), "Available");
    assert_eq!(at(&sim, &server_id(), "/status/discoveredTools/1/description"), "Another");
    let uid = at(&sim, &server_id(), "/metadata/uid");
    assert_eq!(at(&sim, &definitions(), "/metadata/ownerReferences/0/uid"), uid);
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
}

fn published(sim: &Sim, name: &str) -> Value {
    at(sim, &tool_id(name), "")
}

#[tokio::test(start_paused = true)]
async fn published_tools_are_tools_that_an_agent_lists_and_then_cost_nothing() {
    let sim = Sim::new();
    sim.serve(URL, tells(&[("get_time", "Tells the time"), ("set_time", "Sets it"), ("admin", "Anything")]));
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
    let sim = Sim::new();
    sim.serve(URL, tells(&[("echo", "Echoes"), ("add", "Adds")]));
    sim.store().create(&server_id(), server(json!({"publish": {"enabled": true}})));
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["echo"]})));
    let mut operator = Operator::start(&sim);
    operator.run(2 * MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    sim.store().delete(&tool_id("add"), Cascade::Background);
    operator.run(2 * MINUTE).await;
    assert_eq!(phase(&sim, &tool_id("add")), "Available", "deleted by somebody, it is made again");
    sim.store().edit(&tool_id("add"), |body| body["spec"]["description"] = json!("Mine"));
    operator.run(2 * MINUTE).await;
    assert_eq!(at(&sim, &tool_id("add"), "/spec/description"), "Adds");

    sim.serve(URL, tells(&[("more", "More")]));
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

#[tokio::test(start_paused = true)]
async fn a_tool_of_somebody_else_is_left_alone_and_said() {
    let sim = Sim::new();
    sim.serve(URL, tells(&[("echo", "Echoes"), ("add", "Adds")]));
    sim.store().create(&tool_id("echo"), crate::fake::tool("http://mine"));
    sim.store().create(&server_id(), server(json!({"publish": {"enabled": true}})));
    let mut operator = Operator::start(&sim);
    operator.run(2 * MINUTE).await;
    assert_eq!(at(&sim, &tool_id("echo"), "/spec/endpoint"), "http://mine");
    let (_, reason, message) = condition(&sim, &server_id(), "ToolsPublished").unwrap();
    assert_eq!(reason, "NameConflict");
    assert!(message.contains("tool \"echo\" exists and belongs to somebody else"), "{message}");
    assert_eq!((phase(&sim, &server_id()), phase(&sim, &tool_id("add"))), (json!("Available"), json!("Available")));
}

#[tokio::test(start_paused = true)]
async fn another_namespace_uses_a_server_while_it_is_allowed_to() {
    let sim = Sim::new();
    sim.serve(URL, tells(&[("echo", "Echoes")]));
    let elsewhere = Id { namespace: "tools".to_owned(), ..server_id() };
    sim.store().create(&elsewhere, server(json!({})));
    let server = json!({"name": "everything", "namespace": "tools", "toolName": "echo"});
    let spec = json!({"name": "echo", "type": "mcp", "mcpServerRef": server});
    sim.store().create(&tool_id("echo"), object("Tool", spec));
    let namespace = Id { kind: "Namespace", namespace: String::new(), name: "team".to_owned() };
    sim.store().create(&namespace, json!({"kind": "Namespace", "metadata": {"labels": {"team": "a"}}}));
    let mut operator = Operator::start(&sim);
    let mut phases = Vec::new();
    for allowed in [
        json!({"from": "Same"}),
        json!({"from": "All"}),
        json!({"from": "Selector", "selector": {"matchLabels": {"team": "b"}}}),
        json!({"from": "Selector", "selector": {"matchLabels": {"team": "a"}}}),
    ] {
        sim.store().edit(&elsewhere, |body| body["spec"]["allowedNamespaces"] = allowed);
        // The simulation wakes only objects of one namespace: the operator's index across namespaces has its own tests.
        sim.store().edit(&tool_id("echo"), |body| body["metadata"]["labels"]["look"] = json!(phases.len().to_string()));
        operator.run(MINUTE).await;
        sim.store().edit(&tool_id("echo"), |body| body["metadata"]["labels"]["look"] = json!("again"));
        operator.run(MINUTE).await;
        phases.push(phase(&sim, &tool_id("echo")));
    }
    assert_eq!(phases, ["Resolving", "Available", "Resolving", "Available"]);
    sim.store().edit(&elsewhere, |body| body["spec"]["allowedNamespaces"] = json!({"from": "Same"}));
    operator.run(MINUTE).await;
    sim.store().edit(&tool_id("echo"), |body| body["metadata"]["labels"]["look"] = json!("last"));
    operator.run(MINUTE).await;
    let expected = r#"remotemcpserver "tools/everything" may not be used from namespace "team": let its spec.allowedNamespaces allow it"#;
    assert_eq!(message(&sim, &tool_id("echo")), expected);
}

#[tokio::test(start_paused = true)]
async fn a_servers_headers_reach_those_that_call_its_tools_and_read_nothing_of_theirs() {
    let sim = Sim::new();
    sim.serve(URL, tells(&[("echo", "Echoes")]));
    let from = |type_: &str, name: &str| json!({"type": type_, "name": name, "key": "k"});
    let headers = json!([
        {"name": "Authorization", "valueFrom": from("Secret", "keys")},
        {"name": "X-Team", "valueFrom": from("ConfigMap", "team")},
        {"name": "X-Plain", "value": "as it is"},
        {"name": "X-Sly", "value": "$HOME$(PATH)"},
        {"name": "x-own", "value": "the server's"},
    ]);
    sim.store().create(&server_id(), server(json!({"headersFrom": headers, "protocol": "SSE"})));
    sim.store().create(&id("Secret", "keys"), secret(json!({"k": "MQ=="})));
    sim.store().create(&id("ConfigMap", "team"), json!({"apiVersion": "v1", "metadata": {}, "data": {"k": "blue"}}));
    let mut tool = served("echo");
    tool["spec"]["headers"] = json!({"X-Own": "the Tool's"});
    sim.store().create(&tool_id("echo"), tool);
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["echo"]})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    let tools = at(&sim, &id("Secret", "a-config"), "/data/CORAIL_TOOLS");
    let tools: k8s_openapi::ByteString = serde_json::from_value(tools).unwrap();
    let tools: Value = serde_json::from_slice(&tools.0).unwrap();
    assert_eq!((&tools[0]["mcpTransport"], &tools[0]["mcpEndpoint"]), (&json!("sse"), &json!(URL)));
    let expected = json!({
        "Authorization": "$TOOL_MY_ECHO_AUTHORIZATION", "X-Team": "$TOOL_MY_ECHO_X_TEAM", "X-Plain": "as it is",
        "X-Sly": "$TOOL_MY_ECHO_X_SLY", "X-Own": "the Tool's",
    });
    assert_eq!(tools[0]["headers"], expected);
    let env = at(&sim, &id("Deployment", "a"), "/spec/template/spec/containers/0/env");
    let variable = |name: &str| env.as_array().unwrap().iter().find(|it| it["name"] == name).cloned().unwrap();
    let key = |name: &str| json!({"name": name, "key": "k"});
    assert_eq!(variable("TOOL_MY_ECHO_AUTHORIZATION")["valueFrom"]["secretKeyRef"], key("keys"));
    assert_eq!(variable("TOOL_MY_ECHO_X_TEAM")["valueFrom"]["configMapKeyRef"], key("team"));
    assert_eq!(variable("TOOL_MY_ECHO_X_SLY")["value"], "$$HOME$$(PATH)", "names in it are no names");

    let template = "/spec/template/metadata/annotations";
    let before = at(&sim, &id("Deployment", "a"), template);
    sim.store().edit(&id("Secret", "keys"), |body| body["data"]["k"] = json!("Mg=="));
    operator.run(2 * MINUTE).await;
    assert_ne!(at(&sim, &id("Deployment", "a"), template), before, "Pods get the new value");
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    sim.take_requests();
    operator.run(60 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
}

#[tokio::test(start_paused = true)]
async fn secrets_of_a_servers_namespace_are_looked_for_in_no_other() {
    let sim = Sim::new();
    sim.serve(URL, tells(&[("echo", "Echoes")]));
    let elsewhere = |kind: &'static str, name: &str| Id { namespace: "tools".to_owned(), ..id(kind, name) };
    let header = json!({"name": "Authorization", "valueFrom": {"type": "Secret", "name": "keys", "key": "k"}});
    let spec =
        json!({"headersFrom": [header, {"name": "X-Plain", "value": "v"}], "allowedNamespaces": {"from": "All"}});
    sim.store().create(&elsewhere("RemoteMCPServer", "everything"), server(spec));
    sim.store().create(&elsewhere("Secret", "keys"), secret(json!({"k": "MQ=="})));
    // Another one, which is not for that server.
    sim.store().create(&id("Secret", "keys"), secret(json!({"k": "Mg=="})));
    let server = json!({"name": "everything", "namespace": "tools", "toolName": "echo"});
    sim.store()
        .create(&tool_id("echo"), object("Tool", json!({"name": "echo", "type": "mcp", "mcpServerRef": server})));
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["echo"]})));
    let mut operator = Operator::start(&sim);
    for look in 0..3 {
        // The simulation wakes only objects of one namespace.
        operator.run(MINUTE).await;
        sim.store().edit(&tool_id("echo"), |body| body["metadata"]["labels"]["look"] = json!(look.to_string()));
    }
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    let tools = at(&sim, &id("Secret", "a-config"), "/data/CORAIL_TOOLS");
    let tools: k8s_openapi::ByteString = serde_json::from_value(tools).unwrap();
    let tools: Value = serde_json::from_slice(&tools.0).unwrap();
    assert_eq!(tools[0]["headers"], json!({"X-Plain": "v"}));
    let env = at(&sim, &id("Deployment", "a"), "/spec/template/spec/containers/0/env");
    assert!(!env.to_string().contains("TOOL_ECHO"), "{env}");
}

#[tokio::test(start_paused = true)]
async fn tools_that_a_crash_left_behind_are_found_when_publishing_is_switched_off() {
    let sim = Sim::new();
    sim.serve(URL, tells(&[("echo", "Echoes"), ("add", "Adds")]));
    sim.store().create(&server_id(), server(json!({"publish": {"enabled": true}})));
    let mut died = false;
    sim.plan(move |request, _| {
        let dies = !died && request.is_write() && request.id.kind == "Tool";
        died |= dies;
        if dies { crate::fake::Fault::DieUnanswered } else { crate::fake::Fault::No }
    });
    let mut operator = Operator::start(&sim);
    operator.run(2 * MINUTE).await;
    assert!(published(&sim, "add").is_object() || published(&sim, "echo").is_object(), "one of them was made");
    sim.store().edit(&server_id(), |body| body["spec"]["publish"]["enabled"] = json!(false));
    sim.heal();
    Operator::start(&sim).run(2 * MINUTE).await;
    assert_eq!((published(&sim, "add"), published(&sim, "echo")), (Value::Null, Value::Null));
    assert_eq!(at(&sim, &server_id(), "/status/publishedTools"), Value::Null);
}
