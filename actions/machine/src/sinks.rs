//! Where a step is told: the phase trace here, metrics and Events in the operator. A sink cannot fail a step.

use std::time::Duration;

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepOutcome {
    /// To another phase.
    Moved,
    /// Same phase, something done.
    Acted,
    /// Same phase, waiting for something.
    Waiting,
    /// Same phase, nothing to do.
    Idle,
    /// Same phase, to be tried again.
    Retry,
    /// To the failed phase.
    Failed,
    /// Dropped: the object had changed meanwhile.
    Stale,
    /// To another phase once too often without a cause: the next step waits.
    Oscillating,
    /// Nothing written because of a fault of this program, or what was written does not hold.
    Defect,
}

impl StepOutcome {
    /// The name in traces and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Moved => "moved",
            Self::Acted => "acted",
            Self::Waiting => "waiting",
            Self::Idle => "idle",
            Self::Retry => "retry",
            Self::Failed => "failed",
            Self::Stale => "stale",
            Self::Oscillating => "oscillating",
            Self::Defect => "defect",
        }
    }
}

/// What a person should be told through `kubectl describe`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventText {
    /// Whether something is wrong.
    pub warning: bool,
    /// A CamelCase word.
    pub reason: String,
    /// One sentence.
    pub message: String,
}

/// Everything there is to say about one step.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct StepRecord {
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub generation: i64,
    /// Number of the last history entry, the one this step wrote if it wrote one.
    pub seq: i64,
    /// The action or rule that decided; empty when nobody handles the object.
    pub action: &'static str,
    /// The phase before; empty for an object without one.
    pub from: String,
    pub to: String,
    pub outcome: StepOutcome,
    /// Why it moved, failed or is tried again.
    pub reason: String,
    /// What it waits for.
    pub waiting_for: String,
    /// Actions that claim the phase but declined.
    pub passed_over: Vec<&'static str>,
    /// Further notes, `key=value`.
    pub notes: String,
    pub took: Duration,
    pub rv_before: String,
    /// Empty when nothing was written.
    pub rv_after: String,
    pub digest: String,
    pub content_hash: String,
    pub trace_id: String,
    /// What to tell a person, when the status was written.
    pub event: Option<EventText>,
}

/// Takes note of steps. Must neither block nor fail.
pub trait Sink: Send + Sync {
    /// Called after the step's writes.
    fn record(&self, record: &StepRecord);
}

/// Writes the phase-trace line: one structured log line per step, also for waits. A look that finds nothing to do is told at
/// level debug: every object is looked at again each few minutes.
#[derive(Debug, Clone, Copy, Default)]
pub struct PhaseTrace;

macro_rules! trace_line {
    ($level:ident, $step:ident) => {
        tracing::$level!(
            target: "phase_trace",
            kind = $step.kind, ns = $step.namespace, name = $step.name, uid = $step.uid, generation = $step.generation,
            seq = $step.seq, action = $step.action, from = $step.from, to = $step.to, outcome = $step.outcome.as_str(),
            reason = $step.reason, waiting_for = $step.waiting_for, passed_over = $step.passed_over.join(","),
            notes = $step.notes, took_ms = u64::try_from($step.took.as_millis()).unwrap_or(u64::MAX),
            rv_before = $step.rv_before, rv_after = $step.rv_after, digest = $step.digest,
            content_hash = $step.content_hash, trace_id = $step.trace_id,
        )
    };
}

impl Sink for PhaseTrace {
    fn record(&self, step: &StepRecord) {
        match step.outcome {
            StepOutcome::Idle => trace_line!(debug, step),
            _ => trace_line!(info, step),
        }
    }
}
