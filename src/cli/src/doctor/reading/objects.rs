//! Readings of our objects: how many of each kind need attention.

use crds::{FINALIZER, GROUP, KINDS, VERSION};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::api::{ApiReader, Read, Unread, items, text};

/// Time after which an object that is not ready needs attention.
const LONG: SignedDuration = SignedDuration::from_mins(10);

/// Counts of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::doctor) struct KindCount {
    /// Plural of the kind.
    pub plural: &'static str,
    /// Number of objects.
    pub all: usize,
    /// Objects in phase Failed or Error.
    pub failed: usize,
    /// Objects that have not been ready for more than ten minutes.
    pub waiting: usize,
    /// Objects with our finalizer, as `namespace/name`.
    pub held: Vec<String>,
}

/// Counts the objects of every kind in all namespaces, or in that of the agent if the caller may see no others.
pub(super) async fn read(api: &ApiReader<'_>, namespace: &str) -> Read<Vec<KindCount>> {
    let mut counts = Vec::new();
    for kind in KINDS {
        let doing = format!("list {}", kind.plural);
        let all = format!("/apis/{GROUP}/{VERSION}/{}", kind.plural);
        let here = format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{}", kind.plural);
        let listed = match api.list::<Value>(&doing, &all, "").await {
            Err(Unread::Forbidden(_)) => api.list(&doing, &here, "").await?,
            listed => listed?,
        };
        // The row of the CRDs reports a kind that is not served.
        counts.extend(listed.map(|objects| count(kind.plural, &objects, Timestamp::now())));
    }
    if counts.is_empty() { Err(Unread::NotInstalled) } else { Ok(counts) }
}

/// Counts the objects of a kind.
pub(in crate::doctor) fn count(plural: &'static str, objects: &[Value], now: Timestamp) -> KindCount {
    let mut count = KindCount { plural, all: objects.len(), ..KindCount::default() };
    for object in objects {
        match text(object, "/status/phase").as_str() {
            "Failed" | "Error" => count.failed += 1,
            "Running" | "Available" | "Terminated" => {}
            _ if since(object).is_some_and(|since| now.duration_since(since) > LONG) => count.waiting += 1,
            _ => {}
        }
        if items(object, "/metadata/finalizers").any(|finalizer| finalizer == FINALIZER) {
            count.held.push(format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name")));
        }
    }
    count
}

/// Returns the time since when the object is not ready.
fn since(object: &Value) -> Option<Timestamp> {
    let ready = items(object, "/status/conditions").find(|condition| condition["type"] == "Ready");
    let changed = ready.map(|ready| text(ready, "/lastTransitionTime"));
    changed.unwrap_or_else(|| text(object, "/metadata/creationTimestamp")).parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_needs_attention_is_counted() {
        let object = |phase: &str, minutes: i64, finalizers: Value| {
            let at = Timestamp::UNIX_EPOCH - SignedDuration::from_mins(minutes);
            json!({ "metadata": { "namespace": "a", "name": "x", "finalizers": finalizers }, "status": { "phase": phase,
                "conditions": [{ "type": "Ready", "status": "False", "lastTransitionTime": at.to_string() }] } })
        };
        let objects = [
            object("Running", 60, json!([FINALIZER])),
            object("Failed", 1, json!([])),
            object("Resolving", 9, json!(["other"])),
            object("Resolving", 11, json!([])),
        ];
        let counted = count("agents", &objects, Timestamp::UNIX_EPOCH);
        assert_eq!((counted.all, counted.failed, counted.waiting), (4, 1, 1));
        assert_eq!(counted.held, ["a/x"]);
    }
}
