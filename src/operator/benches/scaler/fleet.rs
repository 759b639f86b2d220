//! Pods in virtual time: they start slowly, take as many requests as they may, and finish what they have when they leave.
//! Who finds no place waits in one queue, first come first served, as in a gateway.

use std::collections::VecDeque;

/// How long a Pod takes from being asked for to being ready, in milliseconds.
const START_MS: u64 = 4000;

/// One Pod.
pub(crate) struct SimulatedPod {
    /// New for each Pod.
    pub(crate) uid: u64,
    born: u64,
    leaving: bool,
    /// When the requests in flight end.
    ends: Vec<u64>,
    /// Request-milliseconds in flight so far.
    pub(crate) busy_ms: u64,
    /// Requests answered.
    pub(crate) completed: u64,
}

/// All Pods of a workload, and who waits for them.
pub(crate) struct SimulatedFleet {
    /// The time in milliseconds.
    pub(crate) now: u64,
    /// Requests that a Pod may have in flight.
    pub(crate) concurrency: usize,
    pods: Vec<SimulatedPod>,
    made: u64,
    /// Of each request that waits: when it came, and how long it will take.
    queue: VecDeque<(u64, u64)>,
    /// Request-milliseconds that were waited so far.
    pub(crate) waited_ms: u64,
    /// Request-milliseconds so far, waiting and in flight.
    pub(crate) occupied_ms: u64,
    /// How long each request waited that has begun.
    pub(crate) waits: Vec<u64>,
    /// Milliseconds that Pods have existed, each for itself.
    pub(crate) pod_ms: u64,
}

impl SimulatedFleet {
    /// One Pod, which is ready.
    pub(crate) fn new(concurrency: usize) -> Self {
        let (pods, queue, waits) = (Vec::new(), VecDeque::new(), Vec::new());
        let (made, now) = (0, 0);
        let mut fleet = Self { now, concurrency, pods, made, queue, waited_ms: 0, occupied_ms: 0, waits, pod_ms: 0 };
        fleet.scale(1, false);
        fleet.now += START_MS;
        fleet
    }

    /// Lets a millisecond pass, in which a request that takes so long may come.
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

    /// Makes so many Pods be there. Of those that leave, the idlest go first, or else the newest, which Kubernetes prefers.
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

    /// The Pods that take requests.
    pub(crate) fn ready(&self) -> impl Iterator<Item = &SimulatedPod> {
        self.pods.iter().filter(|pod| pod.is_ready(self.now))
    }

    /// Requests in flight and waiting.
    fn requests(&self) -> usize {
        self.queue.len() + self.pods.iter().map(|pod| pod.ends.len()).sum::<usize>()
    }
}

impl SimulatedPod {
    fn is_ready(&self, now: u64) -> bool {
        !self.leaving && now >= self.born + START_MS
    }

    /// How long it has been ready, in milliseconds.
    pub(crate) fn uptime_ms(&self, now: u64) -> u64 {
        now - self.born - START_MS
    }
}
