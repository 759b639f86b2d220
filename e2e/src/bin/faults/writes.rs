//! Counts the writes in a namespace: the part of the oracle O7 about all of them.
//!
//! What was applied for an agent is recorded by its next status. An operator that is killed in between leaves no record, so the next one
//! makes the apply once more, which changes nothing. How often that happens is a matter of the machine: the steps of all agents run side
//! by side, and a life of 300 ms that is a little shorter than such a step cuts off all of them. So these applies are counted apart.
//!
//! An apply after a status that says `Running` is none of them: what has converged costs a restart no write.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use e2e::fault::{ApiCall, CallRecord, FaultProxy};

use crate::counts::is_change;

/// Number of calls that a failure names.
const NAMED: usize = 8;

/// Number of writes in a namespace that the API server accepted.
#[derive(Debug, Default)]
pub(crate) struct WriteCounts {
    /// All but the repeated applies.
    pub(crate) counted: usize,
    /// Applies that an operator made again because an earlier one was killed before a status recorded them.
    pub(crate) repeated: usize,
    /// All, by verb, resource and name.
    by_call: BTreeMap<String, usize>,
}

impl WriteCounts {
    /// Counts the writes in a namespace.
    pub(crate) fn of(proxy: &FaultProxy, namespace: &str) -> Self {
        let log = &proxy.faults.log;
        let mut taken = log.since(Duration::ZERO);
        taken.retain(|entry| {
            let accepted = entry.status.is_some_and(|code| code < 300);
            accepted && entry.call.namespace == namespace && is_change(entry)
        });
        Self::count(&taken, &log.client_starts())
    }

    /// Counts these writes of the operators that were started at these times.
    fn count(taken: &[CallRecord], starts: &[Duration]) -> Self {
        let mut counts = Self::default();
        let mut agents: HashMap<&str, AgentWrites<'_>> = HashMap::new();
        for entry in taken {
            // The children of an agent are named after it.
            let agent = entry.call.name.split('-').next().unwrap_or_default();
            let operator = starts.partition_point(|start| *start <= entry.at);
            match agents.entry(agent).or_default().record(entry, operator) {
                true => counts.repeated += 1,
                false => counts.counted += 1,
            }
            let call = ApiCall { namespace: String::new(), ..entry.call.clone() };
            *counts.by_call.entry(call.to_string()).or_default() += 1;
        }
        counts
    }

    /// Returns the most frequent writes, each with its number here and in an undisturbed run.
    pub(crate) fn most_frequent(&self, undisturbed: &Self) -> String {
        let mut calls: Vec<_> = self.by_call.iter().collect();
        calls.sort_by_key(|(_, count)| Reverse(**count));
        let line = |(call, count): &(&String, &usize)| {
            format!("{count} × {call} (undisturbed {})", undisturbed.by_call.get(*call).unwrap_or(&0))
        };
        calls.iter().take(NAMED).map(line).collect::<Vec<_>>().join(", ")
    }
}

/// State of one agent, as the writes so far show it.
#[derive(Default)]
struct AgentWrites<'a> {
    /// True if the last phase that was written is `Running`.
    is_running: bool,
    /// Applies of children since the last status, with the number of the operator that made each last.
    unrecorded: HashMap<&'a ApiCall, usize>,
}

impl<'a> AgentWrites<'a> {
    /// Records the next write, and reports whether it is an apply that an earlier operator made and no status has recorded.
    fn record(&mut self, entry: &'a CallRecord, operator: usize) -> bool {
        let call = &entry.call;
        match (call.resource.as_str(), call.subresource.as_str()) {
            ("agents", "status") => {
                self.unrecorded.clear();
                if let Some(phase) = &entry.phase {
                    self.is_running = phase == "Running";
                }
                false
            }
            ("agents" | "tools", _) => false,
            _ if call.verb != "patch" || self.is_running => false,
            _ => self.unrecorded.insert(call, operator).is_some_and(|earlier| earlier < operator),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts these writes about an agent, each with its time in milliseconds, its resource and the phase that it sets. A new operator
    /// was started every 100 ms.
    fn counts(writes: &[(u64, &str, Option<&str>)]) -> WriteCounts {
        let entry = |(at, resource, phase): &(u64, &str, Option<&str>)| {
            let (resource, subresource) = resource.split_once('/').unwrap_or((*resource, ""));
            let (resource, subresource) = (resource.to_owned(), subresource.to_owned());
            let (namespace, name, is_dry_run) = ("ns".to_owned(), "plain".to_owned(), false);
            let call = ApiCall { verb: "patch", resource, subresource, namespace, name, is_dry_run };
            CallRecord {
                at: Duration::from_millis(*at),
                call,
                has_precondition: true,
                phase: phase.map(str::to_owned),
                faults: Vec::new(),
                status: Some(200),
                changed_events: 0,
            }
        };
        let taken: Vec<_> = writes.iter().map(entry).collect();
        WriteCounts::count(&taken, &[0, 100, 200].map(Duration::from_millis))
    }

    #[test]
    fn only_an_apply_that_no_status_recorded_is_repeated_and_once_by_each_operator() {
        let apply = |at| (at, "services", None);
        let status = |at, phase| (at, "agents/status", Some(phase));
        for (writes, expected) in [
            (vec![apply(10), apply(110), apply(210)], (1, 2)),
            (vec![apply(10), apply(20), apply(110), apply(120)], (3, 1)),
            (vec![apply(10), status(20, "Deploying"), apply(110)], (3, 0)),
            (vec![status(10, "Running"), apply(20), apply(110), apply(210)], (4, 0)),
            (vec![status(10, "Running"), status(20, "Pending"), apply(30), apply(110)], (3, 1)),
            (vec![(10, "agents/status", None), (110, "agents/status", None)], (2, 0)),
            (vec![(10, "agents", None), (110, "agents", None)], (2, 0)),
        ] {
            let found = counts(&writes);
            assert_eq!((found.counted, found.repeated), expected, "{writes:?}");
        }
    }

    #[test]
    fn the_most_frequent_writes_are_named_first() {
        let found = counts(&[(10, "agents/status", None), (20, "services", None), (110, "services", None)]);
        let undisturbed = counts(&[(20, "services", None)]);
        assert_eq!(
            found.most_frequent(&undisturbed),
            "2 × patch services plain (undisturbed 1), 1 × patch agents/status plain (undisturbed 0)"
        );
    }
}
