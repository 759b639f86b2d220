//! Tests the visible results of rendering, with sample agents.

mod children;
mod config;
mod contract;
mod dsn;
mod fallbacks;
mod fields;
mod hash;
mod model;
mod overlay;
mod pod_security;
mod runtime_contract;
mod sidecar;
mod tools;

use std::collections::BTreeMap;

use crds::{Agent, Tool};
use serde_json::{Value, json};

use super::{
    AgentConfig, AgentImages, AgentParts, Namespaces, PinnedProxy, PodSecurity, RenderError, RenderSettings, ToolSlot,
    agent_config, agent_workload_children,
};

const OPERATORS: &str = "postgres://recif:recif_dev@recif-postgresql:5432/recif?sslmode=disable";

const PROXY_IMAGE: &str = "recif.local/proxy:1";

/// Returns the settings of an operator without database and Ollama.
fn bare() -> RenderSettings {
    RenderSettings {
        operator_namespace: "recif-system".to_owned(),
        cluster_domain: "cluster.local".to_owned(),
        database_url: None,
        database_namespaces: Namespaces::All,
        ollama_base_url: None,
        agent_image: String::new(),
        runner_image: "recif.local/runner:1".to_owned(),
        proxy_image: PROXY_IMAGE.to_owned(),
        telemetry: BTreeMap::new(),
        network_policies: false,
        cluster_cidrs: Vec::new(),
        pod_security: PodSecurity::Baseline,
    }
}

/// Returns the settings of an operator with both.
fn settings() -> RenderSettings {
    RenderSettings {
        database_url: Some(OPERATORS.to_owned()),
        ollama_base_url: Some("http://ollama:11434".to_owned()),
        ..bare()
    }
}

/// Builds the agent `my-agent` in `default`, with what `spec` adds to the required fields.
fn agent(spec: Value) -> Agent {
    let mut agent = json!({
        "apiVersion": "agents.recif.dev/v1",
        "kind": "Agent",
        "metadata": { "name": "my-agent", "namespace": "default", "uid": "6f1c", "generation": 1 },
        "spec": { "name": "My Agent", "framework": "corail" },
    });
    merge(&mut agent["spec"], spec);
    serde_json::from_value(agent).unwrap()
}

/// Builds a Tool with what `spec` adds to the required fields.
fn tool(name: &str, spec: Value) -> Tool {
    let mut tool = json!({
        "apiVersion": "agents.recif.dev/v1",
        "kind": "Tool",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "name": name, "type": "http" },
    });
    merge(&mut tool["spec"], spec);
    serde_json::from_value(tool).unwrap()
}

fn merge(base: &mut Value, more: Value) {
    let Value::Object(more) = more else { panic!("not an object: {more}") };
    base.as_object_mut().unwrap().extend(more);
}

fn config(spec: Value, settings: &RenderSettings) -> Result<AgentConfig, RenderError> {
    agent_config(&agent(spec), &AgentParts::default(), settings)
}

fn with_tools<'a>(tools: &[ToolSlot<'a>]) -> AgentParts<'a> {
    AgentParts { tools: tools.to_vec(), ..AgentParts::default() }
}

fn config_with(tools: &[Tool]) -> AgentConfig {
    let slots: Vec<_> = tools.iter().map(ToolSlot::Object).collect();
    agent_config(&agent(json!({})), &with_tools(&slots), &bare()).unwrap()
}

/// Returns the images of an agent whose own image is the spec's.
fn images<'a>(agent: &'a Agent, proxy: PinnedProxy<'a>) -> AgentImages<'a> {
    AgentImages { agent: &agent.spec.image, proxy }
}

/// Returns the Pod template of an agent with this spec.
fn template(spec: Value) -> Result<Value, RenderError> {
    let agent = agent(spec);
    let config = agent_config(&agent, &AgentParts::default(), &bare())?;
    let [_, deployment] = agent_workload_children(&agent, &config, images(&agent, PROXY_IMAGE.into()), Some(1))?;
    Ok(deployment.body["spec"]["template"].clone())
}
