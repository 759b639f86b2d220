//! Tool of genkit-operator.

use serde_json::{Map, Value, json};

use super::{reference, refused};
use crate::{
    env::{set, set_list},
    fields::Fields,
    headers::{self, Receiver},
    names,
    subject::Subject,
};

/// Turns a Tool into ours.
pub(super) fn convert(subject: &Subject<'_>) {
    let spec = subject.spec();
    let definition = spec.part("definition");
    let implementation = spec.part("implementation");
    let (http, flow) = (implementation.part("http"), implementation.part("flowRef"));
    let mut ours = Map::new();
    let given = definition.text("name").unwrap_or(&subject.id.name);
    let name = names::tool_name(given);
    if name != given {
        subject.notes.change(&definition.path("name"), format!("is now {name:?}"));
    }
    set(&mut ours, "name", Some(name));
    match (http.is_empty(), flow.is_empty()) {
        (false, true) => {
            let Some(url) = http.text("url") else {
                http.ignore();
                return refused(subject, &definition, "it has no url");
            };
            set(&mut ours, "type", Some("http"));
            set(&mut ours, "endpoint", Some(url));
            set(&mut ours, "method", Some(http.text("method").unwrap_or("POST")));
            set_list(&mut ours, "headersFrom", headers_of(subject, &http));
        }
        (true, false) => {
            let Some(name) = flow.text("name") else { return refused(subject, &definition, "its flowRef has no name") };
            set(&mut ours, "type", Some("flow"));
            let name = reference(subject, flow.own_path(), "Flow", name);
            ours.insert("flowRef".to_owned(), json!({ "name": name }));
        }
        (one, _) => {
            [&http, &flow].into_iter().for_each(Fields::ignore);
            let why = if one { "it has neither http nor flowRef" } else { "it has both http and flowRef" };
            return refused(subject, &definition, why);
        }
    }
    set(&mut ours, "description", definition.text("description"));
    for key in ["inputSchema", "outputSchema"] {
        let schema = definition.value(key).filter(|schema| schema.is_object());
        set(&mut ours, key, schema.cloned());
    }
    if definition.value("metadata").is_some() {
        subject.notes.loss(&definition.path("metadata"), "metadata reaches no model");
    }
    subject.emit("Tool", ours.into());
}

/// Returns a header for each key of the Secret, whose names are those of the headers.
fn headers_of(subject: &Subject<'_>, http: &Fields<'_>) -> Vec<Value> {
    let secret = http.part("headersSecretRef");
    let Some(name) = secret.text("name") else { return Vec::new() };
    let Some(found) = subject.world.core("Secret", subject.namespace(), name) else {
        let text = format!("the keys of Secret {name} are unknown; list them in headersFrom");
        subject.notes.loss(secret.own_path(), text);
        return Vec::new();
    };
    let fields = ["data", "stringData"].into_iter().filter_map(|field| found[field].as_object());
    let mut keys: Vec<_> = fields.flat_map(Map::keys).collect();
    keys.sort();
    keys.dedup();
    let is_taken = |key: &&String| {
        let field = format!("{}[{key}]", secret.own_path());
        headers::takes(subject, &field, key, Receiver::Server)
    };
    let header = |key: &String| json!({ "name": key, "secretKeyRef": { "name": name, "key": key } });
    keys.into_iter().filter(is_taken).map(header).collect()
}
