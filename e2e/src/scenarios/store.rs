//! Tests the mirror in the database: two control planes on one PostgreSQL, databases that stop, processes that are killed.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde_json::json;
use testing::postgres::PostgresServer;

use crate::{
    control_plane::{ControlPlane, DatabaseMirror},
    kinds::{AGENT, TOOL},
    manifests::{agent, tool},
    namespace::{Namespace, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    two_control_planes_on_one_postgresql_hold_what_a_list_shows,
    a_database_that_was_stopped_is_caught_up_with,
    a_killed_control_plane_goes_on_where_it_was,
    an_object_created_again_unobserved_replaces_its_row,
    an_object_that_comes_and_goes_has_the_row_of_its_last_coming,
);

/// Creates an agent without Pods.
pub(super) async fn make(ns: &Namespace, name: &str) -> Result<()> {
    ns.apply(&agent(name, json!({"replicas": 0}))).await.map(drop)
}

/// Creates a few objects.
pub(super) async fn fill(ns: &Namespace) -> Result<()> {
    ns.apply(&tool("t", json!({}))).await?;
    for number in 0..6 {
        make(ns, &format!("a{number}")).await?;
    }
    Ok(())
}

/// Starts a control plane, waits until it has stored a few objects in a database, and returns it with a reader of that
/// database.
pub(super) async fn start_with_data<'a>(
    ns: &'a Namespace,
    database: &str,
) -> Result<(ControlPlane, DatabaseMirror<'a>)> {
    fill(ns).await?;
    let control_plane = ControlPlane::start(ns, database).await?;
    let copy = DatabaseMirror::new(ns, database)?;
    copy.await_equal_to_list().await?;
    Ok((control_plane, copy))
}

/// Changes an agent and a tool, creates an agent, and deletes that agent in every other round.
pub(super) async fn disturb(ns: &Namespace, round: usize) -> Result<()> {
    let label = json!({"metadata": {"labels": {"round": round.to_string()}}});
    ns.edit(AGENT, &format!("a{}", round % 3), label).await?;
    ns.edit(TOOL, "t", json!({"spec": {"description": format!("round {round}")}})).await?;
    let name = format!("b{round}");
    make(ns, &name).await?;
    if round.is_multiple_of(2) {
        ns.delete(AGENT, &name).await?;
    }
    Ok(())
}

async fn two_control_planes_on_one_postgresql_hold_what_a_list_shows(ns: Namespace) -> Result<()> {
    let server = PostgresServer::start().await;
    let url = server.url("postgresql");
    fill(&ns).await?;
    let copy = DatabaseMirror::new(&ns, &url)?;
    let (one, other) = tokio::try_join!(ControlPlane::start(&ns, &url), ControlPlane::start(&ns, &url))?;
    copy.await_equal_to_list().await?;
    for round in 0..6 {
        disturb(&ns, round).await?;
    }
    copy.await_equal_to_list().await?;
    one.kill().await?;
    disturb(&ns, 6).await?;
    copy.await_equal_to_list().await?;

    // The transitions of an object are kept after its deletion.
    let gone = ns.until(AGENT, "a5", START_TIMEOUT, "is Terminated", |it| it.phase() == "Terminated").await?;
    ns.delete(AGENT, "a5").await?;
    ns.until_gone(AGENT, "a5", START_TIMEOUT).await?;
    copy.await_equal_to_list().await?;
    let steps = copy.transition_numbers(&gone.id()).await?;
    let known: Vec<i64> = (1..=gone.last_seq()).collect();
    ensure!(steps.starts_with(&known), "its steps are {steps:?}, and were {known:?}");
    other.kill().await
}

