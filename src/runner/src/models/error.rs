//! Why a model did not answer.

use std::time::Duration;

use reqwest::StatusCode;

use super::refusal;

/// A model did not answer. The text is for the user and holds nothing the provider sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model did not answer: {text}")]
pub(crate) struct ModelError {
    /// What kind of failure.
    pub(crate) kind: ModelErrorKind,
    text: String,
    /// How long the provider wants to be left alone.
    pub(super) retry_after: Option<Duration>,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelErrorKind {
    /// The provider does not want to: wrong credentials, or its safety rules.
    Refused,
    /// The provider cannot be reached, is overloaded or broke off. Trying again may help.
    Unavailable,
    /// The provider took too long.
    Timeout,
    /// What came is not what the provider documents.
    Malformed,
    /// The provider does not understand the request: no such model, a wrong setting, too long a conversation.
    BadRequest,
}

impl ModelError {
    /// A failure; `text` says what to do and quotes nothing of an answer.
    pub(crate) fn new(kind: ModelErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), retry_after: None }
    }

    /// The provider answered with a status that is not success.
    pub(super) fn status(status: StatusCode) -> Self {
        use ModelErrorKind::{BadRequest, Refused, Unavailable};
        let (kind, what) = match status.as_u16() {
            401 | 403 => (Refused, "the provider refuses the API key; check that it is valid for this model"),
            404 => {
                (BadRequest, "the provider does not know the model or the path; check the model's name and base URL")
            }
            413 => (BadRequest, "the conversation is too long for the provider; start a new one"),
            429 => (Unavailable, "the provider limits how often it may be asked; try again later"),
            408 | 500.. => (Unavailable, "the provider has a failure of its own; try again later"),
            300..=399 => (BadRequest, "the provider sends elsewhere; check the base URL"),
            _ => (
                BadRequest,
                "the provider refuses the request; check the model's name and configuration, and that the conversation \
                 is not too long",
            ),
        };
        Self::new(kind, format!("{what} (HTTP {})", status.as_u16()))
    }

    /// The provider said within its answer that it failed, in this piece of it, which only the log is told.
    pub(super) fn reported(piece: &[u8]) -> Self {
        tracing::warn!(said = refusal::piece_message(piece), "a model's provider failed while it answered");
        Self::new(ModelErrorKind::Unavailable, "the provider failed while it answered; try again later")
    }

    /// The provider's safety rules ended the answer.
    pub(super) fn unsafe_content() -> Self {
        Self::new(ModelErrorKind::Refused, "the provider's rules on content forbid this answer; ask in another way")
    }

    /// The answer ended before it was whole.
    pub(super) fn broken_off() -> Self {
        Self::new(ModelErrorKind::Unavailable, "the provider's answer broke off; try again")
    }

    /// The answer cannot be read.
    pub(super) fn malformed() -> Self {
        Self::new(
            ModelErrorKind::Malformed,
            "the provider's answer cannot be read; check that the base URL is that of this provider",
        )
    }

    /// The answer is larger than `what`, for example `a line of 1 MiB`.
    pub(super) fn too_large(what: &str) -> Self {
        Self::new(ModelErrorKind::Malformed, format!("the provider's answer holds more than {what}"))
    }
}
