//! Krypton (`krypton.ai/v1alpha1`).

mod agent;
mod model;

use serde_json::Value;

use crate::subject::Subject;

/// Returns the kinds that an object becomes under its own name.
pub(crate) fn targets(object: &Value) -> &'static [&'static str] {
    match object["kind"].as_str() {
        Some("Agent") if agent::is_mcp(object) => &["MCPServer"],
        Some("Agent") => &["Agent"],
        Some("Model") => &["PluginConfig", "Model", "Service", "Deployment"],
        _ => &[],
    }
}

/// Turns an object into ours.
pub(crate) fn convert(subject: &Subject<'_>) {
    match subject.id.kind.as_str() {
        "Agent" => agent::convert(subject),
        "Model" => model::convert(subject),
        kind => subject.notes.skip("", format!("Krypton has no kind {kind} that is known here")),
    }
}
