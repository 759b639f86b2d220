//! Log of the requests, and the faults that are injected into them.

use std::fmt;

use machine::ApiError;
use serde_json::Value;

use super::{ObjectId, Store};

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Look,
    DryRun,
    Apply,
    /// The scaler applies the replicas.
    Scale,
    /// The operator applies the replicas alone.
    Replicas,
    Delete,
    Status,
    Metadata,
}

/// Request as the API server receives it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LoggedRequest {
    pub(crate) verb: Verb,
    pub(crate) id: ObjectId,
    /// Number of earlier requests.
    pub(crate) nth: usize,
    /// Number of earlier writes.
    pub(crate) nth_write: usize,
    /// Body of the request.
    pub(crate) body: Value,
}

impl LoggedRequest {
    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.verb, Verb::Look | Verb::DryRun)
    }
}

impl fmt::Display for LoggedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.verb, self.id)
    }
}

/// Fault that is injected into a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RequestFault {
    No,
    /// Rejected; nothing happened.
    Refuse(ApiError),
    /// Done, but the response is lost.
    Lose(ApiError),
    /// The operator dies before it sends the request.
    DieBefore,
    /// Done, and the operator dies before it receives the response.
    DieUnanswered,
    /// Done and answered; the operator dies before its next request.
    DieAfter,
}

pub(super) type FaultPlan = Box<dyn FnMut(&LoggedRequest, &mut Store) -> RequestFault + Send>;

#[derive(Default)]
pub(super) struct Faults {
    pub(super) plan: Option<FaultPlan>,
    pub(super) log: Vec<LoggedRequest>,
    pub(super) requests: usize,
    pub(super) writes: usize,
}
