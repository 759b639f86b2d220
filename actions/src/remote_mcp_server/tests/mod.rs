//! A RemoteMCPServer, the Tools of it and an Agent that has them, over the simulated cluster.

mod calls;
mod discovery;
mod publishing;

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
