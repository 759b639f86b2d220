//! Probes of a running container. Until a Pod is ready they come much more often than their period says: first each 20 ms, then more
//! seldom by and by, so that a Pod is known to be ready at most a hundredth later than it is.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use tokio::time::{Instant, sleep};

use crate::{check::Check, context::PodContext, events::Severity, prepare::Prepared};

/// Shortest time between two probes.
const SHORTEST: Duration = Duration::from_millis(20);

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

/// Probes the readiness for ever, and reports each change. That a start takes its time is recorded only when it takes too long.
async fn follow(probe: &Prober<'_>, report: impl Fn(bool)) {
    let (mut is_ready, mut same) = (false, 0);
    let (mut since, mut is_recorded) = (Instant::now(), false);
    loop {
        let checked = probe.once().await;
        let passes = checked.is_ok();
        let is_late = !is_ready && !is_recorded && since.elapsed() >= probe.timing.limit();
        if let Err(error) = checked
            && (is_ready || is_late)
        {
            probe.record("Readiness", &error);
            is_recorded |= is_late;
        }
        same = if passes == is_ready { 0 } else { same + 1 };
        let enough = if is_ready { probe.timing.failures } else { probe.timing.successes };
        if same >= enough {
            (is_ready, same, since, is_recorded) = (passes, 0, Instant::now(), false);
            report(is_ready);
        }
        sleep(if is_ready { probe.timing.period } else { probe.timing.pause(since.elapsed()) }).await;
    }
}

/// Probes whether the container lives, until it does not. That it does not yet live is no failure worth a record.
async fn live(probe: &Prober<'_>) -> String {
    sleep(probe.timing.delay).await;
    let (mut failures, mut has_lived) = (0, false);
    loop {
        match probe.once().await {
            Ok(()) => (failures, has_lived) = (0, true),
            Err(error) => {
                failures += 1;
                let is_dead = failures >= probe.timing.failures;
                if has_lived || is_dead {
                    probe.record("Liveness", &error);
                }
                if is_dead {
                    return format!("does not answer its liveness probe: {error}");
                }
            }
        }
        sleep(probe.timing.period).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_pause_grows_with_the_wait_up_to_the_period() {
        let probe = json!({ "periodSeconds": 5, "failureThreshold": 12, "initialDelaySeconds": 3 });
        let timing = Timing::of(&serde_json::from_value(probe).unwrap());
        let pause = |waited| timing.pause(Duration::from_millis(waited)).as_millis();
        assert_eq!([0, 1000, 5000, 100_000, 1_000_000].map(pause), [20, 20, 50, 1000, 5000]);
        assert_eq!(timing.limit(), Duration::from_secs(63));
        let default = Timing::of(&Probe::default());
        assert_eq!((default.period.as_secs(), default.timeout.as_secs(), default.failures), (10, 1, 3));
    }
}
