//! End-to-end scenarios, one file per theme. Each is named after the rule that it tests.

mod bad_input;
mod bad_requests;
mod chart;
mod chat;
mod children;
mod cli;
mod commands;
mod conditions;
mod control_plane;
mod deletion;
mod docs;
mod drain;
mod environment;
mod faults;
mod flow_changes;
mod flow_sets;
mod flows;
mod foreign;
mod gateway;
mod gateway_auth;
mod identity;
mod loops;
mod manifests;
mod mcp_servers;
mod mutations;
mod namespaced;
mod pods;
mod quota;
mod references;
mod refusals;
mod requests;
mod restore;
mod scale;
mod scaling;
mod sidecar;
mod start;
mod steady;
mod store;
mod store_faults;
mod tools;
mod traffic;

use anyhow::{Context as _, Result, ensure};
use futures::future::BoxFuture;
use serde_json::Value;

use crate::{kinds::KubeKind, namespace::Namespace};

/// One scenario.
pub(crate) struct Scenario {
    theme: &'static str,
    /// Name of its function, which is the rule.
    pub(crate) name: &'static str,
    /// Isolation from other scenarios.
    pub(crate) isolation: Isolation,
    /// Body, with a namespace of its own.
    pub(crate) run: fn(Namespace) -> BoxFuture<'static, Result<()>>,
}

/// Isolation of a scenario from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// Depends only on its own namespace.
    Parallel,
    /// Disturbs the whole cluster, or is disturbed by load.
    Serial,
}

impl Scenario {
    /// Returns theme and name.
    pub(crate) fn title(&self) -> String {
        format!("{}/{}", self.theme.rsplit("::").next().unwrap_or_default(), self.name)
    }
}

macro_rules! scenarios {
    ($isolation:ident: $($name:ident),+ $(,)?) => {
        &[$($crate::scenarios::Scenario {
            theme: module_path!(),
            name: stringify!($name),
            isolation: $crate::scenarios::Isolation::$isolation,
            run: |namespace| Box::pin($name(namespace)),
        }),+]
    };
}
use scenarios;

/// All themes. The longest come first; `steady` comes when no other scenario disturbs it, and `chart`, which replaces the
/// installation, after all.
const THEMES: &[&[Scenario]] = &[
    gateway_auth::SCENARIOS,
    drain::SCENARIOS,
    scaling::SHARED,
    traffic::SCENARIOS,
    quota::SCENARIOS,
    refusals::SCENARIOS,
    pods::SCENARIOS,
    tools::SCENARIOS,
    mcp_servers::SCENARIOS,
    store::SCENARIOS,
    store_faults::SCENARIOS,
    flow_sets::SCENARIOS,
    flow_changes::SCENARIOS,
    flows::SCENARIOS,
    references::SCENARIOS,
    children::SCENARIOS,
    environment::SCENARIOS,
    foreign::SCENARIOS,
    loops::SCENARIOS,
    scale::SCENARIOS,
    sidecar::SCENARIOS,
    scaling::SCENARIOS,
    deletion::SCENARIOS,
    start::SCENARIOS,
    docs::SCENARIOS,
    conditions::SCENARIOS,
    bad_input::SCENARIOS,
    requests::SCENARIOS,
    bad_requests::SCENARIOS,
    gateway::SCENARIOS,
    identity::SCENARIOS,
    cli::SCENARIOS,
    commands::SCENARIOS,
    chat::SCENARIOS,
    control_plane::SCENARIOS,
    manifests::SCENARIOS,
    manifests::ALONE,
    mutations::SCENARIOS,
    loops::ALONE,
    environment::ALONE,
    identity::ALONE,
    faults::SCENARIOS,
    restore::SCENARIOS,
    namespaced::ALONE,
    drain::ALONE,
    steady::SCENARIOS,
    chart::SCENARIOS,
];

/// Returns the scenarios whose title contains one of the filters; without filters all.
pub(crate) fn matching(filters: &[String]) -> Vec<&'static Scenario> {
    let wanted =
        |scenario: &&Scenario| filters.is_empty() || filters.iter().any(|it| scenario.title().contains(it.as_str()));
    THEMES.iter().copied().flatten().filter(wanted).collect()
}

/// Checks the columns that `kubectl get` shows for a kind.
async fn columns(ns: &Namespace, kind: KubeKind, expected: &[&str]) -> Result<()> {
    let path = format!("/apis/{}/namespaces/{}/{}", kind.api_version(), ns.name, kind.plural);
    let request = http::Request::get(path).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table: Value = ns.env.client.request(request.body(Vec::new())?).await?;
    let columns = table["columnDefinitions"].as_array().context("no columns")?.iter();
    let narrow: Vec<&str> =
        columns.filter(|column| column["priority"] == 0).filter_map(|column| column["name"].as_str()).collect();
    ensure!(
        narrow.iter().map(|name| name.to_lowercase()).eq(expected.iter().map(|it| it.to_lowercase())),
        "columns of {}: {narrow:?}",
        kind.plural
    );
    Ok(())
}

/// Returns the whole number in an environment variable, or the default if the variable is not set.
fn number(variable: &str, default: u64) -> Result<u64> {
    match std::env::var(variable) {
        Err(_) => Ok(default),
        Ok(text) => text.parse().with_context(|| format!("{variable} is a whole number, not '{text}'")),
    }
}
