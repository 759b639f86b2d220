//! Benchmark of our scaler beside a model of Knative's, under the same loads, in virtual time: reaction time, cost, and waiting time of
//! requests. `hack/bench/scaler` runs it. Every run prints the same.

mod fleet;
mod scalers;
mod trace;

use std::io::{Write as _, stdout};

use crate::{
    fleet::SimulatedFleet,
    scalers::{Knative, RecifScaler, Scaler},
    trace::{ArrivalRng, LoadTrace, SERVICE_MS, TRACES},
};

/// Requests that a Pod may have in flight.
const CONCURRENCY: usize = 8;

/// Result of a run.
struct BenchResult {
    /// Longest time in which fewer Pods were desired than the load needs, in seconds.
    behind: f64,
    /// The same for Pods that are ready.
    short: f64,
    mean_wait_ms: f64,
    p99_wait_ms: u64,
    longest_wait_ms: u64,
    pod_seconds: f64,
    /// Number of changes of the number of Pods.
    writes: u32,
}

fn main() -> std::io::Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "Pods take {CONCURRENCY} requests of {SERVICE_MS} ms on average, and 4 s to start.\n")?;
    writeln!(
        out,
        "| trace   | scaler  | too few asked for, s | too few ready, s | mean wait, ms | p99, ms | longest, s | Pod-seconds | × least | writes |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|---|")?;
    for trace in TRACES {
        let least: f64 = (0..trace.seconds).map(|second| needed((trace.load)(second as f64)) as f64).sum();
        let fleet = SimulatedFleet::new(CONCURRENCY);
        let scalers: [&mut dyn Scaler; 2] = [&mut RecifScaler::new(&fleet), &mut Knative::new(&fleet)];
        for scaler in scalers {
            let it = run(trace, scaler);
            writeln!(
                out,
                "| {:<7} | {:<7} | {:>5.1} | {:>5.1} | {:>6.1} | {:>5} | {:>5.2} | {:>6.0} | {:.2} | {:>3} |",
                trace.name,
                scaler.name(),
                it.behind,
                it.short,
                it.mean_wait_ms,
                it.p99_wait_ms,
                it.longest_wait_ms as f64 / 1000.0,
                it.pod_seconds,
                it.pod_seconds / least,
                it.writes,
            )?;
        }
    }
    Ok(())
}

/// Returns the number of Pods that a load needs.
fn needed(load: f64) -> usize {
    ((load / CONCURRENCY as f64).ceil() as usize).max(1)
}

fn run(trace: &LoadTrace, scaler: &mut dyn Scaler) -> BenchResult {
    let mut fleet = SimulatedFleet::new(CONCURRENCY);
    let mut chance = ArrivalRng::new();
    let (mut asked, mut writes) = (1, 0);
    let (mut behind, mut short) = (Longest::default(), Longest::default());
    for ms in 1..=trace.seconds * 1000 {
        let load = (trace.load)(ms as f64 / 1000.0);
        let arrival = chance.arrives(load).then(|| chance.service_ms());
        fleet.step(arrival);
        if ms.is_multiple_of(1000) {
            scaler.second(&fleet);
        }
        if ms.is_multiple_of(scaler.interval_ms()) {
            let wanted = scaler.decide(&fleet, asked);
            if wanted != asked {
                fleet.scale(usize::try_from(wanted).unwrap_or_default(), scaler.idlest_first());
                (asked, writes) = (wanted, writes + 1);
            }
        }
        let needed = needed(load);
        behind.see(usize::try_from(asked).unwrap_or_default() < needed);
        short.see(fleet.ready().count() < needed);
    }
    let mut waits = fleet.waits;
    waits.sort_unstable();
    BenchResult {
        behind: behind.seconds(),
        short: short.seconds(),
        mean_wait_ms: waits.iter().sum::<u64>() as f64 / waits.len().max(1) as f64,
        p99_wait_ms: waits.get(waits.len() * 99 / 100).copied().unwrap_or_default(),
        longest_wait_ms: waits.last().copied().unwrap_or_default(),
        pod_seconds: fleet.pod_ms as f64 / 1000.0,
        writes,
    }
}

/// Longest run of milliseconds in which a condition held.
#[derive(Default)]
struct Longest {
    now: u64,
    longest: u64,
}

impl Longest {
    fn see(&mut self, is: bool) {
        self.now = if is { self.now + 1 } else { 0 };
        self.longest = self.longest.max(self.now);
    }

    fn seconds(&self) -> f64 {
        self.longest as f64 / 1000.0
    }
}
