//! Time that objects took to become ready, read from their own history, so that a restart of the operator loses no part of it.

use std::{sync::Arc, time::Duration};

use cluster::{Change, cache::KindCaches};
use jiff::Timestamp;
use meta::{CommonStatus, HistoryEntry, Phase, PhaseClass};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::controlled::ReconciledKind;

/// Upper bounds of the buckets, in seconds.
const BUCKETS: [f64; 10] = [0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// Reason why an object was not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartCause {
    Created,
    Changed,
    Recovered,
}

impl StartCause {
    fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Recovered => "recovered",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StartLabels {
    kind: &'static str,
    cause: &'static str,
}

/// Histogram of the time from the creation, the change or the end of the failure of an object until it is ready.
#[derive(Debug, Clone)]
pub(super) struct TimeToRunning {
    seconds: Family<StartLabels, Histogram, fn() -> Histogram>,
    leading: Gauge,
}

impl TimeToRunning {
    /// Registers the histogram. It counts while `leading` is 1, so that several replicas count nothing twice.
    pub(super) fn new(registry: &mut Registry, leading: Gauge) -> Self {
        let seconds = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        let help =
            "Time until an object was Running or Available, since it was created, changed, or recovered from a failure";
        registry.register("recif_time_to_running_seconds", help, seconds.clone());
        Self { seconds, leading }
    }

    fn record<K: ReconciledKind>(&self, change: &Change<K>) {
        let is_ready = |object: &Arc<K>| object.phase().is_some_and(|phase| phase.class() == PhaseClass::Settled);
        // An object that was ready when this process first saw it became so earlier.
        let (Some(old), Some(new)) = (&change.old, &change.new) else { return };
        if is_ready(old) || !is_ready(new) || self.leading.get() != 1 {
            return;
        }
        if let Some((cause, took)) = new.common().and_then(start_of::<K::Phase>) {
            let labels = StartLabels { kind: K::KIND, cause: cause.as_str() };
            self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
        }
    }
}

macro_rules! subscribe {
    ($($kind:ident $module:ident $plural:literal $short:literal $role:ident $children:ident $($rank:literal)?;)+) => {
        impl TimeToRunning {
            /// Follows the objects of these caches. Must be called before the watches start.
            pub(super) fn subscribe(&self, kinds: &KindCaches) {
                $({
                    let own = self.clone();
                    kinds.of::<crds::$module::$kind>().subscribe(move |change| own.record(change));
                })+
            }
        }
    };
}
crds::for_each_kind!(subscribe);

/// Returns why an object was not ready before the last move of its history, which made it ready, and for how long; `None` if the
/// history does not go back far enough to tell.
fn start_of<P: Phase>(status: &CommonStatus) -> Option<(StartCause, Duration)> {
    let class = |phase: &str| P::parse(phase).map(P::class);
    let mut moves = status.history.iter().filter(|entry| entry.from != entry.to).rev();
    let end = moves.next().filter(|entry| class(&entry.to) == Some(PhaseClass::Settled))?;
    for entry in std::iter::once(end).chain(moves) {
        match class(&entry.from) {
            Some(PhaseClass::Progressing) => {}
            Some(PhaseClass::Settled | PhaseClass::Stopped) => return took(StartCause::Changed, entry.at.0, end),
            Some(PhaseClass::Failed) => return took(StartCause::Recovered, entry.at.0, end),
            Some(PhaseClass::Terminating) => return None,
            // The entry of the creation.
            None => return took(StartCause::Created, entry.at.0, end),
        }
    }
    None
}

fn took(cause: StartCause, since: Timestamp, end: &HistoryEntry) -> Option<(StartCause, Duration)> {
    // Takes a negative time for none: two replicas, with two clocks, may have written the entries.
    let took = Duration::try_from(end.at.0.duration_since(since)).unwrap_or_default();
    Some((cause, took))
}

#[cfg(test)]
mod tests {
    use crds::WorkloadPhase;
    use serde_json::json;

    use super::*;

    fn started(history: &[(&str, &str, u32)]) -> Option<(StartCause, u64)> {
        let at = |second: &u32| format!("2026-01-01T00:{:02}:{:02}.000000Z", second / 60, second % 60);
        let entries: Vec<_> = history
            .iter()
            .map(|(from, to, second)| json!({ "from": from, "to": to, "at": at(second), "action": "a" }))
            .collect();
        let status: CommonStatus = serde_json::from_value(json!({ "history": entries })).unwrap();
        start_of::<WorkloadPhase>(&status).map(|(cause, took)| (cause, took.as_secs()))
    }

    #[test]
    fn the_history_says_why_an_object_was_not_ready_and_for_how_long() {
        use StartCause::{Changed, Created, Recovered};
        let new = [("", "Pending", 10), ("Pending", "Resolving", 11), ("Resolving", "Resolving", 12)];
        let ready = [("Resolving", "Deploying", 20), ("Deploying", "Running", 40)];
        assert_eq!(started(&[&new[..], &ready].concat()), Some((Created, 30)));
        let failed = [("Resolving", "Failed", 15), ("Failed", "Resolving", 18)];
        assert_eq!(started(&[&new[..], &failed, &ready].concat()), Some((Recovered, 22)));
        let changed = [("Running", "Resolving", 15)];
        assert_eq!(started(&[&new[..], &changed, &ready].concat()), Some((Changed, 25)));
        assert_eq!(started(&ready), None, "a history that begins later");
        assert_eq!(started(&ready[1..]), None, "a history of one move");
        assert_eq!(started(&new), None);
        assert_eq!(started(&[]), None);
    }
}
