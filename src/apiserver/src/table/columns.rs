//! The columns of each kind, and the cells that are computed.

use serde_json::Value;

use crate::{
    kinds::{Kind, Shape},
    object::{items, number, text},
    scale::selector_text,
};

/// One column: name, type, JSON path below the object or word for a computed cell, priority.
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) format: &'static str,
    pub(super) priority: i64,
    pub(super) description: String,
    pub(super) source: CellSource,
}

/// Source of a cell.
pub(super) enum CellSource {
    /// A JSON path.
    Path(String),
    /// The age of the first of some times that is there, by JSON pointers.
    Since(&'static [&'static str]),
    /// A function of the object.
    Computed(fn(&Value) -> Value),
}

/// Cell of what is not there.
pub(super) const NONE: &str = "<none>";
/// Times of an Event in both of its forms, the first that counts first.
const LAST_SEEN: &[&str] = &[
    "/series/lastObservedTime",
    "/lastTimestamp",
    "/deprecatedLastTimestamp",
    "/firstTimestamp",
    "/deprecatedFirstTimestamp",
    "/eventTime",
];
const AGE: &str = ".metadata.creationTimestamp";

fn column(name: &str, kind: &str, source: CellSource) -> Column {
    let (name, kind) = (name.to_owned(), kind.to_owned());
    Column { name, kind, format: "", priority: 0, description: String::new(), source }
}

/// Returns the columns of a kind: the name, those of the kind, and the age.
pub(super) fn columns(kind: &Kind) -> Vec<Column> {
    let path = |name: &str, kind: &str, path: &str| column(name, kind, CellSource::Path(path.to_owned()));
    let computed = |name: &str, kind: &str, cell: fn(&Value) -> Value| column(name, kind, CellSource::Computed(cell));
    let mut all = vec![Column { format: "name", ..path("Name", "string", ".metadata.name") }];
    if let Shape::Custom { definition, .. } = &kind.shape {
        all.extend(items(definition, "/spec/versions/0/additionalPrinterColumns").iter().map(|printed| Column {
            priority: printed["priority"].as_i64().unwrap_or_default(),
            description: text(printed, "/description").to_owned(),
            ..path(text(printed, "/name"), text(printed, "/type"), text(printed, "/jsonPath"))
        }));
        return all;
    }
    match kind.name {
        "Pod" => all.extend([
            computed("Ready", "string", ready_containers),
            computed("Status", "string", pod_status),
            computed("Restarts", "string", restarts),
        ]),
        "Deployment" => all.extend([
            computed("Ready", "string", |object| {
                let replicas = |pointer: &str| number(object, pointer).unwrap_or_default();
                format!("{}/{}", replicas("/status/readyReplicas"), replicas("/spec/replicas")).into()
            }),
            computed("Up-to-date", "string", |object| {
                number(object, "/status/updatedReplicas").unwrap_or_default().into()
            }),
            computed("Available", "string", |object| {
                number(object, "/status/availableReplicas").unwrap_or_default().into()
            }),
        ]),
        "Service" => all.extend([
            path("Type", "string", ".spec.type"),
            path("Cluster-IP", "string", ".spec.clusterIP"),
            computed("External-IP", "string", external_address),
            computed("Port(s)", "string", ports),
            path("Age", "date", AGE),
            Column { priority: 1, ..computed("Selector", "string", |object| labels(&object["spec"]["selector"])) },
        ]),
        "NetworkPolicy" => all.push(computed("Pod-Selector", "string", |object| {
            selector_text(&object["spec"]["podSelector"])
                .filter(|text| !text.is_empty())
                .unwrap_or(NONE.to_owned())
                .into()
        })),
        "Namespace" => all.push(path("Status", "string", ".status.phase")),
        "ConfigMap" => all.push(computed("Data", "string", data)),
        "Secret" => all.extend([path("Type", "string", ".type"), computed("Data", "string", data)]),
        "Event" => {
            let regarding = |object: &Value| {
                let of = |field: &str| {
                    let found = [
                        text(object, &format!("/involvedObject/{field}")),
                        text(object, &format!("/regarding/{field}")),
                    ];
                    found.concat()
                };
                Value::from(format!("{}/{}", of("kind").to_lowercase(), of("name")))
            };
            let message = |object: &Value| Value::from([text(object, "/message"), text(object, "/note")].concat());
            return vec![
                column("Last Seen", "date", CellSource::Since(LAST_SEEN)),
                path("Type", "string", ".type"),
                path("Reason", "string", ".reason"),
                computed("Object", "string", regarding),
                computed("Message", "string", message),
                Column { priority: 1, format: "name", ..path("Name", "string", ".metadata.name") },
            ];
        }
        _ => {}
    }
    if kind.name != "Service" {
        all.push(path("Age", "date", AGE));
    }
    all
}

/// Returns where a Service is reached from outside.
fn external_address(object: &Value) -> Value {
    if text(object, "/spec/type") == "ExternalName" {
        return text(object, "/spec/externalName").into();
    }
    let addresses: Vec<&str> = items(object, "/spec/externalIPs").iter().filter_map(Value::as_str).collect();
    if addresses.is_empty() { NONE.into() } else { addresses.join(",").into() }
}

/// Returns labels as a selector of them is written.
fn labels(labels: &Value) -> Value {
    let pairs = labels.as_object().into_iter().flatten();
    let pairs: Vec<String> =
        pairs.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() { NONE.into() } else { pairs.join(",").into() }
}

fn ready_containers(pod: &Value) -> Value {
    let ready = items(pod, "/status/containerStatuses").iter().filter(|status| status["ready"] == Value::Bool(true));
    format!("{}/{}", ready.count(), items(pod, "/spec/containers").len()).into()
}

fn restarts(pod: &Value) -> Value {
    let counts = items(pod, "/status/containerStatuses").iter().filter_map(|status| status["restartCount"].as_i64());
    counts.sum::<i64>().to_string().into()
}

/// Returns the reason why a Pod does not run, or its phase.
fn pod_status(pod: &Value) -> Value {
    if crate::object::is_deleting(pod) {
        return "Terminating".into();
    }
    let reason = items(pod, "/status/containerStatuses").iter().find_map(|status| {
        let states = ["/state/waiting/reason", "/state/terminated/reason"];
        states.into_iter().map(|state| text(status, state)).find(|reason| !reason.is_empty())
    });
    let status =
        [text(pod, "/status/reason"), text(pod, "/status/phase")].into_iter().find(|status| !status.is_empty());
    reason.or(status).unwrap_or("Unknown").into()
}

fn ports(service: &Value) -> Value {
    let port = |port: &Value| {
        let node = port["nodePort"].as_i64().map(|node| format!(":{node}")).unwrap_or_default();
        let protocol = if text(port, "/protocol").is_empty() { "TCP" } else { text(port, "/protocol") };
        format!("{}{node}/{protocol}", port["port"])
    };
    let ports: Vec<_> = items(service, "/spec/ports").iter().map(port).collect();
    if ports.is_empty() { NONE.into() } else { ports.join(",").into() }
}

fn data(object: &Value) -> Value {
    let count = |field: &str| object[field].as_object().map_or(0, serde_json::Map::len);
    (count("data") + count("binaryData")).into()
}
