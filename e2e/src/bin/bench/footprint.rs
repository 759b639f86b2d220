//! Size on disk, in memory, and time to get ready.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::sleep;

use e2e::local_operator::process;

use crate::{bench_env::BenchEnv, table::BenchMeasurement};

/// How long after the last change memory is looked at.
const REST: Duration = Duration::from_secs(60);

/// The image, and a start in a cluster without objects of ours.
pub(crate) async fn start(world: &mut BenchEnv) -> Result<Vec<BenchMeasurement>> {
    let image = &world.options.image;
    let bytes = std::fs::metadata(image).with_context(|| format!("find {}", image.display()))?.len();
    world.stop_operator().await;
    let ready_after = world.operator().await?.ready_after;
    let (resident, _) = process::memory(world.operator().await?.pid)?;
    Ok(vec![
        BenchMeasurement::at_most("image, uncompressed", 40.0, bytes as f64 / f64::from(1 << 20), "MB"),
        BenchMeasurement::at_most("start to ready, empty cluster", 1.0, ready_after.as_secs_f64(), "s")
            .with_note(&format!("{resident:.1} MB resident")),
    ])
}

/// Resident memory some time after the last change.
pub(crate) async fn memory(world: &mut BenchEnv) -> Result<Vec<BenchMeasurement>> {
    let agents = world.many();
    world.ensure_agents(agents).await?;
    sleep(REST).await;
    let (resident, highest) = process::memory(world.operator().await?.pid)?;
    Ok(vec![
        BenchMeasurement::at_most(format!("memory, {agents} agents"), 40.0, resident, "MB")
            .with_note(&format!("highest {highest:.1}")),
    ])
}

impl BenchEnv {
    /// CPU time of the operator since it started.
    pub(crate) async fn cpu(&mut self) -> Result<Duration> {
        process::cpu(self.operator().await?.pid)
    }
}
