//! State of every watch (informer sync): shown by the readiness probe, and asked which kinds of which namespaces are in the caches.
//!
//! A watch that was listed once never makes the process unready again: a right that is revoked later, or a namespace that is deleted with
//! its RoleBinding, must not stop the work for the other namespaces. A kind that was never listed is unknown, which is not the same as
//! empty: [`WatchHealth::unlisted`] is checked before anything is done because an object is missing.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::sleep};

use super::{error::RequestError, resource::Resource};

/// Longest wait for the other first lists, once one is complete.
const SYNC_GRACE: Duration = Duration::from_secs(30);

/// State of every watch, for the readiness probe.
///
/// Invariant: `incomplete` is true exactly while some slot is not listed.
#[derive(Debug, Default)]
pub struct WatchHealth {
    slots: Mutex<Vec<WatchSlot>>,
    changed: Notify,
    /// True while some kind is not in the caches. Read before each step, hence without the lock.
    incomplete: AtomicBool,
    /// Version of the store when the Lease was last read or written; 0: never.
    observed_version: AtomicU64,
}

#[derive(Debug)]
struct WatchSlot {
    what: String,
    /// Kind and namespace of the watch; `None`: the slot is no watch.
    scope: Option<WatchScope>,
    /// True after the first complete list.
    started: bool,
    /// True while the objects are in the caches.
    listed: bool,
    problem: Option<WatchProblem>,
    /// True if the last problem was that the kind is not defined.
    undefined: bool,
    /// Number of signs of life.
    activity: u64,
}

#[derive(Debug)]
struct WatchScope {
    kind: &'static str,
    /// `None`: all namespaces.
    namespace: Option<String>,
}

/// Reason why a kind is not in the caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unlisted {
    /// The reason, in one line.
    pub why: String,
    /// True if the API server refused the watch; otherwise its response is pending.
    pub refused: bool,
}

/// Activity of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchActivity {
    /// Number of lists, changes and other signs of life.
    pub count: u64,
    /// True if the watch was listed and has no problem.
    pub healthy: bool,
}

#[derive(Debug)]
struct WatchProblem {
    text: String,
    /// True if the API server refused, with 403 or 404: time alone does not repair that.
    refused: bool,
}

impl WatchSlot {
    /// Reports whether the slot is a watch that the API server refuses.
    fn is_refused(&self) -> bool {
        self.scope.is_some() && self.problem.as_ref().is_some_and(|problem| problem.refused)
    }

    fn is_in(&self, namespace: &str) -> bool {
        self.scope.as_ref().is_some_and(|scope| scope.namespace.as_deref() == Some(namespace))
    }

    fn describe(&self) -> String {
        match &self.problem {
            Some(problem) => format!("{}: {}", self.what, problem.text),
            None => format!("{}: not started", self.what),
        }
    }
}

impl WatchHealth {
    /// Returns what keeps the process from being ready, one line per watch; empty: the process is ready.
    pub fn unready(&self) -> Vec<String> {
        let rows = self.slots();
        let blocks = |row: &&WatchSlot| match row.scope {
            Some(_) => !row.started && !is_excused(row, &rows),
            // The Lease may not be written: an administrator has to act.
            None => row.problem.as_ref().is_some_and(|problem| problem.refused),
        };
        rows.iter().filter(blocks).map(WatchSlot::describe).collect()
    }

    /// Returns what an administrator should repair although the process is ready, one line per watch.
    pub fn notes(&self) -> Vec<String> {
        let rows = self.slots();
        let noted = rows.iter().filter(|row| row.is_refused() && (row.started || is_excused(row, &rows)));
        noted.map(WatchSlot::describe).collect()
    }

    /// Waits until every watch has had a complete list or a refusal, at the latest [`SYNC_GRACE`] after the first list.
    pub async fn settled(&self) {
        let settled = self.wait(|rows| rows.iter().all(|row| row.started || row.is_refused()));
        let late = async {
            self.wait(|rows| rows.iter().any(|row| row.listed)).await;
            sleep(SYNC_GRACE).await;
        };
        tokio::select! { () = settled => {}, () = late => {} }
    }

    /// Waits until every watch of this kind has had a complete list or a refusal.
    pub async fn settled_of(&self, kind: &str) {
        let is_its = |row: &&WatchSlot| row.scope.as_ref().is_some_and(|scope| scope.kind == kind);
        self.wait(|rows| rows.iter().filter(is_its).all(|row| row.started || row.is_refused())).await;
    }

