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
        let Some(text) = value.as_str().filter(|text| text.contains('$')) else { continue };
        let what = variable(text).map_or_else(|| "a `$` in it".to_owned(), |name| format!("${name}"));
        subject.notes.todo(
            &format!("spec.headers[{name}]"),
            format!("{what} is not expanded (corail sends it as it is); put the value into a Secret and headersFrom"),
        );
    }
    if ours.get("timeout").and_then(Value::as_i64).is_some_and(|seconds| seconds < 1) {
        ours.remove("timeout");
        subject.notes.change("spec.timeout", "is the default now, 30 seconds");
    }
    subject.emit_own("Tool", ours.into());
}

/// Returns the name of the variable that a header is, as `$NAME` or `${NAME}`, with or without a scheme before it. Any other
/// text may be a credential with a `$` in it, of which nothing may be printed.
fn variable(text: &str) -> Option<&str> {
    let value = ["Bearer ", "Basic "].into_iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
    let after = value.strip_prefix('$')?;
    let name = match after.strip_prefix('{') {
        Some(inner) => inner.strip_suffix('}')?,
        None => after,
    };
    let is_name = |it: char| it.is_ascii_uppercase() || it.is_ascii_digit() || it == '_';
    Some(name).filter(|name| !name.is_empty() && name.chars().all(is_name))
}
