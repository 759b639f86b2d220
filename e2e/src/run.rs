//! Runs the scenarios, each in a namespace of its own: first the parallel ones, then the others one at a time. After each of
//! them the operator must stop to write in its namespace, which is observed while the next scenarios run; only an exclusive one
//! starts when nothing is observed any more.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Result, anyhow, bail};
use e2e::audit::{AuditEvent, describe_requests};
use futures::StreamExt as _;
use tokio::{task::JoinSet, time::sleep};

use crate::{
    env::Env,
    namespace::Namespace,
    report,
    scenario::{Isolation, Scenario},
};

/// Runs the scenarios, prints a line for each, and returns the number of failures.
pub(crate) async fn run(env: &Arc<Env>, scenarios: &[&'static Scenario], jobs: usize) -> usize {
    let (parallel, others): (Vec<_>, Vec<_>) =
        scenarios.iter().copied().partition(|scenario| scenario.isolation == Isolation::Parallel);
    let together = futures::stream::iter(parallel).map(|scenario| run_body(env, scenario));
    let ended = together.buffer_unordered(jobs).map(finish).buffer_unordered(SETTLING);
    let mut failed = ended.filter(|passed| std::future::ready(!passed)).count().await;
    let mut observed = JoinSet::new();
    for scenario in others {
        if scenario.isolation == Isolation::Exclusive {
            failed += failures(&mut observed).await;
        }
        observed.spawn(finish(run_body(env, scenario).await));
    }
    failed + failures(&mut observed).await
}

/// Waits until the scenarios are observed, and returns the number of failures.
async fn failures(observed: &mut JoinSet<bool>) -> usize {
    let mut failed = 0;
    while let Some(observed) = observed.join_next().await {
        let passed = observed.unwrap_or_else(|error| {
            report::line(&format!("FAIL  {}", panic_message(error)));
            false
        });
        failed += usize::from(!passed);
    }
    failed
}

/// Limit of ended scenarios that are observed concurrently.
const SETTLING: usize = 24;

/// Scenario whose body has ended.
struct EndedScenario {
    scenario: &'static Scenario,
    took: Duration,
    /// Its namespace and the result of the body, or the error of the creation of the namespace.
    result: Result<(Namespace, Result<()>)>,
}

/// Runs a scenario's body in a namespace of its own; a panic is a failure of the scenario.
async fn run_body(env: &Arc<Env>, scenario: &'static Scenario) -> EndedScenario {
    let started = Instant::now();
    let result = match Namespace::create(env.clone(), &unique(scenario.name)).await {
        Err(error) => Err(error),
        Ok(namespace) => {
            let body = tokio::spawn((scenario.run)(namespace.clone())).await;
            Ok((namespace, body.unwrap_or_else(|panic| Err(anyhow!("{}", panic_message(panic))))))
        }
    };
    EndedScenario { scenario, took: started.elapsed(), result }
}

/// Checks that the operator becomes idle in the scenario's namespace, and deletes the namespace in every case; returns
/// whether the scenario passed. A failure is printed with the state of the namespace at that moment.
async fn finish(run: EndedScenario) -> bool {
    let result = match run.result {
        Err(error) => Err(format!("  {error:#}")),
        Ok((namespace, body)) => {
            let result = match body {
                Ok(()) => await_quiet(&namespace).await,
                failed => failed,
            };
            let failure = match result {
                Ok(()) => None,
                Err(error) => Some(format!(
                    "  {error:#}\n  namespace {}:\n{}",
                    namespace.name,
                    report::state_of(&namespace).await
                )),
            };
            let deleted = namespace.delete_itself().await;
            match (failure, deleted) {
                (Some(failure), _) => Err(failure),
                (None, Err(error)) => Err(format!("  delete namespace {}: {error:#}", namespace.name)),
                (None, Ok(())) => Ok(()),
            }
        }
    };
    let title = format!("{} ({:.1} s)", run.scenario.title(), run.took.as_secs_f32());
    match &result {
        Ok(()) => report::line(&format!("ok    {title}")),
        Err(failure) => report::line(&format!("FAIL  {title}\n{failure}")),
    }
    result.is_ok()
}

/// Time without a write after which the operator counts as idle.
const QUIET: Duration = Duration::from_secs(10);
/// Limit of such windows until the scenario's changes have settled: rollouts, drains, windows of the scaler.
const MAX_QUIET_WINDOWS: usize = 12;

/// Waits for ten seconds in which the operator writes nothing in the namespace, by the audit log: objects that have
/// converged, or cannot converge, cause no writes. A write loop with a shorter period than that never has such a window.
/// A `recif dev` has no such log: there our objects and the Deployments have to stay as they are.
pub(crate) async fn await_quiet(namespace: &Namespace) -> Result<()> {
    if namespace.env.paths.local {
        return await_no_change(namespace).await;
    }
    let mut written = Vec::new();
    for _ in 0..MAX_QUIET_WINDOWS {
        let mark = namespace.env.audit.mark().await?;
        sleep(QUIET).await;
        written = namespace.operator_requests(mark).await?;
        written.retain(AuditEvent::is_write);
        if written.is_empty() {
            return Ok(());
        }
    }
    bail!("the operator does not come to rest; in the last {QUIET:?} it wrote: {}", describe_requests(&written))
}

async fn await_no_change(namespace: &Namespace) -> Result<()> {
    let mut windows = 1;
    loop {
        match namespace.stays_the_same(QUIET).await {
            Err(_) if windows < MAX_QUIET_WINDOWS => windows += 1,
            ended => return ended,
        }
    }
}

fn panic_message(error: tokio::task::JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else { return "cancelled".into() };
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    format!("panic: {}", text.unwrap_or_default())
}

/// Returns a name that no earlier run used, within the 63 characters of a label.
fn unique(name: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() & 0xff_ffff);
    let slug: String = name.chars().take(44).map(|c| if c == '_' { '-' } else { c }).collect();
    format!("e2e-{}-{now:06x}", slug.trim_end_matches('-'))
}
