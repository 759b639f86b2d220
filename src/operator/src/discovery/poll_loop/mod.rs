//! Polling loop of one MCP server: schedules its queries and reports their results.
//!
//! After a result the object is enqueued, and observes it in a step. An object that does not observe it, be it stopped or waiting for a
//! Secret, has no use for another result, and its server is left alone until it does.
//!
//! A failed server is retried by exponential back-off with jitter. A change of a server's tools is written to the cluster and replaces the
//! Pods of all that use them. So a server that keeps changing is queried ever more rarely, and its status says so.

use std::{sync::Arc, time::Duration};

use actions::discovery::{Discovered, DiscoveryResult, DiscoveryTarget};
use async_trait::async_trait;
use futures::FutureExt;
use mcp::{Era, ToolListChanges};
use tokio::time::{Instant, sleep};

use super::shared::{DiscoveryContext, LatestDiscovery, random_fraction};
use crate::discovery::lister::{ChangeStream, ListError, ToolListing};

/// First delay after a failure. It doubles with each failure in a row, up to the resync interval.
const RETRY_BASE: Duration = Duration::from_secs(2);
/// Longest time for which a server may say that its list holds.
const MAX_TTL: Duration = Duration::from_secs(24 * 3600);
/// Shortest time between two queries for reported changes. It doubles with each change in a row, up to [`CHANGE_BACKOFF_MAX`].
const CHANGE_BACKOFF_BASE: Duration = Duration::from_secs(1);
/// Longest back-off between changes. A change that comes so long after the last one, and after its back-off, is the first again.
const CHANGE_BACKOFF_MAX: Duration = Duration::from_secs(300);

#[async_trait]
impl ChangeStream for ToolListChanges {
    async fn next(&mut self) {
        Self::next(self).await;
    }

    async fn close(self: Box<Self>) {
        Self::close(*self).await;
    }
}

/// Polling loop of one server; see the module.
pub(super) struct DiscoveryLoop {
    shared: Arc<DiscoveryContext>,
    target: DiscoveryTarget,
    latest: Arc<LatestDiscovery>,
    era: Option<Era>,
    failures: u32,
    /// Number of changes in a row, and the time of the last one.
    changes: u32,
    changed_at: Option<Instant>,
}

impl DiscoveryLoop {
    pub(super) fn new(shared: Arc<DiscoveryContext>, target: DiscoveryTarget, latest: Arc<LatestDiscovery>) -> Self {
        Self { shared, target, latest, era: None, failures: 0, changes: 0, changed_at: None }
    }

    /// Queries for ever, the first time after `delay`.
    pub(super) async fn run(mut self, delay: Duration) {
        sleep(delay).await;
        let mut changed = false;
        loop {
            let lane = if self.failures == 0 { &self.shared.healthy } else { &self.shared.failing };
            let place = lane.acquire().await;
            let answer = self.shared.lister.list_tools(&self.target, self.era).await;
            drop(place);
            let (holds, changes) = self.handle_result(answer, changed);
            let rest = change_backoff(self.changes);
            let pause =
                next_poll_delay(self.target.resync, self.failures, holds).mul_f64(0.8 + 0.4 * random_fraction());
            changed = wait_for_change(pause.max(rest), rest.max(CHANGE_BACKOFF_BASE), changes).await;
            self.latest.observed.notified().await;
        }
    }

    /// Stores the result and enqueues the object. Returns how long the result holds, and the stream of change notifications. `changed`: the
    /// server notified of a change.
    fn handle_result(
        &mut self,
        answer: Result<ToolListing, ListError>,
        changed: bool,
    ) -> (Duration, Option<Box<dyn ChangeStream>>) {
        let (outcome, holds, changes): (DiscoveryResult, _, _) = match answer {
            Ok(listing) => {
                (self.era, self.failures) = (Some(listing.era), 0);
                let ToolListing { mut discovered, ttl: holds, changes, .. } = listing;
                let last = self.latest.last().clone();
                let differs = |last: &Discovered| last.catalog.digest != discovered.catalog.digest;
                self.count_changes(changed || last.is_some_and(|last| last.as_ref().as_ref().is_ok_and(differs)));
                discovered.changes = self.changes;
                (Ok(discovered), holds, changes)
            }
            Err(unasked) => {
                // A server may come back as another one.
                (self.era, self.failures) = (None, self.failures.saturating_add(1));
                match unasked {
                    ListError::Unready(_) if self.latest.last().is_some() => {
                        self.latest.observed.notify_one();
                        return (Duration::ZERO, None);
                    }
                    ListError::Unready(why) | ListError::Failed(why) => (Err(why), Duration::ZERO, None),
                }
            }
        };
        // A step that observed the last result has not seen this one.
        let _ = self.latest.observed.notified().now_or_never();
        *self.latest.last() = Some(Arc::new(outcome));
        if let Some(wake) = self.shared.trigger.get() {
            wake(self.target.kind, &self.target.key);
        }
        (holds, changes)
    }

    /// Counts the changes in a row.
    fn count_changes(&mut self, changed: bool) {
        let since = self.changed_at.map(|at| at.elapsed());
        let in_a_row =
            since.is_some_and(|since| since <= CHANGE_BACKOFF_MAX + change_backoff(self.changes).mul_f64(1.2));
        if changed {
            self.changes = if in_a_row { self.changes.saturating_add(1) } else { 1 };
            self.changed_at = Some(Instant::now());
        } else if !in_a_row {
            self.changes = 0;
        }
    }
}

/// Returns the back-off after so many changes in a row.
pub(super) fn change_backoff(changes: u32) -> Duration {
    match changes.checked_sub(1) {
        None => Duration::ZERO,
        Some(before) => CHANGE_BACKOFF_MAX.min(CHANGE_BACKOFF_BASE.saturating_mul(1 << before.min(16))),
    }
}

/// Returns the delay after so many failures in a row, or after a result that holds for some time.
pub(super) fn next_poll_delay(resync: Duration, failures: u32, holds: Duration) -> Duration {
    match failures.checked_sub(1) {
        None => resync.max(holds.min(MAX_TTL)),
        Some(before) => resync.min(RETRY_BASE.saturating_mul(1 << before.min(16))),
    }
}

/// Waits for the next turn, or for a change notification and the back-off, and reports whether there was a notification.
async fn wait_for_change(pause: Duration, rest: Duration, changes: Option<Box<dyn ChangeStream>>) -> bool {
    let Some(mut changes) = changes else {
        sleep(pause).await;
        return false;
    };
    let changed = tokio::select! {
        () = sleep(pause) => false,
        () = changes.next() => {
            sleep(rest.min(pause)).await;
            true
        }
    };
    changes.close().await;
    changed
}

#[cfg(test)]
mod tests;
