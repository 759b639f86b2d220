//! Selectable fields: those of an object by which field selectors may select it, and which a snapshot therefore holds.

use serde_json::Value;

use crate::{kinds::Kind, object::text};

/// Fields by which any object is selected.
pub(crate) const METADATA: &[&str] = &["metadata.name", "metadata.namespace"];
/// Fields by which objects of a kind are selected, beside those of metadata.
const FIELDS: &[(&str, &[&str])] = &[
    ("Namespace", &["status.phase"]),
    ("Pod", &["spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "status.phase", "status.podIP"]),
    ("Secret", &["type"]),
    (
        "Event",
        &[
            "involvedObject.apiVersion",
            "involvedObject.fieldPath",
            "involvedObject.kind",
            "involvedObject.name",
            "involvedObject.namespace",
            "involvedObject.resourceVersion",
            "involvedObject.uid",
            "reason",
            "regarding.apiVersion",
            "regarding.fieldPath",
            "regarding.kind",
            "regarding.name",
            "regarding.namespace",
            "regarding.resourceVersion",
            "regarding.uid",
            "reportingComponent",
            "reportingController",
            "type",
        ],
    ),
];

/// Returns the fields by which a stored object is selected, each with its dotted name; those that are not there are left out.
pub(crate) fn fields(kind: &Kind, object: &Value) -> Vec<(&'static str, String)> {
    let of = |name: &&'static str| {
        let value = text(object, &format!("/{}", name.replace('.', "/")));
        (!value.is_empty()).then(|| (*name, value.to_owned()))
    };
    METADATA.iter().chain(of_kind(kind)).filter_map(of).collect()
}

/// Returns the fields by which objects of a kind are selected, beside those of metadata.
pub(crate) fn of_kind(kind: &Kind) -> &'static [&'static str] {
    FIELDS.iter().find(|(found, _)| *found == kind.name).map_or(&[], |(_, fields)| fields)
}
