//! The comparison with the real API server: a script of requests whose answers must be equal but for uids, versions and times.
//!
//! The script is data. A test sends it to [`ApiServer`](crate::ApiServer) and checks codes and messages; an end-to-end test can send
//! it to a real API server, too, and compare [`Answer`]s. Each step may use what an earlier one has answered: `{NAME.uid}` and
//! `{NAME.version}` of a step that is saved as `NAME`, and `{ns}`, the namespace.

use std::collections::BTreeMap;

use http::{Request, header};
use serde::Deserialize;
use serde_json::Value;

/// One request of the script.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What it shows.
    pub name: String,
    /// Method and target, such as `GET /api/v1/namespaces/{ns}/configmaps`.
    pub request: String,
    /// Media type of the body; `application/json` if it is left out.
    #[serde(rename = "type")]
    pub media_type: Option<String>,
    /// Body.
    #[serde(default)]
    pub body: Value,
    /// Code of the response.
    pub code: u16,
    /// Text that the message of the response contains.
    pub message: Option<String>,
    /// Name under which later steps use the object.
    pub save: Option<String>,
}

/// What a step was answered, without uids, versions and times.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Code of the response.
    pub code: u16,
    /// Body; a text if it is no JSON.
    pub body: Value,
}

/// Plays the script to one server.
#[derive(Debug)]
pub struct Player {
    variables: BTreeMap<String, String>,
    /// Uids and versions that were answered, each with the word that stands for it.
    seen: BTreeMap<String, &'static str>,
}

/// Fields that hold a time.
const TIMES: &[&str] = &["creationTimestamp", "deletionTimestamp", "lastTransitionTime", "time"];

/// Returns the script, in order. It needs a namespace that is there and empty.
///
/// # Errors
/// A script that cannot be read: a defect of this crate, which its tests would show.
pub fn script() -> Result<Vec<Step>, serde_json::Error> {
    serde_json::from_str(include_str!("comparison/script.json"))
}

impl Player {
    /// Makes a player for a namespace.
    pub fn new(namespace: &str) -> Self {
        Self { variables: BTreeMap::from([("ns".to_owned(), namespace.to_owned())]), seen: BTreeMap::new() }
    }

    /// Returns the request of a step.
    ///
    /// # Errors
    /// A step whose request is none.
    pub fn request(&self, step: &Step) -> Result<Request<String>, http::Error> {
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
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, "comparison/1")
            .body(body)
    }

    fn filled(&self, text: &str) -> String {
        let fill = |text: String, (name, value): (&String, &String)| text.replace(&format!("{{{name}}}"), value);
        self.variables.iter().fold(text.to_owned(), fill)
    }

    /// Takes the answer to a step: what later steps use of it, and what is compared.
    pub fn answer(&mut self, step: &Step, code: u16, body: &[u8]) -> Answer {
        let mut body: Value =
            serde_json::from_slice(body).unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned().into());
        if let Some(name) = &step.save {
            for (variable, pointer) in [("uid", "/metadata/uid"), ("version", "/metadata/resourceVersion")] {
                let value = body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                self.variables.insert(format!("{name}.{variable}"), value.to_owned());
            }
        }
        self.mask("", &mut body);
        Answer { code, body }
    }

    /// Replaces uids, versions and times by words, also within messages.
    fn mask(&mut self, field: &str, value: &mut Value) {
        match value {
            Value::Object(fields) => fields.iter_mut().for_each(|(field, value)| self.mask(field, value)),
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask(field, item)),
            Value::String(text) if field == "uid" || field == "resourceVersion" => {
                let word = if field == "uid" { "UID" } else { "VERSION" };
                self.seen.insert(std::mem::replace(text, word.to_owned()), word);
            }
            Value::String(text) if TIMES.contains(&field) => *text = "TIME".to_owned(),
            Value::String(text) if field == "message" => {
                for (seen, word) in self.seen.iter().filter(|(seen, _)| seen.len() > 1) {
                    *text = text.replace(seen, word);
                }
            }
            _ => {}
        }
    }
}
