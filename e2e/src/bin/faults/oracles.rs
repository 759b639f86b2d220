//! Oracles: what must hold at the end of a run under faults, in comparison with an undisturbed one.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Result, bail, ensure};
use e2e::{
    fault::{CallRecord, FaultProxy},
    local_operator::{operator::OperatorProcess, process},
};
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    counts::{check_request_rate, describe_difference, is_change},
    invariants::InvariantChecker,
    scenarios::FaultScenario,
    script::ScriptNamespace,
    writes::WriteCounts,
};

/// Longest wait for the settled state after the faults: the longest back-off, plus twice the time of the undisturbed run.
pub(crate) const BACKOFF: Duration = Duration::from_secs(60);
/// Time without a write after which a namespace counts as settled.
const QUIET: Duration = Duration::from_secs(10);

/// Result of an undisturbed run, which is the baseline.
pub(crate) struct BaselineRun {
    pub(crate) state: BTreeMap<String, Value>,
    pub(crate) creations: BTreeMap<String, usize>,
    /// Writes of the operator in the namespace with most of them.
    pub(crate) writes: WriteCounts,
    pub(crate) took: Duration,
    pub(crate) memory: f64,
}

/// State at the end of a run, before the oracles judge it.
pub(crate) struct FaultRun {
    pub(crate) namespaces: Vec<ScriptNamespace>,
    pub(crate) invariants: InvariantChecker,
    pub(crate) proxy: FaultProxy,
    pub(crate) operator: OperatorProcess,
    /// Time from the end of the faults until everything was settled.
    pub(crate) settled_after: Duration,
    pub(crate) log: PathBuf,
}

impl FaultRun {
    /// Compares the run with the undisturbed one; returns a summary.
    pub(crate) async fn check_oracles(&mut self, scenario: &FaultScenario, reference: &BaselineRun) -> Result<String> {
        // The writes of the last step may not have come back over the watch yet.
        sleep(Duration::from_secs(2)).await;
        let mark = self.proxy.faults.log.now();
        sleep(QUIET).await;
        let longest = BACKOFF + 2 * reference.took;
        let settled = self.settled_after;
        ensure!(settled < longest, "O3: as it should be only {settled:?} after the faults, {longest:?} is the bound");
        let written: Vec<_> = self.proxy.faults.log.since(mark);
        // The namespaces of the previous scenario may still be terminating.
        let is_ours =
            |entry: &&CallRecord| self.namespaces.iter().any(|namespace| namespace.name == entry.call.namespace);
        let written = written.iter().filter(is_ours).filter(|entry| is_change(entry));
        let written: Vec<_> = written.map(|entry| entry.call.to_string()).collect();
        ensure!(written.is_empty(), "O4: within {QUIET:?} of rest it wrote {written:?}");
        let unguarded = self.proxy.faults.log.since(Duration::ZERO);
        let unguarded = unguarded.iter().find(|entry| is_change(entry) && !entry.has_precondition);
        if let Some(entry) = unguarded {
            bail!("O5: neither uid nor version: {}", entry.call);
        }
        let (mut writes, mut repeated) = (0, 0);
        for namespace in &self.namespaces {
            let created = self.invariants.creation_counts(&namespace.name);
            ensure!(
                created == reference.creations,
                "O2: {}: {}",
                namespace.name,
                describe_difference(&reference.creations, &created)
            );
            let found = WriteCounts::of(&self.proxy, &namespace.name);
            let most = reference.writes.counted * (1 + scenario.writes as usize);
            ensure!(
                found.counted <= most,
                "O7: {}: {} writes, undisturbed {}, at most {most}, without {} applies again after kills; most often {}",
                namespace.name,
                found.counted,
                reference.writes.counted,
                found.repeated,
                found.most_frequent(&reference.writes)
            );
            (writes, repeated) = (writes.max(found.counted), repeated.max(found.repeated));
        }
        for rule in scenario.rules {
            let hits = self.proxy.faults.log.hit_count(rule.fault);
            ensure!(
                hits >= self.namespaces.len().min(4),
                "only {hits} calls met {:?}, which shows nothing",
                rule.fault
            );
        }
        let violations = self.invariants.violations(&self.namespaces);
        ensure!(violations.is_empty(), "O5, O6: {violations:?}");
        ensure!(self.operator.exit_status()?.is_none(), "O8: the operator ended; see {}", self.log.display());
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        ensure!(!log.contains("panicked"), "O8: it panicked; see {}", self.log.display());
        let (_, memory) = process::memory(self.operator.pid)?;
        let more = memory / reference.memory;
        ensure!(more <= 1.5, "O8: {memory:.0} MB, undisturbed {:.0}", reference.memory);
        check_request_rate(&self.proxy)?;
        Ok(format!(
            "settled after {:.1} s, {memory:.0} MB ({more:.2} × undisturbed), {writes} writes (undisturbed {}), \
             {repeated} applies again after kills",
            self.settled_after.as_secs_f32(),
            reference.writes.counted
        ))
    }
}
