//! Forms of an object in a response: whole, its metadata alone, or as a row of a table, as the header `Accept` asks.

use std::sync::Arc;

use http::{HeaderMap, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{builtin, kinds::Kind, lists, snapshot::Snapshot, table};

/// Returns the header `Accept`.
pub(crate) fn accept(headers: &HeaderMap) -> &str {
    headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default()
}

/// Form of objects and lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are.
    Whole,
    /// Metadata alone.
    Metadata,
    /// As a table; `include` says what of an object is in its row.
    Table(Include),
}

/// Part of an object that is in the row of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    /// Nothing.
    Nothing,
    /// Its metadata.
    Metadata,
    /// All of it.
    Object,
}

impl Form {
    /// Returns the form that the first media type of JSON in a header `Accept` asks for. `include` is the query parameter
    /// `includeObject`.
    pub(crate) fn of(accept: &str, include: &str) -> Self {
        let parts = accept.split(',').map(|media_type| media_type.split(';').map(str::trim).collect::<Vec<_>>());
        let json = ["application/json", "application/*", "*/*"];
        let first = parts.into_iter().find(|parts| parts.first().is_some_and(|name| json.contains(name)));
        let wanted = first.unwrap_or_default().into_iter().find_map(|part| part.strip_prefix("as="));
        match wanted {
            Some("Table") => Self::Table(match include {
                "None" => Include::Nothing,
                "Object" => Include::Object,
                _ => Include::Metadata,
            }),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Self::Metadata,
            _ => Self::Whole,
        }
    }

    /// Returns an object in this form. `has_columns` is false for the events of a watch behind the first one.
    pub(crate) fn object(self, kind: &Kind, object: Value, now: Timestamp, has_columns: bool) -> Value {
        match self {
            Self::Whole => object,
            Self::Metadata => metadata(&object),
            Self::Table(include) => {
                let version = object["metadata"]["resourceVersion"].clone();
                let mut table = body(kind, vec![row(kind, object, include, now)], version);
                if !has_columns {
                    table["columnDefinitions"] = Value::Null;
                }
                table
            }
        }
    }

    /// Returns the JSON of a stored object in this form, with the type of the kind that a request names.
    pub(crate) fn stored_object(self, kind: &Kind, stored: &Kind, object: &Snapshot, now: Timestamp) -> String {
        if self == Self::Whole && !kind.is_event_view() {
            let mut text = String::with_capacity(object.len() + 64);
            object.write_json(stored, &mut text);
            return text;
        }
        self.object(kind, builtin::to_view(kind, object.object(stored)), now, true).to_string()
    }

    /// Returns the JSON of a list of stored objects in this form.
    pub(crate) fn list(
        self,
        kind: &Kind,
        stored: &Kind,
        objects: &[&Arc<Snapshot>],
        version: u64,
        now: Timestamp,
    ) -> String {
        let all = || objects.iter().map(|object| builtin::to_view(kind, object.object(stored)));
        match self {
            Self::Whole => lists::body(kind, stored, objects, version),
            Self::Metadata => json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": { "resourceVersion": version.to_string() },
                "items": all().map(|object| metadata(&object)).collect::<Vec<_>>(),
            })
            .to_string(),
            Self::Table(include) => {
                let rows = all().map(|object| row(kind, object, include, now)).collect();
                body(kind, rows, version.to_string().into()).to_string()
            }
        }
    }
}

fn metadata(object: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
}

fn row(kind: &Kind, object: Value, include: Include, now: Timestamp) -> Value {
    let cells = table::cells(kind, &object, now);
    match include {
        Include::Nothing => json!({ "cells": cells }),
        Include::Metadata => json!({ "cells": cells, "object": metadata(&object) }),
        Include::Object => json!({ "cells": cells, "object": object }),
    }
}

fn body(kind: &Kind, rows: Vec<Value>, version: Value) -> Value {
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": { "resourceVersion": version },
        "columnDefinitions": table::definitions(kind), "rows": rows,
    })
}
