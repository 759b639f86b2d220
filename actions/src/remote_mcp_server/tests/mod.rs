//! Lifecycle of a RemoteMCPServer, with Tools of it and an Agent that uses them, in the simulated cluster.

mod approvals;
mod calls;
mod discovery;
mod pins;
mod publishing;
mod tool_servers;

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    discovery::{DiscoveryError, DiscoveryResult, McpToolDefinition},
    fake::{self, Cascade, ObjectId, Operator, Sim, agent, agent_id, id, object, run_with_restarts, secret, tool_id},
};

const MINUTE: Duration = Duration::from_secs(60);
const URL: &str = "https://mcp.example/mcp";

fn server_id() -> ObjectId {
    id("RemoteMCPServer", "everything")
}

fn definitions() -> ObjectId {
    id("ConfigMap", "everything.mcp-tools")
}

fn definition(name: &str, description: &str) -> McpToolDefinition {
    let input_schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    McpToolDefinition { name: name.into(), description: description.into(), input_schema, output_schema: None }
}

fn lists_tools(tools: &[(&str, &str)]) -> DiscoveryResult {
    fake::lists_tools(&tools.iter().map(|(name, description)| definition(name, description)).collect::<Vec<_>>())
}

fn down() -> DiscoveryResult {
    Err(DiscoveryError { reason: "ServerTimeout", message: "the server did not answer within 30 s".into() })
}

/// Returns a server whose tools are followed, unless `more` says otherwise.
fn server(more: Value) -> Value {
    let mut spec = json!({"url": URL, "onChange": "Adopt"});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    object("RemoteMCPServer", spec)
}

fn served(tool: &str) -> Value {
    let server = json!({"name": "everything", "toolName": tool});
    object("Tool", json!({"name": format!("my-{tool}"), "type": "mcp", "mcpServerRef": server}))
}

fn at(sim: &Sim, id: &ObjectId, pointer: &str) -> Value {
    sim.store().at(id, pointer)
}

fn phase(sim: &Sim, id: &ObjectId) -> Value {
    at(sim, id, "/status/phase")
}

fn condition(sim: &Sim, id: &ObjectId, type_: &str) -> Option<(String, String, String)> {
    let all = at(sim, id, "/status/conditions");
    let found = all.as_array()?.iter().find(|found| found["type"] == type_)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

fn message(sim: &Sim, id: &ObjectId) -> String {
    condition(sim, id, "Ready").map(|(.., message)| message).unwrap_or_default()
}

/// Returns a cluster with a server of two tools, a Tool for each, and an Agent that uses one of them.
fn cluster() -> Sim {
    let sim = Sim::new();
    sim.serve(URL, lists_tools(&[("echo", "Echoes"), ("add", "Adds")]));
    sim.store().create(&server_id(), server(json!({})));
    sim.store().create(&tool_id("echo"), served("echo"));
    sim.store().create(&tool_id("add"), served("add"));
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["echo"]})));
    sim
}