async fn a_database_that_was_stopped_is_caught_up_with(ns: Namespace) -> Result<()> {
    let mut server = PostgresServer::start().await;
    let url = server.url("postgresql");
    let (control_plane, copy) = start_with_data(&ns, &url).await?;
    server.stop();
    for round in 0..4 {
        disturb(&ns, round).await?;
    }
    let says_so = async || {
        let ready = control_plane.get("/readyz").await?;
        ensure!(ready.contains(" 200 "), "it is ready without its database: {ready}");
        Ok((ready.contains("\ndatabase: ") && ready.contains("behind")).then_some(ready))
    };
    let text =
        crate::watch::poll(crate::namespace::REPORT_TIMEOUT, "readiness tells that the database is away", says_so)
            .await?;
    ensure!(!text.contains(testing::postgres::PASSWORD), "{text}");
    ns.delete(AGENT, "a4").await?;
    server.resume().await;
    copy.await_equal_to_list().await?;
    control_plane.kill().await
}

/// Folder that is deleted when it is dropped.
pub(super) struct TemporaryFolder(pub(super) PathBuf);

impl TemporaryFolder {
    pub(super) fn new(ns: &Namespace) -> Self {
        Self(std::env::temp_dir().join(format!("recif-{}", ns.name)))
    }

    /// Returns the URL of a SQLite file in the folder.
    pub(super) fn database(&self) -> String {
        format!("sqlite:{}/recif.db", self.0.display())
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn a_killed_control_plane_goes_on_where_it_was(ns: Namespace) -> Result<()> {
    let folder = TemporaryFolder::new(&ns);
    fill(&ns).await?;
    for round in 0..6 {
        let control_plane = ControlPlane::start(&ns, &folder.database()).await?;
        let (disturbed, killed) = tokio::join!(disturb(&ns, round), async {
            tokio::time::sleep(std::time::Duration::from_millis(17 * round as u64)).await;
            control_plane.kill().await
        });
        disturbed?;
        killed?;
    }
    let control_plane = ControlPlane::start(&ns, &folder.database()).await?;
    DatabaseMirror::new(&ns, &folder.database())?.await_equal_to_list().await?;
    control_plane.kill().await
}

async fn an_object_created_again_unobserved_replaces_its_row(ns: Namespace) -> Result<()> {
    let folder = TemporaryFolder::new(&ns);
    let (control_plane, copy) = start_with_data(&ns, &folder.database()).await?;
    // The operator may reach the agent only now, and before there is no transition to be stored.
    let stopped = |it: &Object| it.phase() == "Terminated";
    let before = ns.until(AGENT, "a0", START_TIMEOUT, "is stopped", stopped).await?;
    copy.await_equal_to_list().await?;
    control_plane.kill().await?;
    for name in ["a0", "a1"] {
        ns.delete(AGENT, name).await?;
        ns.until_gone(AGENT, name, START_TIMEOUT).await?;
    }
    make(&ns, "a0").await?;
    let control_plane = ControlPlane::start(&ns, &folder.database()).await?;
    copy.await_equal_to_list().await?;
    ensure!(ns.get(AGENT, "a0").await?.id() != before.id(), "it was made again");
    ensure!(!copy.transition_numbers(&before.id()).await?.is_empty(), "what happened to the first one is known");
    control_plane.kill().await
}

async fn an_object_that_comes_and_goes_has_the_row_of_its_last_coming(ns: Namespace) -> Result<()> {
    let folder = TemporaryFolder::new(&ns);
    fill(&ns).await?;
    let control_plane = ControlPlane::start(&ns, &folder.database()).await?;
    let copy = DatabaseMirror::new(&ns, &folder.database())?;
    // The later agents may be deleted before they have a transition.
    let stopped = |it: &Object| it.phase() == "Terminated";
    let first = ns.until(AGENT, "a0", START_TIMEOUT, "is stopped", stopped).await?.id();
    copy.await_equal_to_list().await?;
    for round in 0..6 {
        ns.delete(AGENT, "a0").await?;
        ns.until_gone(AGENT, "a0", START_TIMEOUT).await?;
        if round < 5 {
            make(&ns, "a0").await?;
        }
    }
    copy.await_equal_to_list().await?;
    make(&ns, "a0").await?;
    copy.await_equal_to_list().await?;
    ensure!(!copy.transition_numbers(&first).await?.is_empty(), "what happened to the first one is known");
    control_plane.kill().await
}
