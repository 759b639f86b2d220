//! Measures the size on disk, the memory and the start-up time.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::sleep;

use e2e::local_operator::process;

use crate::{bench_env::BenchEnv, table::BenchMeasurement};

/// Pause between the last change and the measurement of the memory.
const REST: Duration = Duration::from_secs(60);

/// Measures the size of the image, and a start in a cluster without objects of our kinds.
pub(crate) async fn start(env: &mut BenchEnv) -> Result<Vec<BenchMeasurement>> {
    let image = &env.options.image;
    let bytes = std::fs::metadata(image).with_context(|| format!("find {}", image.display()))?.len();
    env.stop_operator().await?;
    let ready_after = env.operator().await?.ready_after;
    let (resident, _) = process::memory(env.operator().await?.pid)?;
    Ok(vec![
        BenchMeasurement::at_most("image, uncompressed", 40.0, bytes as f64 / f64::from(1 << 20), "MB"),
        BenchMeasurement::at_most("start to ready, empty cluster", 1.0, ready_after.as_secs_f64(), "s")
            .with_note(&format!("{resident:.1} MB resident")),
    ])
}

/// Measures the resident memory with many agents, after a pause.
pub(crate) async fn memory(env: &mut BenchEnv) -> Result<Vec<BenchMeasurement>> {
    let agents = env.many();
    env.ensure_agents(agents).await?;
    sleep(REST).await;
    let (resident, highest) = process::memory(env.operator().await?.pid)?;
    Ok(vec![
        BenchMeasurement::at_most(format!("memory, {agents} agents"), 40.0, resident, "MB")
            .with_note(&format!("highest {highest:.1}")),
    ])
}

impl BenchEnv {
    /// Returns the CPU time of the operator since it started.
    pub(crate) async fn cpu(&mut self) -> Result<Duration> {
        process::cpu(self.operator().await?.pid)
    }
}
