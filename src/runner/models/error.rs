//! Why a model did not answer.

/// A model did not answer. The text is for the user and holds nothing the provider sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model did not answer: {text}")]
pub(in crate::runner) struct ModelError {
    /// What kind of failure.
    pub(in crate::runner) kind: ModelErrorKind,
    text: String,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runner) enum ModelErrorKind {
    /// The provider does not want to: wrong credentials, or its safety rules.
    Refused,
    /// The provider cannot be reached, is overloaded or broke off.
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
    pub(in crate::runner) fn new(kind: ModelErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}
