//! Tests databases that fail under a control plane. Each time the API continues from its informer cache, metrics and
//! readiness report the failure, and afterwards the rows are equal to a list from the API server.

use std::{io::Write as _, net::Ipv4Addr, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection as _, Row as _};
use testing::postgres::PostgresServer;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::sleep,
};

use super::{
    mcp_servers::configure_mcp_workload,
    store::{TemporaryFolder, disturb, fill, start_with_data},
};
use crate::{
    control_plane::{ControlPlane, DatabaseMirror},
    kinds::{AGENT, REMOTE_MCP_SERVER},
    manifests::{agent, object, workload},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::ObjectExt as _,
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_database_that_does_not_answer_any_more_is_given_up_and_caught_up_with,
    a_database_that_is_not_there_at_the_start_is_filled_when_it_comes,
    a_slow_database_delays_no_object,
    a_full_disk_is_caught_up_with_when_there_is_room,
    a_locked_file_is_caught_up_with_when_it_is_free,
    tables_of_a_newer_program_are_left_alone,
    a_process_killed_in_a_transaction_leaves_nothing_of_it,
    tools_that_change_all_the_time_are_replaced_as_one,
);

/// Longest wait for the report: longer than the limit of a transaction.
const DETECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// Changes objects and checks that the failure is reported, but by the API only for data that is in the database alone;
/// `history`: true if the history can still be read.
async fn check_failure_reported(ns: &Namespace, control_plane: &ControlPlane, history: bool) -> Result<()> {
    disturb(ns, 1).await?;
    let reported = async || {
        let failing = control_plane.metric("recif_mirror_failing").await? == 1.0;
        let behind = control_plane.metric("recif_mirror_behind_seconds").await? > 0.0;
        let ready = control_plane.get("/readyz").await?;
        ensure!(ready.contains(" 200 "), "it is not ready without its database: {ready}");
        ensure!(!ready.contains(testing::postgres::PASSWORD), "{ready}");
        Ok((failing && behind && ready.contains("\ndatabase: unavailable")).then_some(()))
    };
    poll(DETECTION_TIMEOUT, "metrics and readiness tell that the database fails", reported).await?;
    disturb(ns, 2).await?;
    await_api_equal_to_list(ns, control_plane).await?;
    let (status, _) = control_plane.query_api("/v1/transitions").await?;
    ensure!(status == if history { 200 } else { 503 }, "asked what happened, it answers {status}");
    Ok(())
}

/// Waits until the API returns the objects of a list from the API server.
async fn await_api_equal_to_list(ns: &Namespace, control_plane: &ControlPlane) -> Result<()> {
    let same = async || {
        let mut listed: Vec<_> =
            ns.list(AGENT).await?.iter().map(|it| (it.name_any(), it.resource_version().unwrap_or_default())).collect();
        let (status, shown) = control_plane.query_api("/v1/agents?limit=500").await?;
        ensure!(status == 200, "{status}: {shown}");
        let text = |item: &Value, field: &str| item[field].as_str().unwrap_or_default().to_owned();
        let shown = shown["items"].as_array().context("no items")?.iter();
        let mut shown: Vec<_> = shown.map(|item| (text(item, "name"), text(item, "resourceVersion"))).collect();
        listed.sort();
        shown.sort();
        Ok((listed == shown).then_some(()))
    };
    poll(REPORT_TIMEOUT, "the API shows what a list shows", same).await
}

/// Waits until everything is stored, and the recovery is reported.
async fn check_recovery(control_plane: ControlPlane, copy: &DatabaseMirror<'_>) -> Result<()> {
    copy.await_equal_to_list().await?;
    let reported = async || {
        let failing = control_plane.metric("recif_mirror_failing").await?;
        let behind = control_plane.metric("recif_mirror_behind_seconds").await?;
        let ready = control_plane.get("/readyz").await?;
        Ok((failing == 0.0 && behind == 0.0 && !ready.contains("\ndatabase: ")).then_some(()))
    };
    poll(DETECTION_TIMEOUT, "metrics and readiness tell that all is stored", reported).await?;
    let (status, _) = control_plane.query_api("/v1/transitions").await?;
    ensure!(status == 200, "asked what happened, it answers {status}");
    control_plane.kill().await
}

