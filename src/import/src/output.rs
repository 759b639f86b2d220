//! Objects of the output: built through the type of their kind, and sorted.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use serde_yaml::{Mapping, Value as Ordered};

use crate::fields::quantities;

/// Kinds in the order of the output.
const ORDER: [&str; 15] = [
    "Namespace",
    "ServiceAccount",
    "Secret",
    "ConfigMap",
    "PluginConfig",
    "Model",
    "Prompt",
    "RemoteMCPServer",
    "MCPServer",
    "Tool",
    "Flow",
    "FlowSet",
    "Agent",
    "Service",
    "Deployment",
];

/// Object of the output.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OutputObject {
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) value: Ordered,
}

/// Returns the place of a kind in the output.
pub(crate) fn rank(kind: &str) -> usize {
    ORDER.iter().position(|known| *known == kind).unwrap_or(ORDER.len())
}

/// Returns the objects in the order of the output. One that several objects of the input made is there once.
pub(crate) fn sorted(mut outputs: Vec<OutputObject>) -> Vec<Ordered> {
    let key = |output: &OutputObject| (rank(&output.kind), output.namespace.clone(), output.name.clone());
    outputs.sort_by_key(key);
    outputs.dedup_by(|one, other| key(one) == key(other));
    outputs.into_iter().map(|output| output.value).collect()
}

/// Returns an object of a kind of ours with its fields in the order of the type, and without defaults; `None` if the type
/// does not take it. An object of another kind keeps its fields as they are.
pub(crate) fn typed(kind: &str, body: Value) -> Option<Ordered> {
    let of = |api_version: &str, body: Value| {
        let mut object = body;
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.into();
        quantities(&object)
    };
    match kind {
        "Deployment" => Some(plain(&of("apps/v1", body))),
        _ if crds::kinds::KINDS.iter().any(|known| known.name == kind) => {
            through_type(kind, &of(&format!("{}/{}", crds::GROUP, crds::VERSION), body))
        }
        _ => Some(plain(&of("v1", body))),
    }
}

macro_rules! through_type {
    ($($kind:ident $module:ident $plural:literal $short:literal $role:ident $children:ident $($rank:literal)?;)+) => {
        /// Passes an object through the type of its kind.
        fn through_type(kind: &str, object: &Value) -> Option<Ordered> {
            match kind {
                $(stringify!($kind) => through::<crds::$kind>(object),)+
                _ => None,
            }
        }
    };
}
crds::for_each_kind!(through_type);

/// Passes an object through its type.
fn through<T: DeserializeOwned + Serialize>(given: &Value) -> Option<Ordered> {
    let typed: T = serde_json::from_value(given.clone()).ok()?;
    Some(only(serde_yaml::to_value(typed).ok()?, given))
}

/// Returns a value with those fields alone that were given: the others are defaults.
fn only(value: Ordered, given: &Value) -> Ordered {
    match (value, given) {
        (Ordered::Mapping(map), Value::Object(given)) => {
            let kept = map.into_iter().filter_map(|(key, value)| {
                let given = given.get(key.as_str()?)?;
                Some((key, only(value, given)))
            });
            Ordered::Mapping(kept.collect::<Mapping>())
        }
        (Ordered::Sequence(items), Value::Array(given)) => {
            Ordered::Sequence(items.into_iter().zip(given).map(|(item, given)| only(item, given)).collect())
        }
        (value, _) => value,
    }
}

/// Returns the paths of the fields that a type does not have: those of a given value that the result lacks. One that is
/// empty, or the one default that is true, says nothing, and a type leaves it out, too.
pub(crate) fn unknown(given: &Value, made: Option<&Ordered>, path: &str) -> Vec<String> {
    match (given, made) {
        (Value::Null | Value::Bool(false), None) => Vec::new(),
        (Value::Bool(true), None) if path.ends_with(".tls.systemCAs") => Vec::new(),
        (Value::String(text), None) if text.is_empty() => Vec::new(),
        (Value::Array(items), None) if items.is_empty() => Vec::new(),
        (Value::Object(fields), None) if fields.is_empty() => Vec::new(),
        (_, None) => vec![path.to_owned()],
        (Value::Object(fields), Some(made)) => {
            let inner =
                |(key, value): (&String, &Value)| unknown(value, made.get(key.as_str()), &format!("{path}.{key}"));
            fields.iter().flat_map(inner).collect()
        }
        (Value::Array(items), Some(made)) => {
            let inner = |(at, value): (usize, &Value)| unknown(value, made.get(at), &format!("{path}[{at}]"));
            items.iter().enumerate().flat_map(inner).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns an object as it is, with the usual fields first.
pub(crate) fn plain(object: &Value) -> Ordered {
    let fields = object.as_object().into_iter().flatten();
    let place = |key: &str| ["apiVersion", "kind", "metadata"].iter().position(|known| *known == key).unwrap_or(3);
    let mut fields: Vec<_> = fields.collect();
    fields.sort_by_key(|(key, _)| place(key));
    let entry = |(key, value): (&String, &Value)| Some((key.as_str().into(), serde_yaml::to_value(value).ok()?));
    Ordered::Mapping(fields.into_iter().filter_map(entry).collect::<Mapping>())
}
