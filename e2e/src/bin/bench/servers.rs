//! Measures the periodic discovery of remote MCP servers that always return the same tools.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{Api, core::DynamicObject};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    agents::{AT_ONCE, await_all, clear, create, custom, manifest, namespace},
    bench_env::BenchEnv,
    fake_mcp::{FakeMcpServers, ReceivedDiscovery},
    table::BenchMeasurement,
};

const NAMESPACE: &str = "servers";
const SERVERS: usize = 200;
/// Average interval of the discoveries of one server; each interval has a jitter of a fifth.
const RESYNC: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(12);
/// Goal for the additional delay of a discovery while another server hangs, in milliseconds.
const LATE_MS: f64 = 100.0;

/// Checks that nothing is written, the discoveries are spread evenly, and a server that hangs delays no other one.
pub(crate) async fn steady(env: &mut BenchEnv) -> Result<Vec<BenchMeasurement>> {
    env.remove_agents().await?;
    let farm = FakeMcpServers::start().await.context("serve")?;
    namespace(&env.client, NAMESPACE).await?;
    let kind = custom("RemoteMCPServer", "remotemcpservers");
    let servers: Api<DynamicObject> = Api::namespaced_with(env.client.clone(), NAMESPACE, &kind);
    let make = stream::iter(0..SERVERS).map(Ok::<_, anyhow::Error>);
    make.try_for_each_concurrent(AT_ONCE, async |number| {
        let spec = json!({"url": farm.url(number), "resync": format!("{}s", RESYNC.as_secs()), "timeout": "5s"});
        create(&servers, manifest("RemoteMCPServer", &format!("server-{number}"), spec)).await
    })
    .await?;
    await_all(&servers, SERVERS, "are Available", |it| it.data["status"]["phase"] == "Available").await?;
    // They were created, and so discovered, all at once: a restarted operator spreads the discoveries.
    env.stop_operator().await?;
    env.operator().await?;
    sleep(2 * LONGEST_PAUSE).await;
    env.settle().await?;

    let mark = env.audit.mark().await?;
    farm.drain_discoveries();
    let begun = Instant::now();
    sleep(env.window()).await;
    let calm = farm.drain_discoveries();
    let counts = env.counts(mark).await?;
    let what = format!("steady state, {SERVERS} remote servers, {} s", env.window().as_secs());
    let writes =
        BenchMeasurement::new(format!("{what}: writes"), "0", counts.writes().to_string(), counts.writes() == 0);

    let per_second = per_second(&calm, begun, env.window());
    let mean = calm.len() as f64 / env.window().as_secs_f64();
    let most = per_second.iter().copied().max().unwrap_or_default() as f64;
    let spread = BenchMeasurement::at_most("discoveries in the fullest second, by their mean", 2.0, most / mean, "×");
    let spread = spread.with_note(&format!("{} in all, {mean:.1} a second, at most {most}", calm.len()));

    let before = lateness(&calm);
    farm.hang(0);
    sleep(LONGEST_PAUSE).await;
    farm.drain_discoveries();
    sleep(env.window()).await;
    let mut with = farm.drain_discoveries();
    with.retain(|asked| asked.server != 0);
    let all = with.iter().map(|asked| asked.server).collect::<std::collections::BTreeSet<_>>().len();
    let late =
        BenchMeasurement::at_most("the latest of the others while one hangs", LATE_MS, lateness(&with).max(0.0), "ms");
    let late = late.with_note(&format!("without it {:.2} ms; {} discoveries of {all}", before.max(0.0), with.len()));
    clear(&servers).await?;
    Ok(vec![writes.with_note(&counts.breakdown()), spread, late])
}

/// Counts the discoveries in each whole second.
fn per_second(asked: &[ReceivedDiscovery], begun: Instant, window: Duration) -> Vec<usize> {
    let mut counts = vec![0; usize::try_from(window.as_secs()).unwrap_or_default()];
    for asked in asked {
        let second = asked.at.saturating_duration_since(begun).as_secs();
        if let Some(count) = counts.get_mut(usize::try_from(second).unwrap_or(usize::MAX)) {
            *count += 1;
        }
    }
    counts
}

/// Returns by how many milliseconds the longest interval of a server exceeds the longest intended one; negative if none
/// does.
fn lateness(asked: &[ReceivedDiscovery]) -> f64 {
    let mut last = BTreeMap::new();
    let mut longest = f64::MIN;
    for ReceivedDiscovery { server, at } in asked {
        if let Some(before) = last.insert(*server, *at) {
            let pause: Duration = *at - before;
            longest = longest.max((pause.as_secs_f64() - LONGEST_PAUSE.as_secs_f64()) * 1e3);
        }
    }
    longest
}
