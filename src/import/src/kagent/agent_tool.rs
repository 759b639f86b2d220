//! Agents as tools of an agent.

use serde_json::{Map, Value, json};

use super::split_reference;
use crate::{fields::Fields, input::place, names, source::Source, subject::Subject};

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
    let target = subject.world.name_of(Source::Kagent, "Agent", "Agent", namespace, name);
    let mut asked = json!({ "name": target });
    let wanted = if namespace == here {
        format!("ask-{target}")
    } else {
        asked["namespace"] = namespace.into();
        format!("ask-{namespace}-{target}")
    };
    let seen = names::tool_name(&wanted.replace('-', "_"));
    let mut spec = json!({ "name": seen, "type": "agent", "agentRef": asked });
    let (values, secrets) = tool_headers(subject, field, headers);
    if !values.is_empty() {
        spec["headers"] = values.into();
    }
    if !secrets.is_empty() {
        spec["headersFrom"] = secrets.into();
    }
    let made = subject.world.claim("Tool", here, &wanted, &spec);
    subject.emit_more("Tool", &made, json!({ "spec": spec }));
    Some(made)
}

/// Returns headers as a Tool has them: those with a text, and those whose value is in a Secret. A text of a ConfigMap is read now.
fn tool_headers(subject: &Subject<'_>, field: &str, headers: &[Value]) -> (Map<String, Value>, Vec<Value>) {
    let (mut values, mut secrets) = (Map::new(), Vec::new());
    for header in headers {
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
