//! Benchmark of the scaler's cost for a leader: 1000 workloads with 10 Pods each, of which 10 % have traffic and 1 % are silent, over
//! loopback. `hack/bench/scaler-tick` runs it.
//!
//! The Pods are another process, so that only the scaler is measured. Each has an address of its own in 127.0.0.0/8, and is queried over a
//! connection of its own.

mod fleet;
mod pods;

use std::{
    io::{self, Read as _, Write as _},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use cluster::cache::Keys;
use operator::scaler::{Scaler, ScalerMetrics};
use prometheus_client::{encoding::text::encode, registry::Registry};

use crate::fleet::IdleFleet;

/// Warm-up: the first rounds, in which every connection is made.
const WARM_UP: Duration = Duration::from_secs(10);
/// Time that is measured.
const MEASURED: Duration = Duration::from_secs(30);

fn main() -> io::Result<()> {
    if std::env::args().any(|argument| argument == "pods") {
        return pods::serve();
    }
    let mut pods = Command::new(std::env::current_exe()?).arg("pods").stdout(Stdio::piped()).spawn()?;
    let outcome = measure(&mut pods);
    pods.kill()?;
    pods.wait()?;
    outcome
}

fn measure(pods: &mut std::process::Child) -> io::Result<()> {
    let mut port = String::new();
    let stdout = pods.stdout.as_mut().ok_or_else(|| io::Error::other("the Pods have no output"))?;
    // One line, after which the process prints nothing more.
    let mut byte = [0];
    while stdout.read(&mut byte)? == 1 && byte != *b"\n" {
        port.push(char::from(byte[0]));
    }
    let port: u16 = port.parse().map_err(io::Error::other)?;
    let mut registry = Registry::default();
    let metrics = ScalerMetrics::new(&mut registry, true);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let fleet = {
        let _within = runtime.enter();
        Arc::new(IdleFleet::new(port)?)
    };
    let scaler = Arc::new(Scaler::new(fleet, Duration::from_secs(1), Keys::default(), metrics));
    runtime.spawn(scaler.run());
    runtime.block_on(async { tokio::time::sleep(WARM_UP).await });
    let (begun, cpu, before) = (Instant::now(), cpu_seconds()?, ticks(&registry)?);
    runtime.block_on(async { tokio::time::sleep(MEASURED).await });
    let (elapsed, cpu, after) = (begun.elapsed().as_secs_f64(), cpu_seconds()? - cpu, ticks(&registry)?);
    let rounds = after.count - before.count;
    let mut out = io::stdout().lock();
    writeln!(out, "rounds               {rounds} in {elapsed:.1} s")?;
    writeln!(out, "a round, mean        {:.0} ms", (after.sum - before.sum) * 1000.0 / rounds)?;
    writeln!(out, "rounds beyond 1.024 s {}", (after.count - after.in_time) - (before.count - before.in_time))?;
    writeln!(out, "CPU                  {:.1} % of a core", cpu * 100.0 / elapsed)?;
    writeln!(out, "memory               {} MiB resident", resident_kib()? / 1024)?;
    Ok(())
}

/// Values of the histogram of rounds.
struct Ticks {
    count: f64,
    sum: f64,
    in_time: f64,
}

fn ticks(registry: &Registry) -> io::Result<Ticks> {
    let mut text = String::new();
    encode(&mut text, registry).map_err(io::Error::other)?;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok()).ok_or_else(|| io::Error::other(format!("no {name}")))
    };
    Ok(Ticks {
        count: value("recif_scaler_tick_seconds_count ")?,
        sum: value("recif_scaler_tick_seconds_sum ")?,
        in_time: value("recif_scaler_tick_seconds_bucket{le=\"1.024\"} ")?,
    })
}

/// Returns the user and system time of this process.
fn cpu_seconds() -> io::Result<f64> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
    // In hundredths of a second on every Linux.
    Ok((ticks(11) + ticks(12)) / 100.0)
}

fn resident_kib() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    Ok(line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default())
}
