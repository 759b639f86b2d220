//! Watches the cluster past the proxy: how often each object was made, and whether a status ever went back.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::StreamExt as _;
use kube::{
    Api, Client, ResourceExt as _,
    core::DynamicObject,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::task::AbortHandle;

use crate::{masked::KINDS, script::resource};

/// What was seen.
#[derive(Debug, Default)]
struct Seen {
    /// The uids under which each object was there, by namespace, kind and name.
    uids: BTreeMap<(String, String), BTreeSet<String>>,
    /// The newest entry of each object's history, by uid.
    seq: BTreeMap<String, i64>,
    /// What must never be.
    violations: Vec<String>,
}

/// A judge; it ends when it is dropped.
pub(crate) struct Judge {
    seen: Arc<Mutex<Seen>>,
    watches: Vec<AbortHandle>,
}

impl Judge {
    /// Begins to watch.
    pub(crate) fn begin(client: &Client) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let watches = KINDS.iter().map(|kind| {
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind));
            let (seen, kind) = (seen.clone(), *kind);
            let watching = async move {
                let objects = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
                objects
                    .for_each(|object| {
                        if let Ok(object) = object {
                            take(&mut lock(&seen), kind, &object);
                        }
                        std::future::ready(())
                    })
                    .await;
            };
            tokio::spawn(watching).abort_handle()
        });
        Self { watches: watches.collect(), seen }
    }

    /// How often each object of a namespace was made.
    pub(crate) fn made(&self, namespace: &str) -> BTreeMap<String, usize> {
        let seen = lock(&self.seen);
        let ours = seen.uids.iter().filter(|((found, _), _)| found == namespace);
        ours.map(|((_, object), uids)| (object.clone(), uids.len())).collect()
    }

    /// What must never be and was.
    pub(crate) fn violations(&self) -> Vec<String> {
        lock(&self.seen).violations.clone()
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        self.watches.iter().for_each(AbortHandle::abort);
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(seen: &mut Seen, kind: &str, object: &DynamicObject) {
    let uid = object.uid().unwrap_or_default();
    let named = (object.namespace().unwrap_or_default(), format!("{kind}/{}", object.name_any()));
    let title = format!("{} {}", named.0, named.1);
    seen.uids.entry(named).or_default().insert(uid.clone());
    let status = &object.data["status"];
    let newest =
        status["history"].as_array().and_then(|history| history.last()).and_then(|entry| entry["seq"].as_i64());
    if let Some(seq) = newest
        && let Some(before) = seen.seq.insert(uid, seq)
        && seq < before
    {
        seen.violations.push(format!("{title}: its history went back from {before} to {seq}"));
    }
    let ready = status["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == "Ready");
    let claims = ready.is_some_and(|ready| {
        ready["status"] == "True" && ready["observedGeneration"].as_i64() > object.metadata.generation
    });
    if claims {
        seen.violations.push(format!("{title} says Ready of a generation that there is not"));
    }
}
