//! Property test of the windows: gateways in a simulated network, which delays, loses and cuts, and with restarts.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use proptest::prelude::*;

use super::{LimitReport, LimitTime, RateLimiter, RateLimits};
use crate::clients::ClientId;

/// Length of a step, in milliseconds.
const STEP: u64 = 5;
/// Steps of a run: a minute and a half.
const STEPS: u64 = 90_000 / STEP;
/// Steps after which an exchange without an answer is given up.
const DEADLINE: u64 = 300 / STEP;
/// Steps between two exchanges.
const INTERVAL: u64 = 500 / STEP;

/// Network and load of one run.
#[derive(Debug, Clone)]
struct LimitScenario {
    limit: u32,
    /// Requests of each gateway in a thousand steps.
    loads: Vec<u32>,
    /// Longest delay of a message, in steps.
    delay: u64,
    /// Lost messages, of a hundred.
    lost: u32,
    /// Steps in which messages between any two gateways are lost.
    cut: (u64, u64),
    /// Steps in which a gateway restarts, and which one.
    restarts: Vec<(u64, usize)>,
    seed: u64,
}

fn scenario() -> impl Strategy<Value = LimitScenario> {
    let loads = prop::collection::vec(prop::sample::select(vec![0, 5, 50, 500, 5000]), 1..=5);
    let limit = prop::sample::select(vec![1, 2, 3, 10, 30, 60, 200, 1000]);
    let cut = (0..STEPS, 0..STEPS);
    let restarts = prop::collection::vec((0..STEPS, 0..5_usize), 0..3);
    (limit, loads, 0..40_u64, 0..50_u32, cut, restarts, any::<u64>()).prop_map(
        |(limit, loads, delay, lost, cut, restarts, seed)| LimitScenario {
            limit,
            loads,
            delay,
            lost,
            cut,
            restarts,
            seed,
        },
    )
}

/// LimitMessage under way: the exchange that it belongs to, and its direction.
struct LimitMessage {
    arrives: u64,
    from: usize,
    to: usize,
    exchange: u64,
    is_answer: bool,
    report: LimitReport,
}

/// State of the task that exchanges admissions with one gateway.
#[derive(Clone, Copy, Default)]
struct LimitExchange {
    began: u64,
    /// Exchange under way; 0 for none.
    number: u64,
    pokes: u64,
}

struct LimitSimulation {
    scenario: LimitScenario,
    gateways: Vec<RateLimiter>,
    states: Vec<Vec<LimitExchange>>,
    messages: Vec<LimitMessage>,
    exchanges: u64,
    random: u64,
    step: u64,
    /// Step and gateway of each admission.
    admitted: Vec<(u64, usize)>,
}

fn address(of: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, of as u8], 8081))
}

impl LimitSimulation {
    fn new(scenario: LimitScenario) -> Self {
        let count = scenario.loads.len();
        let gateways = (0..count).map(|_| RateLimiter::default()).collect();
        let (states, random) = (vec![vec![LimitExchange::default(); count]; count], scenario.seed);
        let (messages, admitted) = (Vec::new(), Vec::new());
        let simulation = Self { scenario, gateways, states, messages, exchanges: 0, random, step: INTERVAL, admitted };
        (0..count).for_each(|at| simulation.list(at));
        simulation
    }

    fn list(&self, at: usize) {
        let all: Vec<_> = (0..self.gateways.len()).map(address).collect();
        self.gateways[at].list(&all);
    }

    /// Returns a pseudorandom number below `end` (splitmix64).
    fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn now(&self) -> LimitTime {
        LimitTime { unix: 1_000_000_007_000 + self.step * STEP, up: self.step * STEP }
    }

    fn send(&mut self, message: LimitMessage) {
        let (from, until) = self.scenario.cut;
        let is_cut = (from..until).contains(&self.step) && message.from != message.to;
        if !is_cut && self.below(100) >= u64::from(self.scenario.lost) {
            let delay = self.below(self.scenario.delay + 1);
            self.messages.push(LimitMessage { arrives: self.step + delay, ..message });
        }
    }

