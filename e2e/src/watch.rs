//! Waits with a deadline: on a watch for a condition, or by polling.

use std::{collections::BTreeMap, future::Future, pin::pin, time::Duration};

use anyhow::{Result, bail};
use futures::StreamExt as _;
use kube::{
    Api, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use tokio::{sync::watch, task::AbortHandle, time::timeout};

use crate::{
    kinds::{DEPLOYMENT, KubeKind},
    object::{Object, ObjectExt as _, ObjectsByName},
};

/// Waits until the predicate returns a value for the objects of a watch. The error contains the last state.
pub(crate) async fn await_condition<T>(
    api: Api<Object>,
    config: watcher::Config,
    deadline: Duration,
    what: &str,
    mut predicate: impl FnMut(&ObjectsByName) -> Option<T>,
) -> Result<T> {
    let mut objects = ObjectsByName::new();
    let found = async {
        let mut changes = pin!(changes(api, config));
        while let Some(change) = changes.next().await {
            objects = change;
            if let Some(found) = predicate(&objects) {
                return Some(found);
            }
        }
        None
    };
    if let Ok(Some(found)) = timeout(deadline, found).await {
        return Ok(found);
    }
    let seen: Vec<String> = objects.values().map(super::object::ObjectExt::describe).collect();
    bail!(
        "after {deadline:?} not seen: {what}; last seen: {}",
        if seen.is_empty() { "nothing".into() } else { seen.join("; ") }
    )
}

/// Returns the state after each event of a watch, first the state of the initial list. A broken watch is reopened.
fn changes(api: Api<Object>, config: watcher::Config) -> impl futures::Stream<Item = ObjectsByName> {
    watcher::watcher(api, config)
        .default_backoff()
        .scan((ObjectsByName::new(), ObjectsByName::new()), |(objects, listed), event| {
            let complete = match event {
                Ok(Event::Init) => {
                    listed.clear();
                    false
                }
                Ok(Event::InitApply(object)) => {
                    listed.insert(object.name_any(), object);
                    false
                }
                Ok(Event::InitDone) => {
                    *objects = std::mem::take(listed);
                    true
                }
                Ok(Event::Apply(object)) => {
                    objects.insert(object.name_any(), object);
                    true
                }
                Ok(Event::Delete(object)) => {
                    objects.remove(&object.name_any());
                    true
                }
                Err(_) => false,
            };
            futures::future::ready(Some(complete.then(|| objects.clone())))
        })
        .filter_map(futures::future::ready)
}

/// Polls every 100 ms until there is a value, for state that cannot be watched. After an error it polls again.
pub(crate) async fn poll<T, F>(deadline: Duration, what: &str, mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let mut last = "no answer".to_owned();
    let found = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        loop {
            ticks.tick().await;
            match ask().await {
                Ok(Some(found)) => return found,
                Ok(None) => "not yet".clone_into(&mut last),
                Err(error) => last = format!("{error:#}"),
            }
        }
    };
    let found = timeout(deadline, found).await;
    found.or_else(|_| bail!("after {deadline:?} not seen: {what}; last: {last}"))
}

/// Recorder of all states of one object that a watch delivers, from before its creation.
pub(crate) struct Recorder {
    seen: watch::Receiver<Vec<Object>>,
    task: AbortHandle,
}

impl Recorder {
    /// Starts the watch; no change after the return is missed.
    pub(crate) async fn start(api: Api<Object>, name: &str) -> Result<Self> {
        let (sender, seen) = watch::channel(Vec::new());
        let (ready, started) = tokio::sync::oneshot::channel();
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let task = tokio::spawn(async move {
            let mut changes = pin!(changes(api, config));
            let mut ready = Some(ready);
            while let Some(objects) = changes.next().await {
                sender.send_modify(|seen| seen.extend(objects.into_values()));
                ready.take().map(|ready| ready.send(()));
            }
        });
        let task = task.abort_handle();
        match timeout(Duration::from_secs(10), started).await {
            Ok(Ok(())) => Ok(Self { seen, task }),
            _ => bail!("the watch on {name} did not start"),
        }
    }

    /// Returns all states, up to at least this state of the object.
    pub(crate) async fn up_to(&self, object: &Object) -> Result<Vec<Object>> {
        let mut seen = self.seen.clone();
        let reached = seen.wait_for(|seen| seen.last().is_some_and(|last| last.revision() >= object.revision()));
        match timeout(Duration::from_secs(10), reached).await {
            Ok(Ok(seen)) => Ok(seen.clone()),
            _ => bail!("the watch did not deliver {}", object.describe()),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Checks that the objects do not change during `window`: the absence of a change can only be observed for a limited time.
/// Of a Deployment only the generation of its spec is compared: its status still changes while old Pods terminate.
pub(crate) async fn stays_the_same(apis: Vec<(KubeKind, Api<Object>)>, window: Duration) -> Result<()> {
    let streams = apis
        .into_iter()
        .map(|(kind, api)| Box::pin(changes(api, watcher::Config::default()).map(move |objects| (kind, objects))));
    let mut changes = futures::stream::select_all(streams);
    let mut known: BTreeMap<&str, BTreeMap<String, (String, u64)>> = BTreeMap::new();
    let changed = async {
        while let Some((kind, objects)) = changes.next().await {
            let version = |object: &Object| match kind {
                DEPLOYMENT => object.generation().unsigned_abs(),
                _ => object.revision(),
            };
            let now = objects.iter().map(|(name, object)| (name.clone(), (object.id(), version(object)))).collect();
            if let Some(before) = known.insert(kind.plural, now)
                && before != known[kind.plural]
            {
                return objects.values().map(super::object::ObjectExt::describe).collect::<Vec<_>>().join("; ");
            }
        }
        "the watch ended".into()
    };
    match timeout(window, changed).await {
        Ok(change) => bail!("something changed that should stay as it is: {change}"),
        Err(_) => Ok(()),
    }
}