    async fn wait(&self, is_so: impl Fn(&[WatchSlot]) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so(&self.slots()) {
                return;
            }
            changed.await;
        }
    }

    /// Reports whether this collection, such as `/apis/agents.recif.dev/v1/agents`, is watched and each of its watches has its objects in
    /// the caches.
    pub fn is_synced(&self, collection: &str) -> bool {
        let rows = self.slots();
        let mut of_it = rows.iter().filter(|row| row.what.strip_prefix("watch ") == Some(collection)).peekable();
        of_it.peek().is_some() && of_it.all(|row| row.listed)
    }

    /// Reports whether the objects of every watched kind are in the caches.
    pub fn is_complete(&self) -> bool {
        !self.incomplete.load(Ordering::Relaxed)
    }

    /// Returns why the objects of this kind in this namespace are not in the caches. `None`: they are, or no watch covers them.
    pub fn unlisted(&self, kind: &str, namespace: &str) -> Option<Unlisted> {
        let rows = self.slots();
        let is_its = |row: &&WatchSlot| {
            let scope = row.scope.as_ref().filter(|scope| scope.kind == kind);
            scope.is_some_and(|scope| scope.namespace.as_deref().is_none_or(|only| only == namespace))
        };
        let unlisted = |row: &WatchSlot| Unlisted { why: row.describe(), refused: row.is_refused() };
        rows.iter().filter(is_its).find(|row| !row.listed).map(unlisted)
    }

    /// Reports whether no watch of this kind was refused because the kind does not exist.
    pub fn is_defined(&self, kind: &str) -> bool {
        let rows = self.slots();
        let mut of_it = rows.iter().filter(|row| row.scope.as_ref().is_some_and(|scope| scope.kind == kind));
        !of_it.any(|row| row.undefined && row.problem.is_some())
    }

    /// Reports whether every kind that is watched in this namespace is in the caches.
    pub fn is_namespace_synced(&self, namespace: &str) -> bool {
        let rows = self.slots();
        let is_its = |row: &WatchSlot| {
            let only = row.scope.as_ref().map(|scope| scope.namespace.as_deref());
            only.is_some_and(|only| only.is_none_or(|only| only == namespace))
        };
        rows.iter().all(|row| row.listed || !is_its(row))
    }

    /// Records the version of the store that the Lease shows.
    pub fn record_store_version(&self, version: u64) {
        self.observed_version.store(version, Ordering::Relaxed);
    }

    /// Returns the version of the store as the Lease last showed it. The Lease is renewed all the time.
    pub(super) fn store_version(&self) -> Option<u64> {
        Some(self.observed_version.load(Ordering::Relaxed)).filter(|version| *version > 0)
    }

    /// Returns the activity of each watch of this collection.
    pub fn activity(&self, collection: &str) -> Vec<WatchActivity> {
        let rows = self.slots();
        let of_it = rows.iter().filter(|row| row.what.strip_prefix("watch ") == Some(collection));
        of_it.map(|row| WatchActivity { count: row.activity, healthy: row.listed && row.problem.is_none() }).collect()
    }

    /// Counts a sign of life, after its content was taken into the cache.
    pub fn record_activity(&self, row: usize) {
        if let Some(row) = self.slots().get_mut(row) {
            row.activity += 1;
        }
    }

    /// Adds a slot for something that needs no first list, and returns its index.
    pub fn add_started(&self, what: String) -> usize {
        self.push(WatchSlot {
            what,
            scope: None,
            started: true,
            listed: true,
            problem: None,
            undefined: false,
            activity: 0,
        })
    }

    /// Records a failure, or (`None`) its end.
    pub fn report(&self, row: usize, error: Option<&RequestError>) {
        let problem = error.map(|error| WatchProblem { text: error.to_string(), refused: error.code() == Some(403) });
        self.set(row, |row| (row.undefined, row.problem) = (false, problem));
    }

    /// Adds a slot for a watch of a kind in one namespace, or (`None`) in all, and returns its index.
    pub fn add(&self, resource: &Resource, namespace: Option<&str>) -> usize {
        let what = format!("watch {}", resource.collection(namespace));
        let scope = Some(WatchScope { kind: resource.kind, namespace: namespace.map(ToOwned::to_owned) });
        self.push(WatchSlot {
            what,
            scope,
            started: false,
            listed: false,
            problem: None,
            undefined: false,
            activity: 0,
        })
    }

    /// Records a complete list.
    pub fn record_list(&self, row: usize) {
        self.set(row, |row| (row.started, row.listed, row.problem) = (true, true, None));
        self.record_activity(row);
    }

    /// Records that the kind is not defined in this cluster, so that there are no objects of it.
    pub(super) fn record_undefined(&self, row: usize, error: &RequestError) {
        let text = format!("{error}: its CustomResourceDefinition is missing, apply config/crd");
        let problem = Some(WatchProblem { text, refused: true });
        self.set(row, |row| (row.started, row.listed, row.undefined, row.problem) = (true, true, true, problem));
    }

    /// Records that the objects left the caches, and are unknown again.
    pub(super) fn forget(&self, row: usize) {
        self.set(row, |row| row.listed = false);
    }

    fn push(&self, row: WatchSlot) -> usize {
        let mut rows = self.slots();
        rows.push(row);
        self.incomplete.store(rows.iter().any(|row| !row.listed), Ordering::Relaxed);
        rows.len() - 1
    }

    fn set(&self, row: usize, update: impl FnOnce(&mut WatchSlot)) {
        let mut rows = self.slots();
        if let Some(row) = rows.get_mut(row) {
            update(row);
        }
        self.incomplete.store(rows.iter().any(|row| !row.listed), Ordering::Relaxed);
        drop(rows);
        self.changed.notify_waiters();
    }

    fn slots(&self) -> MutexGuard<'_, Vec<WatchSlot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports whether a watch that is refused before its first list does not block readiness: it covers one namespace, and another namespace
