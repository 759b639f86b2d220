//! The operator as a process: real drivers, a queue, and the rules of what wakes, run in virtual time until told to stop
//! or until it dies.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use crds::{Agent, Flow, FlowSet, MCPServer, Model, PluginConfig, Prompt, RemoteMCPServer, Tool};
use machine::{ApiError, Clock, Next, Sink, StepRecord};
use serde::de::DeserializeOwned;

use super::{
    Id, Sim,
    ports::{DRIVEN, Ports, key},
    samples::{agent_id, settings},
    servers::Servers,
    store::Event,
};
use crate::{
    applied::Baselines,
    deps::World,
    kind::{ControlledKind, Driver, Registry},
    render::Settings,
};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
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
    queue: BTreeMap<Id, Duration>,
    /// Kinds whose watch delivers nothing.
    pub(crate) lagging: Vec<&'static str>,
    /// Whether what the watches deliver wakes nothing.
    pub(crate) deaf: bool,
    /// The scaler runs too, and wants so many Pods.
    pub(crate) scaler: Option<i32>,
    /// Every step so far.
    pub(crate) trace: Arc<Trace>,
}

/// Keeps the records of steps.
#[derive(Debug, Default)]
pub(crate) struct Trace(Mutex<Vec<StepRecord>>);

impl Trace {
    pub(crate) fn take(&self) -> Vec<StepRecord> {
        std::mem::take(&mut *self.0.lock().expect("not poisoned"))
    }
}

impl Sink for Trace {
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
    pub(crate) fn with(sim: &Sim, actions: Registry<Agent>, settings: Settings) -> Self {
        let ports = Ports::start(sim);
        let servers = Servers::start(sim.clock, sim.servers.clone());
        let world = Arc::new(World {
            cluster: ports.clone(),
            views: ports.clone(),
            discoveries: servers.clone(),
            settings: Arc::new(settings),
            baselines: Baselines::default(),
            settling: Default::default(),
            verdicts: Default::default(),
        });
        let clock: Arc<dyn Clock> = Arc::new(sim.clock);
        let trace = Arc::new(Trace::default());
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
            deaf: false,
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
        self.agents.begin();
    }

    /// No step of this Agent is taken, because it would read what is not known.
    pub(crate) async fn refuse(&self, name: &str, why: &str) -> Next {
        self.agents.refuse(&key(&agent_id(name)), ApiError::Forbidden(why.to_owned())).await
    }

    /// Works for this long in virtual time.
    pub(crate) async fn run(&mut self, time: Duration) -> End {
        let end = self.sim.clock.elapsed() + time;
        let mut steps = 0;
        loop {
            self.catch_up();
            if self.scale().await == End::Died {
                return End::Died;
            }
            self.catch_up();
            let now = self.sim.clock.elapsed();
            if let Some(id) = self.due(now) {
                steps += 1;
                assert!(steps < HOT || steps < 20 * self.queue_size(), "a hot loop: {:#?}", self.last_steps());
                if self.step(&id).await == End::Died {
                    return End::Died;
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
                return End::TimeIsOver;
            }
        }
    }

    async fn scale(&self) -> End {
        let Some(number) = self.scaler else { return End::TimeIsOver };
        tokio::select! {
            biased;
            () = self.ports.died.notified() => return End::Died,
            () = self.ports.scale(number) => {}
        }
        if self.ports.is_dead() { End::Died } else { End::TimeIsOver }
    }

    async fn step(&mut self, id: &Id) -> End {
        self.queue.remove(id);
        let ports = self.ports.clone();
        let step = async {
            match id.kind {
                "Agent" => self.agents.step(&key(id)).await,
                "Flow" => self.flows.step(&key(id)).await,
                "FlowSet" => self.flow_sets.step(&key(id)).await,
                "Tool" => self.tools.step(&key(id)).await,
                "Model" => self.models.step(&key(id)).await,
                "PluginConfig" => self.plugin_configs.step(&key(id)).await,
                "Prompt" => self.prompts.step(&key(id)).await,
                "MCPServer" => self.mcp_servers.step(&key(id)).await,
                "RemoteMCPServer" => self.remote_mcp_servers.step(&key(id)).await,
                other => unreachable!("{other} has no driver"),
            }
        };
        let next = tokio::select! {
            biased;
            () = ports.died.notified() => return End::Died,
            next = step => next,
        };
        if ports.is_dead() {
            return End::Died;
        }
        match next {
            Next::Again => self.wake(id.clone(), Duration::ZERO),
            Next::After(after) => self.wake(id.clone(), after),
            Next::Idle => {}
        }
        End::TimeIsOver
    }

    /// Lets the cluster work and takes in what the watches bring.
    fn catch_up(&mut self) {
        self.sim.store().controllers();
        for id in self.servers.settle() {
            self.wake(id, Duration::ZERO);
        }
        let lagging = self.lagging.clone();
        for event in self.ports.deliver(|kind| lagging.contains(&kind)) {
            if !self.deaf {
                self.woken_by(&event);
            }
        }
    }

    fn woken_by(&mut self, event: &Event) {
        let obj = event.after.as_ref().or(event.before.as_ref()).expect("one of both");
        if DRIVEN.contains(&event.id.kind) && !is_status_only(event) {
            self.wake(event.id.clone(), Duration::ZERO);
        }
        // What belongs to a workload wakes that one. Everything else, a Tool that a server published too, wakes whoever might
        // look at it; an Agent only those that may call it, and who uses tools no server of them.
        let labels = if DRIVEN.contains(&event.id.kind) { BTreeMap::new() } else { obj.labels() };
        let owner = labels.iter().find_map(|(label, name)| Some((label.strip_prefix("recif.dev/")?, name)));
        let is_woken = |id: &Id| match (id.kind, owner) {
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
            self.wake(id, Duration::ZERO);
        }
    }

    fn wake(&mut self, id: Id, after: Duration) {
        let at = self.sim.clock.elapsed() + after;
        self.queue.entry(id).and_modify(|due| *due = at.min(*due)).or_insert(at);
    }

    fn due(&self, now: Duration) -> Option<Id> {
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
    world: &Arc<World>,
    ports: &Arc<Ports>,
    clock: &Arc<dyn Clock>,
    sinks: &[Arc<dyn Sink>],
) -> Driver<K> {
    Driver::new(K::registry().expect("a sound table"), world.clone(), ports.clone(), clock.clone(), sinks.to_vec())
}

/// Runs operators one after the other for this long: when one dies, the next one starts.
pub(crate) async fn live(sim: &Sim, time: Duration) -> Operator {
    let end = sim.clock.elapsed() + time;
    loop {
        let mut operator = Operator::start(sim);
        let left = end.saturating_sub(sim.clock.elapsed());
        if operator.run(left).await == End::TimeIsOver {
            return operator;
        }
    }
}

fn is_status_only(event: &Event) -> bool {
    let (Some(before), Some(after)) = (&event.before, &event.after) else { return false };
    let without = |obj: &super::Obj| {
        let mut body = obj.body.clone();
        body["status"].take();
        body["metadata"]["resourceVersion"].take();
        body
    };
    without(before) == without(after)
}
