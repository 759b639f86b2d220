//! The operator as a process: real drivers, a queue, and the rules of what wakes, run in virtual time until told to stop
//! or until it dies.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use crds::{Agent, Flow, FlowSet, MCPServer, Model, PluginConfig, Prompt, RemoteMCPServer, Tool};
use machine::{ApiError, Clock, Requeue, Sink, StepRecord};
use serde::de::DeserializeOwned;

use super::{
    ObjectId, Sim,
    ports::{DRIVEN, Ports, key},
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

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunEnd {
    TimeIsOver,
    Died,
}

/// More steps than this without the clock moving are a hot loop.
const HOT: usize = 400;

/// One run of the operator.
pub(crate) struct Operator {
    sim: Sim,
    ports: Arc<Ports>,
    agents: Driver<Agent>,
    flows: Driver<Flow>,
    flow_sets: Driver<FlowSet>,
    tools: Driver<Tool>,
    models: Driver<Model>,
    plugin_configs: Driver<PluginConfig>,
    prompts: Driver<Prompt>,
    mcp_servers: Driver<MCPServer>,
    remote_mcp_servers: Driver<RemoteMCPServer>,
    servers: Arc<Servers>,
    queue: BTreeMap<ObjectId, Duration>,
    /// Kinds whose watch delivers nothing.
    pub(crate) lagging: Vec<&'static str>,
    /// Whether what the watches deliver wakes nothing.
    pub(crate) ignores_watches: bool,
    /// The scaler runs too, and wants so many Pods.
    pub(crate) scaler: Option<i32>,
    /// Every step so far.
    pub(crate) trace: Arc<StepTrace>,
}

/// Keeps the records of steps.
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
    /// A start: lists everything, queues everything.
    pub(crate) fn start(sim: &Sim) -> Self {
        Self::with(sim, Agent::registry().expect("a sound table"), settings())
    }

    /// A start with other actions or settings.
    pub(crate) fn with(sim: &Sim, actions: Registry<Agent>, settings: RenderSettings) -> Self {
        let ports = Ports::start(sim);
        let servers = Servers::start(sim.clock, sim.servers.clone());
        let world = Arc::new(Deps {
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
        let queued = sim.store().objs.keys().filter(|id| DRIVEN.contains(&id.kind)).cloned().collect::<Vec<_>>();
        let now = sim.clock.elapsed();
        Self {
            agents: Driver::new(actions, world.clone(), ports.clone(), clock.clone(), sinks.clone()),
            flows: driver(&world, &ports, &clock, &sinks),
            flow_sets: driver(&world, &ports, &clock, &sinks),
            tools: driver(&world, &ports, &clock, &sinks),
            models: driver(&world, &ports, &clock, &sinks),
            plugin_configs: driver(&world, &ports, &clock, &sinks),
            prompts: driver(&world, &ports, &clock, &sinks),
            mcp_servers: driver(&world, &ports, &clock, &sinks),
            remote_mcp_servers: driver(&world, &ports, &clock, &sinks),
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

    /// Gives it a lease of this namespace and name, of which it speaks as its own.
    pub(crate) fn named(&mut self, instance: &str) {
        self.agents.set_instance(instance);
    }

    /// It leads again, after another one did.
    pub(crate) fn leads_again(&self) {
        self.agents.start_leading();
    }

    /// No step of this Agent is taken, because it would read what is not known.
    pub(crate) async fn refuse(&self, name: &str, why: &str) -> Requeue {
        self.agents.report_unreadable(&key(&agent_id(name)), ApiError::Forbidden(why.to_owned())).await
    }

    /// Works for this long in virtual time.
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
                // Timers count in milliseconds.
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
        let step = async {
            match id.kind {
                "Agent" => self.agents.reconcile(&key(id)).await,
                "Flow" => self.flows.reconcile(&key(id)).await,
                "FlowSet" => self.flow_sets.reconcile(&key(id)).await,
                "Tool" => self.tools.reconcile(&key(id)).await,
                "Model" => self.models.reconcile(&key(id)).await,
                "PluginConfig" => self.plugin_configs.reconcile(&key(id)).await,
                "Prompt" => self.prompts.reconcile(&key(id)).await,
                "MCPServer" => self.mcp_servers.reconcile(&key(id)).await,
                "RemoteMCPServer" => self.remote_mcp_servers.reconcile(&key(id)).await,
                other => unreachable!("{other} has no driver"),
            }
        };
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

    /// Lets the cluster work and takes in what the watches bring.
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
        if DRIVEN.contains(&event.id.kind) && !is_status_only(event) {
            self.enqueue(event.id.clone(), Duration::ZERO);
        }
        // What belongs to a workload wakes that one. Everything else, a Tool that a server published too, wakes whoever might
        // look at it; an Agent only those that may call it, and who uses tools no server of them.
        let labels = if DRIVEN.contains(&event.id.kind) { BTreeMap::new() } else { obj.labels() };
        let owner = labels.iter().find_map(|(label, name)| Some((label.strip_prefix("recif.dev/")?, name)));
        let is_woken = |id: &ObjectId| match (id.kind, owner) {
            ("Prompt", _) => false,
            (kind, Some((owner, name))) => owner == kind.to_lowercase() && *name == id.name,
            ("Agent", None) => event.id.kind != "Agent",
            ("MCPServer" | "RemoteMCPServer", None) => {
                *id != event.id && !matches!(event.id.kind, "Agent" | "Flow" | "FlowSet")
            }
            _ => *id != event.id,
        };
        let store = self.sim.store();
        let driven = store.objs.keys().filter(|id| DRIVEN.contains(&id.kind) && id.namespace == event.id.namespace);
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
        self.sim.store().objs.keys().filter(|id| DRIVEN.contains(&id.kind)).count()
    }

    fn last_steps(&self) -> Vec<String> {
        let steps = self.trace.take();
        let said = steps.iter().rev().take(12).map(|step| {
            format!(
                "{} {} {}→{} {:?} {} {}",
                step.name, step.action, step.from, step.to, step.outcome, step.reason, step.waiting_for
            )
        });
        said.collect()
    }
}

fn driver<K: ControlledKind + DeserializeOwned>(
    world: &Arc<Deps>,
    ports: &Arc<Ports>,
    clock: &Arc<dyn Clock>,
    sinks: &[Arc<dyn Sink>],
) -> Driver<K> {
    Driver::new(K::registry().expect("a sound table"), world.clone(), ports.clone(), clock.clone(), sinks.to_vec())
}

/// Runs operators one after the other for this long: when one dies, the next one starts.
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
