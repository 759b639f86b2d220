//! Objects as they were read, and what is wrong with them as a whole.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::source::Source;

/// Options of an import: what it takes and how it decides.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// Only source that is taken; `None`: all.
    pub from: Option<Source>,
    /// Set if the objects come from a cluster, where Secrets exist that were not read.
    pub live: bool,
    /// Namespace of the upstream operator, in which it looks for a database whose host is one word.
    pub operator_namespace: String,
}

/// Object to import.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceObject {
    /// The object.
    pub value: Value,
    /// Place for messages, as FILE:LINE.
    pub at: String,
    /// Set for an object that is only read, because another one names it: it is not printed.
    pub is_context: bool,
}

/// Reason for which nothing can be imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// A document is no object of Kubernetes.
    #[error("{at}: an object without {field}")]
    NoObject {
        /// Place of the document.
        at: String,
        /// Field that is missing.
        field: &'static str,
    },
    /// An object is there twice.
    #[error("{object} is there twice: {first} and {second}")]
    Twice {
        /// Kind, namespace and name of the object.
        object: String,
        /// Place of the first one.
        first: String,
        /// Place of the second one.
        second: String,
    },
    /// No object is of a source.
    #[error("nothing to import: no object of {0}")]
    Nothing(String),
}

/// Identity of an object: group, kind, namespace (empty: none is given) and name. Versions of one kind are the same kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectId {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectId {
    pub(crate) fn new(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        let [group, kind, namespace, name] = [group, kind, namespace, name].map(str::to_owned);
        Self { group, kind, namespace, name }
    }

    pub(crate) fn of(object: &Value) -> Self {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let group = text("/apiVersion").split_once('/').map_or("", |(group, _)| group);
        Self::new(group, text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
    }

    /// Returns the object as lines name it.
    pub(crate) fn shown(&self) -> String {
        shown(&self.kind, &self.namespace, &self.name)
    }
}

/// Returns an object as lines name it: `KIND NS/NAME`, or `KIND NAME` without a namespace.
pub(crate) fn shown(kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind} {}", place(namespace, name))
}

/// Returns `NS/NAME`, or `NAME` without a namespace.
pub(crate) fn place(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// Checks that each document is an object of Kubernetes, and none is there twice.
pub(crate) fn check(objects: &[SourceObject]) -> Result<(), ImportError> {
    for object in objects {
        let missing = [("kind", "/kind"), ("apiVersion", "/apiVersion"), ("metadata.name", "/metadata/name")];
        let is_empty = |pointer: &str| object.value.pointer(pointer).and_then(Value::as_str).is_none_or(str::is_empty);
        if let Some((field, _)) = missing.into_iter().find(|(_, pointer)| is_empty(pointer)) {
            return Err(ImportError::NoObject { at: object.at.clone(), field });
        }
    }
    let mut seen: BTreeMap<ObjectId, &str> = BTreeMap::new();
    for object in objects {
        let id = ObjectId::of(&object.value);
        if let Some(first) = seen.insert(id.clone(), &object.at) {
            let (object, first, second) = (id.shown(), first.to_owned(), object.at.clone());
            return Err(ImportError::Twice { object, first, second });
        }
    }
    Ok(())
}
