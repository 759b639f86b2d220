//! Agents as tools of an agent.

use serde_json::{Value, json};

use super::split_reference;
use crate::{fields::Fields, names, source::Source, subject::Subject};

/// Returns the name of the Tool that asks an agent, and adds it. `headers` are those of the tool.
pub(super) fn tool(subject: &Subject<'_>, agent: &Fields<'_>, headers: &[Value]) -> Option<String> {
    let field = agent.own_path();
    let name = agent.text("name").or(agent.has("ref").then(|| agent.text("ref")).flatten());
    for key in ["apiGroup", "kind"] {
        agent.text(key);
    }
    let (given, here) = (agent.text("namespace"), subject.namespace());
    let Some(name) = name else {
        subject.notes.skip(field, "names no agent");
        return None;
    };
    let (namespace, name) = split_reference(name, given.unwrap_or(here));
    if subject.world.find(Source::Kagent, "Agent", namespace, name).is_none() {
        subject.missing(field, "Agent", namespace, name);
    }
    // Until a Tool of type agent sends headers.
    for header in headers.iter().filter_map(|header| header["name"].as_str()) {
        subject.notes.loss(field, format!("header {header} is not sent to the agent"));
    }
    let target = subject.world.name_of(Source::Kagent, "Agent", "Agent", namespace, name);
    let mut asked = json!({ "name": target });
    let wanted = if namespace == here {
        format!("ask-{target}")
    } else {
        asked["namespace"] = namespace.into();
        format!("ask-{namespace}-{target}")
    };
    let seen = names::tool_name(&wanted.replace('-', "_"));
    let spec = json!({ "name": seen, "type": "agent", "agentRef": asked });
    let made = subject.world.claim("Tool", here, &wanted, &spec);
    subject.emit_more("Tool", &made, json!({ "spec": spec }));
    Some(made)
}
