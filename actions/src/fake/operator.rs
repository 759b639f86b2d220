//! Runs the operator as a process: the real drivers, a workqueue, and the rules of what wakes what, in virtual time until the end
//! of the run or until it dies.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use crds::Agent;
use machine::{ApiError, Clock, Requeue, Sink, StepRecord};
use meta::{Key, PhasedObject};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    ObjectId, Sim,
    ports::{Ports, is_driven, key},
    samples::{agent_id, settings},
    servers::Servers,
    store::StoreChange,
};
use crate::{
    applied::AppliedRecords,
    deps::Deps,
    kind::{ControlledKind, Driver, Registry},
    render::RenderSettings,
};

/// End of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunEnd {
    TimeIsOver,
    Died,
}

/// More steps than this without progress of the clock are a hot loop.
const HOT: usize = 400;

/// Process of the operator, with its workqueue.
///
/// Invariant: an object is queued at most once, at the earliest time requested.
pub(crate) struct Operator {
    sim: Sim,
    ports: Arc<Ports>,
    agents: Arc<Driver<Agent>>,
    drivers: BTreeMap<&'static str, Arc<dyn Reconcile>>,
    servers: Arc<Servers>,
    queue: BTreeMap<ObjectId, Duration>,
    /// Kinds whose watch delivers nothing.
    pub(crate) lagging: Vec<&'static str>,
    /// True if watch events enqueue nothing.
    pub(crate) ignores_watches: bool,
    /// Number of Pods that the scaler wants; `None`: no scaler runs.
    pub(crate) scaler: Option<i32>,
    /// Records of all steps so far.
    pub(crate) trace: Arc<StepTrace>,
}

/// Sink that keeps the records of steps.
#[derive(Debug, Default)]
pub(crate) struct StepTrace(Mutex<Vec<StepRecord>>);

impl StepTrace {
    pub(crate) fn take(&self) -> Vec<StepRecord> {
        std::mem::take(&mut *self.0.lock().expect("not poisoned"))
    }
}

impl Sink for StepTrace {
    fn record(&self, record: &StepRecord) {
        self.0.lock().expect("not poisoned").push(record.clone());
    }
}

impl Operator {
    /// Starts the operator: lists everything, enqueues everything.
    pub(crate) fn start(sim: &Sim) -> Self {
        Self::with(sim, Agent::registry().expect("a sound table"), settings())
    }

    /// Starts the operator with other actions or settings.
    pub(crate) fn with(sim: &Sim, actions: Registry<Agent>, settings: RenderSettings) -> Self {
        let ports = Ports::start(sim);
        let servers = Servers::start(sim.clock, sim.servers.clone());
        let deps = Arc::new(Deps {
            client: ports.clone(),
            cache: ports.clone(),
            discovery: servers.clone(),
            settings: Arc::new(settings),
            applied_records: AppliedRecords::default(),
            debounce: Default::default(),
            prompt_rejections: Default::default(),
        });
        let clock: Arc<dyn Clock> = Arc::new(sim.clock);
        let trace = Arc::new(StepTrace::default());
        let sinks: Vec<Arc<dyn Sink>> = vec![trace.clone()];
        let queued = sim.store().objs.keys().filter(|id| is_driven(id.kind)).cloned().collect::<Vec<_>>();
        let now = sim.clock.elapsed();
        let agents = Arc::new(Driver::new(actions, deps.clone(), ports.clone(), clock.clone(), sinks.clone()));
        let mut drivers = drivers(&deps, &ports, &clock, &sinks);
        drivers.insert(Agent::KIND, agents.clone());
        Self {
            agents,
            drivers,
            servers,
            sim: sim.clone(),
            ports,
            queue: queued.into_iter().map(|id| (id, now)).collect(),
            lagging: Vec::new(),
            ignores_watches: false,
            scaler: None,
            trace,
        }
    }

    /// Sets the identity of this operator: namespace and name of its lease.
    pub(crate) fn named(&mut self, instance: &str) {
        self.drivers.remove(Agent::KIND);
        Arc::get_mut(&mut self.agents).expect("not shared").set_instance(instance);
        self.drivers.insert(Agent::KIND, self.agents.clone());
    }

