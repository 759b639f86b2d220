//! kagent (`kagent.dev/v1alpha1`, `v1alpha2`) with kmcp.

mod admitted;
mod agent;
mod agent_tool;
mod card;
mod deployment;
mod mcp_server;
mod model_config;
mod prompt;
mod prompt_template;
mod provider_settings;
mod remote_server;
mod service;
mod service_host;
mod template_nodes;
mod tls;
mod tool_server;
mod tools;

use serde_json::Value;

use crate::subject::Subject;

/// Returns the kinds that an object becomes under its own name.
pub(crate) fn targets(object: &Value) -> &'static [&'static str] {
    match object["kind"].as_str() {
        Some("ModelConfig") => &["PluginConfig", "Model"],
        Some("ModelProviderConfig") => &["PluginConfig"],
        Some("Agent" | "SandboxAgent") => &["Agent"],
        Some("RemoteMCPServer") => &["RemoteMCPServer"],
        Some("MCPServer") => &["MCPServer"],
        Some("ToolServer") if tool_server::is_stdio(object) => &["MCPServer"],
        Some("ToolServer") => &["RemoteMCPServer"],
        _ => &[],
    }
}

/// Turns an object into ours.
pub(crate) fn convert(subject: &Subject<'_>) {
    match subject.id.kind.as_str() {
        "ModelConfig" => model_config::convert(subject),
        "ModelProviderConfig" => model_config::convert_provider(subject),
        "Agent" => agent::convert(subject),
        "SandboxAgent" => {
            agent::convert(subject);
            if !subject.made().is_empty() {
                subject.notes.loss("", "runs in no sandbox of its own");
            }
        }
        "ScheduledRun" => subject.notes.loss("", "no schedules: let a CronJob send the prompt to the agent"),
        "RemoteMCPServer" => remote_server::convert(subject),
        "MCPServer" => mcp_server::convert(subject),
        "ToolServer" => tool_server::convert(subject),
        "Memory" => subject.notes.skip("", agent::NO_MEMORY),
        kind => subject.notes.skip("", format!("kagent has no kind {kind} that is known here")),
    }
}

/// Version of kagent's first API.
const FIRST_API: &str = "kagent.dev/v1alpha1";

/// Reports whether an object is one of the first API, v1alpha1.
fn is_first_api(subject: &Subject<'_>) -> bool {
    subject.object["apiVersion"] == FIRST_API
}

/// Splits `ns/name`, which stands for `name` in this namespace where it has no slash.
fn split_reference<'t>(text: &'t str, namespace: &'t str) -> (&'t str, &'t str) {
    text.split_once('/').unwrap_or((namespace, text))
}
