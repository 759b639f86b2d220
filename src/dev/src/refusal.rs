//! What the API server refuses, in lines for people, each with its place in a file.

use kube::core::Status;

use crate::manifest::{ObjectId, Origin};

/// Start of the message of server-side apply on an object whose values do not fit the schema.
const NOT_TYPED: &str = "failed to create typed patch object (";
/// Error of a field that the schema does not have.
const UNDECLARED: &str = "field not declared in schema";

/// Returns the words of an error for people.
pub(crate) fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Returns why an object is refused: a line for each cause, with its place.
pub(crate) fn refusal(id: &ObjectId, origin: &Origin, error: &kube::Error) -> Vec<String> {
    let kube::Error::Api(status) = error else { return vec![format!("{}: {id}: {error}", origin.at(""))] };
    let line = |(at, text): (String, String)| format!("{at}: {id} is refused: {text}");
    causes(status, origin).into_iter().map(line).collect()
}

/// Returns the place and text of each cause.
fn causes(status: &Status, origin: &Origin) -> Vec<(String, String)> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let found: Vec<_> = causes
        .filter(|cause| !cause.message.is_empty())
        .map(|cause| {
            let (field, message) = (cause.field.as_str(), cause.message.as_str());
            // A schema's text names the field again, behind the value.
            let text = match message.find(&format!("{field} in body")) {
                Some(at) if !field.is_empty() => message.get(at..).unwrap_or(message).to_owned(),
                _ if field.is_empty() || field == "<nil>" => message.to_owned(),
                _ => format!("{field}: {message}"),
            };
            (origin.at(if field == "<nil>" { "" } else { field }), text)
        })
        .collect();
    if !found.is_empty() {
        return found;
    }
    match typing_errors(&status.message) {
        Some(errors) => errors.into_iter().map(|(field, error)| placed(field, error, origin)).collect(),
        None => vec![(origin.at(""), status.message.clone())],
    }
}

/// Returns each field and its error of a message of server-side apply on values that do not fit the schema, as in
/// `failed to create typed patch object (default/a; agents.recif.dev/v1, Kind=Agent): .spec.color: field not declared in schema`.
fn typing_errors(message: &str) -> Option<Vec<(&str, &str)>> {
    let (_, errors) = message.strip_prefix(NOT_TYPED)?.split_once("): ")?;
    let errors = errors.strip_prefix("errors:").unwrap_or(errors).trim_start().strip_prefix('.')?;
    errors.split("\n  .").map(|error| error.split_once(": ")).collect()
}

/// Returns the place of a field, and its error as a text for people.
fn placed(field: &str, error: &str, origin: &Origin) -> (String, String) {
    match error.trim_end() {
        UNDECLARED => (origin.at_key(field), format!("unknown field {field:?}")),
        error => (origin.at(field), format!("{field}: {}", without_go(error))),
    }
}

/// Removes what Go prints around a value, as in `expected string, got &value.valueUnstructured{Value:60}`.
fn without_go(error: &str) -> String {
    let shown = error.split_once(", got &").and_then(|(expected, value)| {
        let value = value.strip_prefix("value.valueUnstructured{Value:").or_else(|| value.strip_prefix('{'))?;
        Some(format!("{expected}, got {}", value.strip_suffix('}')?))
    });
    shown.unwrap_or_else(|| error.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;
    use crate::manifest::tests::contents;

    const TEXT: &str = "apiVersion: agents.recif.dev/v1\nkind: Agent\nmetadata:\n  name: my-agent\nspec:\n  name: x\n  replicas: 11\n  color: red\n  approval: {timeout: 60}\n";

    #[test]
    fn a_refusal_names_the_place_of_each_cause() {
        let manifest = contents("agent.yaml", TEXT).manifests.remove(0);
        let cases = [
            (
                json!({ "details": { "causes": [{
                    "reason": "FieldValueInvalid", "field": "spec.replicas",
                    "message": "Invalid value: 11: spec.replicas in body should be less than or equal to 10",
                }] } }),
                vec![
                    "agent.yaml:7:13: agent/my-agent is refused: spec.replicas in body should be less than or equal to 10",
                ],
            ),
            (
                json!({ "details": { "causes": [
                    { "reason": "FieldValueRequired", "field": "spec.framework", "message": "Required value" },
                    { "reason": "FieldValueInvalid", "field": "spec", "message": "Invalid value: set only one" },
                ] } }),
                vec![
                    "agent.yaml:5:1: agent/my-agent is refused: spec.framework: Required value",
                    "agent.yaml:6:3: agent/my-agent is refused: spec: Invalid value: set only one",
                ],
            ),
            (
                json!({ "message": "failed to create typed patch object (default/my-agent; agents.recif.dev/v1, Kind=Agent): .spec.color: field not declared in schema" }),
                vec!["agent.yaml:8:3: agent/my-agent is refused: unknown field \"spec.color\""],
            ),
            (
                json!({ "message": "failed to create typed patch object (default/my-agent; agents.recif.dev/v1, Kind=Agent): .spec.approval.timeout: expected string, got &value.valueUnstructured{Value:60}" }),
                vec!["agent.yaml:9:23: agent/my-agent is refused: spec.approval.timeout: expected string, got 60"],
            ),
            (
                json!({ "message": "failed to create typed patch object (default/my-agent; agents.recif.dev/v1, Kind=Agent): .spec.approval: expected map, got &{true}" }),
                vec!["agent.yaml:9:13: agent/my-agent is refused: spec.approval: expected map, got true"],
            ),
            (
                json!({ "message": "failed to create typed patch object (default/my-agent; agents.recif.dev/v1, Kind=Agent): errors:\n  .spec.replicas: expected numeric (int or float), got string\n  .spec.tools: element 0: .x: y\n  .spec.color: field not declared in schema" }),
                vec![
                    "agent.yaml:7:13: agent/my-agent is refused: spec.replicas: expected numeric (int or float), got string",
                    "agent.yaml:5:1: agent/my-agent is refused: spec.tools: element 0: .x: y",
                    "agent.yaml:8:3: agent/my-agent is refused: unknown field \"spec.color\"",
                ],
            ),
            (
                json!({ "message": "failed to create typed patch object (default/my-agent; agents.recif.dev/v1, Kind=Agent): .spec.name: no string" }),
                vec!["agent.yaml:6:9: agent/my-agent is refused: spec.name: no string"],
            ),
            (
                json!({ "message": "failed to create typed patch object (default/my-agent; agents.recif.dev/v1, Kind=Agent): invalid type: .x: y" }),
                vec![
                    "agent.yaml:1:1: agent/my-agent is refused: failed to create typed patch object (default/my-agent; agents.recif.dev/v1, Kind=Agent): invalid type: .x: y",
                ],
            ),
            (json!({ "message": "no" }), vec!["agent.yaml:1:1: agent/my-agent is refused: no"]),
        ];
        for (status, expected) in cases {
            let error = kube::Error::Api(Box::new(from_value(status).unwrap()));
            assert_eq!(refusal(&manifest.id, &manifest.origin, &error), expected);
        }
    }
}
