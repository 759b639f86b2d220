//! Classifies the errors of a step by the driver's reaction.
//!
//! The class decides whether an object may end in Failed: a fault of this program, a faulty spec or a rejected request may lead
//! there. An unavailable API server, a quota or a missing permission never does.

use std::time::Duration;

/// Failed request to the API server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// Time-outs, transport errors, 409, 429 and 5xx: retried, never counted as an attempt.
    #[error("{message}")]
    Transient {
        /// Request and response in words.
        message: String,
        /// Delay from the header `Retry-After`.
        after: Option<Duration>,
    },
    /// 403 with cause `NamespaceTerminating`: nothing can be created in the namespace any more.
    #[error("the namespace is being deleted")]
    NamespaceTerminating,
    /// Any other 403: a missing permission or an exhausted quota.
    #[error("{0}")]
    Forbidden(String),
    /// A guarded write found an object with another uid, none, or one although none was expected.
    #[error("the object changed identity: {0}")]
    WrongUid(String),
    /// A `test` of a JSON Patch failed: the object that the step was based on has changed.
    #[error("the object changed while the step ran")]
    Stale,
    /// The object does not exist.
    #[error("not found")]
    NotFound,
    /// A Deployment exists whose selector differs and is immutable.
    #[error("{0}")]
    SelectorImmutable(String),
    /// A 422 that names a field, or a body that does not fit the schema: the API server itself rejects the request as wrong.
    #[error("{0}")]
    Invalid(String),
    /// Any other 400 or 422 of an apply: an admission policy or webhook denies it, and may allow it later.
    #[error("{0}")]
    Refused(String),
}

impl ApiError {
    /// Reports whether a dry run decides nothing about the request itself: a webhook does not support dry runs.
    pub fn is_undecided(&self) -> bool {
        matches!(self, Self::Refused(message) if message.contains("does not support dry run"))
    }
}

/// Error of an action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    /// To be retried; counted, and after eight attempts the object is Failed.
    #[error("{message}")]
    Retry {
        /// Reason for the condition, a CamelCase word.
        reason: &'static str,
        /// One sentence: what happened and what to do.
        message: String,
        /// Delay until the next attempt; `None`: exponential back-off.
        after: Option<Duration>,
    },
    /// Not worth an immediate retry: the object is Failed.
    #[error("{message}")]
    Terminal {
        /// Reason for the condition, a CamelCase word.
        reason: &'static str,
        /// One sentence: what happened and what to do.
        message: String,
    },
    /// A request failed; the driver decides by the class of the error.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl ActionError {
    /// Creates a failure that neither time nor an immediate retry repairs.
    pub fn terminal(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Terminal { reason, message: message.into() }
    }

    /// Creates a counted failure, retried after an exponential back-off.
    pub fn retry(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Retry { reason, message: message.into(), after: None }
    }
}
