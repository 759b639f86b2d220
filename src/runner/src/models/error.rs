//! Errors of models.

use std::borrow::Cow;
use std::time::Duration;

use reqwest::StatusCode;

use super::refusal;

/// Failure of a model. The text is for the user and quotes nothing that the provider sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model did not answer: {text}")]
pub(crate) struct ModelError {
    /// Kind of failure.
    pub(crate) kind: ModelErrorKind,
    text: String,
    /// Status of the response, if there was one without success.
    pub(super) status: Option<u16>,
    /// Code that the provider gave, if it is one that decides.
    pub(super) code: Option<&'static str>,
    /// Delay that the provider asked for in `Retry-After`.
    pub(super) retry_after: Option<Duration>,
    /// Set if the same request may succeed in a moment.
    pub(super) is_transient: bool,
    /// Set if another model may answer the request.
    pub(super) is_of_model: bool,
    /// Set if the provider reported it within its answer.
    pub(super) is_reported: bool,
}

/// Kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelErrorKind {
    /// The provider refuses: invalid credentials, or its safety rules.
    Refused,
    /// The caller's own key is needed, and the request has none.
    NoKey,
    /// The provider cannot be reached, is overloaded, or the answer broke off. A retry may succeed.
    Unavailable,
    /// The provider did not respond in time.
    Timeout,
    /// The response does not have the form that the provider documents.
    Malformed,
    /// The provider rejects the request: unknown model, invalid setting, too long a conversation.
    BadRequest,
    /// The tokens of today are spent, or their costs, so no model is asked.
    OverBudget,
}

const NO_QUOTA: &str = "the account at the provider has no quota or credit left; see its billing";

const UNSAFE: &str = "the provider's rules on content forbid this answer; ask in another way";

/// Advice for a model that took too long.
pub(super) const TOO_SLOW: &str = "the model took too long; ask for less, or try again later";

impl ModelError {
    /// Creates an error; `text` says what to do and quotes nothing of a response.
    pub(crate) fn new(kind: ModelErrorKind, text: impl Into<String>) -> Self {
        use ModelErrorKind::{Malformed, Timeout, Unavailable};
        let is_of_model = matches!(kind, Unavailable | Timeout | Malformed);
        let is_transient = kind == Unavailable;
        let (text, status, code) = (text.into(), None, None);
        Self { kind, text, status, code, retry_after: None, is_transient, is_of_model, is_reported: false }
    }

    /// Creates the error for a request without the caller's key.
    pub(crate) fn no_key() -> Self {
        let text = "the model needs your key: send it as Authorization, and sign in by X-Recif-Authorization";
        Self::new(ModelErrorKind::NoKey, text)
    }

    /// Creates the error for a request whose budget is spent: of this unit, token or cost.
    pub(crate) fn over_budget(unit: &str) -> Self {
        Self::new(ModelErrorKind::OverBudget, format!("the {unit}s of today are spent: wait until 00:00 UTC"))
    }

    /// Creates the error for a response whose status is not success, and in which the provider gave this code.
    pub(super) fn status(status: StatusCode, code: Option<&'static str>) -> Self {
        use ModelErrorKind::{BadRequest, Refused, Timeout, Unavailable};
        let is_quota = matches!(code, Some(refusal::NO_QUOTA | refusal::SERVICE_QUOTA));
        let (kind, what) = match status.as_u16() {
            400 | 429 if is_quota => (Refused, NO_QUOTA),
            408 if code == Some(refusal::MODEL_TIMEOUT) => (Timeout, TOO_SLOW),
            400 if code == Some(refusal::CONTENT_FILTER) => (Refused, UNSAFE),
            402 => (Refused, NO_QUOTA),
            401 | 403 => (Refused, "the provider refuses the API key; check that it is valid for this model"),
            404 => {
                (BadRequest, "the provider does not know the model or the path; check the model's name and base URL")
            }
            413 => (BadRequest, "the conversation is too long for the provider; start a new one"),
            429 => (Unavailable, "the provider limits the rate of requests; try again later"),
            // AWS says 424 when the model failed.
            408 | 424 | 500.. => (Unavailable, "the provider has a failure of its own; try again later"),
            300..=399 => (BadRequest, "the provider sends elsewhere; check the base URL"),
            _ => (
                BadRequest,
                "the provider refuses the request; check the model's name and configuration, and that the conversation \
                 is not too long",
            ),
        };
        let error = Self::new(kind, format!("{what} (HTTP {})", status.as_u16()));
        // The request itself is at fault in the other cases, for every model.
        let is_of_model = is_quota || !matches!(status.as_u16(), 400 | 413 | 422);
        Self { is_of_model, status: Some(status.as_u16()), code, ..error }
    }

