//! Computes the load from the reports of Pods and gateways.
//!
//! A Pod's proxy integrates its requests in flight over time (`busyMs`). The difference of two samples, divided by the time between them,
//! is the mean number of requests in flight: no request is missed however short, and none counts more than it lasted, which a maximum would
//! do.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

/// Report of a Pod's proxy. The counters begin at 0 with each `instance`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSample {
    /// Identifier that is new after each start.
    pub instance: String,
    /// Milliseconds since that start.
    pub uptime_ms: u64,
    /// Requests in flight now.
    pub inflight: u32,
    /// Request-milliseconds in flight.
    pub busy_ms: u64,
    /// Requests answered.
    pub completed: u64,
    /// Requests refused that no gateway has counted.
    pub refused: u64,
}

/// Reports on a workload at one moment.
#[derive(Debug, Clone, Default)]
pub struct LoadReport {
    /// Samples of its Pods by uid; `None`: the Pod did not answer.
    pub pods: HashMap<String, Option<PodSample>>,
    /// Mean number of requests that wait in the gateways.
    pub waiting: f64,
    /// Requests per second that gateways refused definitively.
    pub refused: f64,
    /// True if gateways refused requests because the workload is Failed without Pods.
    pub halted: bool,
}

/// Demand on a workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadDemand {
    /// Mean number of concurrent requests.
    pub load: f64,
    /// True if every Pod answered.
    pub complete: bool,
    /// Time for which nothing has been in flight, waiting or refused.
    pub idle: Duration,
    /// True if requests were refused because the workload is Failed: worth one Pod, however many they are. Their service time is not known,
    /// and more Pods repair nothing that one does not.
    pub halted: bool,
}

/// Meter that keeps the last samples of one workload.
#[derive(Debug)]
pub struct Meter {
    pods: HashMap<String, MeteredPod>,
    busy_since: Duration,
    services: ServiceTimes,
}

/// Last sample of one Pod, and the rates since the one before.
#[derive(Debug)]
struct MeteredPod {
    sample: PodSample,
    load: f64,
    refused: f64,
}

/// Service times of requests, over the last minute.
#[derive(Debug, Default)]
struct ServiceTimes(VecDeque<ServiceTimeSlice>);

/// Counters of a tenth of that minute.
#[derive(Debug)]
struct ServiceTimeSlice {
    begun: Duration,
    busy_ms: u64,
    completed: u64,
}

/// Period over which the mean service time is taken, and length of its slices.
const MINUTE: Duration = Duration::from_secs(60);
const SLICE: Duration = Duration::from_secs(6);

impl Meter {
    /// Creates a meter without samples; `now` is the time since any fixed moment.
    pub fn new(now: Duration) -> Self {
        Self { pods: HashMap::new(), busy_since: now, services: ServiceTimes::default() }
    }

    /// Takes in the reports and returns the demand.
    pub fn update(&mut self, report: &LoadReport, now: Duration) -> LoadDemand {
        self.pods.retain(|uid, _| report.pods.contains_key(uid));
        let mut served = false;
        for (uid, sample) in &report.pods {
            if let Some(sample) = sample {
                served |= self.add_sample(uid, sample, now);
            }
        }
        let complete = report.pods.values().all(Option::is_some);
        let refused: f64 = report.refused + self.pods.values().map(|known| known.refused).sum::<f64>();
        let in_flight: f64 = self.pods.values().map(|known| known.load).sum();
        let load = in_flight + report.waiting + refused * self.services.mean(now);
        // A request may be shorter than the resolution of the counters.
        if load > 0.0 || served || !complete || report.halted {
            self.busy_since = now;
        }
        LoadDemand { load, complete, idle: now.saturating_sub(self.busy_since), halted: report.halted }
    }

    /// Restarts the idle time.
    pub fn reset_idle(&mut self, now: Duration) {
        self.busy_since = now;
    }

    /// Returns the requests that a Pod last had in flight; `None`: it has not answered yet.
    pub fn in_flight(&self, uid: &str) -> Option<u32> {
        self.pods.get(uid).map(|known| known.sample.inflight)
    }

