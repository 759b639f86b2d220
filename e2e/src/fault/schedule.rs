//! Which calls meet which fault.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::ApiCall;

/// What is done to a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ProxyFault {
    /// It is held for a time up to this before it is sent.
    Delay(Duration),
    /// It is answered with this code and reason and not sent, with `Retry-After` in seconds.
    Refuse(u16, &'static str, Option<u32>),
    /// Its connection is reset and it is not sent.
    Drop,
    /// It is carried out, and the connection is reset instead of an answer.
    LoseAnswer,
    /// It is carried out, and answered with this code.
    AnswerWith(u16),
    /// It is carried out twice; the second answer is given.
    Repeat,
    /// It is not sent, and nothing is answered, ever (half-open connection).
    Silence,
    /// The body of its answer ends after so many bytes, with a reset.
    Cut(usize),
    /// Of a list: it is answered as one of the earlier times that the same was asked.
    Past,
    /// Of a watch: its events come this much later.
    Late(Duration),
    /// Of a watch: each event with this probability comes twice.
    Duplicate(f64),
    /// Of a watch: no event comes, bookmarks do. When that is over, the watch ends with an ERROR 410, since what was lost is in no
    /// watch any more.
    Deaf,
    /// Of a watch: each event with this probability comes in a form that cannot be read. When that is over, the watch ends with an
    /// ERROR 410, as for [`Deaf`](Self::Deaf).
    Garble(f64),
    /// Of a watch: the next event is an ERROR 410, and the last.
    Gone,
    /// Of a watch: it ends cleanly in place of its next event.
    End,
}

impl ProxyFault {
    /// Whether it is of the events of a watch.
    pub(super) fn is_of_events(&self) -> bool {
        matches!(self, Self::Late(_) | Self::Duplicate(_) | Self::Deaf | Self::Garble(_) | Self::Gone | Self::End)
    }

    /// Whether events are lost by it.
    pub(super) fn is_lossy(&self) -> bool {
        matches!(self, Self::Deaf | Self::Garble(_))
    }
}

/// Which calls a rule is about; what is empty matches everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallFilter {
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// The resource, such as `agents`.
    pub resource: &'static str,
    /// The subresource; `-`: none.
    pub subresource: &'static str,
    /// The namespace.
    pub namespace: &'static str,
}

impl CallFilter {
    /// Writes of anything.
    pub const WRITES: Self =
        Self { verbs: &["create", "update", "patch", "delete"], resource: "", subresource: "", namespace: "" };
    /// Anything but watches.
    pub const CALLS: Self = Self {
        verbs: &["create", "update", "patch", "delete", "get", "list"],
        resource: "",
        subresource: "",
        namespace: "",
    };
    /// Watches of anything.
    pub const WATCHES: Self = Self { verbs: &["watch"], resource: "", subresource: "", namespace: "" };

    /// Whether a call is one of these.
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

/// Which of the calls that match.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FaultTrigger {
    /// Each.
    Always,
    /// The nth of an object, from 1.
    Nth(u64),
    /// Each nth of an object.
    Every(u64),
    /// Each with this probability.
    Chance(f64),
    /// All of a verb and resource in each nth namespace, by the number at the end of its name; which verbs and resources are whose is
    /// drawn.
    VerbRoundRobin(u64),
    /// Each nth in a namespace; the number at the end of its name says with which it begins.
    RoundRobin(u64),
}

/// One rule.
#[derive(Debug, Clone, Copy)]
pub struct FaultRule {
    /// Which calls.
    pub filter: CallFilter,
    /// Which of these.
    pub trigger: FaultTrigger,
    /// What is done to them.
    pub fault: ProxyFault,
}

impl FaultRule {
    /// A rule.
    pub const fn new(of: CallFilter, when: FaultTrigger, fault: ProxyFault) -> Self {
        Self { filter: of, trigger: when, fault }
    }
}

/// Rules in force, and where their decisions come from.
#[derive(Debug)]
pub struct FaultSchedule {
    seed: u64,
    rules: Mutex<Vec<FaultRule>>,
    /// How often each rule met each object.
    hits: Mutex<HashMap<(usize, ApiCall), u64>>,
    /// How often each rule met a call in each namespace.
    hits_in_namespace: Mutex<HashMap<(usize, String), u64>>,
}

impl FaultSchedule {
    /// Without rules, with this seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, rules: Mutex::default(), hits: Mutex::default(), hits_in_namespace: Mutex::default() }
    }

    /// Puts these rules in force, in place of all others.
    pub fn set(&self, rules: &[FaultRule]) {
        rules.clone_into(&mut self.rules.lock().unwrap_or_else(PoisonError::into_inner));
        self.hits.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.hits_in_namespace.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The faults that a call meets, each with a number from 0 to 1 for what else is to be drawn.
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

    /// Whether a rule for events is still in force, for a watch that was opened under it.
    pub(super) fn is_in_force(&self, fault: ProxyFault) -> bool {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.iter().any(|rule| rule.fault == fault)
    }

    /// A number from 0 to 1 that only the seed and this decide.
    pub fn draw(&self, of: impl std::hash::Hash) -> f64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, of).hash(&mut hasher);
        (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The number at the end of a namespace's name.
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
