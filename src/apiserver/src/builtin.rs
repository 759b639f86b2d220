//! Additions to the types of the built-in kinds: list types for server-side apply, and the two forms of an event.

use serde_json::{Map, Value};

use crate::{kinds::Kind, schema::ListType};

/// Keys of the lists of a Pod's spec, by path below it; `containers` stands for every list of containers.
const POD_LISTS: &[(&str, &[&str])] = &[
    ("containers", &["name"]),
    ("containers.env", &["name"]),
    ("containers.ports", &["containerPort", "protocol"]),
    ("containers.resources.claims", &["name"]),
    ("containers.volumeDevices", &["devicePath"]),
    ("containers.volumeMounts", &["mountPath"]),
    ("hostAliases", &["ip"]),
    ("imagePullSecrets", &["name"]),
    ("resourceClaims", &["name"]),
    ("schedulingGates", &["name"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("volumes", &["name"]),
];

/// Keys of other lists, by kind and path.
const LISTS: &[(&str, &str, &[&str])] = &[
    ("Pod", "status.conditions", &["type"]),
    ("Pod", "status.hostIPs", &["ip"]),
    ("Pod", "status.podIPs", &["ip"]),
    ("Deployment", "status.conditions", &["type"]),
    ("Namespace", "status.conditions", &["type"]),
    ("PodDisruptionBudget", "status.conditions", &["type"]),
    ("Service", "spec.ports", &["port", "protocol"]),
    ("Service", "status.conditions", &["type"]),
    ("ServiceAccount", "secrets", &["name"]),
];

/// Fields whose struct or map is one value for server-side apply.
const ATOMIC_MAPS: &[&str] = &[
    "configMapKeyRef",
    "fieldRef",
    "involvedObject",
    "labelSelector",
    "loadBalancer",
    "namespaceSelector",
    "nodeSelector",
    "podSelector",
    "regarding",
    "related",
    "resourceFieldRef",
    "secretKeyRef",
    "selector",
];

/// Returns the type of the list at a path of field names of a built-in kind.
pub(crate) fn list_type(kind: &str, path: &[&str]) -> ListType {
    let spec: Option<&[&str]> = match (kind, path) {
        ("Pod", ["spec", rest @ ..]) => Some(rest),
        ("Deployment", ["spec", "template", "spec", rest @ ..]) => Some(rest),
        _ => None,
    };
    let keyed = |keys: &[&str]| ListType::Map(keys.iter().map(|key| (*key).to_owned()).collect());
    if let Some([first, rest @ ..]) = spec {
        let first = if matches!(*first, "initContainers" | "ephemeralContainers") { "containers" } else { first };
        let path = [&[first], rest].concat().join(".");
        if let Some((_, keys)) = POD_LISTS.iter().find(|(found, _)| *found == path) {
            return keyed(keys);
        }
    }
    let path = path.join(".");
    let row = LISTS.iter().find(|(found, at, _)| *found == kind && *at == path);
    row.map_or(ListType::Atomic, |(_, _, keys)| keyed(keys))
}

/// Reports whether the map at a path of field names of a built-in kind is one value.
pub(crate) fn is_atomic_map(path: &[&str]) -> bool {
    path.last().is_some_and(|last| ATOMIC_MAPS.contains(last))
}

/// Fields of `events.k8s.io/v1`, each with its name in the core group, in which events are stored.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("deprecatedCount", "count"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedSource", "source"),
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
];

/// Returns the dotted name that a field of a kind has in the stored object.
pub(crate) fn stored_field(kind: &Kind, name: &str) -> String {
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    let renamed = EVENT_FIELDS.iter().find(|(view, _)| kind.is_event_view() && *view == first);
    let first = renamed.map_or(first, |(_, stored)| stored);
    rest.map_or_else(|| first.to_owned(), |rest| format!("{first}.{rest}"))
}

/// Returns an object as it is stored.
pub(crate) fn to_stored(kind: &Kind, object: Value) -> Value {
    if kind.is_event_view() { renamed(object, "v1", |(view, stored)| (view, stored)) } else { object }
}

/// Returns a stored object in the form of a kind.
pub(crate) fn to_view(kind: &Kind, object: Value) -> Value {
    let api_version = kind.api_version();
    if kind.is_event_view() { renamed(object, &api_version, |(view, stored)| (stored, view)) } else { object }
}

fn renamed(
    object: Value,
    api_version: &str,
    direction: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) -> Value {
    let Value::Object(fields) = object else { return object };
    let name = |field: String| {
        let pair = EVENT_FIELDS.iter().map(|pair| direction(*pair)).find(|(from, _)| *from == field);
        pair.map_or(field, |(_, to)| to.to_owned())
    };
    let mut fields: Map<String, Value> = fields.into_iter().map(|(field, value)| (name(field), value)).collect();
    fields.insert("apiVersion".to_owned(), api_version.into());
    Value::Object(fields)
}
