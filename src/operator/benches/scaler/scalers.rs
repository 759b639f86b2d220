//! Compared scalers: ours, and a model of Knative's Pod autoscaler.
//!
//! The model is written from Knative's documentation of the autoscaler and its defaults. Every 2 s it evaluates the mean concurrency of the
//! last 60 s (stable) and of the last 6 s (panic). The target of a Pod is 70 % of what it may take. Panic begins when the short mean wants
//! twice the Pods that are ready. While it lasts, which is until there was no reason for 60 s, the number never falls.

use std::{collections::VecDeque, time::Duration};

use operator::scaler::{LoadReport, Meter, PodSample, ReplicaPolicy, Window, decide};

use crate::fleet::SimulatedFleet;

/// Most Pods, of both scalers.
const MAX: i32 = 20;

/// Scaler that decides on a number of Pods.
pub(crate) trait Scaler {
    /// Returns the name.
    fn name(&self) -> &'static str;
    /// Returns the interval of its decisions, in milliseconds.
    fn interval_ms(&self) -> u64;
    /// Reports whether the Pods with the least to do go first.
    fn idlest_first(&self) -> bool;
    /// Observes the fleet once per second.
    fn second(&mut self, fleet: &SimulatedFleet);
    /// Decides on the number of Pods; `current` is the present number.
    fn decide(&mut self, fleet: &SimulatedFleet, current: i32) -> i32;
}

/// Our scaler.
pub(crate) struct RecifScaler {
    policy: ReplicaPolicy,
    meter: Meter,
    window: Window,
    waited_ms: u64,
}

impl RecifScaler {
    /// Creates the scaler with the defaults, for Pods that may take so many requests.
    pub(crate) fn new(fleet: &SimulatedFleet) -> Self {
        let now = Duration::from_millis(fleet.now);
        let concurrency = i32::try_from(fleet.concurrency).unwrap_or(i32::MAX);
        let stable_window = Duration::from_secs(60);
        let policy = ReplicaPolicy { min: 1, max: MAX, concurrency, stable_window, zero_after: None };
        Self { policy, meter: Meter::new(now), window: Window::new(now), waited_ms: 0 }
    }
}

impl Scaler for RecifScaler {
    fn name(&self) -> &'static str {
        "recif"
    }
    fn interval_ms(&self) -> u64 {
        1000
    }
    fn idlest_first(&self) -> bool {
        true
    }
    fn second(&mut self, _: &SimulatedFleet) {}
    fn decide(&mut self, fleet: &SimulatedFleet, current: i32) -> i32 {
        let sample = |pod: &crate::fleet::SimulatedPod| PodSample {
            instance: pod.uid.to_string(),
            uptime_ms: pod.uptime_ms(fleet.now),
            // Not used for the load.
            inflight: 0,
            busy_ms: pod.busy_ms,
            completed: pod.completed,
            refused: 0,
        };
        let pods = fleet.ready().map(|pod| (pod.uid.to_string(), Some(sample(pod)))).collect();
        let waiting = (fleet.waited_ms - self.waited_ms) as f64 / self.interval_ms() as f64;
        self.waited_ms = fleet.waited_ms;
        let now = Duration::from_millis(fleet.now);
        let demand = self.meter.update(&LoadReport { pods, waiting, refused: 0.0, halted: false }, now);
        decide(&self.policy, current, &demand, &mut self.window, now).replicas
    }
}

/// Model of Knative's scaler.
pub(crate) struct Knative {
    target: f64,
    /// Mean concurrency of each of the last seconds.
    seconds: VecDeque<f64>,
    busy_ms: u64,
    panic: Option<Panic>,
}

struct Panic {
    /// Milliseconds since the start.
    last_reason: u64,
    most: i32,
}

const STABLE_WINDOW: usize = 60;
const PANIC_WINDOW: usize = 6;
const UTILISATION: f64 = 0.7;
const PANIC_THRESHOLD: f64 = 2.0;
const MAX_UP_RATE: f64 = 1000.0;
const MAX_DOWN_RATE: f64 = 2.0;

impl Knative {
    /// Creates the model with the defaults, for Pods that may take so many requests.
    pub(crate) fn new(fleet: &SimulatedFleet) -> Self {
        let target = fleet.concurrency as f64 * UTILISATION;
        Self { target, seconds: VecDeque::new(), busy_ms: 0, panic: None }
    }

    fn wants(&self, window: usize) -> f64 {
        let seen = self.seconds.len().min(window).max(1);
        let sum: f64 = self.seconds.iter().rev().take(window).sum();
        (sum / seen as f64 / self.target).ceil()
    }
}

impl Scaler for Knative {
    fn name(&self) -> &'static str {
        "knative"
    }
    fn interval_ms(&self) -> u64 {
        2000
    }
    fn idlest_first(&self) -> bool {
        false
    }
    fn second(&mut self, fleet: &SimulatedFleet) {
        let so_far = fleet.occupied_ms;
        self.seconds.push_back((so_far - self.busy_ms) as f64 / 1000.0);
        self.busy_ms = so_far;
        if self.seconds.len() > STABLE_WINDOW {
            self.seconds.pop_front();
        }
    }
    fn decide(&mut self, fleet: &SimulatedFleet, _: i32) -> i32 {
        let ready = fleet.ready().count().max(1) as f64;
        let bounds = ((ready / MAX_DOWN_RATE).floor(), (ready * MAX_UP_RATE).ceil());
        let bounded = |wanted: f64| (wanted.clamp(bounds.0, bounds.1) as i32).clamp(1, MAX);
        let (stable, short) = (self.wants(STABLE_WINDOW), self.wants(PANIC_WINDOW));
        let window_ms = STABLE_WINDOW as u64 * 1000;
        if short / ready >= PANIC_THRESHOLD {
            let most = self.panic.as_ref().map_or(ready as i32, |panic| panic.most);
            self.panic = Some(Panic { last_reason: fleet.now, most });
        } else if self.panic.as_ref().is_some_and(|panic| fleet.now > panic.last_reason + window_ms) {
            self.panic = None;
        }
        match &mut self.panic {
            None => bounded(stable),
            Some(panic) => {
                panic.most = panic.most.max(bounded(stable)).max(bounded(short));
                panic.most
            }
        }
    }
}
