//! Warnings about Pods, for those whose status does not say why they are not ready: what keeps a kubelet from making containers, such as a
//! volume that cannot be mounted, it reports as an Event alone.

use std::cmp::Reverse;

use crds::diagnosis::{is_silent, pod_warning};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};

use crate::{cluster::UserClient, output::hint};

/// Returns the newest warning that says more than a reason about a Pod whose status does not say why it is not ready.
pub(super) async fn newest_warning(live: &UserClient, pod: &Pod) -> Option<String> {
    let (name, uid) = (pod.metadata.name.as_deref()?, pod.metadata.uid.as_deref()?);
    if !is_silent(pod) {
        return None;
    }
    match live.warnings_about(&live.namespace, uid).await {
        Ok(mut warnings) => {
            warnings.sort_by_key(|warning| Reverse(last_seen(warning)));
            let texts = warnings.iter().map(|warning| {
                (warning.reason.as_deref().unwrap_or_default(), warning.message.as_deref().unwrap_or_default())
            });
            pod_warning(name, &texts.collect::<Vec<_>>())
        }
        Err(error) => {
            hint(&format!("note: {error}"));
            None
        }
    }
}

/// Returns the last time at which it happened: a kubelet counts in the fields of the core group, newer reporters in a series.
fn last_seen(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let last = series.map(|time| time.0).or_else(|| event.last_timestamp.as_ref().map(|time| time.0));
    let first = || event.event_time.as_ref().map(|time| time.0);
    last.or_else(first).or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(times: Value) -> Event {
        let mut event = json!({ "metadata": {}, "involvedObject": {} });
        event.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn an_event_is_as_new_as_its_last_repetition() {
        let at = |second: u8| format!("2026-01-01T00:00:0{second}Z");
        let micro = |second: u8| format!("2026-01-01T00:00:0{second}.000000Z");
        for (times, expected) in [
            (json!({ "firstTimestamp": at(1), "lastTimestamp": at(3) }), Some(3)),
            (json!({ "eventTime": micro(2), "series": { "count": 2, "lastObservedTime": micro(4) } }), Some(4)),
            (json!({ "eventTime": micro(2) }), Some(2)),
            (json!({ "metadata": { "creationTimestamp": at(5) } }), Some(5)),
            (json!({}), None),
        ] {
            let expected: Option<Timestamp> = expected.map(|second| at(second).parse().unwrap());
            assert_eq!(last_seen(&event(times.clone())), expected, "{times}");
        }
    }
}
