//! The node itself: one level-triggered loop over its caches.

use std::{collections::HashMap, fmt, fs, sync::Arc};

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{
    Api, Client,
    core::{ApiResource, GroupVersionKind, PartialObjectMeta},
    runtime::watcher::{self, watcher},
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Duration, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{NodeConfig, NodeError},
    deployments,
    events::{self, EventWriter},
    leftovers,
    logs::Logs,
    names::{self, Replaced},
    output::Output,
    ports::PortMap,
    services,
    shared::{NodeState, Owner, controller},
    workers::Workers,
};

/// Pause after an error of a watch.
const RETRY: Duration = Duration::from_millis(100);

/// A node on this machine.
pub struct LocalNode {
    shared: Arc<NodeState>,
    events: EventWriter,
}

impl fmt::Debug for LocalNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalNode").finish_non_exhaustive()
    }
}

/// Addresses of Services on this machine.
#[derive(Clone)]
pub struct Names(Arc<NodeState>);

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}

impl Names {
    /// Returns a URL with the address of a relay in place of host and port, if its host is a Service; a name without a namespace is of
    /// `namespace`.
    pub fn replace(&self, url: &str, namespace: &str) -> Option<String> {
        let address = |service: &names::ServicePort| self.0.relays.address(service);
        match names::replace(url, namespace, &self.0.config.cluster_domain, address) {
            Replaced::Yes { text, .. } => Some(text),
            Replaced::No | Replaced::Unserved(_) => None,
        }
    }
}

impl LocalNode {
    /// Makes a node of the API that the client reaches. It does nothing before [`LocalNode::run`].
    ///
    /// # Errors
    /// [`NodeError`]: its folder cannot be used.
    pub fn new(client: Client, config: NodeConfig, output: Arc<dyn Output>) -> Result<Self, NodeError> {
        if !config.folder.is_absolute() {
            return Err(NodeError::Relative(config.folder));
        }
        for path in [config.folder.clone(), config.folder.join("pods"), config.folder.join("logs")] {
            fs::create_dir_all(&path).map_err(|source| NodeError::Folder { path, source })?;
        }
        let (queue, events) = events::queue(client.clone());
        Ok(Self { shared: Arc::new(NodeState::new(client, config, output, queue)), events })
    }

    /// Returns the logs of containers, for the API server.
    pub fn logs(&self) -> Arc<dyn apiserver::PodLogs> {
        Arc::new(self.shared.logs.clone())
    }

    /// Returns the logs, to which those of other parts of this process can be added.
    pub fn log_store(&self) -> Logs {
        self.shared.logs.clone()
    }

    /// Returns the addresses of Services.
    pub fn names(&self) -> Names {
        Names(self.shared.clone())
    }

    /// Runs until `shutdown`, then ends every Pod within its grace period, or at once when `kill` comes. Returns when all processes have
    /// ended.
    pub async fn run(self, shutdown: CancellationToken, kill: CancellationToken) {
        let Self { shared, events } = self;
        let folder = &shared.config.folder;
        leftovers::end(&folder.join("processes")).await;
        // Nothing of an earlier run is of use; it may hold Secrets.
        if let Err(error) = fs::remove_dir_all(folder.join("pods")) {
            tracing::debug!(%error, "remove what an earlier run left");
        }
        let mut watches = watches(&shared);
        watches.spawn(events.run());
        let mut workers = Workers::new(shared.clone());
        tokio::select! {
            () = serve(&shared, &mut workers) => {}
            () = shutdown.cancelled() => {}
            () = kill.cancelled() => {}
        }
        shared.relays.close();
        workers.end_all();
        tokio::select! {
            () = workers.all_ended() => {}
            () = kill.cancelled() => {
                workers.kill_all();
                workers.all_ended().await;
            }
        }
        drop(watches);
    }
}

/// Starts the watches.
fn watches(shared: &Arc<NodeState>) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    let client = &shared.client;
    macro_rules! follow {
        ($($cache:ident)+) => {
            $({
                let (shared, api) = (shared.clone(), Api::all(client.clone()));
                watches.spawn(async move { shared.$cache.follow(api).await });
            })+
        };
    }
    follow!(deployments pods services slices);
    for kind in crds::KINDS.iter().filter(|kind| shared.owners.contains_key(kind.name)) {
        let gvk = GroupVersionKind::gvk(crds::GROUP, crds::VERSION, kind.name);
        let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural);
        let (shared, api) = (shared.clone(), Api::<Owner>::all_with(client.clone(), &resource));
        watches.spawn(async move {
            if let Some(cache) = shared.owners.get(kind.name) {
                cache.follow(api).await;
            }
        });
    }
    let data = shared.data_changed.clone();
    watches.spawn(notify(Api::<PartialObjectMeta<ConfigMap>>::all(client.clone()), data.clone()));
    watches.spawn(notify(Api::<PartialObjectMeta<Secret>>::all(client.clone()), data));
    watches
}

/// Notifies `changed` of each change of the objects of an API.
async fn notify<K>(api: Api<K>, changed: watch::Sender<()>)
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + fmt::Debug + Send + 'static,
{
    let mut events = watcher(api, watcher::Config::default()).boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(_) => {
                changed.send_replace(());
            }
            Err(error) => {
                tracing::debug!(%error, "watch");
                sleep(RETRY).await;
            }
        }
    }
}

/// Does what follows from the caches, each time that one changes.
async fn serve(shared: &NodeState, workers: &mut Workers) {
    shared.deployments.listed().await;
    shared.pods.listed().await;
    shared.services.listed().await;
    shared.slices.listed().await;
    for cache in shared.owners.values() {
        cache.listed().await;
    }
    loop {
        let next = reconcile(shared, workers).await;
        let pause = async {
            match next {
                Some(at) => {
                    sleep(at.duration_since(Timestamp::now()).max(jiff::SignedDuration::ZERO).unsigned_abs()).await
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shared.changed.notified() => {}
            () = workers.ended() => {}
            () = pause => {}
        }
    }
}

/// Takes one step of every controller. Returns the time of the next one, if it does not depend on a change.
async fn reconcile(shared: &NodeState, workers: &mut Workers) -> Option<Timestamp> {
    let (all_services, pods) = (shared.services.all(), shared.pods.all());
    let ports = pods.iter().flat_map(|pod| PortMap::of(pod.metadata.annotations.as_ref()).0.into_values());
    shared.ports.hold(ports);
    services::reconcile(shared, &all_services, &pods).await;
    let mut by_owner: HashMap<&str, Vec<&Pod>> = HashMap::new();
    for pod in &pods {
        if let Some(owner) = controller(pod.metadata.owner_references.as_deref()) {
            by_owner.entry(&owner.uid).or_default().push(pod);
        }
    }
    let mut next: Option<Timestamp> = None;
    for deployment in shared.deployments.all() {
        let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
        let own = by_owner.get(uid).map_or(&[][..], Vec::as_slice);
        let at = deployments::reconcile(shared, &deployment, own).await;
        next = next.into_iter().chain(at).min();
    }
    workers.sync(&shared.pods.all());
    next
}
