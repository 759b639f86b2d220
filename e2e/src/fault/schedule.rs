//! Schedule of faults: maps requests to faults by rules.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::ApiCall;

/// Fault of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ProxyFault {
    /// The request is delayed by a random time up to this before it is sent.
    Delay(Duration),
    /// The request is refused with this code and reason and not sent, with `Retry-After` in seconds.
    Refuse(u16, &'static str, Option<u32>),
    /// The connection is reset and the request is not sent.
    Drop,
    /// The request is sent, and the connection is reset instead of a response.
    LoseAnswer,
    /// The request is sent, and answered with this code.
    AnswerWith(u16),
    /// The request is sent twice; the second response is returned.
    Repeat,
    /// The request is not sent and never answered (half-open connection).
    Silence,
    /// The body of the response ends after this many bytes, with a reset.
    Cut(usize),
    /// Lists only: the response is one of the responses so far to the same list.
    Past,
    /// Watches only: events are delayed by this time.
    Late(Duration),
    /// Watches only: each event is sent twice with this probability.
    Duplicate(f64),
    /// Watches only: no event is sent, but bookmarks are. When the fault is over, the watch ends with an ERROR 410, since
    /// no watch can deliver the lost events any more.
    Deaf,
    /// Watches only: each event is sent undecodable with this probability. When the fault is over, the watch ends with an
    /// ERROR 410, as for [`Deaf`](Self::Deaf).
    Garble(f64),
    /// Watches only: the next event is replaced by an ERROR 410, which is the last one.
    Gone,
    /// Watches only: the watch ends cleanly instead of its next event.
    End,
}

impl ProxyFault {
    /// Reports whether the fault applies to the events of a watch.
    pub(super) fn is_of_events(&self) -> bool {
        matches!(self, Self::Late(_) | Self::Duplicate(_) | Self::Deaf | Self::Garble(_) | Self::Gone | Self::End)
    }

    /// Reports whether the fault loses events.
    pub(super) fn is_lossy(&self) -> bool {
        matches!(self, Self::Deaf | Self::Garble(_))
    }
}

/// Filter of requests; an empty part matches everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallFilter {
    /// Verbs; an empty list matches all.
    pub verbs: &'static [&'static str],
    /// Resource, such as `agents`.
    pub resource: &'static str,
    /// Subresource; `-` matches only requests without one.
    pub subresource: &'static str,
    /// Namespace.
    pub namespace: &'static str,
}

impl CallFilter {
    /// All writes.
    pub const WRITES: Self =
        Self { verbs: &["create", "update", "patch", "delete"], resource: "", subresource: "", namespace: "" };
    /// All requests except watches.
    pub const CALLS: Self = Self {
        verbs: &["create", "update", "patch", "delete", "get", "list"],
        resource: "",
        subresource: "",
        namespace: "",
    };
    /// All watches.
    pub const WATCHES: Self = Self { verbs: &["watch"], resource: "", subresource: "", namespace: "" };

    /// Reports whether a request matches.
    pub fn matches(&self, call: &ApiCall) -> bool {
        let same = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        let subresource = if self.subresource == "-" {
            call.subresource.is_empty()
        } else {
            same(self.subresource, &call.subresource)
        };
        (self.verbs.is_empty() || self.verbs.contains(&call.verb))
            && same(self.resource, &call.resource)
            && same(self.namespace, &call.namespace)
            && subresource
    }
}

/// Selection among the requests that match the filter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FaultTrigger {
    /// Every request.
    Always,
    /// The nth request for an object, counted from 1.
    Nth(u64),
    /// Every nth request for an object.
    Every(u64),
    /// Every request with this probability.
    Chance(f64),
    /// All requests of a verb and resource in every nth namespace, by the number at the end of its name; the namespaces of
    /// a verb and resource are drawn.
    VerbRoundRobin(u64),
    /// Every nth request in a namespace; the number at the end of its name is the offset.
    RoundRobin(u64),
}

/// One rule.
#[derive(Debug, Clone, Copy)]
pub struct FaultRule {
    /// Filter of requests.
    pub filter: CallFilter,
    /// Selection among those that match.
    pub trigger: FaultTrigger,
    /// Fault that is applied to them.
    pub fault: ProxyFault,
}

impl FaultRule {
    /// Creates a rule.
    pub const fn new(of: CallFilter, when: FaultTrigger, fault: ProxyFault) -> Self {
        Self { filter: of, trigger: when, fault }
    }
}

/// Active rules, with the seed and the counters for their decisions.
///
/// Invariant: the counters are those of the active rules; [`set`](Self::set) clears them.
#[derive(Debug)]
pub struct FaultSchedule {
    seed: u64,
    rules: Mutex<Vec<FaultRule>>,
    /// Number of matches of each rule for each request.
    hits: Mutex<HashMap<(usize, ApiCall), u64>>,
    /// Number of matches of each rule in each namespace; only for [`FaultTrigger::RoundRobin`].
    hits_in_namespace: Mutex<HashMap<(usize, String), u64>>,
}

