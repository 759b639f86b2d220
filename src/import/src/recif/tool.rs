//! Tool of upstream Récif.

use serde_json::Value;

use super::spec;
use crate::subject::Subject;

/// Reports whether a field is upstream's alone.
pub(super) fn is_upstream(object: &Value) -> bool {
    object.pointer("/spec/secretRef").is_some_and(|secret| !secret.is_null())
}

/// Turns a Tool into ours.
pub(super) fn convert(subject: &Subject<'_>) {
    let mut ours = spec(subject);
    if ours.remove("secretRef").is_some() {
        subject.notes.skip("spec.secretRef", "nothing upstream reads it");
    }
    for (name, value) in ours.get("headers").and_then(Value::as_object).into_iter().flatten() {
        let Some(variable) = value.as_str().and_then(variable) else { continue };
        subject.notes.todo(
            &format!("spec.headers[{name}]"),
            format!(
                "${variable} is not expanded (corail sends it as it is); put the value into a Secret and headersFrom"
            ),
        );
    }
    subject.emit("Tool", ours.into());
}

/// Returns the name of the first variable in a text, which stands as `$NAME` or `${NAME}`.
fn variable(text: &str) -> Option<&str> {
    let (_, after) = text.split_once('$')?;
    let after = after.strip_prefix('{').unwrap_or(after);
    let end = after.find(|it: char| !it.is_ascii_alphanumeric() && it != '_').unwrap_or(after.len());
    let is_name = after.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_');
    after.get(..end).filter(|_| is_name)
}
