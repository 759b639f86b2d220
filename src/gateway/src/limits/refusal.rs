//! Refusal of a request beyond a limit, in the form that the client expects.

use std::time::Duration;

use crate::{
    local_response::{ErrorForm, LocalResponse},
    object::RoutedKind,
};

/// Code of JSON-RPC for errors of a server's own.
const SERVER_ERROR: i32 = -32000;

/// Requests that a limit counts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitPer {
    /// Those of all callers of a workload.
    Workload,
    /// Those of one caller.
    Caller,
}

impl LimitPer {
    /// All of them.
    pub(crate) const ALL: [Self; 2] = [Self::Workload, Self::Caller];

    /// Returns the value of `per` in the spec, and of the label of the metric.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Workload => crds::limit::PER_WORKLOAD,
            Self::Caller => crds::limit::PER_CALLER,
        }
    }
}

/// Refusal of a request beyond a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateRefusal {
    /// Requests that the limit counts.
    pub(crate) per: LimitPer,
    /// Most requests in a minute.
    pub(crate) limit: u32,
    /// Time until a request fits, in milliseconds.
    pub(crate) wait: u64,
}

impl RateRefusal {
    /// Returns the response of a workload of this kind.
    pub(crate) fn response(&self, kind: RoutedKind) -> LocalResponse {
        let Self { per, limit, wait } = *self;
        let wait = Duration::from_millis(wait.max(1));
        let subject = match per {
            LimitPer::Workload => "this workload",
            LimitPer::Caller => "each caller of this workload",
        };
        let error = format!("{subject} may have {limit} requests in a minute: send this one again after Retry-After");
        LocalResponse {
            retry_after: Some(wait),
            rpc: (kind == RoutedKind::McpServer).then_some(SERVER_ERROR),
            ..LocalResponse::new(429, "rate", error)
        }
    }
}

/// Returns the form of a refusal for the path below a workload: OpenAI's API lies below `/v1/`.
pub(crate) fn form_at(rest: &[u8], form: ErrorForm) -> ErrorForm {
    if rest.starts_with(b"/v1/") { ErrorForm::OpenAi } else { form }
}