    /// Reports whether the schema of a request may be the reason why the provider refuses it.
    pub(super) fn may_be_of_schema(&self) -> bool {
        self.kind == ModelErrorKind::BadRequest && matches!(self.status, Some(400 | 422)) && self.code.is_none()
    }

    /// Returns the status for a turn whose model failed.
    pub(crate) fn response_status(&self) -> StatusCode {
        match self.kind {
            ModelErrorKind::NoKey => StatusCode::UNAUTHORIZED,
            ModelErrorKind::OverBudget => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::BAD_GATEWAY,
        }
    }

    /// Returns the status, or the kind of the failure in a word.
    pub(crate) fn word(&self) -> Cow<'static, str> {
        let kind = match self.kind {
            ModelErrorKind::Refused => "refused",
            ModelErrorKind::NoKey => "no_key",
            ModelErrorKind::Unavailable => "unavailable",
            ModelErrorKind::Timeout => "timeout",
            ModelErrorKind::Malformed => "malformed",
            ModelErrorKind::BadRequest => "bad_request",
            ModelErrorKind::OverBudget => "over_budget",
        };
        self.status.map_or(Cow::Borrowed(kind), |status| status.to_string().into())
    }

    /// Returns the failure in a few words, such as `HTTP 503`.
    pub(super) fn summary(&self) -> String {
        match (self.status, self.kind) {
            (Some(status), _) => format!("HTTP {status}"),
            (None, ModelErrorKind::Timeout) => "no answer in time".to_owned(),
            (None, ModelErrorKind::Malformed) => "an answer that cannot be read".to_owned(),
            (None, _) => "no answer".to_owned(),
        }
    }

    /// Creates the error for credentials that cannot be fetched. Another model may have better ones.
    pub(super) fn no_credentials(kind: ModelErrorKind, text: impl Into<String>) -> Self {
        Self { is_of_model: true, ..Self::new(kind, text) }
    }

    /// Creates the error for a failure that the provider reported within its answer. The piece with the report goes to
    /// the log only.
    pub(super) fn reported() -> Self {
        let error = Self::new(ModelErrorKind::Unavailable, "the provider failed while it answered; try again later");
        Self { is_reported: true, ..error }
    }

    /// Creates the error for a failure of another kind that the provider reported within its answer.
    pub(super) fn reported_as(kind: ModelErrorKind, text: &str) -> Self {
        Self { is_reported: true, ..Self::new(kind, text) }
    }

    /// Creates the error for an answer ended by the provider's safety rules.
    pub(super) fn unsafe_content() -> Self {
        Self::new(ModelErrorKind::Refused, UNSAFE)
    }

    /// Creates the error for an answer that ended before it was complete.
    pub(super) fn broken_off() -> Self {
        Self::new(ModelErrorKind::Unavailable, "the provider's answer broke off; try again")
    }

    /// Creates the error for an answer that cannot be decoded.
    pub(super) fn malformed() -> Self {
        Self::new(
            ModelErrorKind::Malformed,
            "the provider's answer cannot be read; check that the base URL is that of this provider",
        )
    }

    /// Creates the error for an answer larger than `what`, for example `a line of 1 MiB`.
    pub(super) fn too_large(what: &str) -> Self {
        Self::new(ModelErrorKind::Malformed, format!("the provider's answer holds more than {what}"))
    }
}
