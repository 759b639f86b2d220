//! Measures the lag of the control plane's database behind the cluster at a steady rate of changes. `hack/bench/mirror`
//! runs it.

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use crds::Agent;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use sqlx::{AnyPool, Row as _, any::AnyPoolOptions};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Command,
    sync::{Semaphore, watch},
    task::JoinSet,
};

const NAMESPACE: &str = "mirror-bench";
/// Limit of concurrent changes.
const IN_FLIGHT: usize = 16;

type Agents = Api<DynamicObject>;

/// Measures the lag of the copy in a database.
#[derive(Debug, Parser)]
struct Args {
    /// The built `recif`.
    #[arg(long, env = "RECIF_BIN")]
    recif: PathBuf,
    /// Folder of the SQLite file.
    #[arg(long, env = "RECIF_STATE")]
    folder: PathBuf,
    /// Measures this database instead.
    #[arg(long)]
    database_url: Option<String>,
    /// How many agents there are.
    #[arg(long, default_value_t = 200)]
    objects: usize,
    /// Changes per second.
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// How long, in seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u32,
    /// The goal for the 99th percentile, in milliseconds.
    #[arg(long, default_value_t = 50)]
    goal: u128,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let _ = rustls::crypto::ring::default_provider().install_default();
    sqlx::any::install_default_drivers();
    let client = Client::try_default().await.context("read KUBECONFIG")?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": NAMESPACE } }))?;
    namespaces.create(&PostParams::default(), &namespace).await.context("make the namespace")?;
    let measured = measure(&args, client).await;
    namespaces.delete(NAMESPACE, &DeleteParams::default()).await?;
    measured
}

async fn measure(args: &Args, client: Client) -> Result<ExitCode> {
    let agents: Agents = Api::namespaced_with(client, NAMESPACE, &ApiResource::erase::<Agent>(&()));
    for number in 0..args.objects {
        let spec = json!({ "name": "Agent", "framework": "corail", "description": "x".repeat(500) });
        let metadata = json!({ "name": format!("a{number}") });
        let object =
            json!({ "apiVersion": "agents.recif.dev/v1", "kind": "Agent", "metadata": metadata, "spec": spec });
        agents.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    }
    let file = format!("sqlite:{}/mirror.db", args.folder.display());
    let url = args.database_url.clone().unwrap_or(file);
    let admin = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let mut control_plane = Command::new(&args.recif)
        .args(["control-plane", "--auth=none", "--namespaces", NAMESPACE, "--log=warn", "--bind=127.0.0.1:0"])
        .args(["--admin-bind", &admin.to_string()])
        .env("DATABASE_URL", &url)
        .kill_on_drop(true)
        .spawn()
        .context("start the control plane")?;
    while !get(admin, "/readyz").await.is_ok_and(|answer| answer.contains(" 200 ")) {
        ensure!(control_plane.try_wait()?.is_none(), "the control plane ended");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let pool = AnyPoolOptions::new().max_connections(1).connect_lazy(&url)?;
    settle(&agents, &pool).await?;

    let stored = follow(pool.clone());
    let began = Instant::now();
    let answered = change(args, &agents).await?;
    let rate = answered.len() as f64 / began.elapsed().as_secs_f64();
    settle(&agents, &pool).await?;
    let mut lags = lags(answered, &stored.borrow());
    lags.sort_unstable();
    let at = |percent: usize| lags.get((lags.len() * percent / 100).min(lags.len() - 1)).copied().unwrap_or_default();
    say(format_args!("{} changes of {} agents, {rate:.0} a second", lags.len(), args.objects));
    for (name, percent) in [("p50", 50), ("p90", 90), ("p99", 99), ("most", 100)] {
        say(format_args!(
            "  answer of the API server → row stored, {name:4}  {:>8.1} ms",
            at(percent).as_secs_f64() * 1e3
        ));
    }
    say(format_args!("  seen by the control plane → row stored:{}", buckets(&get(admin, "/metrics").await?)));
    say(format_args!("  the rows are those of a list"));
    control_plane.kill().await?;
    let missed = at(99).as_millis() > args.goal;
    say(format_args!("  goal: p99 ≤ {} ms: {}", args.goal, if missed { "missed" } else { "met" }));
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Changes agents at a steady rate; returns the resource versions of the changes and the times of the responses.
async fn change(args: &Args, agents: &Agents) -> Result<Vec<(i64, Instant)>> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / args.rate);
    let mut patches = JoinSet::new();
    // A slow API server does not get ever more connections.
    let most = Arc::new(Semaphore::new(IN_FLIGHT));
    for number in 0..args.rate * args.seconds {
        ticks.tick().await;
        let turn = most.clone().acquire_owned().await?;
        let (agents, name) = (agents.clone(), format!("a{}", number as usize % args.objects));
        patches.spawn(async move {
            let patch = json!({ "metadata": { "labels": { "change": number.to_string() } } });
            let changed = agents.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            drop(turn);
            anyhow::Ok((version(&changed)?, Instant::now()))
        });
    }
    let mut answered = Vec::new();
    while let Some(patched) = patches.join_next().await {
        answered.push(patched??);
    }
    Ok(answered)
}

