//! The Pods that run on this node, each with its task.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tokio::{
    sync::{Mutex, watch},
    task::{self, JoinSet},
    time::Instant,
};

use crate::{
    config::NODE_NAME,
    context::{GRACE, Order, PodContext, PodState, grace_period},
    deployments::source,
    pod,
    programs::DEV_FOLDER,
    roll_out::hash_of,
    shared::{NodeState, controller},
    states::ContainerRecord,
    volumes::Folders,
};

/// Tasks of Pods by uid.
pub(crate) struct Workers {
    shared: Arc<NodeState>,
    running: HashMap<String, Worker>,
    /// Pods that have ended and are not gone yet.
    ended: HashSet<String>,
    tasks: JoinSet<()>,
    /// Uid of the Pod of each task.
    uids: HashMap<task::Id, String>,
}

/// Task of one Pod.
struct Worker {
    context: Arc<PodContext>,
    order: watch::Sender<Order>,
    /// Its task has panicked.
    is_given_up: bool,
    /// Time at which it began to end.
    ending: Option<Instant>,
    /// Workload and template, of which Pods are counted.
    group: (String, String, String, String),
    index: usize,
    grace: Duration,
}

impl Workers {
    /// Makes an empty set.
    pub(crate) fn new(shared: Arc<NodeState>) -> Self {
        let (running, uids) = (HashMap::new(), HashMap::new());
        Self { shared, running, ended: HashSet::new(), tasks: JoinSet::new(), uids }
    }

    /// Waits until a Pod has ended; for ever if none runs. One whose task has panicked is replaced.
    pub(crate) async fn ended(&mut self) {
        let Some(ended) = self.tasks.join_next_with_id().await else { return std::future::pending().await };
        let task = ended.as_ref().map_or_else(task::JoinError::id, |(task, ())| *task);
        let Some(uid) = self.uids.remove(&task) else { return };
        if let Err(error) = ended {
            tracing::error!(%error, uid, "the task of a Pod");
            if let Some(worker) = self.running.get_mut(&uid).filter(|worker| !worker.is_given_up) {
                worker.is_given_up = true;
                let context = worker.context.clone();
                return self.spawn(uid, pod::give_up(context));
            }
        }
        self.running.remove(&uid);
        self.ended.insert(uid);
    }

    fn spawn(&mut self, uid: String, runs: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(runs).id();
        self.uids.insert(task, uid);
    }

    /// Starts Pods that are new, and ends those that are deleted or gone.
    pub(crate) fn sync(&mut self, pods: &[Arc<Pod>]) {
        let known: HashSet<String> = pods.iter().filter_map(|pod| pod.uid()).collect();
        self.ended.retain(|uid| known.contains(uid));
        for (_, worker) in self.running.iter().filter(|(uid, _)| !known.contains(*uid)) {
            worker.order.send_replace(Order::Kill);
        }
        for pod in pods.iter().filter(|pod| is_of_node(pod)) {
            let Some(uid) = pod.uid().filter(|uid| !self.ended.contains(uid)) else { continue };
            if !self.running.contains_key(&uid) {
                self.start(&uid, pod);
            }
            if let Some(worker) = self.running.get_mut(&uid).filter(|_| pod.metadata.deletion_timestamp.is_some()) {
                let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or(GRACE);
                worker.end(grace_period(seconds));
            }
        }
    }

    fn start(&mut self, uid: &str, pod: &Arc<Pod>) {
        let mut source = source(pod, 1);
        let group = (source.namespace.clone(), source.kind.clone(), source.name.clone(), hash_of(pod).to_owned());
        let taken: HashSet<usize> =
            self.running.values().filter(|worker| worker.group == group).map(|worker| worker.index).collect();
        source.index = (1..).find(|index| !taken.contains(index)).unwrap_or(1);
        let (order, orders) = watch::channel(Order::Run);
        let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(GRACE);
        let grace = grace_period(grace);
        let folder = &self.shared.config.folder;
        let base = pod.annotations().get(DEV_FOLDER).map(PathBuf::from);
        let own = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let state = PodState { containers: ContainerRecord::all(pod), lost_port: None };
        let index = source.index;
        let context = Arc::new(PodContext {
            node: self.shared.clone(),
            pod: pod.clone(),
            source,
            folders: Folders { pod: folder.join("pods").join(uid), claims: folder.join("claims") },
            base: base.unwrap_or_else(own),
            state: watch::Sender::new(state),
            order: orders,
            tokens: Mutex::default(),
        });
        let runs = pod::run(context.clone());
        let worker = Worker { context, order, is_given_up: false, ending: None, group, index, grace };
        self.running.insert(uid.to_owned(), worker);
        self.spawn(uid.to_owned(), runs);
    }

    /// Ends every Pod gracefully.
    pub(crate) fn end_all(&mut self) {
        for worker in self.running.values_mut() {
            worker.end(worker.grace);
        }
    }

    /// Ends every Pod at once.
    pub(crate) fn kill_all(&self) {
        for worker in self.running.values() {
            worker.order.send_replace(Order::Kill);
        }
    }

    /// Waits until every Pod has ended.
    pub(crate) async fn all_ended(&mut self) {
        while !self.tasks.is_empty() {
            self.ended().await;
        }
    }
}

impl Worker {
    /// Lets the Pod end within this time since its end began; an end that is under way can only become shorter.
    fn end(&mut self, grace: Duration) {
        let begin = *self.ending.get_or_insert_with(Instant::now);
        let at = begin + grace;
        self.order.send_if_modified(|order| {
            let next = match *order {
                Order::Run => Order::End(at),
                Order::End(known) => Order::End(known.min(at)),
                Order::Kill => Order::Kill,
            };
            let is_new = *order != next;
            *order = next;
            is_new
        });
    }
}

/// Reports whether this node runs a Pod: those of Deployments.
fn is_of_node(pod: &Pod) -> bool {
    let is_owned = controller(pod.metadata.owner_references.as_deref()).is_some_and(|owner| owner.kind == "Deployment");
    let is_here = pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some(NODE_NAME));
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    is_owned && is_here && !matches!(phase, Some("Failed" | "Succeeded"))
}
