//! Paths of fields in objects, and the edges that they consist of.

use serde_json::{Map, Value};

use crate::schema::ListType;

/// Protocol of a port that names none. It is part of the keys of ports.
const PROTOCOL: (&str, &str) = ("protocol", "TCP");

/// Path of a field in an object (structured merge): its edges, and its field names alone.
#[derive(Default)]
pub(crate) struct FieldPath<'a> {
    pub(crate) edges: Vec<String>,
    pub(crate) names: Vec<&'a str>,
}

impl<'a> FieldPath<'a> {
    /// Runs a function one step further down.
    pub(crate) fn enter<T>(&mut self, step: &PathElement<'a>, then: impl FnOnce(&mut Self) -> T) -> T {
        self.edges.push(step.edge.clone());
        self.names.extend(step.name);
        let result = then(self);
        self.edges.pop();
        if step.name.is_some() {
            self.names.pop();
        }
        result
    }
}

/// One step down into an object.
pub(crate) struct PathElement<'a> {
    pub(crate) edge: String,
    /// Name of a field; none for an item of a list.
    pub(crate) name: Option<&'a str>,
}

/// Returns the edge to an item of a list; none if the list is one value or the item has no key.
pub(crate) fn item_edge(kind: &ListType, item: &Value) -> Option<String> {
    match kind {
        ListType::Atomic => None,
        ListType::Set => Some(format!("v:{item}")),
        ListType::Map(keys) => {
            let value = |key: &String| match item.get(key) {
                Some(value) => Some(value.clone()),
                None => (key == PROTOCOL.0).then(|| PROTOCOL.1.into()),
            };
            let found: Map<String, Value> = keys.iter().filter_map(|key| Some((key.clone(), value(key)?))).collect();
            (!found.is_empty()).then(|| format!("k:{}", Value::Object(found)))
        }
    }
}
