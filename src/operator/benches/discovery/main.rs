//! Benchmark of a discovery: a server with 100 tools on loopback, queried a hundred times by the operator's own code.
//! `hack/bench/discovery` runs it.
//!
//! The server is another process, so that only the queries are measured. It speaks the newer era, which is tried first.

mod server;

use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use actions::{
    discovery::{DiscoveryTarget, Schedule, ToolDiscovery},
    ports::{ChildClient, ChildManifest, ChildRef, OwnerState},
};
use async_trait::async_trait;
use machine::ApiError;
use meta::Key;
use operator::discovery::Discoverer;
use tokio::{sync::mpsc, time::timeout};

/// Number of queries, and the number after which memory is measured first.
const TIMES: usize = 100;
const FIRST: usize = 10;
/// Goals of the benchmark.
const LONGEST: Duration = Duration::from_millis(20);
const GROWTH_KB: u64 = 1024;
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> io::Result<()> {
    if std::env::args().any(|argument| argument == "server") {
        return server::serve();
    }
    let mut server = Command::new(std::env::current_exe()?).arg("server").stdout(Stdio::piped()).spawn()?;
    let outcome = measure(&mut server);
    server.kill()?;
    server.wait()?;
    outcome
}

fn measure(server: &mut Child) -> io::Result<()> {
    let stdout = server.stdout.take().ok_or_else(|| io::Error::other("the server has no output"))?;
    let mut url = String::new();
    BufReader::new(stdout).read_line(&mut url)?;
    // Needed once per process; a second call fails without harm.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(bench(url.trim()))
}

async fn bench(url: &str) -> io::Result<()> {
    let discoverer = Discoverer::new(Arc::new(EmptyCluster), Default::default(), Default::default());
    let (news, mut reported) = mpsc::unbounded_channel();
    discoverer.on_change(move |_, key| drop(news.send(key.clone())));
    let (mut took, mut first) = (Vec::new(), 0);
    for number in 0..TIMES {
        let target = target(url, number);
        let begun = Instant::now();
        discoverer.query(&target, Schedule::Now);
        timeout(PATIENCE, reported.recv()).await?;
        took.push(begun.elapsed());
        let text = discoverer.query(&target, Schedule::OnResync);
        let found = text.as_deref().and_then(|text| text.as_ref().ok()).map(|found| found.catalog.tools.len());
        if found != Some(server::TOOLS) {
            return Err(io::Error::other(format!("the server listed {found:?} tools: {text:?}")));
        }
        // All servers but one are forgotten, so that the growth is not from kept results.
        discoverer.forget(target.kind, &target.key);
        if number + 1 == FIRST {
            first = resident_kb()?;
        }
    }
    let growth = resident_kb()?.saturating_sub(first);
    took.sort_unstable();
    let (middle, longest) = (took[TIMES / 2], took[TIMES - 1]);
    let mut out = io::stdout().lock();
    writeln!(out, "a discovery, middle      {:.1} ms (goal {} ms)", ms(middle), LONGEST.as_millis())?;
    writeln!(out, "a discovery, longest     {:.1} ms", ms(longest))?;
    writeln!(out, "RSS after {FIRST}             {first} kB")?;
    writeln!(out, "growth from {FIRST} to {TIMES}     {growth} kB (goal {GROWTH_KB} kB)")?;
    if middle > LONGEST || growth > GROWTH_KB {
        return Err(io::Error::other("a goal is missed"));
    }
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Returns a server with a uid of its own, so that nothing is known of it.
fn target(url: &str, number: usize) -> DiscoveryTarget {
    DiscoveryTarget {
        kind: "RemoteMCPServer",
        key: Key::new("bench", "server"),
        uid: number.to_string(),
        url: url.to_owned(),
        headers: Vec::new(),
        tls: Default::default(),
        sse: false,
        silence: PATIENCE,
        terminates: true,
        timeout: PATIENCE,
        resync: Duration::from_secs(3600),
        data: BTreeMap::new(),
    }
}

fn resident_kb() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().map_err(io::Error::other)
}

/// Cluster without any object: the server has no headers that would come from one.
struct EmptyCluster;

#[async_trait]
impl ChildClient for EmptyCluster {
    async fn get(&self, _: &ChildRef) -> Result<Option<Arc<actions::ports::CachedChild>>, ApiError> {
        Ok(None)
    }

    async fn get_owner(&self, _: &'static str, _: &Key) -> Result<Option<OwnerState>, ApiError> {
        Ok(None)
    }

    async fn get_data(&self, _: &ChildRef) -> Result<BTreeMap<String, String>, ApiError> {
        Err(ApiError::NotFound)
    }

    async fn apply(&self, _: &ChildManifest, _: Option<&str>) -> Result<Arc<actions::ports::CachedChild>, ApiError> {
        Err(ApiError::NotFound)
    }

    async fn dry_run(&self, _: &ChildManifest) -> Result<(), ApiError> {
        Err(ApiError::NotFound)
    }

    async fn set_replicas(
        &self,
        _: &ChildRef,
        _: &str,
        _: Option<i32>,
    ) -> Result<Arc<actions::ports::CachedChild>, ApiError> {
        Err(ApiError::NotFound)
    }

    async fn delete(&self, _: &ChildRef, _: &str) -> Result<(), ApiError> {
        Err(ApiError::NotFound)
    }
}
