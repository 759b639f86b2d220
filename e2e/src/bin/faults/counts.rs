//! Counts requests and creations: the oracle O2, and the part of O7 about single requests.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use anyhow::{Result, ensure};
use e2e::fault::{ApiCall, CallRecord, FaultProxy, ProxyFault};

/// Reports whether a call writes something other than a lease or an Event.
pub(crate) fn is_change(entry: &CallRecord) -> bool {
    entry.call.is_write() && !is_upkeep(&entry.call.resource)
}

fn is_upkeep(resource: &str) -> bool {
    matches!(resource, "leases" | "events")
}

/// Checks that no request was sent too often, refused attempts included, and none before the end of the `Retry-After` of a
/// refusal.
pub(crate) fn check_request_rate(proxy: &FaultProxy) -> Result<()> {
    let mut attempts: HashMap<ApiCall, Vec<CallRecord>> = HashMap::new();
    for entry in proxy.faults.log.since(Duration::ZERO) {
        let is_of_object = entry.call.is_write() || entry.call.is_dry_run || entry.call.verb == "get";
        if is_of_object && !is_upkeep(&entry.call.resource) {
            attempts.entry(entry.call.clone()).or_default().push(entry);
        }
    }
    for (call, attempts) in attempts {
        let took = attempts.last().map_or(Duration::ZERO, |last| last.at.saturating_sub(attempts[0].at));
        let most = 10 + 2 * took.as_secs() as usize;
        ensure!(attempts.len() <= most, "O7: {} attempts in {took:?}: {call}", attempts.len());
        for pair in attempts.windows(2) {
            let named = pair[0].faults.iter().find_map(|fault| match fault {
                ProxyFault::Refuse(_, _, Some(seconds)) => Some(Duration::from_secs((*seconds).into())),
                _ => None,
            });
            let gap = pair[1].at.saturating_sub(pair[0].at);
            ensure!(
                named.is_none_or(|named| gap >= named),
                "O7: {call} again after {gap:?}, though Retry-After said more"
            );
        }
    }
    Ok(())
}

/// Describes the objects that were created more or less often than expected.
pub(crate) fn describe_difference(expected: &BTreeMap<String, usize>, found: &BTreeMap<String, usize>) -> String {
    let all = expected.keys().chain(found.keys());
    let differs = |key: &&String| expected.get(*key) != found.get(*key);
    let line = |key: &String| {
        format!("{key} {} times, undisturbed {}", found.get(key).unwrap_or(&0), expected.get(key).unwrap_or(&0))
    };
    let mut lines: Vec<_> = all.filter(differs).map(line).collect();
    lines.dedup();
    lines.join(", ")
}