async fn a_database_that_is_not_there_at_the_start_is_filled_when_it_comes(ns: Namespace) -> Result<()> {
    let mut server = PostgresServer::start().await;
    let url = server.url("postgresql");
    server.stop();
    fill(&ns).await?;
    let control_plane = ControlPlane::start(&ns, &url).await?;
    check_failure_reported(&ns, &control_plane, false).await?;
    server.resume().await;
    check_recovery(control_plane, &DatabaseMirror::new(&ns, &url)?).await
}

/// TCP proxy to a database that delays every response; `None` delays it for ever.
struct DelayProxy(watch::Sender<Option<Duration>>);

impl DelayProxy {
    /// Starts a proxy to the server at this URL; also returns the URL of the proxy.
    async fn connect(url: &str) -> Result<(Self, String)> {
        let (credentials, place) = url.split_once('@').context("a URL without a user")?;
        let (server, database) = place.split_once('/').context("a URL without a database")?;
        let (server, listener) = (server.to_owned(), TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?);
        let address = listener.local_addr()?;
        let (pace, received) = watch::channel(Some(Duration::ZERO));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, pace) = (server.clone(), received.clone());
                tokio::spawn(async move {
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = TcpStream::connect(server).await?.into_split();
                    let at_once = watch::channel(Some(Duration::ZERO)).1;
                    // The end of one direction ends both.
                    tokio::select! {
                        ended = forward(from_client, to_server, at_once) => ended,
                        ended = forward(from_server, to_client, pace) => ended,
                    }
                });
            }
        });
        let way = format!("{credentials}@{address}/{database}");
        Ok((Self(pace), way))
    }

    fn set_delay(&self, pace: Option<Duration>) {
        self.0.send_replace(pace);
    }
}

async fn forward(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut pace: watch::Receiver<Option<Duration>>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = from.read(&mut buffer).await?;
        let known = pace.wait_for(Option::is_some).await.map(|pace| pace.unwrap_or_default());
        // The sender is dropped: the test has ended.
        let Ok(delay) = known else { std::future::pending().await };
        sleep(delay).await;
        match buffer.get(..read) {
            Some(bytes) if read > 0 => to.write_all(bytes).await?,
            _ => return to.shutdown().await,
        }
    }
}

