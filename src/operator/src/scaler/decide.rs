//! Decides on a number of Pods by the load, with hysteresis: up at once, down only after a stabilization window, as the
//! [HorizontalPodAutoscaler](https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/) does.
//!
//! Up at once, because requests wait. Down only when nothing in the whole stabilization window asked for more, because a Pod that is
//! removed too early is paid for twice. The window begins with the process, so a restart or a new leader removes no Pod before it has seen
//! a window of its own. The last Pod goes after an idle time of its own (scale to zero).

use std::{collections::VecDeque, time::Duration};

use super::LoadDemand;

/// Settings of a workload for the scaler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaPolicy {
    /// Fewest Pods. 0 allows scale to zero, see [`ReplicaPolicy::zero_after`].
    pub min: i32,
    /// Most Pods.
    pub max: i32,
    /// Target of requests in flight per Pod.
    pub concurrency: i32,
    /// Stabilization window: time in which nothing may have asked for more before Pods go.
    pub stable_window: Duration,
    /// Time without any traffic before the last Pod goes (scale to zero); `None`: it stays, whatever `min` says.
    pub zero_after: Option<Duration>,
}

/// Direction of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// More Pods.
    Up,
    /// Fewer Pods.
    Down,
    /// No change.
    Hold,
}

/// Decision on a number of Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Number of Pods to run.
    pub replicas: i32,
    /// Direction from the current number.
    pub direction: Direction,
}

/// Stabilization window: the recommendations of the recent past.
#[derive(Debug, Clone)]
pub struct Window {
    since: Duration,
    /// Time and recommendation. Invariant: each is larger than all that follow it, so the first is the highest.
    highest: VecDeque<(Duration, i32)>,
}

impl Window {
    /// Creates a window that begins now; `now` is the time since any fixed moment.
    pub fn new(now: Duration) -> Self {
        Self { since: now, highest: VecDeque::new() }
    }

    /// Adds a recommendation and returns the highest of the last `length`; `None` while that long has not been observed.
    fn add(&mut self, recommended: i32, length: Duration, now: Duration) -> Option<i32> {
        while self.highest.back().is_some_and(|(_, earlier)| *earlier <= recommended) {
            self.highest.pop_back();
        }
        self.highest.push_back((now, recommended));
        while self.highest.front().is_some_and(|(at, _)| *at + length <= now) {
            self.highest.pop_front();
        }
        let highest = self.highest.front().map_or(recommended, |(_, highest)| *highest);
        (now.saturating_sub(self.since) >= length).then_some(highest)
    }
}

/// Decides how many Pods there are to be; `current` is the present number.
pub fn decide(
    policy: &ReplicaPolicy,
    current: i32,
    demand: &LoadDemand,
    window: &mut Window,
    now: Duration,
) -> Decision {
    let asked = requested_replicas(policy, demand);
    // Only the load's recommendation passes the window: the idle time behind `floor` has been waited out already.
    let highest = window.add(asked, policy.stable_window, now);
    let recommended = asked.max(floor(policy, current, demand));
    // The maximum is the user's decision, whatever the load.
    let allowed = current.min(policy.max);
    let replicas = match highest {
        _ if recommended >= allowed => recommended,
        // A Pod that does not answer may be busy.
        Some(_) if !demand.complete => allowed,
        None => allowed,
        // At most half of the Pods go at once; a wrong decision shows before the next step.
        Some(highest) => highest.max(allowed - (allowed / 2).max(1)).clamp(recommended, allowed),
    };
    let direction = match replicas.cmp(&current) {
        std::cmp::Ordering::Greater => Direction::Up,
        std::cmp::Ordering::Less => Direction::Down,
        std::cmp::Ordering::Equal => Direction::Hold,
    };
    Decision { replicas, direction }
}

/// Returns the number of Pods that the load asks for.
fn requested_replicas(policy: &ReplicaPolicy, demand: &LoadDemand) -> i32 {
    // A load just above a whole number by nothing but rounding counts as that number.
    let wanted = (demand.load / f64::from(policy.concurrency.max(1)) - 1e-9).ceil().clamp(0.0, f64::from(i32::MAX));
    (wanted as i32).max(i32::from(demand.halted)).clamp(policy.min, policy.max.max(policy.min))
}

