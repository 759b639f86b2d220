//! Parts of every scenario.

use anyhow::{Context as _, Result, ensure};
use futures::future::BoxFuture;
use serde_json::Value;

use crate::{kinds::KubeKind, namespace::Namespace};

/// One scenario.
pub(crate) struct Scenario {
    /// Path of its module.
    pub(crate) theme: &'static str,
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
    /// Is disturbed by load, or changes something for all namespaces: no other scenario runs meanwhile.
    Serial,
    /// Stops a part of the cluster, or observes all of it: no other namespace is observed for writes meanwhile either.
    Exclusive,
}

impl Scenario {
    /// Returns theme and name.
    pub(crate) fn title(&self) -> String {
        format!("{}/{}", self.theme.rsplit("::").next().unwrap_or_default(), self.name)
    }
}

macro_rules! scenarios {
    ($isolation:ident: $($name:ident),+ $(,)?) => {
        &[$($crate::scenario::Scenario {
            theme: module_path!(),
            name: stringify!($name),
            isolation: $crate::scenario::Isolation::$isolation,
            run: |namespace| Box::pin($name(namespace)),
        }),+]
    };
}

pub(crate) use scenarios;

/// Checks the columns that `kubectl get` shows for a kind.
pub(crate) async fn columns(ns: &Namespace, kind: KubeKind, expected: &[&str]) -> Result<()> {
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
pub(crate) fn number(variable: &str, default: u64) -> Result<u64> {
    match std::env::var(variable) {
        Err(_) => Ok(default),
        Ok(text) => text.parse().with_context(|| format!("{variable} is a whole number, not '{text}'")),
    }
}
