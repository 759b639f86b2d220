//! Reads the resource usage of a process from `/proc`.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// Unit of CPU time in `/proc`: a hundredth of a second (`USER_HZ`), independent of the kernel's own tick rate.
const TICK: Duration = Duration::from_millis(10);

/// Returns the CPU time of the process since its start, user and system.
///
/// # Errors
/// There is no such process.
pub fn cpu(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    // The name, in parentheses, may contain anything; utime and stime are the 14th and 15th field of proc(5).
    let fields = stat.rsplit_once(") ").map(|(_, rest)| rest).context("no name in stat")?;
    let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u32>).sum::<Result<u32, _>>();
    Ok(TICK * ticks.context("no times in stat")?)
}

/// Returns the resident memory in MB (2²⁰ bytes): the current value and the highest so far.
///
/// # Errors
/// There is no such process.
pub fn memory(pid: u32) -> Result<(f64, f64)> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    Ok((megabytes(&status, "VmRSS:")?, megabytes(&status, "VmHWM:")?))
}

fn megabytes(status: &str, field: &str) -> Result<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("no {field}"))?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().with_context(|| format!("read {field}"))?;
    Ok(kib / 1024.0)
}
