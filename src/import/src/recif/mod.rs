//! Upstream Récif, whose group and version are ours: what only its operator knows becomes what ours know.

mod agent;
mod tool;

use serde_json::Value;

use crate::{metadata::without_server_set, source::Source, subject::Subject};

/// Turns an object into ours, if a field of it is upstream's alone, or all are to be.
pub(crate) fn convert(subject: &Subject<'_>) {
    let is_upstream = match subject.id.kind.as_str() {
        "Agent" => agent::is_upstream(subject.object),
        "Tool" => tool::is_upstream(subject.object),
        _ => false,
    };
    let all = subject.world.options.from == Some(Source::Recif);
    match subject.id.kind.as_str() {
        "Agent" if is_upstream || all => agent::convert(subject),
        "Tool" if is_upstream || all => tool::convert(subject),
        _ => {
            if !all {
                subject.notes.skip("", "is ours already; --from recif adds what upstream's operator would");
            }
            subject.emit_as_is(&without_server_set(subject.object));
        }
    }
}

/// Returns the fields of the spec, to which changes are made.
fn spec(subject: &Subject<'_>) -> serde_json::Map<String, Value> {
    subject.object["spec"].as_object().cloned().unwrap_or_default()
}
