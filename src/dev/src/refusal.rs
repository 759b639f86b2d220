//! What the API server refuses, in lines for people, each with its place in a file.

use kube::core::Status;

use crate::manifest::{ObjectId, Origin};

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
    let unknown: Vec<_> = status.message.split_whitespace().filter_map(unknown_field).collect();
    match unknown.as_slice() {
        [] => vec![(origin.at(""), status.message.clone())],
        fields => fields.iter().map(|field| (origin.at_key(field), format!("unknown field {field:?}"))).collect(),
    }
}

/// Returns the field that a word of a message is about, as in `.spec.color: field not declared in schema`.
fn unknown_field(word: &str) -> Option<&str> {
    word.strip_prefix('.')?.strip_suffix(':').filter(|field| !field.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;
    use crate::manifest::tests::contents;

    const TEXT: &str = "apiVersion: agents.recif.dev/v1\nkind: Agent\nmetadata:\n  name: my-agent\nspec:\n  name: x\n  replicas: 11\n  color: red\n";

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
            (json!({ "message": "no" }), vec!["agent.yaml:1:1: agent/my-agent is refused: no"]),
        ];
        for (status, expected) in cases {
            let error = kube::Error::Api(Box::new(from_value(status).unwrap()));
            assert_eq!(refusal(&manifest.id, &manifest.origin, &error), expected);
        }
    }
}
