//! Watches the cluster directly, not through the proxy: counts the creations of each object, and checks that no status goes
//! backwards.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use kube::{
    Api, Client, ResourceExt as _,
    core::DynamicObject,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use tokio::{sync::mpsc, task::AbortHandle, time::timeout};

use crate::{
    masked::KINDS,
    script::{FOREIGN, ScriptNamespace, resource},
};

/// Record of the watch events.
#[derive(Debug, Default)]
struct Observations {
    /// Uids of each object, by namespace, kind and name.
    uids: BTreeMap<(String, String), BTreeSet<String>>,
    /// Highest `seq` of each object's history and the `observedGeneration` of its status, by uid.
    reported: BTreeMap<String, (i64, i64)>,
    /// Resource version at which an agent was first seen with a finalizer, by uid.
    finalizer_since: BTreeMap<String, u64>,
    /// Deployments of agents, by uid: the title, the resource version at which it was first seen, and the uid of its owner.
    deployments: BTreeMap<String, (String, u64, String)>,
    /// Resource version of each foreign object, by uid.
    foreign: BTreeMap<String, u64>,
    /// Violations of invariants so far.
    violations: Vec<String>,
}

/// Checker of the invariants; its watches end when it is dropped.
pub(crate) struct InvariantChecker {
    observations: Arc<Mutex<Observations>>,
    watches: Vec<AbortHandle>,
}

impl InvariantChecker {
    /// Starts the watches; after the return no later change is missed.
    pub(crate) async fn start(client: &Client) -> Result<Self> {
        let seen = Arc::<Mutex<Observations>>::default();
        let (listed, mut lists) = mpsc::unbounded_channel();
        let watches = KINDS.iter().map(|kind| {
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind));
            let (seen, kind, listed) = (seen.clone(), *kind, listed.clone());
            let watching = async move {
                let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
                while let Some(event) = events.next().await {
                    match event {
                        Ok(Event::Apply(object)) => lock(&seen).record(kind, &object, true),
                        Ok(Event::InitApply(object)) => lock(&seen).record(kind, &object, false),
                        Ok(Event::InitDone) => drop(listed.send(())),
                        Ok(Event::Delete(object)) => lock(&seen).record_deletion(kind, &object),
                        Ok(Event::Init) | Err(_) => {}
                    }
                }
            };
            tokio::spawn(watching).abort_handle()
        });
        let checker = Self { watches: watches.collect(), observations: seen };
        for _ in KINDS {
            timeout(Duration::from_secs(30), lists.recv()).await.context("the judge has no first list of each kind")?;
        }
        Ok(checker)
    }

    /// Returns the number of creations of each object of a namespace.
    pub(crate) fn creation_counts(&self, namespace: &str) -> BTreeMap<String, usize> {
        let seen = lock(&self.observations);
        let ours = seen.uids.iter().filter(|((found, _), _)| found == namespace);
        ours.map(|((_, object), uids)| (object.clone(), uids.len())).collect()
    }

    /// Returns the violations in these namespaces; those of other scenarios may still be terminating.
    pub(crate) fn violations(&self, namespaces: &[ScriptNamespace]) -> Vec<String> {
        let seen = lock(&self.observations);
        let before = |owner: &String, version| seen.finalizer_since.get(owner).is_none_or(|guarded| guarded > version);
        let unguarded = seen.deployments.values().filter(|(_, version, owner)| before(owner, version));
        let unguarded = unguarded.map(|(title, ..)| format!("{title} was there before its agent had a finalizer"));
        let all = seen.violations.iter().cloned().chain(unguarded);
        all.filter(|title| namespaces.iter().any(|place| title.starts_with(&format!("{} ", place.name)))).collect()
    }
}

impl Drop for InvariantChecker {
    fn drop(&mut self) {
        self.watches.iter().for_each(AbortHandle::abort);
    }
}

fn lock(seen: &Mutex<Observations>) -> MutexGuard<'_, Observations> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Observations {
    fn record_deletion(&mut self, kind: &str, object: &DynamicObject) {
        if object.name_any() == FOREIGN {
            let namespace = object.namespace().unwrap_or_default();
            self.violations.push(format!("{namespace} {kind}/{FOREIGN}: O5: it has another owner and was deleted"));
        }
    }

    /// Records an object. `now`: this event is the change itself, not an item of a list, so the version is that of the
    /// change.
    fn record(&mut self, kind: &str, object: &DynamicObject, now: bool) {
        let uid = object.uid().unwrap_or_default();
        let named = (object.namespace().unwrap_or_default(), format!("{kind}/{}", object.name_any()));
        let title = format!("{} {}", named.0, named.1);
        let is_new = self.uids.entry(named).or_default().insert(uid.clone());
        // All kinds are in one etcd, so their resource versions, which are its revisions, are comparable.
        let version = object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default();
        if object.name_any() == FOREIGN && *self.foreign.entry(uid.clone()).or_insert(version) != version {
            self.violations.push(format!("{title}: O5: it has another owner and was changed"));
        }
        if kind == "Deployment" && is_new && now {
            let owner = object.owner_references().iter().find(|owner| owner.kind == "Agent");
            let owned = owner.map(|owner| (uid.clone(), (title.clone(), version, owner.uid.clone())));
            self.deployments.extend(owned);
        }
        if kind != "Agent" {
            return;
        }
        if !object.finalizers().is_empty() {
            self.finalizer_since.entry(uid.clone()).or_insert(if now { version } else { 0 });
        }
        let status = &object.data["status"];
        let history = status["history"].as_array();
        let newest =
            history.and_then(|history| history.last()).and_then(|entry| entry["seq"].as_i64()).unwrap_or_default();
        let observed = status["observedGeneration"].as_i64().unwrap_or_default();
        let Some((before, spoken_of)) = self.reported.insert(uid, (newest, observed)) else { return };
        // The first status may already have several entries.
        if now && before > 0 && newest != before && newest != before + 1 {
            self.violations.push(format!("{title}: its history went from {before} to {newest}"));
        }
        if observed < spoken_of {
            self.violations.push(format!("{title}: observedGeneration went back from {spoken_of} to {observed}"));
        }
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let ready = conditions.find(|condition| condition["type"] == "Ready");
        if ready.is_some_and(|ready| ready["observedGeneration"].as_i64() > object.metadata.generation) {
            self.violations.push(format!("{title} says Ready of a generation that there is not"));
        }
    }
}
