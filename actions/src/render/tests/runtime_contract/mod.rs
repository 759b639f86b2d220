//! Compares the tables of `docs/runtime-contract.md` with what is rendered.

mod agents;
mod flows;
mod pod;

use std::collections::{BTreeMap, BTreeSet};

use crds::{
    Flow, FlowSet, ModelSpec, PluginConfigSpec, Tool,
    tool::ServerVariables,
    tool_server::{CaSecret, ServerHeader},
};
use serde_json::{Value, json};

use super::{agent, images, merge, settings, tool};
use crate::{
    ports::ChildManifest,
    render::{
        AgentParts, Credentials, FLOW, FLOW_SET, FlowContract, FlowImages, FlowModel, FlowParts, FlowTool, PinnedProxy,
        agent_config, agent_workload_children, flow_workload_children,
    },
};

const PAGE: &str = include_str!("../../../../../docs/runtime-contract.md");
/// Sidecar as templates have it today.
const PROXY: PinnedProxy<'static> =
    PinnedProxy { image: "proxy:1", caller_keys: Some("[]"), tells_ready: true, declares_port: true };

/// Returns the rows of the first table below a heading, without its head. `after` is text that stands before the table.
fn table(heading: &str, after: &str) -> Vec<Vec<&'static str>> {
    table_of(PAGE, heading, after)
}