    /// Returns what the CRD of Agents drops, as far as it is known.
    pub(crate) fn outdated_crd(&self) -> Option<String> {
        self.agents.dropped_fields()
    }

    /// Records that this operator leads again, after another one did.
    pub(crate) fn leads_again(&self) {
        self.agents.start_leading();
    }

    /// Reports that no step of this Agent can be taken, because its dependencies cannot be read.
    pub(crate) async fn refuse(&self, name: &str, why: &str) -> Requeue {
        self.agents.report_blocked(&key(&agent_id(name)), ApiError::Forbidden(why.to_owned())).await
    }

    /// Runs for this long in virtual time.
    pub(crate) async fn run(&mut self, time: Duration) -> RunEnd {
        let end = self.sim.clock.elapsed() + time;
        let mut steps = 0;
        loop {
            self.catch_up();
            if self.scale().await == RunEnd::Died {
                return RunEnd::Died;
            }
            self.catch_up();
            let now = self.sim.clock.elapsed();
            if let Some(id) = self.due(now) {
                steps += 1;
                assert!(steps < HOT || steps < 20 * self.queue_size(), "a hot loop: {:#?}", self.last_steps());
                if self.step(&id).await == RunEnd::Died {
                    return RunEnd::Died;
                }
                continue;
            }
            let next = self.sim.store().next_at().into_iter().chain(self.servers.next_at());
            let next = self.queue.values().copied().chain(next).min().unwrap_or(end).min(end);
            if next > now {
                // Timers have a resolution of a millisecond.
                tokio::time::advance((next - now).max(Duration::from_millis(1))).await;
                if next - now > Duration::from_millis(120) {
                    steps = 0;
                }
            }
            if self.sim.clock.elapsed() >= end {
                self.catch_up();
                return RunEnd::TimeIsOver;
            }
        }
    }

    async fn scale(&self) -> RunEnd {
        let Some(number) = self.scaler else { return RunEnd::TimeIsOver };
        tokio::select! {
            biased;
            () = self.ports.died.notified() => return RunEnd::Died,
            () = self.ports.scale(number) => {}
        }
        if self.ports.is_dead() { RunEnd::Died } else { RunEnd::TimeIsOver }
    }

    async fn step(&mut self, id: &ObjectId) -> RunEnd {
        self.queue.remove(id);
        let ports = self.ports.clone();
        let driver = self.drivers[id.kind].clone();
        let step = async { driver.reconcile(&key(id)).await };
        let next = tokio::select! {
            biased;
            () = ports.died.notified() => return RunEnd::Died,
            next = step => next,
        };
        if ports.is_dead() {
            return RunEnd::Died;
        }
        match next {
            Requeue::Now => self.enqueue(id.clone(), Duration::ZERO),
            Requeue::After(after) => self.enqueue(id.clone(), after),
            Requeue::OnChange => {}
        }
        RunEnd::TimeIsOver
    }

    /// Lets the cluster work, and takes in the watch events.
    fn catch_up(&mut self) {
        self.sim.store().controllers();
        for id in self.servers.settle() {
            self.enqueue(id, Duration::ZERO);
        }
        let lagging = self.lagging.clone();
        for event in self.ports.deliver(|kind| lagging.contains(&kind)) {
            if !self.ignores_watches {
                self.enqueue_affected(&event);
            }
        }
    }

