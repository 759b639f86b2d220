//! Tests overload: ten times the capacity of the Pods of a workload, from clients that give up after a second. The goodput
//! of the Pods must stay near their capacity, and no request may be left behind.
//!
//! Gateway, sidecars and workloads are processes on loopback; a fake API server provides the gateway with the agent and its
//! EndpointSlices.

mod api;
mod clients;
mod http;
mod processes;

use std::{
    io::{Write as _, stdout},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::Result;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::{clients::OverloadTotals, processes::OverloadProcesses};

/// Number of Pods, and limit of requests in flight for each of them.
const PODS: usize = 2;
const CAP: usize = 4;
/// Offered load as a multiple of the capacity.
const OVERLOAD_FACTOR: f64 = 10.0;

/// Measures goodput and memory under overload. Exit code 1: a goal was missed.
#[derive(Debug, Parser)]
struct Args {
    /// How long each overload lasts, in seconds
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// The folder with recif, recif-proxy and workload
    #[arg(long)]
    bin_dir: PathBuf,
}

/// Result of one overload.
struct OverloadResult {
    service: Duration,
    offered: f64,
    /// Useful responses per second, as a share of the capacity of the Pods.
    goodput: f64,
    outcome: OverloadTotals,
    /// Memory of gateway and sidecars: name, KiB in the middle, KiB at the end.
    memory: Vec<(String, u64, u64)>,
    /// Requests in flight or waiting that remained after the end, if any.
    left: Option<String>,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let mut terminate = signal(SignalKind::terminate())?;
    // The child processes end with this function, in every case.
    tokio::select! {
        result = run_all(&args) => result,
        _ = tokio::signal::ctrl_c() => Ok(ExitCode::FAILURE),
        _ = terminate.recv() => Ok(ExitCode::FAILURE),
    }
}

async fn run_all(args: &Args) -> Result<ExitCode> {
    let mut good = true;
    for service in [100, 500].map(Duration::from_millis) {
        let row = overload(args, service).await?;
        row.print()?;
        good &= row.is_good();
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn overload(args: &Args, service: Duration) -> Result<OverloadResult> {
    let fleet = OverloadProcesses::start(&args.bin_dir, PODS, CAP).await?;
    let capacity = (PODS * CAP) as f64 / service.as_secs_f64();
    let offered = capacity * OVERLOAD_FACTOR;
    let whole = Duration::from_secs(args.seconds);
    let memory = async {
        tokio::time::sleep(whole / 2).await;
        let middle = fleet.memory()?;
        tokio::time::sleep(whole / 2 - whole / 20).await;
        Ok::<_, anyhow::Error>((middle, fleet.memory()?))
    };
    let (outcome, memory) = tokio::join!(clients::run(fleet.gateway, service, offered, whole), memory);
    let (middle, end) = memory?;
    let memory = middle.into_iter().zip(end).map(|((name, middle), (_, end))| (name, middle, end)).collect();
    let goodput = outcome.useful as f64 / outcome.counted.as_secs_f64() / capacity;
    Ok(OverloadResult { service, offered, goodput, outcome, memory, left: fleet.left_behind().await })
}

impl OverloadResult {
    fn is_good(&self) -> bool {
        let flat = |(_, middle, end): &(String, u64, u64)| end.abs_diff(*middle) * 20 <= *middle;
        self.goodput >= 0.95 && self.memory.iter().all(flat) && self.left.is_none()
    }

    fn print(&self) -> Result<()> {
        let mut out = stdout().lock();
        let OverloadTotals { sent, useful, refused, gave_up, failed, .. } = self.outcome;
        writeln!(
            out,
            "service time {:?}, {:.0} requests/s: goodput {:.1} % of capacity ({sent} sent; {useful} answered, {refused} \
             refused, {gave_up} given up, {failed} failed)",
            self.service,
            self.offered,
            self.goodput * 100.0
        )?;
        for (name, middle, end) in &self.memory {
            writeln!(out, "  memory of {name}: {middle} KiB in the middle, {end} KiB at the end")?;
        }
        writeln!(out, "  afterwards {}", self.left.as_deref().unwrap_or("nothing is in flight or waiting"))?;
        if !self.is_good() {
            writeln!(out, "  MISSED: goodput 95 %, memory within 5 %, nothing left")?;
        }
        Ok(())
    }
}