async fn a_slow_database_delays_no_object(ns: Namespace) -> Result<()> {
    let server = PostgresServer::start().await;
    let url = server.url("postgresql");
    let (way, slow) = DelayProxy::connect(&url).await?;
    fill(&ns).await?;
    let control_plane = ControlPlane::start(&ns, &slow).await?;
    let copy = DatabaseMirror::new(&ns, &url)?;
    copy.await_equal_to_list().await?;
    way.set_delay(Some(Duration::from_millis(60)));
    for round in 0..6 {
        disturb(&ns, round).await?;
    }
    await_api_equal_to_list(&ns, &control_plane).await?;
    let tells = async || Ok((control_plane.metric("recif_mirror_behind_seconds").await? > 0.05).then_some(()));
    let change = async {
        for round in 6.. {
            disturb(&ns, round).await?;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        reported = poll(DETECTION_TIMEOUT, "the metric tells how far behind it is", tells) => reported?,
        changed = change => changed?,
    }
    ensure!(control_plane.metric("recif_mirror_failing").await? == 0.0, "slow is not failing");
    copy.await_equal_to_list().await?;
    way.set_delay(Some(Duration::ZERO));
    check_recovery(control_plane, &copy).await
}

async fn a_database_that_does_not_answer_any_more_is_given_up_and_caught_up_with(ns: Namespace) -> Result<()> {
    let server = PostgresServer::start().await;
    let url = server.url("postgresql");
    let (way, silent) = DelayProxy::connect(&url).await?;
    fill(&ns).await?;
    let control_plane = ControlPlane::start(&ns, &silent).await?;
    let copy = DatabaseMirror::new(&ns, &url)?;
    copy.await_equal_to_list().await?;
    way.set_delay(None);
    check_failure_reported(&ns, &control_plane, false).await?;
    way.set_delay(Some(Duration::ZERO));
    check_recovery(control_plane, &copy).await
}

/// Disk (tmpfs) of 8 MiB, which is unmounted when it is dropped.
struct TmpfsDisk(TemporaryFolder);

impl TmpfsDisk {
    fn mount(ns: &Namespace) -> Result<Self> {
        let folder = TemporaryFolder::new(ns);
        std::fs::create_dir_all(&folder.0)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8m,mode=700", "e2e"]).arg(&folder.0);
        ensure!(mount.status()?.success(), "mount a disk at {}: run the tests as root", folder.0.display());
        Ok(Self(folder))
    }

    /// Fills the remaining space; returns the path of the file that occupies it.
    fn fill(&self) -> Result<std::path::PathBuf> {
        let path = self.0.0.join("ballast");
        let mut file = std::fs::File::create(&path)?;
        let full = loop {
            if let Err(error) = file.write_all(&[0; 4096]) {
                break error;
            }
        };
        ensure!(full.kind() == std::io::ErrorKind::StorageFull, "fill the disk: {full}");
        Ok(path)
    }
}

impl Drop for TmpfsDisk {
    fn drop(&mut self) {
        // Lazy unmount: a process with an open file keeps it until the process ends.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0.0).status();
    }
}

async fn a_full_disk_is_caught_up_with_when_there_is_room(ns: Namespace) -> Result<()> {
    let disk = TmpfsDisk::mount(&ns)?;
    let url = disk.0.database();
    let (control_plane, copy) = start_with_data(&ns, &url).await?;
    let (status, _) = control_plane.query_api("/v1/transitions").await?;
    ensure!(status == 200, "asked what happened, it answers {status}");
    let ballast = disk.fill()?;
    // The database file has some free pages.
    for number in 0.. {
        let large = json!({"replicas": 0, "systemPrompt": "x".repeat(60 << 10)});
        ns.apply(&agent(&format!("large-{number}"), large)).await?;
        sleep(Duration::from_millis(300)).await;
        if control_plane.metric("recif_mirror_failing").await? == 1.0 {
            break;
        }
        ensure!(number < 60, "the disk is full, and still everything is stored");
    }
    check_failure_reported(&ns, &control_plane, true).await?;
    std::fs::remove_file(ballast)?;
    check_recovery(control_plane, &copy).await
}

async fn a_locked_file_is_caught_up_with_when_it_is_free(ns: Namespace) -> Result<()> {
    let folder = TemporaryFolder::new(&ns);
    let (control_plane, copy) = start_with_data(&ns, &folder.database()).await?;
    let mut holder = AnyConnection::connect(&folder.database()).await?;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut holder).await?;
    check_failure_reported(&ns, &control_plane, true).await?;
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await?;
    check_recovery(control_plane, &copy).await
}

async fn tables_of_a_newer_program_are_left_alone(ns: Namespace) -> Result<()> {
    let folder = TemporaryFolder::new(&ns);
    let (control_plane, copy) = start_with_data(&ns, &folder.database()).await?;
    control_plane.kill().await?;
    let mut newer = AnyConnection::connect(&folder.database()).await?;
    let later = "INSERT INTO recif_migrations (number, name, applied_at) VALUES (9999, 'later', '')";
    sqlx::raw_sql(later).execute(&mut newer).await?;
    let before = copy.rows().await?;
    let control_plane = ControlPlane::start(&ns, &folder.database()).await?;
    check_failure_reported(&ns, &control_plane, false).await?;
    ensure!(copy.rows().await? == before, "a table that it does not know was written to");
    sqlx::raw_sql("DELETE FROM recif_migrations WHERE number = 9999").execute(&mut newer).await?;
    check_recovery(control_plane, &copy).await
}

