//! Objects of no source, which stay as they are.

use crate::{metadata::without_server_set, source::Source, subject::Subject};

/// Kinds of the core API that are printed as they are.
const PASSED_ON: [&str; 4] = ["Namespace", "ServiceAccount", "Secret", "ConfigMap"];

/// Prints an object of no source as it is, if ours may need it.
pub(crate) fn pass_on(subject: &Subject<'_>) {
    let api_version = subject.object["apiVersion"].as_str();
    if api_version == Some("v1") && PASSED_ON.contains(&subject.id.kind.as_str()) {
        subject.emit_as_is(&without_server_set(subject.object));
        return;
    }
    let api_version = api_version.unwrap_or_default();
    let why = match Source::ALL.iter().find(|source| source.group() == subject.id.group) {
        Some(source) => format!("{source} has no version {api_version} that is known here"),
        None => "is of no source".to_owned(),
    };
    subject.notes.skip("", why);
}
