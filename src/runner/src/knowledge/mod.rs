//! Knowledge bases: texts in PostgreSQL that a model may search, each through a tool `search_<name>`.
//!
//! This is [retrieval-augmented generation](https://en.wikipedia.org/wiki/Retrieval-augmented_generation) by tool
//! calls: the model searches when it needs to, with its own query, and reads the hits as the tool's result; the
//! description of the knowledge base tells it when to search. A table
//! `chunks(id, content, embedding, metadata, kb_id, tsv)` is filled by another program. The query is in [`search`].

mod search;
mod source;

use std::fmt;
use std::sync::Arc;

use telemetry::SpanKind;
use telemetry::semconv::{GEN_AI_DATA_SOURCE_ID, GEN_AI_OPERATION_NAME};

use super::Lookup;
use super::database::PostgresPool;
use super::models::{self, Embedder, Http};
use super::usage::UsageAccount;
pub(super) use source::KnowledgeSource;

/// Knowledge base that can be searched; clones share it.
#[derive(Clone)]
pub(super) struct KnowledgeBase(Arc<KnowledgeBaseInner>);

struct KnowledgeBaseInner {
    source: KnowledgeSource,
    database: PostgresPool,
    embedder: Arc<dyn Embedder>,
}

impl KnowledgeBase {
    /// Opens the knowledge base at `source`; `credentials` and `http` are for its embedding model. It does not connect.
    ///
    /// # Errors
    /// The reason why it can never be searched, as a sentence for `/readyz`.
    pub(super) fn open(source: &KnowledgeSource, credentials: &Lookup, http: &Http) -> Result<Self, String> {
        let problem = |text| format!("knowledge base `{}`: {text}", source.name);
        let database = PostgresPool::open(&source.dsn).map_err(problem)?;
        let embedder = models::open_embedder(&source.embedding, credentials, http).map_err(problem)?;
        Ok(Self(Arc::new(KnowledgeBaseInner { source: source.clone(), database, embedder })))
    }

    /// Returns the name of its tool.
    pub(super) fn tool(&self) -> &str {
        &self.0.source.tool
    }

    /// Returns the description of its content, for the model.
    pub(super) fn description(&self) -> &str {
        &self.0.source.description
    }

    /// Searches it for `query` and returns the hits, the best first, as text for the model. `account` counts the embedding.
    ///
    /// # Errors
    /// The embedding model or the database failed, as a sentence.
    pub(super) async fn search(&self, query: &str, account: UsageAccount) -> Result<String, String> {
        let span = account.trace().begin(format!("retrieval {}", self.0.source.name), SpanKind::Client);
        span.set(GEN_AI_OPERATION_NAME, "retrieval");
        span.set(GEN_AI_DATA_SOURCE_ID, self.0.source.name.clone());
        let found = self.hits(query, account.within(span.scope())).await;
        match &found {
            Ok(_) => span.succeed(),
            Err(_) => span.fail("unavailable"),
        }
        found
    }

    async fn hits(&self, query: &str, account: UsageAccount) -> Result<String, String> {
        let KnowledgeBaseInner { source, database, embedder } = &*self.0;
        let vector = embedder.embed(query, account).await;
        let vector = vector.map_err(|error| format!("the query cannot be embedded: {error}"))?;
        let found = search::hybrid(database, &source.kb_id, query, &vector).await.map_err(|error| error.to_string())?;
        Ok(search::text(&found))
    }
}

impl PartialEq for KnowledgeBase {
    fn eq(&self, other: &Self) -> bool {
        self.0.source == other.0.source
    }
}

impl fmt::Debug for KnowledgeBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.source.fmt(f)
    }
}
