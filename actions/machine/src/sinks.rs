//! Reports each reconcile step to its sinks: the phase trace here, metrics and Events in the operator. A sink cannot fail a step.

use std::time::Duration;

use meta::HistoryEntry;

/// Outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepOutcome {
    /// The object moved to another phase.
    Moved,
    /// The phase is the same, and the action changed something.
    Acted,
    /// The phase is the same, and the action waits.
    Waiting,
    /// The phase is the same, and nothing was to be done.
    Idle,
    /// The phase is the same, and the step is retried.
    Retry,
    /// The object moved to the failed phase.
    Failed,
    /// The step was dropped because the object changed in the meantime (optimistic concurrency).
    Stale,
    /// The object changed phase once too often without an outside change (a hot loop): the next step is delayed by a back-off.
    Oscillating,
    /// Nothing was written because of a defect of this program, or the API server did not keep what was written.
    Defect,
}

impl StepOutcome {
    /// Returns the name of the outcome in traces and metrics.
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

/// Text of a Kubernetes Event, as `kubectl describe` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventText {
    /// True for an Event of type `Warning`.
    pub warning: bool,
    /// Reason of the Event, a CamelCase word.
    pub reason: String,
    /// Message of the Event, one sentence.
    pub message: String,
}

/// Record of one step, as the sinks receive it.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct StepRecord {
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub generation: i64,
    /// Number of the last history entry: the one that this step wrote, if it wrote one.
    pub seq: i64,
    /// Action or rule that decided the step; empty if no action handles the object.
    pub action: &'static str,
    /// Phase before the step; empty for an object without a phase.
    pub from: String,
    pub to: String,
    pub outcome: StepOutcome,
    /// Reason why the object moved, failed or is retried.
    pub reason: String,
    /// Message of the wait; empty if the step does not wait.
    pub waiting_for: String,
    /// Actions that claim the phase but declined the object.
    pub passed_over: Vec<&'static str>,
    /// Further facts, as `key=value`.
    pub notes: String,
    pub took: Duration,
    pub rv_before: String,
    /// Resource version after the step; empty if nothing was written.
    pub rv_after: String,
    pub digest: String,
    pub content_hash: String,
    /// Id of the history entry that this step wrote; empty if it wrote none.
    pub trace_id: String,
    /// Id of the trace of the convergence, as 32 hexadecimal digits; empty without an entry.
    pub run: String,
    /// History entries that this step wrote: its own, after that of the admission of a new object.
    pub entries: Vec<HistoryEntry>,
    /// Event to emit; only for a step that wrote the status.
    pub event: Option<EventText>,
}

/// Receiver of step records. It must neither block nor fail.
pub trait Sink: Send + Sync {
    /// Receives the record of a step, after the step's writes.
    fn record(&self, record: &StepRecord);
}

/// Sink that writes the phase trace: one structured log line per step, waits included. A step that finds nothing to do is logged
/// at level debug, because every object is rechecked every few minutes.
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
            content_hash = $step.content_hash, trace_id = $step.trace_id, run = $step.run,
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
