//! Tables, as kubectl prints them: the columns of a kind, and the cells of an object.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    kinds::{Kind, Shape},
    object::{items, name, number, text},
    scale::selector_text,
};

/// One column: name, type, JSON path below the object or word for a computed cell, priority.
struct Column {
    name: String,
    kind: String,
    format: &'static str,
    priority: i64,
    description: String,
    source: CellSource,
}

/// Source of a cell.
enum CellSource {
    /// A JSON path.
    Path(String),
    /// The age of the first of some times that is there, by JSON pointers.
    Since(&'static [&'static str]),
    /// A function of the object.
    Computed(fn(&Value) -> Value),
}

/// Cell of what is not there.
const NONE: &str = "<none>";
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
fn columns(kind: &Kind) -> Vec<Column> {
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

/// Returns the definitions of the columns of a kind.
pub(crate) fn definitions(kind: &Kind) -> Value {
    let definition = |column: &Column| {
        let is_age_of_built_in = column.kind == "date" && !matches!(kind.shape, Shape::Custom { .. });
        let shown = if is_age_of_built_in { "string" } else { &column.kind };
        json!({
            "name": column.name, "type": shown, "format": column.format, "description": column.description,
            "priority": column.priority,
        })
    };
    columns(kind).iter().map(definition).collect()
}

/// Returns the cells of an object at a time; none for an object without name, such as that of a bookmark.
pub(crate) fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Value {
    if name(object).is_empty() {
        return Value::Null;
    }
    let since = |time: &str| {
        let time = time.parse::<Timestamp>().ok();
        Value::from(time.map_or("<unknown>".to_owned(), |time| age(now.as_second() - time.as_second())))
    };
    let cell = |column: &Column| match &column.source {
        CellSource::Computed(cell) => cell(object),
        CellSource::Since(pointers) => {
            let mut times = pointers.iter().map(|pointer| text(object, pointer));
            since(times.find(|time| !time.is_empty()).unwrap_or_default())
        }
        CellSource::Path(path) => match find(object, path) {
            Some(found) if column.kind == "date" => since(found.as_str().unwrap_or_default()),
            Some(found) if matches!(column.kind.as_str(), "integer" | "number" | "boolean") => found.clone(),
            Some(Value::String(text)) => text.as_str().into(),
            Some(found) => found.to_string().into(),
            None if matches!(kind.shape, Shape::BuiltIn(_)) => NONE.into(),
            None => Value::Null,
        },
    };
    columns(kind).iter().map(cell).collect()
}

/// Finds the value at a JSON path of fields and of conditions such as `[?(@.type=="Ready")]`.
fn find<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut place = object;
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(condition) = rest.strip_prefix("[?(@.") {
            let (condition, after) = condition.split_once(")]")?;
            let (field, wanted) = condition.split_once("==")?;
            let wanted = wanted.trim_matches('"');
            place = place.as_array()?.iter().find(|item| item[field].as_str() == Some(wanted))?;
            rest = after;
        } else {
            let names = rest.strip_prefix('.')?;
            let end = names.find(['.', '[']).unwrap_or(names.len());
            let (field, after) = names.split_at(end);
            place = place.get(field)?;
            rest = after;
        }
    }
    Some(place)
}

/// Returns a duration in seconds as kubectl shows it: in one unit, or in two while the number is small.
fn age(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let years = days / 365;
    let with = |whole: i64, unit: &str, rest: i64, small: &str| {
        if rest == 0 { format!("{whole}{unit}") } else { format!("{whole}{unit}{rest}{small}") }
    };
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => with(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => with(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => with(days, "d", hours % 24, "h"),
        _ if years < 2 => format!("{days}d"),
        _ if years < 8 => with(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_shown_as_kubectl_does() {
        let cases = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (315_360_000, "10y"),
            (-1, "0s"),
            (-9, "<invalid>"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(age(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn a_path_leads_through_fields_and_conditions() {
        let object = json!({ "a": { "b": 1 }, "c": [{ "type": "X", "s": "1" }, { "type": "Y", "s": "2" }] });
        let cases = [
            (".a.b", Some(json!(1))),
            (".c[?(@.type==\"Y\")].s", Some(json!("2"))),
            (".c[?(@.type==\"Z\")].s", None),
            (".a.x", None),
        ];
        for (path, expected) in cases {
            assert_eq!(find(&object, path).cloned(), expected, "{path}");
        }
    }
}