    fn deliver(&mut self) {
        let step = self.step;
        let messages = std::mem::take(&mut self.messages).into_iter();
        let (due, later): (Vec<_>, Vec<_>) = messages.partition(|message| message.arrives <= step);
        self.messages = later;
        for LimitMessage { from, to, exchange, is_answer, report, .. } in due {
            let now = self.now();
            if is_answer {
                let state = &mut self.states[to][from];
                if state.number == exchange {
                    state.number = 0;
                    self.gateways[to].take_answer(address(from), &report, now);
                }
            } else {
                let report = self.gateways[to].answer(&report, now);
                self.send(LimitMessage { arrives: 0, from: to, to: from, exchange, is_answer: true, report });
            }
        }
    }

    fn exchange(&mut self) {
        let count = self.gateways.len();
        for (from, to) in (0..count).flat_map(|from| (0..count).map(move |to| (from, to))) {
            let (now, gateway) = (self.now(), &self.gateways[from]);
            let (pokes, state) = (*gateway.pokes.borrow(), &mut self.states[from][to]);
            if state.number != 0 && self.step < state.began + DEADLINE {
                continue;
            }
            state.number = 0;
            let is_due = self.step >= state.began + INTERVAL || pokes != state.pokes;
            if !is_due || gateway.peers.is_own(address(to)) {
                continue;
            }
            self.exchanges += 1;
            *state = LimitExchange { began: self.step, number: self.exchanges, pokes };
            let report = gateway.question(address(to), now);
            let exchange = self.exchanges;
            self.send(LimitMessage { arrives: 0, from, to, exchange, is_answer: false, report });
        }
    }

    fn restart(&mut self, at: usize) {
        self.gateways[at] = RateLimiter::default();
        self.list(at);
        self.states[at].fill(LimitExchange::default());
    }

    fn run(&mut self) {
        let limits = RateLimits { per_workload: Some(self.scenario.limit), per_caller: None };
        let count = self.gateways.len();
        for _ in 0..STEPS {
            self.step += 1;
            let due: Vec<_> = self.scenario.restarts.iter().filter(|(step, _)| *step == self.step).copied().collect();
            due.into_iter().for_each(|(_, at)| self.restart(at % count));
            self.deliver();
            for at in 0..count {
                let load = self.scenario.loads[at];
                let more = self.below(1000) < u64::from(load % 1000);
                for _ in 0..load / 1000 + u32::from(more) {
                    let caller = || ClientId::Address(IpAddr::from([192, 0, 2, 1]));
                    if self.gateways[at].admit(limits, "agent/ns/a", caller, self.now()).is_ok() {
                        self.admitted.push((self.step, at));
                    }
                }
            }
            self.exchange();
        }
    }