impl FaultSchedule {
    /// Creates a schedule without rules, with this seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, rules: Mutex::default(), hits: Mutex::default(), hits_in_namespace: Mutex::default() }
    }

    /// Replaces the active rules.
    pub fn set(&self, rules: &[FaultRule]) {
        rules.clone_into(&mut self.rules.lock().unwrap_or_else(PoisonError::into_inner));
        self.hits.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.hits_in_namespace.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the faults of a request, each with a number from 0 to 1 for the further draws of that fault.
    pub fn decide(&self, call: &ApiCall) -> Vec<(ProxyFault, f64)> {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut faults = Vec::new();
        for (at, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.filter.matches(call)) {
            let ordinal = {
                let mut met = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
                let count = met.entry((at, call.clone())).or_default();
                *count += 1;
                *count
            };
            let applies = match rule.trigger {
                FaultTrigger::Always => true,
                FaultTrigger::Nth(n) => ordinal == n,
                FaultTrigger::Every(n) => ordinal % n == 0,
                FaultTrigger::Chance(chance) => self.draw((at, call, ordinal, 0)) < chance,
                FaultTrigger::VerbRoundRobin(n) => {
                    let turn = self.draw((at, call.verb, &call.resource, &call.subresource)) * n as f64;
                    number(&call.namespace).is_some_and(|number| number % n == turn as u64)
                }
                FaultTrigger::RoundRobin(n) => {
                    let mut counts = self.hits_in_namespace.lock().unwrap_or_else(PoisonError::into_inner);
                    let count = counts.entry((at, call.namespace.clone())).or_default();
                    *count += 1;
                    number(&call.namespace).is_some_and(|number| *count % n == number % n)
                }
            };
            if applies {
                faults.push((rule.fault, self.draw((at, call, ordinal, 1))));
            }
        }
        faults
    }

    /// Reports whether a rule with this fault is still active; for a watch that was opened under it.
    pub(super) fn is_in_force(&self, fault: ProxyFault) -> bool {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.iter().any(|rule| rule.fault == fault)
    }

    /// Returns a number from 0 to 1 that depends only on the seed and this value.
    pub fn draw(&self, of: impl std::hash::Hash) -> f64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, of).hash(&mut hasher);
        (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns the number at the end of a namespace's name.
fn number(namespace: &str) -> Option<u64> {
    namespace.rsplit('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(verb: &'static str, name: &str) -> ApiCall {
        let (resource, subresource, namespace) = ("agents".into(), "status".into(), "a".into());
        ApiCall { verb, resource, subresource, namespace, name: name.into(), is_dry_run: false }
    }

    #[test]
    fn what_an_object_meets_depends_on_the_seed_and_not_on_the_others() {
        let chance = [FaultRule::new(CallFilter::WRITES, FaultTrigger::Chance(0.3), ProxyFault::Drop)];
        let run = |seed, others: bool| {
            let plan = FaultSchedule::new(seed);
            plan.set(&chance);
            let mut met = Vec::new();
            for _ in 0..100 {
                if others {
                    plan.decide(&call("patch", "other"));
                }
                met.push(!plan.decide(&call("patch", "one")).is_empty());
            }
            met
        };
        assert_eq!(run(1, false), run(1, true));
        assert_ne!(run(1, false), run(2, false));
        let hits = run(1, false).into_iter().filter(|hit| *hit).count();
        assert!((15..45).contains(&hits), "{hits}");
    }

    #[test]
    fn a_rule_is_about_what_it_says() {
        let status = CallFilter { resource: "agents", subresource: "status", ..CallFilter::WRITES };
        let bare = CallFilter { subresource: "-", ..CallFilter::WRITES };
        assert!(status.matches(&call("patch", "x")) && !status.matches(&call("get", "x")));
        assert!(!bare.matches(&call("patch", "x")) && CallFilter::default().matches(&call("watch", "")));
        let plan = FaultSchedule::new(1);
        plan.set(&[
            FaultRule::new(CallFilter::WRITES, FaultTrigger::Nth(2), ProxyFault::Drop),
            FaultRule::new(CallFilter::WRITES, FaultTrigger::Every(2), ProxyFault::Repeat),
        ]);
        let met: Vec<_> = (0..4).map(|_| plan.decide(&call("patch", "x")).len()).collect();
        assert_eq!(met, [0, 2, 0, 1]);
    }

    #[test]
    fn namespaces_take_their_turns() {
        let of = |namespace: &str, name: &str| ApiCall { namespace: namespace.into(), ..call("patch", name) };
        let plan = FaultSchedule::new(1);
        plan.set(&[FaultRule::new(CallFilter::WRITES, FaultTrigger::RoundRobin(3), ProxyFault::Drop)]);
        let met =
            |namespace: &str| -> Vec<_> { (0..6).map(|n| plan.decide(&of(namespace, &n.to_string())).len()).collect() };
        assert_eq!(met("a-01"), [1, 0, 0, 1, 0, 0]);
        assert_eq!(met("a-03"), [0, 0, 1, 0, 0, 1]);
        assert_eq!(met("system"), [0; 6]);
        plan.set(&[FaultRule::new(CallFilter::WRITES, FaultTrigger::VerbRoundRobin(4), ProxyFault::Drop)]);
        let turns: Vec<_> = (0..8).map(|n| met(&format!("a-{n}"))).collect();
        assert!(turns.iter().all(|met| *met == [0; 6] || *met == [1; 6]), "{turns:?}");
        assert_eq!(turns[..4].iter().filter(|met| met[0] == 1).count(), 1, "{turns:?}");
        assert_eq!(turns[..4], turns[4..]);
    }
}