/// Returns the fewest Pods that stay whatever the load.
fn floor(policy: &ReplicaPolicy, current: i32, demand: &LoadDemand) -> i32 {
    match policy.zero_after {
        Some(after) if policy.min == 0 && demand.idle >= after => 0,
        // A request that waits in a gateway wakes the workload; without one it stays at zero.
        Some(_) if policy.min == 0 && current == 0 && demand.load <= 0.0 && !demand.halted => 0,
        _ => policy.min.max(1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn policy(min: i32, max: i32, concurrency: i32) -> ReplicaPolicy {
        ReplicaPolicy { min, max, concurrency, stable_window: 60 * SECOND, zero_after: None }
    }

    fn load(load: f64) -> LoadDemand {
        LoadDemand { load, complete: true, idle: Duration::ZERO, halted: false }
    }

    /// Returns the decision on a workload that has asked for the same for longer than its window.
    fn settled(policy: &ReplicaPolicy, current: i32, demand: f64) -> i32 {
        let mut window = Window::new(Duration::ZERO);
        decide(policy, current, &load(demand), &mut window, 100 * SECOND).replicas
    }

    #[test]
    fn the_load_says_how_many() {
        for (demand, replicas) in
            [(0.0, 1), (1.0, 1), (8.0, 1), (9.0, 2), (16.0, 2), (20.0, 3), (40.0, 5), (1000.0, 10), (f64::INFINITY, 10)]
        {
            assert_eq!(settled(&policy(1, 10, 8), 1, demand), replicas, "{demand}");
        }
        assert_eq!(settled(&policy(5, 5, 8), 5, 1.0), 5);
        assert_eq!(settled(&policy(1, 10, 1), 1, 0.2), 1, "a fixed point");
        assert_eq!(settled(&policy(1, 10, 1), 3, 2.000_000_000_001), 2, "rounding asks for no Pod");
    }

    #[test]
    fn pods_go_by_halves_once_nothing_in_the_window_needed_them() {
        let policy = policy(1, 10, 8);
        let mut window = Window::new(Duration::ZERO);
        let mut at = |seconds: u32, current, demand| {
            decide(&policy, current, &load(demand), &mut window, SECOND * seconds).replicas
        };
        assert_eq!(at(100, 1, 40.0), 5, "up at once");
        assert_eq!(at(110, 5, 1.0), 5, "high 10 s ago");
        assert_eq!(at(220, 5, 1.0), 3);
        assert_eq!(at(221, 3, 1.0), 2);
        assert_eq!(at(222, 2, 1.0), 1);
        assert_eq!(at(223, 1, 1.0), 1);
    }

    #[test]
    fn a_peak_counts_for_the_whole_window_whatever_was_before_it() {
        let policy = policy(1, 10, 8);
        let mut window = Window::new(Duration::ZERO);
        let mut at = |seconds: u32, current, demand| {
            decide(&policy, current, &load(demand), &mut window, SECOND * seconds).replicas
        };
        assert_eq!(at(100, 1, 1.0), 1);
        assert_eq!(at(110, 1, 40.0), 5);
        assert_eq!(at(120, 5, 1.0), 5, "the peak, not what was before it");
        assert_eq!(at(169, 5, 1.0), 5);
        assert_eq!(at(170, 5, 1.0), 3);
    }

    #[test]
    fn a_new_process_takes_nothing_away_before_a_window_of_its_own() {
        let mut window = Window::new(1000 * SECOND);
        let policy = policy(1, 10, 8);
        assert_eq!(decide(&policy, 5, &load(0.0), &mut window, 1059 * SECOND).replicas, 5);
        assert_eq!(decide(&policy, 5, &load(0.0), &mut window, 1060 * SECOND).replicas, 3);
    }

    #[test]
    fn a_pod_that_does_not_answer_keeps_all_and_hinders_no_growth() {
        let unsure = |load| LoadDemand { complete: false, ..self::load(load) };
        let mut window = Window::new(Duration::ZERO);
        let policy = policy(1, 10, 8);
        assert_eq!(decide(&policy, 5, &unsure(0.0), &mut window, 500 * SECOND).replicas, 5);
        assert_eq!(decide(&policy, 5, &unsure(60.0), &mut window, 501 * SECOND).replicas, 8);
    }

    #[test]
    fn the_last_pod_goes_only_when_asked_to_and_comes_back_for_one_request() {
        let zero = ReplicaPolicy { zero_after: Some(300 * SECOND), ..policy(0, 10, 8) };
        let mut window = Window::new(Duration::ZERO);
        let idle = |seconds: u32| LoadDemand { idle: SECOND * seconds, ..load(0.0) };
        assert_eq!(decide(&zero, 1, &idle(299), &mut window, 400 * SECOND).replicas, 1);
        assert_eq!(decide(&zero, 1, &idle(300), &mut window, 401 * SECOND).replicas, 0);
        assert_eq!(
            decide(&zero, 0, &idle(0), &mut window, 462 * SECOND).replicas,
            0,
            "a new process knows of no traffic"
        );
        assert_eq!(decide(&zero, 0, &load(1.0), &mut window, 463 * SECOND).replicas, 1);
        assert_eq!(decide(&zero, 1, &idle(300), &mut window, 522 * SECOND).replicas, 1, "asked for within the window");
        assert_eq!(decide(&zero, 1, &idle(300), &mut window, 523 * SECOND).replicas, 0);
        assert_eq!(settled(&ReplicaPolicy { zero_after: None, ..zero }, 1, 0.0), 1);
    }

    proptest! {
        #[test]
        fn the_number_stays_within_its_bounds_and_never_halves_twice(
            (min, max) in (1..5_i32, 5..20_i32), current in 1..30_i32, loads in prop::collection::vec(0.0..300.0_f64, 1..50),
        ) {
            let policy = policy(min, max, 8);
            let mut window = Window::new(Duration::ZERO);
            let mut current = current;
            for (second, demand) in (0..).step_by(7).zip(loads) {
                let decided = decide(&policy, current, &load(demand), &mut window, SECOND * second);
                prop_assert!(decided.replicas >= min);
                prop_assert!(decided.replicas <= max);
                prop_assert!(f64::from(decided.replicas) * 8.0 >= demand.min(f64::from(max) * 8.0) - 1e-6);
                prop_assert!(decided.replicas >= current.min(max) / 2);
                current = decided.replicas;
            }
        }
    }
}