    /// Returns the most that a gateway admitted in the time for which admissions may stay unread.
    fn most_in_grace(&self) -> usize {
        let of = |at: usize| {
            let steps: Vec<u64> = self.admitted.iter().filter(|(_, by)| *by == at).map(|(step, _)| *step).collect();
            (0..steps.len()).map(|end| end + 1 - steps.partition_point(|step| step + 50 / STEP < steps[end])).max()
        };
        (0..self.gateways.len()).filter_map(of).max().unwrap_or_default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn no_minute_has_more_than_the_bound(scenario in scenario()) {
        let mut simulation = LimitSimulation::new(scenario);
        simulation.run();
        let (limit, gateways) = (simulation.scenario.limit as usize, simulation.gateways.len());
        let unread = (limit / (4 * gateways)).max(1) + simulation.most_in_grace();
        // A gateway that restarts forgets what no other one has read: alone all, cut off its share, else as much as may be unread.
        let forgotten = if gateways == 1 { limit } else { unread.max(limit.div_ceil(gateways) + limit / (4 * gateways) + 1) };
        let bound = limit + (gateways - 1) * unread + simulation.scenario.restarts.len() * forgotten;
        let steps: Vec<u64> = simulation.admitted.iter().map(|(step, _)| *step).collect();
        for (end, step) in steps.iter().enumerate() {
            let begin = steps.partition_point(|earlier| earlier + 60_000 / STEP <= *step);
            prop_assert!(end + 1 - begin <= bound, "{} in the minute before {}, bound {bound}", end + 1 - begin, step);
        }
    }
}

fn calm(loads: Vec<u32>, limit: u32) -> LimitScenario {
    LimitScenario { limit, loads, delay: 1, lost: 0, cut: (0, 0), restarts: Vec::new(), seed: 1 }
}

fn admitted_in_first_minute(scenario: LimitScenario) -> Vec<(u64, usize)> {
    let mut simulation = LimitSimulation::new(scenario);
    simulation.run();
    simulation.admitted.retain(|(step, _)| *step < INTERVAL + 55_000 / STEP);
    simulation.admitted
}

#[test]
fn a_gateway_alone_admits_exactly_the_limit() {
    for limit in [1, 10, 60] {
        assert_eq!(admitted_in_first_minute(calm(vec![500], limit)).len(), limit as usize);
    }
}

#[test]
fn several_gateways_admit_the_limit_and_hardly_more() {
    for gateways in [2, 3, 5] {
        let admitted = admitted_in_first_minute(calm(vec![100; gateways], 60)).len();
        let most = 60 + (gateways - 1) * (60 / (4 * gateways) + 2);
        assert!((60..=most).contains(&admitted), "{admitted} by {gateways}");
    }
}

#[test]
fn gateways_that_are_cut_off_admit_at_least_their_share() {
    let admitted = admitted_in_first_minute(LimitScenario { cut: (0, u64::MAX), ..calm(vec![500; 3], 60) });
    let by: BTreeSet<usize> = (0..3).filter(|at| admitted.iter().filter(|(_, by)| by == at).count() >= 20).collect();
    assert_eq!(by.len(), 3, "{admitted:?}");
    assert!(admitted.len() <= 60 + 2 * (5 + 50), "{}", admitted.len());
}

#[test]
fn a_gateway_that_restarts_finds_its_window_again() {
    let restarts = vec![(4000, 0)];
    let admitted = admitted_in_first_minute(LimitScenario { restarts, ..calm(vec![500, 0], 60) });
    assert!(admitted.len() <= 65, "{} with those before it has asked", admitted.len());
    let alone = admitted_in_first_minute(LimitScenario { restarts: vec![(4000, 0)], ..calm(vec![500], 60) });
    assert_eq!(alone.len(), 120, "no other gateway remembers");
}

#[test]
fn callers_beyond_the_room_share_a_window_until_others_are_idle() {
    let limiter = RateLimiter::default();
    let limits = RateLimits { per_workload: None, per_caller: Some(1) };
    let caller = |number: u32| ClientId::Address(IpAddr::from(number.to_be_bytes()));
    let at = |seconds: u64| LimitTime { unix: 1_000_000_000_000 + seconds * 1000, up: 1000 + seconds * 1000 };
    for number in 0..super::MAX_WINDOWS as u32 {
        assert_eq!(limiter.admit(limits, "agent/ns/a", || caller(number), at(0)), Ok(()));
    }
    assert!(limiter.admit(limits, "agent/ns/a", || caller(u32::MAX), at(2)).is_ok(), "the first of the rest");
    assert!(limiter.admit(limits, "agent/ns/a", || caller(u32::MAX - 1), at(2)).is_err(), "it is shared");
    assert!(limiter.admit(limits, "agent/ns/a", || caller(7), at(2)).is_err(), "who has a window keeps it");
    assert!(limiter.admit(limits, "agent/ns/a", || caller(u32::MAX - 1), at(100)).is_ok(), "idle ones went first");
}
