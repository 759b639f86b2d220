//! Probes of a running container. Until a Pod is ready they come much more often than their period says: first each 20 ms, then more
//! seldom by and by, so that a Pod is known to be ready at most a hundredth later than it is.
//!
//! From then on all probes are due at whole seconds of one clock (timer coalescing): the process wakes up once for all of them.

use std::{sync::LazyLock, time::Duration};

use k8s_openapi::api::core::v1::{Container, Probe};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{check::Check, context::PodContext, events::Severity, prepare::Prepared};

/// Shortest time between two probes.
const SHORTEST: Duration = Duration::from_millis(20);

/// Start of the clock whose whole seconds are the times of probes at rest.
static CLOCK: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Timing of a probe, with the API's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Timing {
    delay: Duration,
    period: Duration,
    timeout: Duration,
    failures: u32,
    successes: u32,
}

impl Timing {
    fn of(probe: &Probe) -> Self {
        let number =
            |field: Option<i32>, default: u32| field.and_then(|value| u32::try_from(value).ok()).unwrap_or(default);
        let seconds = |field, default| Duration::from_secs(number(field, default).into());
        Self {
            delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10).max(SHORTEST),
            timeout: seconds(probe.timeout_seconds, 1),
            failures: number(probe.failure_threshold, 3).max(1),
            successes: number(probe.success_threshold, 1).max(1),
        }
    }

    /// Returns the pause before the next probe of a container that has not been ready for this time.
    fn pause(&self, waited: Duration) -> Duration {
        (waited / 100).clamp(SHORTEST, self.period)
    }

    /// Returns when the next probe at rest is due: a period after the last whole second of the clock that began at `begin`.
    fn next(&self, begin: Instant, now: Instant) -> Instant {
        let second = now.checked_duration_since(begin).map(|passed| begin + Duration::from_secs(passed.as_secs()));
        second.unwrap_or(now) + self.period
    }

    /// Returns the time that a container has to start.
    fn limit(&self) -> Duration {
        self.delay + self.period * self.failures
    }
}

/// A probe with what it checks.
struct Prober<'a> {
    check: Check,
    timing: Timing,
    prepared: &'a Prepared,
    cx: &'a PodContext,
    /// Index of the container.
    index: usize,
}

impl<'a> Prober<'a> {
    /// Returns a probe; none if the container has none, or its port is unknown.
    fn of(cx: &'a PodContext, index: usize, prepared: &'a Prepared, probe: Option<&Probe>) -> Option<Self> {
        let probe = probe?;
        let check = Check::of_probe(&cx.pod, &cx.container(index), probe)?;
        Some(Self { check, timing: Timing::of(probe), prepared, cx, index })
    }

    /// Records that a probe of this sort has failed.
    fn record(&self, sort: &str, error: &str) {
        self.cx.record(self.index, Severity::Warning, "Unhealthy", format!("{sort} probe failed: {error}"));
    }

    /// Probes once.
    async fn once(&self) -> Result<(), String> {
        let exec = |words| self.prepared.exec(self.cx, words);
        self.check.run(self.timing.timeout, exec).await.map_err(|error| error.to_string())
    }
}