/// Returns the same of another page.
fn table_of(page: &'static str, heading: &str, after: &str) -> Vec<Vec<&'static str>> {
    let (_, section) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let (_, section) = section.split_once(after).unwrap_or_else(|| panic!("no {after:?} below {heading}"));
    let rows = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells =
        |row: &'static str| row.trim_matches('|').split(" | ").map(|cell| cell.trim_matches([' ', '|'])).collect();
    let found: Vec<_> = rows.skip(2).map(cells).collect();
    assert!(!found.is_empty(), "no table below {heading}");
    found
}

/// Returns the words of a cell that are set as code.
fn code(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn texts(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

/// Returns the container of the workload, and its Service's port.
fn running([service, deployment]: [ChildManifest; 2]) -> (Value, Value) {
    let port = service.body["spec"]["ports"][0]["port"].clone();
    (deployment.body["spec"]["template"]["spec"]["containers"][0].clone(), port)
}

/// Returns the names of variables in the container's `env`.
fn variables(container: &Value) -> BTreeSet<String> {
    let env = container["env"].as_array().unwrap().iter();
    env.map(|variable| variable["name"].as_str().unwrap().to_owned()).collect()
}

/// Returns the name of a variable as the page has it, with words for what stands for any name.
fn general(name: &str) -> String {
    let patterns = [
        ("TOOL_", "TOOL_<tool>_<header>"),
        ("MCP_", "MCP_<server>_<header>"),
        ("MODEL_", "MODEL_<pluginconfig>__<value>"),
    ];
    let found = patterns.into_iter().find(|(begin, _)| name.starts_with(begin));
    found.map_or(name, |(_, pattern)| pattern).to_owned()
}

fn agent_container(spec: Value) -> (Value, Value) {
    let agent = agent(spec);
    let config = agent_config(&agent, &AgentParts::default(), &settings()).unwrap();
    running(agent_workload_children(&agent, &config, images(&agent, PROXY), Some(1)).unwrap())
}

fn secret_header() -> Value {
    json!([{ "name": "Authorization", "secretKeyRef": { "name": "keys", "key": "token" } }])
}

/// Returns the header of a server, whose value is in a Secret.
fn server_header() -> ServerHeader {
    let from = json!({ "type": "Secret", "name": "keys", "key": "token" });
    serde_json::from_value(json!({ "name": "X-Key", "valueFrom": from })).unwrap()
}

/// Returns a Tool of each type with every field that is rendered, and one of a server in `toolServers`.
fn tools() -> Vec<Tool> {
    let common = |more: Value| {
        let mut spec = json!({ "description": "d", "inputSchema": { "type": "object" }, "outputSchema": {} });
        merge(&mut spec, more);
        spec
    };
    let forwards = |more: Value| {
        let mut spec = common(more);
        spec["forwardHeaders"] = json!(["X-Tenant"]);
        spec
    };
    let parameter = json!({ "name": "a", "description": "d", "required": true, "default": "x" });
    let mut all = vec![
        tool("plain", json!({ "endpoint": "http://a", "method": "GET", "parameters": [parameter] })),
        tool("web", forwards(json!({ "endpoint": "http://a", "method": "GET", "headersFrom": secret_header() }))),
        tool(
            "du",
            common(json!({
                "type": "cli", "binary": "du", "allowedCommands": ["-s"], "allowedFlags": ["-s"], "allowedEnv": ["DIR"],
            })),
        ),
        tool(
            "search",
            forwards(json!({ "type": "mcp", "mcpEndpoint": "https://m/mcp", "headers": { "X-Team": "blue" } })),
        ),
        tool("plan", forwards(json!({ "type": "flow" }))),
        tool("ask", forwards(json!({ "type": "agent", "headersFrom": secret_header() }))),
        tool("datetime", common(json!({ "type": "builtin" }))),
        tool(
            "fetch",
            json!({ "type": "mcp", "mcpEndpoint": "http://m", "mcpServerRef": { "name": "docs", "toolName": "get" } }),
        ),
    ];
    let fetch = &mut all[7].spec.call;
    fetch.headers = vec![server_header()];
    fetch.variables = Some(ServerVariables { server: "docs".into(), digest: "00112233".into(), is_unique: false });
    let search = &mut all[3];
    search.spec.call.sse = true;
    search.spec.call.tls.ca_secret_ref = Some(CaSecret { name: "ca".into(), key: "ca.crt".into() });
    all
}

fn model() -> ModelSpec {
    serde_json::from_value(json!({
        "provider": "openai", "model": "gpt", "pluginConfigRef": { "name": "p" }, "info": { "label": "GPT" },
        "defaultConfig": { "temperature": 0.5 },
    }))
    .unwrap()
}

/// Returns a provider with every field that is rendered.
fn plugin() -> PluginConfigSpec {
    serde_json::from_value(json!({
        "type": "openai", "region": "eu", "extraConfig": { "baseUrl": "http://llm/v1" },
        "credentialsRef": { "name": "keys" }, "credentialKeys": ["OPENAI_API_KEY"],
        "headersFrom": [server_header(), { "name": "X-Team", "value": "blue" }],
        "tls": { "caSecretRef": { "name": "ca" }, "insecureSkipVerify": true, "systemCAs": false },
        "passthrough": true, "timeout": "90s",
    }))
    .unwrap()
}

/// Returns a model that stands in, with a provider of its own.
fn fallback() -> FlowModel {
    let model = json!({ "provider": "anthropic", "model": "claude", "pluginConfigRef": { "name": "other" } });
    let plugin = json!({
        "type": "anthropic", "credentialsRef": { "name": "other-keys" }, "headersFrom": [server_header()],
    });
    let values = [("ANTHROPIC_API_KEY".to_owned(), "33".to_owned())].into();
    FlowModel {
        model: serde_json::from_value(model).unwrap(),
        plugin: serde_json::from_value(plugin).unwrap(),
        credentials: Some(Credentials { secret: "other-keys".to_owned(), values }),
        header_values: BTreeMap::new(),
        fallbacks: Vec::new(),
    }
}

fn flow_of(more: Value) -> Flow {
    let mut spec = json!({ "prompts": [{ "promptRef": { "name": "p" } }], "modelRef": { "name": "m" } });
    merge(&mut spec, more);
    serde_json::from_value(json!({ "metadata": { "name": "f", "namespace": "ns" }, "spec": spec })).unwrap()
}

fn set_of(more: Value) -> FlowSet {
    let mut spec = json!({ "flows": [] });
    merge(&mut spec, more);
    serde_json::from_value(json!({ "metadata": { "name": "s", "namespace": "ns" }, "spec": spec })).unwrap()
}

fn flow_parts(name: &str) -> FlowParts {
    let url = |tool: &Tool| ["flow", "agent"].contains(&tool.spec.type_.as_str()).then(|| "http://w".to_owned());
    let object = |tool: Tool| {
        let url = url(&tool);
        let name = tool.spec.name.clone();
        (name, FlowTool::Object { url, tool: tool.into(), header_values: BTreeMap::new() })
    };
    let values = [("OPENAI_API_KEY".to_owned(), "22".to_owned())].into();
    let credentials = Some(Credentials { secret: "keys".to_owned(), values });
    FlowParts {
        name: name.to_owned(),
        prompts: vec![("say".to_owned(), "{{text}}".to_owned())],
        tools: tools().into_iter().map(object).collect(),
        model: Some(FlowModel {
            model: model(),
            plugin: plugin(),
            credentials,
            header_values: BTreeMap::new(),
            fallbacks: vec![fallback()],
        }),
        left_out: None,
    }
}

const IMAGES: FlowImages<'static> = FlowImages { runner: "runner:1", proxy: PROXY };

fn flow_container(flow: &Flow) -> (Value, Value) {
    let contract = FlowContract::of_flow(&flow_parts("f"), &BTreeMap::new()).unwrap();
    running(flow_workload_children(flow, FLOW, &flow.spec.runtime, &contract, IMAGES, Some(1)).unwrap())
}

fn set_container(set: &FlowSet) -> (Value, Value) {
    let contract = FlowContract::of_set("s", &[flow_parts("f")], &BTreeMap::new()).unwrap();
    running(flow_workload_children(set, FLOW_SET, &set.spec.runtime, &contract, IMAGES, Some(1)).unwrap())
}