    /// Takes in a sample, and reports whether the Pod answered a request since the last one.
    fn add_sample(&mut self, uid: &str, sample: &PodSample, now: Duration) -> bool {
        let before = self.pods.get(uid).map(|known| &known.sample);
        let (rates, served) = match before {
            Some(before) if before.instance == sample.instance && before.uptime_ms < sample.uptime_ms => {
                let elapsed = (sample.uptime_ms - before.uptime_ms) as f64;
                let busy = sample.busy_ms.saturating_sub(before.busy_ms);
                let completed = sample.completed.saturating_sub(before.completed);
                self.services.add(busy, completed, now);
                let refused = sample.refused.saturating_sub(before.refused) as f64;
                (Some((busy as f64 / elapsed, refused * 1000.0 / elapsed)), completed > 0)
            }
            Some(before) if before.instance == sample.instance => return false,
            // A new process has no earlier sample for a difference, but its requests in flight count, and what it completed is recent.
            _ => (None, sample.completed > 0),
        };
        let (load, refused) = rates.unwrap_or((sample.inflight.into(), 0.0));
        self.pods.insert(uid.to_owned(), MeteredPod { sample: sample.clone(), load, refused });
        served
    }
}

impl ServiceTimes {
    fn add(&mut self, busy_ms: u64, completed: u64, now: Duration) {
        match self.0.back_mut().filter(|last| now < last.begun + SLICE) {
            Some(last) => {
                last.busy_ms += busy_ms;
                last.completed += completed;
            }
            None => self.0.push_back(ServiceTimeSlice { begun: now, busy_ms, completed }),
        }
    }

