//! What can go wrong in a step, sorted by what the driver does about it.
//!
//! The sorting decides whether an object may end in Failed: only what this program does wrong counts as an attempt.
//! An API server that is away, a quota or a missing right never does.

use std::time::Duration;

/// A request to the API server that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// Time-outs, transport errors, 409, 429 and 5xx: try again, never an attempt.
    #[error("{message}")]
    Transient {
        /// What was being done and what came back.
        message: String,
        /// From `Retry-After`.
        after: Option<Duration>,
    },
    /// 403 with cause `NamespaceTerminating`: nothing can be made here any more.
    #[error("the namespace is being deleted")]
    NamespaceTerminating,
    /// Any other 403: a right is missing or a quota is used up.
    #[error("{0}")]
    Forbidden(String),
    /// A guarded write met another object than the one it was meant for, or none, or one where none was expected.
    #[error("the object changed identity: {0}")]
    WrongUid(String),
    /// A `test` of a JSON Patch failed: what the step was based on is no longer so.
    #[error("the object changed while the step ran")]
    Stale,
    /// There is no such object.
    #[error("not found")]
    NotFound,
    /// A Deployment exists whose selector cannot be changed.
    #[error("{0}")]
    SelectorImmutable(String),
    /// A 422 that names a field, or a body that does not fit the schema: the API server itself judges what was sent as wrong.
    #[error("{0}")]
    Invalid(String),
    /// Any other 400 or 422 of an apply: an admission policy or webhook does not want it now, and may change its mind.
    #[error("{0}")]
    Refused(String),
}

impl ApiError {
    /// Whether a dry run says nothing of the request itself: a webhook refuses to judge dry runs.
    pub fn is_undecided(&self) -> bool {
        matches!(self, Self::Refused(message) if message.contains("does not support dry run"))
    }
}

/// Why an action could not finish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    /// Try again; counted, and after eight attempts the object is Failed.
    #[error("{message}")]
    Retry {
        /// A CamelCase word for the condition.
        reason: &'static str,
        /// One sentence: what happened and what to do.
        message: String,
        /// When to try again; `None`: by the backoff.
        after: Option<Duration>,
    },
    /// Trying again at once is of no use: the object is Failed.
    #[error("{message}")]
    Terminal {
        /// A CamelCase word for the condition.
        reason: &'static str,
        /// One sentence: what happened and what to do.
        message: String,
    },
    /// A request failed; the driver decides by its sort.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl ActionError {
    /// A failure that time alone, or trying again at once, does not mend.
    pub fn terminal(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Terminal { reason, message: message.into() }
    }

    /// A counted failure, tried again by the backoff.
    pub fn retry(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Retry { reason, message: message.into(), after: None }
    }
}
