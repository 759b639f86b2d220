//! Waits until what earlier scenarios left is gone.

use std::time::Duration;

use anyhow::Result;
use kube::runtime::watcher::Config;

use crate::{env::Env, kinds::NAMESPACE, watch::await_condition};

/// Waits until every namespace of scenarios that have ended is gone: nothing in them may hold up its deletion.
pub(crate) async fn await_ended_namespaces(env: &Env, except: &str) -> Result<()> {
    let none = |namespaces: &crate::object::ObjectsByName| namespaces.keys().all(|name| name == except).then_some(());
    let ours = Config::default().labels("recif.dev/e2e=true");
    let what = "the namespaces of ended scenarios gone";
    await_condition(env.all(NAMESPACE), ours, Duration::from_secs(240), what, none).await
}
