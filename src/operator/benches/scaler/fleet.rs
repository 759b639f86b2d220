//! Pods in virtual time: they start slowly, take as many requests as they may, and finish what they have when they leave. A request without
//! a place waits in one queue, first come first served, as in a gateway.

use std::collections::VecDeque;

/// Time from the creation of a Pod to its readiness, in milliseconds.
const START_MS: u64 = 4000;

/// Simulated Pod.
pub(crate) struct SimulatedPod {
    /// Identifier that is new for each Pod.
    pub(crate) uid: u64,
    born: u64,
    leaving: bool,
    /// Times at which the requests in flight end.
    ends: Vec<u64>,
    /// Request-milliseconds in flight so far.
    pub(crate) busy_ms: u64,
    /// Requests answered.
    pub(crate) completed: u64,
}

/// Pods of a workload, and the requests that wait for them.
pub(crate) struct SimulatedFleet {
    /// The time in milliseconds.
    pub(crate) now: u64,
    /// Requests that a Pod may have in flight.
    pub(crate) concurrency: usize,
    pods: Vec<SimulatedPod>,
    made: u64,
    /// Arrival and service time of each request that waits.
    queue: VecDeque<(u64, u64)>,
    /// Request-milliseconds waited so far.
    pub(crate) waited_ms: u64,
    /// Request-milliseconds so far, waiting and in flight.
    pub(crate) occupied_ms: u64,
    /// Waiting time of each request that has begun.
    pub(crate) waits: Vec<u64>,
    /// Sum of the milliseconds that the Pods have existed.
    pub(crate) pod_ms: u64,
}

impl SimulatedFleet {
    /// Creates a fleet of one Pod, which is ready.
    pub(crate) fn new(concurrency: usize) -> Self {
        let (pods, queue, waits) = (Vec::new(), VecDeque::new(), Vec::new());
        let (made, now) = (0, 0);
        let mut fleet = Self { now, concurrency, pods, made, queue, waited_ms: 0, occupied_ms: 0, waits, pod_ms: 0 };
        fleet.scale(1, false);
        fleet.now += START_MS;
        fleet
    }

    /// Lets a millisecond pass, in which a request with this service time may arrive.
    pub(crate) fn step(&mut self, arrival: Option<u64>) {
        self.now += 1;
        let now = self.now;
        for pod in &mut self.pods {
            pod.busy_ms += pod.ends.len() as u64;
            let before = pod.ends.len();
            pod.ends.retain(|end| *end > now);
            pod.completed += (before - pod.ends.len()) as u64;
        }
        self.pods.retain(|pod| !pod.leaving || !pod.ends.is_empty());
        self.pod_ms += self.pods.len() as u64;
        self.queue.extend(arrival.map(|service| (now, service)));
        while let Some((came, service)) = self.queue.front().copied() {
            let free = self.pods.iter_mut().filter(|pod| pod.is_ready(now) && pod.ends.len() < self.concurrency);
            let Some(pod) = free.min_by_key(|pod| pod.ends.len()) else { break };
            pod.ends.push(now + service);
            self.waits.push(now - came);
            self.queue.pop_front();
        }
        self.waited_ms += self.queue.len() as u64;
        self.occupied_ms += self.requests() as u64;
    }

    /// Sets the number of Pods. Of those that leave, the idlest go first, or else the newest, which Kubernetes prefers.
    pub(crate) fn scale(&mut self, wanted: usize, idlest_first: bool) {
        let mut staying: Vec<&mut SimulatedPod> = self.pods.iter_mut().filter(|pod| !pod.leaving).collect();
        let missing = wanted.saturating_sub(staying.len());
        let ready = |pod: &SimulatedPod| pod.is_ready(self.now);
        staying
            .sort_by_key(|pod| (ready(pod), if idlest_first { pod.ends.len() } else { 0 }, std::cmp::Reverse(pod.uid)));
        let surplus = staying.len().saturating_sub(wanted);
        staying.into_iter().take(surplus).for_each(|pod| pod.leaving = true);
        for _ in 0..missing {
            self.made += 1;
            let (uid, born) = (self.made, self.now);
            self.pods.push(SimulatedPod { uid, born, leaving: false, ends: Vec::new(), busy_ms: 0, completed: 0 });
        }
    }

    /// Returns the Pods that take requests.
    pub(crate) fn ready(&self) -> impl Iterator<Item = &SimulatedPod> {
        self.pods.iter().filter(|pod| pod.is_ready(self.now))
    }

    /// Returns the number of requests in flight and waiting.
    fn requests(&self) -> usize {
        self.queue.len() + self.pods.iter().map(|pod| pod.ends.len()).sum::<usize>()
    }
}

impl SimulatedPod {
    fn is_ready(&self, now: u64) -> bool {
        !self.leaving && now >= self.born + START_MS
    }

    /// Returns the time for which the Pod has been ready, in milliseconds.
    pub(crate) fn uptime_ms(&self, now: u64) -> u64 {
        now - self.born - START_MS
    }
}
