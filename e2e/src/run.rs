//! Runs the scenarios: the parallel ones side by side, the serial ones afterwards, each in a namespace of its own. Each
//! ends with a look at what the operator still writes there.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Result, anyhow, bail};
use e2e::audit::{AuditEvent, describe_requests};
use futures::StreamExt as _;
use tokio::time::sleep;

use crate::{
    env::Env,
    namespace::Namespace,
    report,
    scenarios::{Isolation, Scenario},
};

/// Runs the scenarios and prints a line for each; returns how many failed. While one is watched for writes after its end, the
/// next ones run.
pub(crate) async fn run(env: &Arc<Env>, scenarios: &[&'static Scenario], jobs: usize) -> usize {
    let of = |isolation| scenarios.iter().copied().filter(move |scenario| scenario.isolation == isolation);
    let together = futures::stream::iter(of(Isolation::Parallel)).map(|scenario| run_body(env, scenario));
    let ended = together.buffer_unordered(jobs).map(finish).buffer_unordered(SETTLING);
    let mut failed = ended.filter(|passed| std::future::ready(!passed)).count().await;
    for scenario in of(Isolation::Serial) {
        failed += usize::from(!finish(run_body(env, scenario).await).await);
    }
    failed
}

/// How many scenarios may be watched at the same time after their end.
const SETTLING: usize = 24;

/// A scenario whose body has ended.
struct EndedScenario {
    scenario: &'static Scenario,
    took: Duration,
    /// Its namespace and how the body ended; why there was no namespace.
    result: Result<(Namespace, Result<()>)>,
}

/// Runs a scenario's body in a namespace of its own; a panic is its failure.
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

/// Checks that the operator comes to rest in the scenario's namespace, and deletes it whatever the outcome; whether the scenario
/// passed. A failure is printed with the state of the namespace at that moment.
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

/// How long the operator must write nothing once a scenario has ended.
const QUIET: Duration = Duration::from_secs(10);
/// How many such stretches what the scenario began may take to come to rest: rollouts, drains, windows of the scaler.
const MAX_QUIET_WINDOWS: usize = 12;

/// Compares the operator's writes in the namespace over ten seconds, by the audit log, with what is expected of objects that
/// have converged or cannot: none. A write loop that is faster than that never has such a stretch.
async fn await_quiet(namespace: &Namespace) -> Result<()> {
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

fn panic_message(error: tokio::task::JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else { return "cancelled".into() };
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    format!("panic: {}", text.unwrap_or_default())
}

/// A name that no earlier run used, within the 63 characters of a label.
fn unique(name: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() & 0xff_ffff);
    let slug: String = name.chars().take(44).map(|c| if c == '_' { '-' } else { c }).collect();
    format!("e2e-{}-{now:06x}", slug.trim_end_matches('-'))
}
