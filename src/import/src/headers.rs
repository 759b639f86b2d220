//! Headers of the requests to servers and providers.

use crds::{
    forward_headers::may_forward,
    plugin_config::is_protocol_header,
    tool_server::{is_forwarded_header, is_reserved_header},
};
use serde_json::{Value, json};

use crate::{fields::Fields, subject::Subject};

/// Most headers of a server and of a provider.
pub(crate) const MOST: usize = 32;
/// Most headers of an entry of `toolServers`, and of a Tool.
pub(crate) const MOST_OF_TOOL: usize = 8;
/// Most names of headers of a caller.
const MOST_FORWARDED: usize = 16;
/// Longest name of a header of a caller.
const LONGEST_FORWARDED: usize = 64;

/// Receiver of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiver {
    /// MCP server.
    Server,
    /// Provider of models, whose protocol sets some headers more.
    Provider,
}

/// Reports whether we take a header, and reports why not.
pub(crate) fn takes(subject: &Subject<'_>, field: &str, name: &str, receiver: Receiver) -> bool {
    let why = if name.len() > 128 || !is_name(name) {
        "is no name of a header"
    } else if is_reserved_header(name) || receiver == Receiver::Provider && is_protocol_header(name) {
        "is set by the protocol"
    } else if is_forwarded_header(name) {
        "tells who calls, which only the gateway may"
    } else {
        return true;
    };
    subject.notes.loss(field, why);
    false
}

fn is_name(name: &str) -> bool {
    let is_word = |it: char| it.is_ascii_alphanumeric() || "!#$%&*+.^_|~-".contains(it);
    !name.is_empty() && name.chars().all(is_word)
}

/// Returns the names of headers of a caller that calls have too, each once, and reports those that are refused.
pub(crate) fn forwarded(subject: &Subject<'_>, fields: &Fields<'_>, key: &str) -> Vec<String> {
    let (mut taken, mut seen) = (Vec::<String>::new(), Vec::<String>::new());
    for name in fields.texts(key) {
        if seen.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            continue;
        }
        seen.push(name.to_owned());
        let is_ours = name.len() <= LONGEST_FORWARDED && is_name(name) && may_forward(name);
        if is_ours && taken.len() < MOST_FORWARDED {
            taken.push(name.to_owned());
        } else {
            subject.notes.loss(&fields.path(key), format!("header {name} of the caller is not passed on"));
        }
    }
    if taken.iter().any(|name| name.eq_ignore_ascii_case("authorization")) {
        let text = "callers sign in by X-Recif-Authorization, so that Authorization reaches the agent";
        subject.notes.change(&fields.path(key), text);
    }
    taken
}

/// Returns the header with a text, unless we refuse it.
pub(crate) fn text(subject: &Subject<'_>, field: &str, name: &str, value: &str, receiver: Receiver) -> Option<Value> {
    if !takes(subject, field, name, receiver) {
        return None;
    }
    if value.len() > 8192 {
        subject.notes.loss(field, "is longer than 8192 characters");
        return None;
    }
    Some(json!({ "name": name, "value": value }))
}

/// Use of the texts of ConfigMaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigMaps {
    /// They are named, and read when a call is made.
    Named,
    /// They are read now, by the caller, who reports one that is not in the input.
    ReadNow,
}

/// Returns the headers of `headersFrom`, each name once.
pub(crate) fn from(subject: &Subject<'_>, fields: &Fields<'_>, key: &str) -> Vec<Value> {
    read(subject, fields, key, ConfigMaps::Named).into_iter().map(|(_, header)| header).collect()
}

/// Returns the headers of `headersFrom`, each name once and with the path of its value.
pub(crate) fn read(subject: &Subject<'_>, fields: &Fields<'_>, key: &str, maps: ConfigMaps) -> Vec<(String, Value)> {
    let mut headers: Vec<(String, Value)> = Vec::new();
    for header in fields.parts(key) {
        let path = header.own_path().to_owned();
        let (name, value) = (header.text("name").unwrap_or_default(), header.text("value"));
        let source = header.part("valueFrom");
        if !takes(subject, &path, name, Receiver::Server) {
            // What its value needs says nothing then.
            source.ignore();
            continue;
        }
        let made = match (value, source.is_empty()) {
            (_, false) => value_from(subject, &source, maps).map(|source| json!({ "name": name, "valueFrom": source })),
            (Some(value), true) => text(subject, &path, name, value, Receiver::Server),
            (None, true) => {
                subject.notes.skip(&path, "has no value");
                None
            }
        };
        let Some(made) = made else { continue };
        if headers.iter().any(|(_, known)| known["name"] == made["name"]) {
            subject.notes.skip(&path, "has the name of a header before it");
        } else {
            headers.push((if source.is_empty() { path } else { source.own_path().to_owned() }, made));
        }
    }
    headers
}

/// Leaves out what is more than a list of ours takes, and reports it.
pub(crate) fn clip<T>(subject: &Subject<'_>, field: &str, headers: &mut Vec<T>, most: usize) {
    if headers.len() > most {
        subject.notes.loss(field, format!("at most {most} headers; the others are left out"));
        headers.truncate(most);
    }
}

/// Returns the key of a Secret or ConfigMap, as `{type, name, key}`.
fn value_from(subject: &Subject<'_>, source: &Fields<'_>, maps: ConfigMaps) -> Option<Value> {
    // The older API names the object by `valueRef`.
    let name = source.text("name").or(source.has("valueRef").then(|| source.text("valueRef")).flatten());
    let (kind, name, key) = (source.text("type"), name, source.text("key"));
    match (kind, name, key) {
        (Some(kind @ ("Secret" | "ConfigMap")), Some(name), Some(key)) => {
            if kind == "Secret" || maps == ConfigMaps::Named {
                subject.needs(source.own_path(), kind, name);
            }
            Some(json!({ "type": kind, "name": name, "key": key }))
        }
        _ => {
            subject.notes.skip(source.own_path(), "names no key of a Secret or ConfigMap");
            None
        }
    }
}