    /// Returns the mean service time in seconds; 1 while no request was completed.
    fn mean(&mut self, now: Duration) -> f64 {
        while self.0.front().is_some_and(|first| first.begun + MINUTE <= now) {
            self.0.pop_front();
        }
        let completed: u64 = self.0.iter().map(|slice| slice.completed).sum();
        let busy_ms: u64 = self.0.iter().map(|slice| slice.busy_ms).sum();
        if completed == 0 { 1.0 } else { busy_ms as f64 / 1000.0 / completed as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn sample(instance: &str, uptime_ms: u64, busy_ms: u64, completed: u64, refused: u64) -> Option<PodSample> {
        Some(PodSample { instance: instance.into(), uptime_ms, inflight: 0, busy_ms, completed, refused })
    }

    #[test]
    fn what_is_in_flight_in_the_first_sample_of_a_pod_is_load_and_no_idleness() {
        let mut meter = Meter::new(Duration::ZERO);
        let busy = PodSample { inflight: 1, ..sample("i", 4000, 3000, 0, 0).unwrap() };
        let demand = meter.update(&report(&[("p", Some(busy))]), 10 * SECOND);
        assert_eq!((demand.load, demand.idle), (1.0, Duration::ZERO));
        let mut meter = Meter::new(Duration::ZERO);
        let demand = meter.update(&report(&[("p", sample("i", 4000, 10, 1, 0))]), 10 * SECOND);
        assert_eq!((demand.load, demand.idle), (0.0, Duration::ZERO));
        let mut meter = Meter::new(Duration::ZERO);
        let demand = meter.update(&report(&[("p", sample("i", 4000, 0, 0, 0))]), 10 * SECOND);
        assert_eq!((demand.load, demand.idle), (0.0, 10 * SECOND));
    }

    fn report(pods: &[(&str, Option<PodSample>)]) -> LoadReport {
        let pods = pods.iter().map(|(uid, sample)| ((*uid).to_owned(), sample.clone())).collect();
        LoadReport { pods, ..LoadReport::default() }
    }

    #[test]
    fn the_load_is_the_mean_number_in_flight() {
        let mut meter = Meter::new(Duration::ZERO);
        let first = report(&[("a", sample("1", 1000, 500, 5, 0)), ("b", sample("1", 9000, 0, 0, 0))]);
        assert_eq!(meter.update(&first, SECOND).load, 0.0, "one sample is no rate");
        let next = report(&[("a", sample("1", 2000, 2500, 9, 0)), ("b", sample("1", 11_000, 3000, 3, 0))]);
        assert_eq!(meter.update(&next, 2 * SECOND).load, 2.0 + 1.5);
    }

    #[test]
    fn a_restarted_proxy_begins_anew_and_an_answer_twice_changes_nothing() {
        let mut meter = Meter::new(Duration::ZERO);
        meter.update(&report(&[("a", sample("1", 1000, 0, 0, 0))]), SECOND);
        meter.update(&report(&[("a", sample("1", 2000, 4000, 1, 0))]), 2 * SECOND);
        assert_eq!(meter.update(&report(&[("a", sample("1", 2000, 4000, 1, 0))]), 3 * SECOND).load, 4.0);
        assert_eq!(meter.update(&report(&[("a", sample("2", 100, 50, 0, 0))]), 4 * SECOND).load, 0.0);
    }

    #[test]
    fn a_pod_that_does_not_answer_counts_as_it_was() {
        let mut meter = Meter::new(Duration::ZERO);
        meter.update(&report(&[("a", sample("1", 1000, 0, 0, 0))]), SECOND);
        meter.update(&report(&[("a", sample("1", 2000, 3000, 1, 0))]), 2 * SECOND);
        let silent = meter.update(&report(&[("a", None)]), 3 * SECOND);
        assert_eq!((silent.load, silent.complete, silent.idle), (3.0, false, Duration::ZERO));
        assert_eq!(meter.update(&report(&[]), 4 * SECOND).load, 0.0, "a Pod that is gone does not");
    }

    #[test]
    fn who_waits_or_was_refused_counts_for_as_long_as_a_request_takes() {
        let mut meter = Meter::new(Duration::ZERO);
        let mut first = report(&[("a", sample("1", 1000, 0, 0, 0))]);
        first.refused = 3.0;
        assert_eq!(meter.update(&first, SECOND).load, 3.0, "1 s while nothing was completed");
        let mut next = report(&[("a", sample("1", 2000, 1000, 2, 4))]);
        (next.waiting, next.refused) = (2.0, 6.0);
        assert_eq!(meter.update(&next, 2 * SECOND).load, 1.0 + 2.0 + (6.0 + 4.0) * 0.5);
    }

    #[test]
    fn the_service_time_is_that_of_the_last_minute() {
        let mut meter = Meter::new(Duration::ZERO);
        let mut at = |seconds: u64, busy_ms, completed| {
            let refused =
                LoadReport { refused: 1.0, ..report(&[("a", sample("1", seconds * 1000, busy_ms, completed, 0))]) };
            meter.update(&refused, SECOND * u32::try_from(seconds).unwrap()).load
        };
        at(1, 0, 0);
        assert_eq!(at(2, 4000, 2), 4.0 + 2.0);
        assert_eq!(at(42, 4000, 2), 2.0, "of which two completed");
        assert_eq!(at(43, 4500, 3), 0.5 + 1.5, "both of the last minute");
        assert_eq!(at(63, 4500, 3), 0.5, "the first is longer ago");
        assert_eq!(at(110, 4500, 3), 1.0, "nothing was completed");
    }

    #[test]
    fn a_request_too_short_to_be_measured_is_traffic() {
        let mut meter = Meter::new(Duration::ZERO);
        meter.update(&report(&[("a", sample("1", 1000, 0, 0, 0))]), SECOND);
        assert_eq!(meter.update(&report(&[("a", sample("1", 9000, 0, 1, 0))]), 9 * SECOND).idle, Duration::ZERO);
        assert_eq!(meter.update(&report(&[("a", sample("1", 19_000, 0, 1, 0))]), 19 * SECOND).idle, 10 * SECOND);
    }

    #[test]
    fn short_requests_of_two_pods_are_traffic_and_a_silence_is_no_idleness() {
        let mut meter = Meter::new(Duration::ZERO);
        let both = |uptime_ms, completed| {
            let same = || sample("1", uptime_ms, 0, completed, 0);
            report(&[("a", same()), ("b", same())])
        };
        meter.update(&both(1000, 0), SECOND);
        assert_eq!(meter.update(&both(9000, 1), 9 * SECOND).idle, Duration::ZERO);
        assert_eq!(meter.update(&report(&[("a", None)]), 15 * SECOND).idle, Duration::ZERO);
        assert_eq!(meter.update(&report(&[("a", sample("1", 25_000, 0, 1, 0))]), 25 * SECOND).idle, 10 * SECOND);
    }

    #[test]
    fn idleness_is_counted_from_the_last_sign_of_load() {
        let mut meter = Meter::new(Duration::ZERO);
        let waiting = LoadReport { waiting: 0.1, ..LoadReport::default() };
        assert_eq!(meter.update(&waiting, 10 * SECOND).idle, Duration::ZERO);
        assert_eq!(meter.update(&LoadReport::default(), 70 * SECOND).idle, 60 * SECOND);
    }
}
