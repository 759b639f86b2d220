//! Single steps: a request with what earlier answers hold, and its answer without what differs from server to server.

use std::collections::BTreeMap;

use http::{Request, header};
use serde_json::Value;

use super::script::ScriptStep;

/// Response to a step, without uids, versions and times.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedResponse {
    /// Code of the response.
    pub code: u16,
    /// Body; a text if it is no JSON.
    pub body: Value,
}

/// State that the steps of one run share: values of earlier answers, and what is masked in them.
#[derive(Debug)]
pub(super) struct Player {
    variables: BTreeMap<String, String>,
    /// Uids that were answered, in the order in which they came first.
    uids: Vec<String>,
}

/// Fields that hold a time.
const TIMES: &[&str] = &["creationTimestamp", "deletionTimestamp", "lastTransitionTime", "time"];

impl Player {
    pub(super) fn new(namespace: &str) -> Self {
        Self { variables: BTreeMap::from([("ns".to_owned(), namespace.to_owned())]), uids: Vec::new() }
    }

    /// Returns the request of a step.
    pub(super) fn request<Q: From<Vec<u8>>>(&self, step: &ScriptStep) -> Result<Request<Q>, http::Error> {
        let (method, target) = step.request.split_once(' ').unwrap_or(("GET", &step.request));
        let body = match &step.body {
            Value::Null => String::new(),
            Value::String(text) => self.filled(text),
            body => self.filled(&body.to_string()),
        };
        let media_type = step.media_type.as_deref().unwrap_or("application/json");
        Request::builder()
            .method(method)
            .uri(self.filled(target))
            .header(header::CONTENT_TYPE, media_type)
            .header(header::ACCEPT, step.accept.as_deref().unwrap_or("application/json"))
            .header(header::USER_AGENT, "comparison/1")
            .body(Q::from(body.into_bytes()))
    }

    fn filled(&self, text: &str) -> String {
        let fill = |text: String, (name, value): (&String, &String)| text.replace(&format!("{{{name}}}"), value);
        self.variables.iter().fold(text.to_owned(), fill)
    }

    /// Takes the answer to a step: what later steps use of it, and what is compared.
    pub(super) fn answer(&mut self, step: &ScriptStep, code: u16, body: &[u8]) -> RecordedResponse {
        let mut body: Value =
            serde_json::from_slice(body).unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned().into());
        if let Some(name) = &step.save {
            for (variable, pointer) in [("uid", "/metadata/uid"), ("version", "/metadata/resourceVersion")] {
                let value = body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                self.variables.insert(format!("{name}.{variable}"), value.to_owned());
            }
        }
        self.mask("", &mut body);
        RecordedResponse { code, body }
    }

    /// Returns the word for a uid: the same one again for the same uid.
    fn word_of_uid(&mut self, uid: &str) -> String {
        let known = self.uids.iter().position(|known| known == uid).unwrap_or_else(|| {
            self.uids.push(uid.to_owned());
            self.uids.len() - 1
        });
        format!("UID{}", known + 1)
    }

    /// Replaces uids, versions and times by words, also within messages.
    pub(super) fn mask(&mut self, field: &str, value: &mut Value) {
        match value {
            Value::Object(fields) => fields.iter_mut().for_each(|(field, value)| self.mask(field, value)),
            Value::Array(items) => {
                items.iter_mut().for_each(|item| self.mask(field, item));
                match field {
                    // Conflicts of several managers are in no order.
                    "causes" => items.sort_by_key(Value::to_string),
                    // Sorted by time on a server: two writes within one second come in another order than two that are apart.
                    "managedFields" => items.sort_by_key(owner),
                    _ => {}
                }
            }
            Value::String(text) if field == "uid" => *text = self.word_of_uid(text),
            Value::String(text) if field == "resourceVersion" => *text = "VERSION".to_owned(),
            Value::String(text) if field == "cells" && is_age(text) => *text = "AGE".to_owned(),
            // Texts for people, of the schema.
            Value::String(text) if field == "description" => text.clear(),
            Value::String(text) if TIMES.contains(&field) => *text = "TIME".to_owned(),
            Value::String(text) if field == "message" => {
                let uids = self.uids.iter().enumerate();
                *text = uids.fold(text.clone(), |text, (index, uid)| text.replace(uid, &format!("UID{}", index + 1)));
                if text.to_lowercase().replace(' ', "").contains("resourceversion") {
                    *text = without_numbers(text);
                }
            }
            _ => {}
        }
    }
}

/// Returns the owner that an entry of `managedFields` is about.
fn owner(entry: &Value) -> [String; 4] {
    ["operation", "manager", "apiVersion", "subresource"].map(|field| entry[field].to_string())
}

/// Reports whether the cell of a table is a duration, such as `5s` or `2m3s`.
fn is_age(cell: &str) -> bool {
    let is_part = |c: char| c.is_ascii_digit() || "smhdy".contains(c);
    cell.starts_with(|c: char| c.is_ascii_digit())
        && !cell.ends_with(|c: char| c.is_ascii_digit())
        && cell.chars().all(is_part)
}

/// Replaces each number by a word.
fn without_numbers(text: &str) -> String {
    let parts = text.split_inclusive(|c: char| !c.is_ascii_digit());
    parts
        .map(|part| if part.starts_with(|c: char| c.is_ascii_digit()) { replaced(part) } else { part.to_owned() })
        .collect()
}

/// Replaces the digits at the begin of a part.
fn replaced(part: &str) -> String {
    format!("NUMBER{}", part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_duration_is_an_age() {
        let cells = ["0s", "119s", "2m3s", "3h", "", "s", "12", "a1s", "80/TCP"];
        assert_eq!(cells.map(is_age), [true, true, true, true, false, false, false, false, false]);
    }

    #[test]
    fn a_uid_keeps_its_word() {
        let mut player = Player::new("n");
        let mut masked = |uid: &str| {
            let mut object = json!({ "message": "first", "metadata": { "uid": uid }, "status": { "message": uid } });
            player.mask("", &mut object);
            (object["metadata"]["uid"].clone(), object["status"]["message"].clone())
        };
        assert_eq!(masked("a-1"), (json!("UID1"), json!("UID1")));
        assert_eq!(masked("b-2"), (json!("UID2"), json!("UID2")));
        assert_eq!(masked("a-1"), (json!("UID1"), json!("UID1")));
    }
}
