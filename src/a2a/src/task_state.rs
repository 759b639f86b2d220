//! States of tasks.

/// State of a task, the same in both versions of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// Submitted or working, or in a state that this version does not know.
    Working,
    /// Waits for a further message.
    InputRequired,
    /// Ended with a result.
    Completed,
    /// Ended without a result.
    Failed,
    /// Was cancelled.
    Canceled,
    /// Was not begun.
    Rejected,
    /// Waits for credentials.
    AuthRequired,
}

impl TaskState {
    /// Parses the name of a state: `TASK_STATE_INPUT_REQUIRED` of 1.0, `input-required` of 0.3.
    pub(crate) fn parse(name: &str) -> Self {
        let word = name.strip_prefix("TASK_STATE_").unwrap_or(name).to_ascii_lowercase().replace('_', "-");
        match word.as_str() {
            "input-required" => Self::InputRequired,
            "completed" => Self::Completed,
            "failed" => Self::Failed,
            "canceled" | "cancelled" => Self::Canceled,
            "rejected" => Self::Rejected,
            "auth-required" => Self::AuthRequired,
            _ => Self::Working,
        }
    }
}
