//! Leader election by a [Lease](https://kubernetes.io/docs/concepts/architecture/leases/): all replicas read and serve, one writes.
//!
//! As in [client-go](https://pkg.go.dev/k8s.io/client-go/tools/leaderelection), the clocks of different replicas are never compared: a
//! replica records by its own monotonic clock when it saw the lease change, and takes the lease when it has not changed for its whole
//! duration. Fencing: the holder stops writing by the same clock before another replica can have taken over, also when its process was
//! stopped and continued in between. Every write checks [`WriteGate::allows_writes`] before it is made and once more when it goes out.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::{error::RequestError, lease_api::LeaseApi};
use crate::write_gate::{Until, WriteGate};

/// Lease duration: time for which a lease is valid without a renewal.
const DURATION: Duration = Duration::from_secs(10);
/// Renew deadline: a holder that could not renew for this long stops.
const RENEW_WITHIN: Duration = Duration::from_secs(6);
/// Interval of the renewals.
const RENEW_EVERY: Duration = Duration::from_secs(2);
/// Delay before a failed renewal is retried.
const RETRY: Duration = Duration::from_secs(1);
/// Interval at which a standby reads the lease, so that it takes over within a second of a release.
const LOOK_EVERY: Duration = Duration::from_millis(800);

/// Leader elector of one replica.
///
/// Invariant: the write gate is open for at most [`RENEW_WITHIN`] after `renewed`, and closed while that is `None`.
pub struct LeaderElector {
    api: Arc<dyn LeaseApi>,
    identity: String,
    write_gate: WriteGate,
    observed: Option<(Lease, Instant)>,
    renewed: Option<Instant>,
    /// Called after each attempt, with its failure or `None`.
    report: LeaseReporter,
}

type LeaseReporter = Box<dyn Fn(Option<&RequestError>) + Send + Sync>;

impl fmt::Debug for LeaderElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElector").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl LeaderElector {
    /// Creates an elector under this identity, which must differ between replicas and should survive a container's restart.
    pub fn new(
        api: Arc<dyn LeaseApi>,
        identity: String,
        authority: WriteGate,
        report: impl Fn(Option<&RequestError>) + Send + Sync + 'static,
    ) -> Self {
        Self { api, identity, write_gate: authority, observed: None, renewed: None, report: Box::new(report) }
    }

    /// Waits until this replica holds the lease.
    pub async fn acquire(&mut self) {
        while !self.attempt().await {
            let look = Instant::now() + LOOK_EVERY;
            // Another replica's lease that is about to expire is taken as soon as it has.
            let next = self.observed.as_ref().map_or(look, |(lease, at)| {
                let end = *at + duration(lease);
                if end > Instant::now() { look.min(end) } else { look }
            });
            sleep_until(next).await;
        }
    }

    /// Renews the lease until it is lost. From then on nothing may be written.
    pub async fn renew(&mut self) {
        while let Some(renewed) = self.renewed {
            let give_up = renewed + RENEW_WITHIN;
            sleep_until((renewed + RENEW_EVERY).min(give_up)).await;
            while self.renewed == Some(renewed) {
                let attempt = timeout_at(give_up, self.attempt()).await;
                if attempt == Ok(true) {
                    break;
                }
                if Instant::now() >= give_up || self.held_by_another() {
                    self.step_down();
                    return;
                }
                sleep(RETRY).await;
            }
        }
    }

    /// Releases the lease, so that another replica can take it at once. Nothing may be written any more.
    pub async fn release(&mut self) {
        self.step_down();
        let Some((mut lease, _)) = self.observed.take() else { return };
        if holder(&lease) != self.identity {
            return;
        }
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        if let Err(error) = self.api.replace(&lease).await {
            tracing::warn!(%error, "the lease could not be released; it expires");
        }
    }

    fn step_down(&mut self) {
        self.write_gate.set(Until::Never);
        self.renewed = None;
    }

    fn held_by_another(&self) -> bool {
        self.observed.as_ref().is_some_and(|(lease, _)| holder(lease) != self.identity)
    }

    /// Tries once to acquire or renew the lease.
    async fn attempt(&mut self) -> bool {
        let started = Instant::now();
        let outcome = self.try_acquire(started).await;
        (self.report)(outcome.as_ref().err());
        let held = outcome.unwrap_or(false);
        if held {
            self.renewed = Some(started);
            self.write_gate.set(Until::At(started + RENEW_WITHIN));
        }
        held
    }

    async fn try_acquire(&mut self, started: Instant) -> Result<bool, RequestError> {
        // The holder knows the newest version, because it wrote it.
        if self.renewed.is_some()
            && let Some((lease, _)) = &self.observed
            && holder(lease) == self.identity
        {
            match self.api.replace(&self.claimed(lease)).await {
                Ok(lease) => {
                    self.observed = Some((lease, started));
                    return Ok(true);
                }
                Err(error) if error.code() == Some(409) || error.code() == Some(404) => {}
                Err(error) => return Err(error),
            }
        }
        let Some(lease) = self.api.get().await? else {
            // Another client deleted the lease, and the holder writes until it learns so.
            if self.observed.as_ref().is_some_and(|(lease, at)| self.is_held(lease, *at)) {
                return Ok(false);
            }
            let spec = self.claimed(&Lease::default()).spec.unwrap_or_default();
            let answer = self.api.create(spec).await;
            return self.record_held(answer, started);
        };
        let changed = self.observed.as_ref().is_none_or(|(known, _)| known.spec != lease.spec);
        if changed {
            self.observed = Some((lease.clone(), Instant::now()));
        }
        let seen = self.observed.as_ref().map_or(started, |(_, at)| *at);
        if self.is_held(&lease, seen) {
            return Ok(false);
        }
        let answer = self.api.replace(&self.claimed(&lease)).await;
        self.record_held(answer, started)
    }

    /// Reports whether another replica may hold the lease, which was last seen to change at `seen`.
    fn is_held(&self, lease: &Lease, seen: Instant) -> bool {
        let other = holder(lease);
        !other.is_empty() && other != self.identity && Instant::now() < seen + duration(lease)
    }

    /// Records the response to a write of the lease. A conflict (409) only means that another replica was faster.
    fn record_held(&mut self, answer: Result<Lease, RequestError>, started: Instant) -> Result<bool, RequestError> {
        match answer {
            Ok(lease) => {
                self.observed = Some((lease, started));
                Ok(true)
            }
            Err(error) if error.code() == Some(409) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the lease as held by this replica from now on.
    fn claimed(&self, lease: &Lease) -> Lease {
        let mut claimed = lease.clone();
        let now = MicroTime(Timestamp::now());
        let spec = claimed.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.identity) {
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |count| count.saturating_add(1)));
        }
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = i32::try_from(DURATION.as_secs()).ok();
        spec.renew_time = Some(now);
        claimed
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn duration(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(DURATION, Duration::from_secs)
}

#[cfg(test)]
mod tests;
