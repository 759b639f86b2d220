//! Agents as tools of an agent.

use serde_json::{Map, Value, json};

use super::split_reference;
use crate::{
    fields::Fields,
    headers::{self, ConfigMaps},
    input::{place, shown},
    names,
    source::Source,
    subject::Subject,
};

/// Returns the name of the Tool that asks an agent, and adds it. `tool` has the agent and its headers.
pub(super) fn tool(subject: &Subject<'_>, tool: &Fields<'_>, agent: &Fields<'_>) -> Option<String> {
    let field = agent.own_path();
    let name = agent.text("name").or(agent.has("ref").then(|| agent.text("ref")).flatten());
    agent.text("apiGroup");
    let kind = if agent.text("kind") == Some("SandboxAgent") { "SandboxAgent" } else { "Agent" };
    let (given, here) = (agent.text("namespace"), subject.namespace());
    let Some(name) = name else {
        tool.value("headersFrom");
        subject.notes.skip(field, "names no agent");
        return None;
    };
    let (namespace, name) = split_reference(name, given.unwrap_or(here));
    let target = subject.world.name_of(Source::Kagent, kind, "Agent", namespace, name);
    if subject.world.find(Source::Kagent, kind, namespace, name).is_none() {
        subject.missing(field, kind, namespace, name);
    } else {
        let to = ("Agent".to_owned(), namespace.to_owned(), target.clone());
        subject.refers(field, shown(kind, namespace, name), to);
    }
    let mut asked = json!({ "name": target });
    let wanted = if namespace == here {
        format!("ask-{target}")
    } else {
        asked["namespace"] = namespace.into();
        format!("ask-{namespace}-{target}")
    };
    let mut spec = json!({ "type": "agent", "agentRef": asked });
    let (values, secrets) = tool_headers(subject, tool);
    if !values.is_empty() {
        spec["headers"] = values.into();
    }
    if !secrets.is_empty() {
        spec["headersFrom"] = secrets.into();
    }
    let made = subject.world.claim("Tool", here, &wanted, &spec);
    // The model sees the number, too: two tools of one name would be one.
    spec["name"] = names::tool_name(&made.replace('-', "_")).into();
    subject.emit_more("Tool", &made, json!({ "spec": spec }));
    Some(made)
}

/// Returns headers as a Tool has them: those with a text, and those whose value is in a Secret. A text of a ConfigMap is read now.
fn tool_headers(subject: &Subject<'_>, tool: &Fields<'_>) -> (Map<String, Value>, Vec<Value>) {
    let (mut values, mut secrets) = (Map::new(), Vec::new());
    let mut headers = headers::read(subject, tool, "headersFrom", ConfigMaps::ReadNow);
    headers::clip(subject, &tool.path("headersFrom"), &mut headers, headers::MOST_OF_TOOL);
    for (field, header) in &headers {
        let (name, from) = (header["name"].as_str().unwrap_or_default(), &header["valueFrom"]);
        let (source, key) = (from["name"].as_str().unwrap_or_default(), from["key"].as_str().unwrap_or_default());
        let text = match from["type"].as_str() {
            Some("Secret") => {
                secrets.push(json!({ "name": name, "secretKeyRef": { "name": source, "key": key } }));
                continue;
            }
            Some(_) => {
                let config_map = subject.world.core("ConfigMap", subject.namespace(), source);
                config_map.and_then(|found| found["data"][key].as_str())
            }
            None => header["value"].as_str(),
        };
        match text {
            Some(text) if text.contains('$') => {
                let why = format!("header {name} has a `$`, by which a Tool names a variable; put it into a Secret");
                subject.notes.loss(field, why);
            }
            Some(text) => drop(values.insert(name.to_owned(), text.into())),
            None => {
                let place = place(subject.namespace(), source);
                subject.notes.loss(
                    field,
                    format!("header {name} is left out: no key {key} of ConfigMap {place} is in the input"),
                );
            }
        }
    }
    (values, secrets)
}
