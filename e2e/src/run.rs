//! Runs the scenarios: those that bear company side by side, the others alone afterwards, each in a namespace of its own.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Result, anyhow};
use futures::StreamExt as _;
use kube::runtime::watcher::Config;

use crate::{
    env::Env,
    kinds::NAMESPACE,
    namespace::Namespace,
    report,
    scenarios::{Company, Scenario},
    watch::await_condition,
};

/// Runs the scenarios and prints a line for each; returns how many failed.
pub(crate) async fn run(env: &Arc<Env>, scenarios: &[&'static Scenario], jobs: usize) -> usize {
    let of = |company| scenarios.iter().copied().filter(move |scenario| scenario.company == company);
    let together = futures::stream::iter(of(Company::Shared)).map(|scenario| run_one(env, scenario));
    let mut failed = together.buffer_unordered(jobs).filter(|passed| std::future::ready(!passed)).count().await;
    for scenario in of(Company::Alone) {
        failed += usize::from(!run_one(env, scenario).await);
    }
    failed
}

/// Whether the scenario passed.
async fn run_one(env: &Arc<Env>, scenario: &'static Scenario) -> bool {
    let started = Instant::now();
    let result = with_temp_ns(env, scenario.name, scenario.run).await;
    let title = format!("{} ({:.1} s)", scenario.title(), started.elapsed().as_secs_f32());
    match &result {
        Ok(()) => report::line(&format!("ok    {title}")),
        Err(failure) => report::line(&format!("FAIL  {title}\n{failure}")),
    }
    result.is_ok()
}

/// Runs a body in a namespace that is deleted afterwards, whatever the body does; a panic is its failure. The error is what
/// failed, and the state of the namespace at that moment.
pub(crate) async fn with_temp_ns<F>(env: &Arc<Env>, name: &str, body: impl FnOnce(Namespace) -> F) -> Result<(), String>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let namespace = match Namespace::create(env.clone(), &unique(name)).await {
        Ok(namespace) => namespace,
        Err(error) => return Err(format!("  {error:#}")),
    };
    let result = match tokio::spawn(body(namespace.clone())).await {
        Ok(result) => result,
        Err(panic) => Err(anyhow!("{}", said_in_panic(panic))),
    };
    let failure = match result {
        Ok(()) => None,
        Err(error) => {
            Some(format!("  {error:#}\n  namespace {}:\n{}", namespace.name, report::state_of(&namespace).await))
        }
    };
    let deleted = namespace.delete_itself().await;
    match (failure, deleted) {
        (Some(failure), _) => Err(failure),
        (None, Err(error)) => Err(format!("  delete namespace {}: {error:#}", namespace.name)),
        (None, Ok(())) => Ok(()),
    }
}

fn said_in_panic(error: tokio::task::JoinError) -> String {
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

/// Waits until every namespace of scenarios that have ended is gone: nothing in them may hold up its deletion.
pub(crate) async fn await_ended_namespaces(env: &Env, except: &str) -> Result<()> {
    let none = |namespaces: &crate::object::Objects| namespaces.keys().all(|name| name == except).then_some(());
    let ours = Config::default().labels("recif.dev/e2e=true");
    let what = "the namespaces of ended scenarios gone";
    await_condition(env.all(NAMESPACE), ours, Duration::from_secs(240), what, none).await
}