/// is served.
fn is_excused(row: &WatchSlot, rows: &[WatchSlot]) -> bool {
    let Some(WatchScope { namespace: Some(own), kind }) = &row.scope else { return false };
    let same_kind = rows.iter().filter_map(|row| row.scope.as_ref()).filter(|scope| scope.kind == *kind);
    let mut others = same_kind.filter_map(|scope| scope.namespace.as_deref()).filter(|other| other != own);
    let is_served = |name: &str| rows.iter().filter(|row| row.is_in(name)).all(|row| row.started);
    row.is_refused() && others.any(is_served)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn refused(code: u16) -> RequestError {
        let status = Box::new(Status { code, message: "no".into(), ..Status::default() });
        RequestError::Refused { what: "list Agent".into(), code, status, after: None }
    }

    /// Returns a board with the watches of two kinds in each of these namespaces, and the slots of the first kind.
    fn board<const N: usize>(namespaces: [&str; N]) -> (WatchHealth, [usize; N]) {
        let board = WatchHealth::default();
        let rows = namespaces.map(|name| {
            let row = board.add(&Resource::of::<crds::Agent>(), Some(name));
            let other = board.add(&Resource::of::<crds::Tool>(), Some(name));
            board.record_list(other);
            row
        });
        (board, rows)
    }

    #[test]
    fn after_the_first_list_a_refusal_is_a_note_and_the_process_stays_ready() {
        let (board, [a, b]) = board(["a", "b"]);
        assert_eq!(board.unready().len(), 2);
        board.record_list(a);
        board.record_list(b);
        assert!(board.is_complete());
        board.report(a, Some(&refused(403)));
        assert_eq!(board.unready(), [""; 0]);
        assert_eq!(board.notes(), ["watch /apis/agents.recif.dev/v1/namespaces/a/agents: list Agent: no (403)"]);
        assert_eq!(board.unlisted("Agent", "a"), None, "the last list still holds");
        board.forget(a);
        assert!(!board.is_complete());
        assert!(board.unlisted("Agent", "a").is_some());
        assert_eq!((board.unlisted("Agent", "b"), board.unlisted("Tool", "a")), (None, None));
        assert_eq!(board.unready(), [""; 0]);
    }

    #[test]
    fn a_namespace_that_is_refused_from_the_start_holds_up_no_other_one() {
        let (board, [a, b]) = board(["a", "b"]);
        board.report(a, Some(&refused(403)));
        assert_eq!(board.unready().len(), 2, "nothing is served yet");
        board.record_list(b);
        assert_eq!((board.unready(), board.notes().len()), (vec![], 1));
        board.report(a, Some(&refused(500)));
        assert_eq!(board.unready().len(), 1, "what may come is waited for");
    }

    #[test]
    fn a_right_that_is_missing_everywhere_from_the_start_keeps_the_process_unready() {
        let board = WatchHealth::default();
        let (agents, tools) =
            (board.add(&Resource::of::<crds::Agent>(), None), board.add(&Resource::of::<crds::Tool>(), None));
        board.record_list(agents);
        board.report(tools, Some(&refused(403)));
        assert_eq!(board.unready(), ["watch /apis/agents.recif.dev/v1/tools: list Agent: no (403)"]);
        assert!(board.unlisted("Tool", "any").is_some());
        assert!(!board.is_namespace_synced("any"));
    }

    #[test]
    fn a_kind_that_is_not_defined_is_an_empty_list() {
        let board = WatchHealth::default();
        let tools = board.add(&Resource::of::<crds::Tool>(), None);
        board.record_undefined(tools, &refused(404));
        assert_eq!((board.unready(), board.unlisted("Tool", "a")), (vec![], None));
        assert!(board.notes()[0].contains("apply config/crd"), "{:?}", board.notes());
        assert_eq!((board.is_defined("Tool"), board.is_defined("Agent")), (false, true));
        board.record_list(tools);
        assert!(board.is_defined("Tool"));
    }

    #[test]
    fn a_lease_that_may_not_be_written_is_told() {
        let board = WatchHealth::default();
        let lease = board.add_started("lease ns/x".into());
        board.report(lease, Some(&refused(403)));
        assert_eq!(board.unready(), ["lease ns/x: list Agent: no (403)"]);
        board.report(lease, Some(&refused(500)));
        assert_eq!(board.unready(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_goes_on_with_what_has_come_when_the_rest_is_refused_or_late() {
        let (board, [a, b]) = board(["a", "b"]);
        let begun = tokio::time::Instant::now();
        board.report(a, Some(&refused(403)));
        board.record_list(b);
        board.settled().await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        board.report(a, Some(&refused(500)));
        board.settled().await;
        assert_eq!(begun.elapsed(), SYNC_GRACE);
        board.settled_of("Tool").await;
        let of_agents = tokio::time::timeout(SYNC_GRACE, board.settled_of("Agent"));
        assert!(of_agents.await.is_err(), "those of a may still come");
    }
}