/// Keeps the state of a container up to date by its probes, until one of them says that the container has to be restarted. Returns why.
pub(crate) async fn watch(cx: &PodContext, index: usize, container: &Container, prepared: &Prepared) -> String {
    let prober = |probe: &Option<Probe>| Prober::of(cx, index, prepared, probe.as_ref());
    if let Some(startup) = prober(&container.startup_probe)
        && let Err(why) = start(&startup).await
    {
        return why;
    }
    let readiness = prober(&container.readiness_probe);
    cx.change(index, |record| {
        record.is_started = true;
        record.is_ready = readiness.is_none();
    });
    let ready = async {
        match readiness {
            Some(readiness) => {
                follow(&readiness, |is_ready| cx.change(index, |record| record.is_ready = is_ready)).await
            }
            None => std::future::pending().await,
        }
    };
    let alive = async {
        match prober(&container.liveness_probe) {
            Some(liveness) => live(&liveness).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = ready => std::future::pending().await,
        why = alive => why,
    }
}

/// Probes until the container has started.
async fn start(probe: &Prober<'_>) -> Result<(), String> {
    let begin = Instant::now();
    while let Err(error) = probe.once().await {
        let waited = begin.elapsed();
        if waited >= probe.timing.limit() {
            probe.record("Startup", &error);
            return Err(format!("has not started in {} s: {error}", probe.timing.limit().as_secs()));
        }
        sleep(probe.timing.pause(waited)).await;
    }
    Ok(())
}

/// Probes the readiness for ever, and reports each change.
async fn follow(probe: &Prober<'_>, report: impl Fn(bool)) {
    let mut readiness = ContainerReadiness::new(probe.timing, Instant::now());
    loop {
        let checked = probe.once().await;
        let effect = readiness.apply(checked.is_ok(), Instant::now());
        if let Err(error) = checked
            && effect.is_recorded
        {
            probe.record("Readiness", &error);
        }
        if effect.has_changed {
            report(readiness.is_ready);
        }
        sleep_until(readiness.next(*CLOCK, Instant::now())).await;
    }
}

/// Probes whether the container lives, until it does not.
async fn live(probe: &Prober<'_>) -> String {
    sleep(probe.timing.delay).await;
    let mut liveness = Liveness::default();
    loop {
        let checked = probe.once().await;
        let is_recorded = liveness.apply(checked.is_ok(), &probe.timing);
        if let Err(error) = checked {
            if is_recorded {
                probe.record("Liveness", &error);
            }
            if liveness.is_dead {
                return format!("does not answer its liveness probe: {error}");
            }
        }
        sleep_until(probe.timing.next(*CLOCK, Instant::now())).await;
    }
}

/// Readiness of a container, by its probes so far. Time is a parameter.
#[derive(Debug)]
struct ContainerReadiness {
    timing: Timing,
    is_ready: bool,
    /// Probes in a row that say otherwise.
    others: u32,
    /// Time since which it is as it is.
    since: Instant,
    /// It was recorded that it is not ready for too long.
    is_late_recorded: bool,
}

/// Consequences of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProbeEffect {
    /// The readiness is another one now.
    has_changed: bool,
    /// The failure is worth an Event: a start takes its time, and is recorded only when it takes too long.
    is_recorded: bool,
}

impl ContainerReadiness {
    /// Makes that of a container that has just started.
    fn new(timing: Timing, now: Instant) -> Self {
        Self { timing, is_ready: false, others: 0, since: now, is_late_recorded: false }
    }

    /// Takes the outcome of a probe.
    fn apply(&mut self, passes: bool, now: Instant) -> ProbeEffect {
        let is_late = !self.is_ready && !self.is_late_recorded && now - self.since >= self.timing.limit();
        let is_recorded = !passes && (self.is_ready || is_late);
        self.is_late_recorded |= is_recorded && is_late;
        self.others = if passes == self.is_ready { 0 } else { self.others + 1 };
        let enough = if self.is_ready { self.timing.failures } else { self.timing.successes };
        let has_changed = self.others >= enough;
        if has_changed {
            *self = Self { is_ready: passes, ..Self::new(self.timing, now) };
        }
        ProbeEffect { has_changed, is_recorded }
    }

    /// Returns when the next probe is due, by the clock that began at `begin`.
    fn next(&self, begin: Instant, now: Instant) -> Instant {
        if self.is_ready { self.timing.next(begin, now) } else { now + self.timing.pause(now - self.since) }
    }
}

/// Liveness of a container, by its probes so far.
#[derive(Debug, Default)]
struct Liveness {
    has_lived: bool,
    /// Failures in a row.
    failures: u32,
    is_dead: bool,
}

impl Liveness {
    /// Takes the outcome of a probe. Returns whether a failure is worth an Event: that it does not live yet is not.
    fn apply(&mut self, passes: bool, timing: &Timing) -> bool {
        self.has_lived |= passes;
        self.failures = if passes { 0 } else { self.failures + 1 };
        self.is_dead = self.failures >= timing.failures;
        !passes && (self.has_lived || self.is_dead)
    }
}

#[cfg(test)]
mod tests;