async fn a_process_killed_in_a_transaction_leaves_nothing_of_it(ns: Namespace) -> Result<()> {
    let server = PostgresServer::start().await;
    let url = server.url("postgresql");
    let (control_plane, copy) = start_with_data(&ns, &url).await?;
    // Transitions are written last, so a process that waits for the lock of their table has written everything else.
    let mut holder = AnyConnection::connect(&url).await?;
    sqlx::raw_sql("BEGIN; LOCK TABLE transitions IN EXCLUSIVE MODE").execute(&mut holder).await?;
    disturb(&ns, 0).await?;
    let mut observer = AnyConnection::connect(&url).await?;
    let waits = "SELECT count(*) FROM pg_stat_activity \
                 WHERE application_name = 'recif-control-plane' AND wait_event_type = 'Lock'";
    loop {
        let waiting: i64 = sqlx::query(waits).fetch_one(&mut observer).await?.try_get(0)?;
        if waiting > 0 {
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    control_plane.kill().await?;
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await?;
    copy.check_transitions_stored().await?;
    let control_plane = ControlPlane::start(&ns, &url).await?;
    check_recovery(control_plane, &copy).await
}

/// Returns an error when tools of several rounds are stored at the same time.
async fn check_never_mixed(copy: &DatabaseMirror<'_>) -> Result<()> {
    loop {
        let descriptions = copy.descriptions().await?;
        ensure!(descriptions == 1, "tools of {descriptions} rounds are stored at once");
    }
}

async fn tools_that_change_all_the_time_are_replaced_as_one(ns: Namespace) -> Result<()> {
    let server = PostgresServer::start().await;
    let url = server.url("postgresql");
    let tell = async |round: i32, tools: i32| {
        let names: Vec<String> = (0..tools).map(|number| format!("tool-{number}")).collect();
        let path = format!("/tools?names={}&words=round-{round}", names.join(","));
        configure_mcp_workload(&ns, &path).await
    };
    ns.start(&workload("mcp", json!({}))).await?;
    tell(0, 5).await?;
    let endpoint = format!("http://mcp.{}.svc.cluster.local:8000/mcp", ns.name);
    let spec = json!({"url": endpoint, "resync": "1s", "onChange": "Adopt"});
    ns.apply(&object(REMOTE_MCP_SERVER, "remote", spec)).await?;
    let copy = DatabaseMirror::new(&ns, &url)?;
    let (one, other) = tokio::try_join!(ControlPlane::start(&ns, &url), ControlPlane::start(&ns, &url))?;
    let reported = |words: &'static str| {
        move |it: &crate::object::Object| it.text("/status/discoveredTools/0/description") == words
    };
    ns.until(REMOTE_MCP_SERVER, "remote", START_TIMEOUT, "has listed its tools", reported("round-0")).await?;
    copy.await_equal_to_list().await?;
    let change = async {
        for round in 1..=10 {
            tell(round, 5 + round).await?;
            sleep(Duration::from_millis(400)).await;
        }
        ns.until(REMOTE_MCP_SERVER, "remote", START_TIMEOUT, "has listed its last tools", reported("round-10")).await
    };
    tokio::select! {
        changed = change => drop(changed?),
        mixed = check_never_mixed(&copy) => mixed?,
    }
    copy.await_equal_to_list().await?;
    let rows = copy.rows().await?;
    let tools = rows.get("tools RemoteMCPServer/remote").and_then(Value::as_array).context("there are no tools")?;
    ensure!(tools.len() == 15, "there are {} tools", tools.len());
    one.kill().await?;
    other.kill().await
}