/// Polls the highest stored resource version; each time that it is a new one, it is recorded with the time.
fn follow(pool: AnyPool) -> watch::Receiver<Arc<Vec<(i64, Instant)>>> {
    let (sender, receiver) = watch::channel(Arc::new(Vec::new()));
    tokio::spawn(async move {
        let mut seen: Vec<(i64, Instant)> = Vec::new();
        while !sender.is_closed() {
            let newest = sqlx::query("SELECT max(resource_version) FROM workloads").fetch_one(&pool).await;
            if let Ok(newest) = newest.and_then(|row| row.try_get::<i64, _>(0))
                && seen.last().is_none_or(|(version, _)| *version < newest)
            {
                seen.push((newest, Instant::now()));
                sender.send_replace(Arc::new(seen.clone()));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    receiver
}

/// Returns the lag of each change. Changes are stored in the order of their versions, so a change is stored as soon as a
/// version at least as new is.
fn lags(answered: Vec<(i64, Instant)>, stored: &[(i64, Instant)]) -> Vec<Duration> {
    let lag = |(version, at): (i64, Instant)| {
        let (_, there) = stored.get(stored.partition_point(|(stored, _)| *stored < version))?;
        Some(there.saturating_duration_since(at))
    };
    answered.into_iter().filter_map(lag).collect()
}

type WorkloadRows = BTreeMap<String, (String, i64, Value, Value)>;

/// Waits until the rows are equal to a list from the API server.
async fn settle(agents: &Agents, pool: &AnyPool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let (listed, stored) = (list(agents).await?, rows(pool).await.unwrap_or_default());
        if listed == stored {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{} objects, {} rows, and they differ", listed.len(), stored.len());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn list(agents: &Agents) -> Result<WorkloadRows> {
    let listed = agents.list(&Default::default()).await?;
    let row = |agent: DynamicObject| {
        let status = agent.data.get("status").cloned().unwrap_or_else(|| json!({}));
        let key = (agent.uid().unwrap_or_default(), version(&agent)?);
        Ok((agent.name_any(), (key.0, key.1, agent.data["spec"].clone(), status)))
    };
    listed.items.into_iter().map(row).collect()
}

async fn rows(pool: &AnyPool) -> Result<WorkloadRows> {
    let rows = sqlx::query("SELECT name, uid, resource_version, spec, status FROM workloads").fetch_all(pool).await?;
    let row = |row: &sqlx::any::AnyRow| {
        let json = |column: &str| -> Result<Value> { Ok(serde_json::from_str(row.try_get(column)?)?) };
        let key = (row.try_get("uid")?, row.try_get("resource_version")?);
        Ok((row.try_get("name")?, (key.0, key.1, json("spec")?, json("status")?)))
    };
    rows.iter().map(row).collect()
}

fn version(agent: &DynamicObject) -> Result<i64> {
    Ok(agent.resource_version().context("an object without a version")?.parse()?)
}

/// Returns the upper bounds of the buckets of the control plane's own histogram that hold the 50th and the 99th percentile.
fn buckets(metrics: &str) -> String {
    let parse = |line: &str| -> Option<(String, f64)> {
        let (bound, count) = line.strip_prefix("recif_mirror_lag_seconds_bucket{le=\"")?.split_once("\"} ")?;
        Some((bound.to_owned(), count.trim().parse().ok()?))
    };
    let found: Vec<(String, f64)> = metrics.lines().filter_map(parse).collect();
    let all = found.last().map_or(0.0, |(_, count)| *count);
    let within = |share: f64| found.iter().find(|(_, count)| *count >= all * share).map_or("?", |(bound, _)| bound);
    format!(" p50 ≤ {} s, p99 ≤ {} s", within(0.5), within(0.99))
}

/// Prints one line for the user.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Sends a GET and returns the whole response.
async fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
