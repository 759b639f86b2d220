//! Interface to all language models.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;

use super::{
    error::ModelError,
    request::{Chunk, ModelRequest},
    title,
};
use crate::{caller::CallerKey, usage::UsageAccount};

/// Language model.
#[async_trait]
pub(crate) trait Model: Send + Sync {
    /// Answers the last message of the conversation. Dropping the stream cancels the request.
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>>;

    /// Generates a title for a conversation from its first message: at most 60 characters, one line. After 10 s, or
    /// without a usable answer, the title is the beginning of the message. `key` and `account` are the caller's.
    async fn title(&self, first: &str, key: Option<CallerKey>, account: UsageAccount) -> String {
        title::request_title(|request| self.respond(ModelRequest { key, account, ..request }), first).await
    }

    /// Returns the names of the models that may answer, the first one first; none where they are not known.
    fn names(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    /// Reports whether requests need the caller's own key.
    fn needs_key(&self) -> bool {
        false
    }

    /// Returns why the first model did not answer last, in a few words, if others stand in for it.
    fn failure(&self) -> Option<Arc<str>> {
        None
    }
}

/// Embedding model: maps text to a vector, near those of texts with a similar meaning.
#[async_trait]
pub(crate) trait Embedder: Send + Sync {
    /// Returns the vector of `text`; all vectors of one model have the same dimension. `account` counts the tokens, and has
    /// the parent span.
    ///
    /// # Errors
    /// The same as for an answer.
    async fn embed(&self, text: &str, account: UsageAccount) -> Result<Vec<f32>, ModelError>;
}