    fn enqueue_affected(&mut self, event: &StoreChange) {
        let obj = event.after.as_ref().or(event.before.as_ref()).expect("one of both");
        if is_driven(event.id.kind) && !is_status_only(event) {
            self.enqueue(event.id.clone(), Duration::ZERO);
        }
        // A child of a workload wakes only this workload. Any other object, including a Tool that a server publishes, wakes every
        // object that might refer to it; an Agent wakes only those that may call it, and objects that use tools wake no server of
        // tools.
        let labels = if is_driven(event.id.kind) { BTreeMap::new() } else { obj.labels() };
        let owner = labels.iter().find_map(|(label, name)| Some((label.strip_prefix("recif.dev/")?, name)));
        let store = self.sim.store();
        let asks = |tool: &Value, id: &ObjectId| {
            let tool = ObjectId { kind: "Tool", name: tool.as_str().unwrap_or_default().to_owned(), ..id.clone() };
            store.at(&tool, "/spec/agentRef/name") == event.id.name.as_str()
        };
        let calls = |id: &ObjectId| {
            let tools = store.at(id, "/spec/tools");
            tools.as_array().is_some_and(|tools| tools.iter().any(|tool| asks(tool, id)))
        };
        let is_woken = |id: &ObjectId| match (id.kind, owner) {
            ("Prompt", _) => false,
            (kind, Some((owner, name))) => owner == kind.to_lowercase() && *name == id.name,
            ("Agent", None) => *id != event.id && (event.id.kind != "Agent" || calls(id)),
            ("MCPServer" | "RemoteMCPServer", None) => {
                *id != event.id && !matches!(event.id.kind, "Agent" | "Flow" | "FlowSet")
            }
            _ => *id != event.id,
        };
        let driven = store.objs.keys().filter(|id| is_driven(id.kind) && id.namespace == event.id.namespace);
        let woken: Vec<_> = driven.filter(|id| is_woken(id)).cloned().collect();
        drop(store);
        for id in woken {
            self.enqueue(id, Duration::ZERO);
        }
    }

    fn enqueue(&mut self, id: ObjectId, after: Duration) {
        let at = self.sim.clock.elapsed() + after;
        self.queue.entry(id).and_modify(|due| *due = at.min(*due)).or_insert(at);
    }

    fn due(&self, now: Duration) -> Option<ObjectId> {
        let due = self.queue.iter().filter(|(_, at)| **at <= now);
        due.min_by_key(|(_, at)| **at).map(|(id, _)| id.clone())
    }

    fn queue_size(&self) -> usize {
        self.sim.store().objs.keys().filter(|id| is_driven(id.kind)).count()
    }

    fn last_steps(&self) -> Vec<String> {
        let steps = self.trace.take();
        let lines = steps.iter().rev().take(12).map(|step| {
            format!(
                "{} {} {}→{} {:?} {} {}",
                step.name, step.action, step.from, step.to, step.outcome, step.reason, step.waiting_for
            )
        });
        lines.collect()
    }
}

/// Driver of any kind.
#[async_trait]
trait Reconcile: Send + Sync {
    async fn reconcile(&self, key: &Key) -> Requeue;
}

#[async_trait]
impl<K: PhasedObject> Reconcile for Driver<K> {
    async fn reconcile(&self, key: &Key) -> Requeue {
        Driver::reconcile(self, key).await
    }
}

macro_rules! drivers {
    ($($kind:ident $module:ident $plural:literal $short:literal $role:ident $children:ident $($rank:literal)?;)+) => {
        fn drivers(
            deps: &Arc<Deps>,
            ports: &Arc<Ports>,
            clock: &Arc<dyn Clock>,
            sinks: &[Arc<dyn Sink>],
        ) -> BTreeMap<&'static str, Arc<dyn Reconcile>> {
            let mut drivers: BTreeMap<_, Arc<dyn Reconcile>> = BTreeMap::new();
            $(drivers.insert(stringify!($kind), Arc::new(driver::<crds::$module::$kind>(deps, ports, clock, sinks)));)+
            drivers
        }
    };
}
crds::for_each_kind!(drivers);

fn driver<K: ControlledKind + DeserializeOwned>(
    deps: &Arc<Deps>,
    ports: &Arc<Ports>,
    clock: &Arc<dyn Clock>,
    sinks: &[Arc<dyn Sink>],
) -> Driver<K> {
    Driver::new(K::registry().expect("a sound table"), deps.clone(), ports.clone(), clock.clone(), sinks.to_vec())
}

/// Runs operators one after the other for this long: if one dies, the next one starts.
pub(crate) async fn run_with_restarts(sim: &Sim, time: Duration) -> Operator {
    let end = sim.clock.elapsed() + time;
    loop {
        let mut operator = Operator::start(sim);
        let left = end.saturating_sub(sim.clock.elapsed());
        if operator.run(left).await == RunEnd::TimeIsOver {
            return operator;
        }
    }
}

fn is_status_only(event: &StoreChange) -> bool {
    let (Some(before), Some(after)) = (&event.before, &event.after) else { return false };
    let without = |obj: &super::Obj| {
        let mut body = obj.body.clone();
        body["status"].take();
        body["metadata"]["resourceVersion"].take();
        body
    };
    without(before) == without(after)
}
