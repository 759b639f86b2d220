//! Lifecycle of an MCPServer, with a Tool of it and an Agent that uses the Tool, in the simulated cluster.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    discovery::{DiscoveryError, DiscoveryResult, McpToolDefinition},
    fake::{self, Cascade, Health, ObjectId, Operator, Sim, agent, agent_id, id, object, secret, tool_id},
};

const MINUTE: Duration = Duration::from_secs(60);
const URL: &str = "http://files.team.svc.cluster.local:3000/mcp";

fn server_id() -> ObjectId {
    id("MCPServer", "files")
}

fn stdio(more: Value) -> Value {
    let mut deployment =
        json!({"image": "registry/files:1", "cmd": "files", "args": ["--root", "/data"], "replicas": 1});
    for (key, value) in more.as_object().into_iter().flatten() {
        deployment[key] = value.clone();
    }
    object("MCPServer", json!({"transportType": "stdio", "deployment": deployment}))
}

fn lists_tools(names: &[&str]) -> DiscoveryResult {
    let tool = |name: &&str| McpToolDefinition {
        name: (*name).into(),
        input_schema: json!({}),
        ..McpToolDefinition::default()
    };
    fake::lists_tools(&names.iter().map(tool).collect::<Vec<_>>())
}

fn at(sim: &Sim, id: &ObjectId, pointer: &str) -> Value {
    sim.store().at(id, pointer)
}

fn phase(sim: &Sim, id: &ObjectId) -> Value {
    at(sim, id, "/status/phase")
}

fn condition(sim: &Sim, id: &ObjectId, type_: &str) -> Value {
    let all = at(sim, id, "/status/conditions");
    all.as_array().into_iter().flatten().find(|found| found["type"] == type_).cloned().unwrap_or_default()
}

fn container(sim: &Sim, pointer: &str) -> Value {
    at(sim, &id("Deployment", "files"), &format!("/spec/template/spec{pointer}"))
}

fn cluster() -> Sim {
    let sim = Sim::new();
    sim.serve(URL, lists_tools(&["read", "write"]));
    sim.store().create(&server_id(), stdio(json!({})));
    let server = json!({"kind": "MCPServer", "name": "files"});
    sim.store()
        .create(&tool_id("read"), object("Tool", json!({"name": "read", "type": "mcp", "mcpServerRef": server})));
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["read"]})));
    sim
}

