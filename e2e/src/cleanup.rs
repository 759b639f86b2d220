//! Waits until the namespaces of earlier scenarios are gone.

use std::time::Duration;

use anyhow::Result;
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams},
    runtime::watcher::Config,
};

use crate::{
    env::Env,
    kinds::{NAMESPACE, POD},
    watch::await_condition,
};

/// Waits until the namespaces of all ended scenarios are gone: nothing in them may block their deletion. Their Pods are ended at
/// once, because the wait is not for the end of requests. The limit is 240 seconds.
pub(crate) async fn await_ended_namespaces(env: &Env, except: &str) -> Result<()> {
    let ended = env.all(NAMESPACE).list(&ListParams::default().labels("recif.dev/e2e=true")).await?;
    for namespace in ended.iter().map(ResourceExt::name_any).filter(|name| name != except) {
        let at_once = DeleteParams::default().grace_period(0);
        env.within(&namespace, POD).delete_collection(&at_once, &ListParams::default()).await?;
    }
    let none = |namespaces: &crate::object::ObjectsByName| namespaces.keys().all(|name| name == except).then_some(());
    let ours = Config::default().labels("recif.dev/e2e=true");
    let what = "the namespaces of ended scenarios gone";
    await_condition(env.all(NAMESPACE), ours, Duration::from_secs(240), what, none).await
}
