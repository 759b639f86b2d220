//! Waits until the namespaces of earlier scenarios are gone.

use std::time::Duration;

use anyhow::Result;
use kube::runtime::watcher::Config;

use crate::{env::Env, kinds::NAMESPACE, watch::await_condition};

/// Waits until the namespaces of all ended scenarios are gone: nothing in them may block their deletion. The limit is 240
/// seconds.
pub(crate) async fn await_ended_namespaces(env: &Env, except: &str) -> Result<()> {
    let none = |namespaces: &crate::object::ObjectsByName| namespaces.keys().all(|name| name == except).then_some(());
    let ours = Config::default().labels("recif.dev/e2e=true");
    let what = "the namespaces of ended scenarios gone";
    await_condition(env.all(NAMESPACE), ours, Duration::from_secs(240), what, none).await
}