#[tokio::test(start_paused = true)]
async fn it_runs_is_asked_for_its_tools_and_then_costs_nothing() {
    let sim = cluster();
    Operator::start(&sim).run(2 * MINUTE).await;
    for id in [server_id(), agent_id("a")] {
        assert_eq!(phase(&sim, &id), "Running", "{id}");
    }
    assert_eq!(at(&sim, &server_id(), "/status/endpoint"), URL);
    assert_eq!(at(&sim, &server_id(), "/status/toolCount"), 2);
    let tools = at(&sim, &id("ConfigMap", "a-config"), "/data/CORAIL_TOOLS");
    assert!(tools.as_str().unwrap().contains(&format!(r#""mcpEndpoint":"{URL}""#)), "{tools}");
    sim.take_requests();
    Operator::start(&sim).run(60 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_speaks_over_its_standard_output_runs_under_the_bridge() {
    let sim = cluster();
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!(container(&sim, "/containers/0/command"), json!(["/recif/recif-proxy"]));
    let args = ["mcp-bridge", "--port", "3000", "--path", "/mcp", "--", "files", "--root", "/data"];
    assert_eq!(container(&sim, "/containers/0/args"), json!(args));
    assert_eq!(container(&sim, "/containers/0/readinessProbe/httpGet/path"), "/readyz");
    assert_eq!(container(&sim, "/containers/0/livenessProbe/httpGet/path"), "/livez");
    assert_eq!(container(&sim, "/initContainers/0/args"), json!(["install", "/recif/recif-proxy"]));
    assert_eq!(container(&sim, "/initContainers/1/name"), "proxy");
    let listens = json!({"name": "RECIF_LISTEN_STREAMS", "value": "true"});
    assert!(container(&sim, "/initContainers/1/env").as_array().unwrap().contains(&listens));
    let bridge = json!({"name": "bridge", "mountPath": "/recif", "readOnly": true});
    assert!(container(&sim, "/containers/0/volumeMounts").as_array().unwrap().contains(&bridge));
    let images = at(&sim, &server_id(), "/status/images");
    assert_eq!(images, json!({"bridge": "recif.local/proxy:1", "proxy": "recif.local/proxy:1"}));
}

#[tokio::test(start_paused = true)]
async fn a_program_that_serves_http_runs_as_its_image_says() {
    let sim = Sim::new();
    let deployment = json!({"image": "registry/http:1", "port": 80, "replicas": 1, "secretRefs": [{"name": "keys"}],
        "imagePullPolicy": "Always"});
    let transport = json!({"targetPort": 9000, "path": "/"});
    let spec = json!({"transportType": "http", "deployment": deployment, "httpTransport": transport});
    sim.store().create(&id("Secret", "keys"), secret(json!({"KEY": "MQ=="})));
    sim.store().create(&server_id(), object("MCPServer", spec));
    sim.serve("http://files.team.svc.cluster.local:80/", lists_tools(&["read"]));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(at(&sim, &server_id(), "/status/toolCount"), 1);
    assert_eq!(container(&sim, "/containers/0/command"), Value::Null);
    assert_eq!(container(&sim, "/containers/0/ports/0/containerPort"), 9000);
    assert_eq!(container(&sim, "/containers/0/imagePullPolicy"), "Always");
    assert_eq!(container(&sim, "/containers/0/readinessProbe/tcpSocket/port"), "agent");
    assert_eq!(at(&sim, &id("Service", "files"), "/spec/ports/0/port"), 80);
    let before = container(&sim, "");
    sim.store().edit(&id("Secret", "keys"), |body| body["data"]["KEY"] = json!("Mg=="));
    operator.run(MINUTE).await;
    assert_eq!(container(&sim, ""), before);
    let hash = |sim: &Sim| at(sim, &id("Deployment", "files"), "/spec/template/metadata/annotations");
    assert_eq!(hash(&sim)["recif.dev/content-hash"], at(&sim, &server_id(), "/status/contentHash"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_tell_its_tools_runs_on_and_keeps_them() {
    let sim = cluster();
    let mut operator = Operator::start(&sim);
    operator.run(2 * MINUTE).await;
    let message = "the MCP server did not answer".to_owned();
    sim.serve(URL, Err(DiscoveryError { reason: "ServerTimeout", message }));
    operator.run(20 * MINUTE).await;
    assert_eq!((phase(&sim, &server_id()), phase(&sim, &agent_id("a"))), (json!("Running"), json!("Running")));
    assert_eq!(condition(&sim, &server_id(), "ToolsDiscovered")["reason"], "ServerTimeout");
    assert_eq!(at(&sim, &server_id(), "/status/toolCount"), 2);
    assert_eq!(condition(&sim, &tool_id("read"), "ServerReachable")["status"], "False");
    sim.take_requests();
    operator.run(60 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_is_said_and_takes_no_server_out_of_running() {
    let sim = cluster();
    sim.store().create(&id("ConfigMap", "files.mcp-server-tools"), json!({"metadata": {}, "data": {"a": "b"}}));
    let mut operator = Operator::start(&sim);
    operator.run(2 * MINUTE).await;
    assert_eq!(phase(&sim, &server_id()), "Running");
    let reported = condition(&sim, &server_id(), "ToolsDiscovered");
    assert_eq!((&reported["status"], &reported["reason"]), (&json!("False"), &json!("NameConflict")));
    sim.take_writes();
    operator.run(60 * MINUTE).await;
    assert_eq!(sim.take_writes(), [""; 0]);
    sim.store().delete(&id("ConfigMap", "files.mcp-server-tools"), Cascade::Background);
    operator.run(30 * MINUTE).await;
    assert_eq!(at(&sim, &server_id(), "/status/toolCount"), 2);
}

#[tokio::test(start_paused = true)]
async fn new_pods_are_asked_at_once() {
    let sim = cluster();
    let mut operator = Operator::start(&sim);
    operator.run(2 * MINUTE).await;
    sim.serve(URL, lists_tools(&["read", "write", "list"]));
    sim.store().edit(&server_id(), |body| body["spec"]["deployment"]["image"] = json!("registry/files:2"));
    operator.run(MINUTE).await;
    assert_eq!((phase(&sim, &server_id()), at(&sim, &server_id(), "/status/toolCount")), (json!("Running"), json!(3)));
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_goes_does_not_have_the_last_word() {
    let sim = cluster();
    sim.store().grace = Duration::from_secs(20);
    let mut operator = Operator::start(&sim);
    operator.run(2 * MINUTE).await;
    sim.store().edit(&server_id(), |body| body["spec"]["deployment"]["image"] = json!("registry/files:2"));
    operator.run(Duration::from_secs(10)).await;
    assert_eq!(phase(&sim, &server_id()), "Running");
    sim.serve(URL, lists_tools(&["read", "write", "list"]));
    operator.run(MINUTE).await;
    assert_eq!(at(&sim, &server_id(), "/status/toolCount"), 3);
}

#[tokio::test(start_paused = true)]
async fn its_tools_wait_for_it_and_survive_a_pod_that_is_lost() {
    let sim = cluster();
    sim.store().set_health(Health::Bad(None));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!((phase(&sim, &server_id()), phase(&sim, &tool_id("read"))), (json!("Deploying"), json!("Resolving")));
    let ready = condition(&sim, &tool_id("read"), "Ready");
    assert_eq!(ready["message"], r#"mcpserver "files" is Deploying"#);
    sim.store().set_health(Health::Good);
    operator.run(2 * MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    sim.store().set_health(Health::Bad(None));
    operator.run(MINUTE).await;
    assert_eq!(condition(&sim, &tool_id("read"), "ServerReachable")["status"], "False");
    assert_eq!((phase(&sim, &tool_id("read")), phase(&sim, &agent_id("a"))), (json!("Available"), json!("Running")));
}

#[tokio::test(start_paused = true)]
async fn zero_replicas_stop_it_and_deleting_it_takes_its_pods_first() {
    let sim = cluster();
    let mut operator = Operator::start(&sim);
    operator.run(2 * MINUTE).await;
    sim.store().edit(&server_id(), |body| body["spec"]["deployment"]["replicas"] = json!(0));
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &server_id()), "Terminated");
    sim.store().edit(&server_id(), |body| body["spec"]["deployment"]["replicas"] = json!(2));
    operator.run(MINUTE).await;
    assert_eq!((phase(&sim, &server_id()), at(&sim, &server_id(), "/status/replicas")), (json!("Running"), json!(2)));
    sim.store().delete(&server_id(), Cascade::Background);
    operator.run(MINUTE).await;
    assert_eq!(sim.store().get(&server_id()), None);
    assert_eq!(sim.store().get(&id("Deployment", "files")), None);
}

/// Starts a cluster with a server that publishes its two tools and an Agent that uses one of them, and runs it until all are at
/// rest.
async fn publishing() -> (Sim, Operator) {
    let sim = Sim::new();
    sim.serve(URL, lists_tools(&["list", "write"]));
    let mut server = stdio(json!({}));
    server["spec"]["publish"] = json!({"enabled": true});
    sim.store().create(&server_id(), server);
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["list"]})));
    let mut operator = Operator::start(&sim);
    operator.run(10 * MINUTE).await;
    assert_eq!((phase(&sim, &tool_id("write")), phase(&sim, &agent_id("a"))), (json!("Available"), json!("Running")));
    (sim, operator)
}

#[tokio::test(start_paused = true)]
async fn publishing_that_is_switched_off_while_no_pod_serves_takes_its_tools_back() {
    let (sim, mut operator) = publishing().await;
    sim.store().set_health(Health::Bad(None));
    operator.run(MINUTE).await;
    sim.store().edit(&server_id(), |body| body["spec"]["publish"]["enabled"] = json!(false));
    operator.run(2 * MINUTE).await;
    assert_eq!(sim.store().get(&tool_id("write")), None);
    assert_eq!(condition(&sim, &server_id(), "ToolsPublished")["reason"], "StillUsed");
    assert!(sim.store().get(&tool_id("list")).is_some(), "an agent has it");
    sim.store().edit(&agent_id("a"), |body| body["spec"]["tools"] = json!([]));
    sim.store().set_health(Health::Good);
    operator.run(5 * MINUTE).await;
    assert_eq!((phase(&sim, &server_id()), sim.store().get(&tool_id("list"))), (json!("Running"), None));
    assert_eq!(at(&sim, &server_id(), "/status/publishedTools"), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn an_unpublished_tool_goes_once_it_is_unused_in_any_phase() {
    let hindered = |phase: &str, sim: &Sim| match phase {
        "Resolving" => sim.store().edit(&server_id(), |body| {
            body["spec"]["deployment"]["secretRefs"] = json!([{"name": "missing"}]);
        }),
        _ => sim.store().set_health(Health::Bad(None)),
    };
    for (expected, rest) in [("Resolving", MINUTE), ("Deploying", MINUTE), ("Failed", 20 * MINUTE)] {
        let (sim, mut operator) = publishing().await;
        hindered(expected, &sim);
        sim.store().edit(&server_id(), |body| {
            body["spec"]["publish"]["enabled"] = json!(false);
            body["spec"]["deployment"]["image"] = json!("registry/files:2");
        });
        operator.run(rest).await;
        assert_eq!(phase(&sim, &server_id()), expected);
        assert!(sim.store().get(&tool_id("list")).is_some(), "{expected}: an agent has it");
        sim.take_requests();
        operator.run(MINUTE).await;
        assert_eq!(sim.take_writes(), [""; 0], "{expected}: to wait writes nothing");
        sim.store().edit(&agent_id("a"), |body| body["spec"]["tools"] = json!([]));
        operator.run(MINUTE).await;
        assert_eq!((phase(&sim, &server_id()), sim.store().get(&tool_id("list"))), (json!(expected), None));
        assert_eq!(at(&sim, &server_id(), "/status/publishedTools"), Value::Null);
    }
}

/// Returns reason and status of the Ready condition.
fn ready(sim: &Sim) -> (Value, Value) {
    let ready = condition(sim, &server_id(), "Ready");
    (ready["reason"].clone(), ready["status"].clone())
}

fn fails(reason: &'static str, message: &str) -> DiscoveryResult {
    Err(DiscoveryError { reason, message: message.to_owned() })
}

#[tokio::test(start_paused = true)]
async fn it_is_ready_only_when_it_has_answered_once() {
    let not_started = "it answers HTTP 502 Bad Gateway: the MCP server cannot be started: No such file or directory";
    for (answer, reason, status) in [
        (fails("ServerRefused", not_started), "ServerRefused", "False"),
        (fails("ServerTimeout", "it did not list its tools within 30 s"), "ServerTimeout", "False"),
        (fails("InvalidServerAnswer", "it does not speak MCP"), "InvalidServerAnswer", "False"),
        (fails("ServerUnreachable", "it answers HTTP 503 Service Unavailable"), "ServerUnreachable", "False"),
        (fails("ServerUnreachable", "connection refused"), "Running", "True"),
        (fails("AddressDenied", "10.0.0.1 is denied"), "Running", "True"),
        (fails("ServerRefused", "it answers HTTP 401 Unauthorized: give it credentials"), "Running", "True"),
        (lists_tools(&[]), "Running", "True"),
    ] {
        let sim = cluster();
        let text = format!("{answer:?}");
        sim.serve(URL, answer);
        let mut operator = Operator::start(&sim);
        operator.run(2 * MINUTE).await;
        assert_eq!(phase(&sim, &server_id()), "Running", "{text}");
        assert_eq!(ready(&sim), (json!(reason), json!(status)), "{text}");
        sim.take_requests();
        Operator::start(&sim).run(5 * MINUTE).await;
        assert_eq!(sim.take_writes(), Vec::<String>::new(), "{text}: a restart");
        sim.serve(URL, lists_tools(&["read"]));
        let mut operator = Operator::start(&sim);
        operator.run(30 * MINUTE).await;
        assert_eq!(ready(&sim), (json!("Running"), json!("True")), "{text}");
        sim.serve(URL, fails("ServerTimeout", "it did not list its tools within 30 s"));
        operator.run(30 * MINUTE).await;
        assert_eq!(ready(&sim), (json!("Running"), json!("True")), "{text}: it has answered once");
    }
    let sim = cluster();
    sim.serve(URL, fails("ServerRefused", "it answers HTTP 403 Forbidden: give it credentials"));
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!(condition(&sim, &server_id(), "ToolsDiscovered")["reason"], "Unauthorized");
}
