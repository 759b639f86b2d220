//! Knowledge bases: texts in PostgreSQL that a model may search, each as a tool `search_<name>`.
//!
//! The model asks when it needs to know, in its own words, and reads what was found as the tool's answer; the knowledge
//! base's description tells it when to ask. A table `chunks(id, content, embedding, metadata, kb_id, tsv)` is filled by
//! somebody else. See [`search`] for how it is searched.

mod search;
mod source;

use std::fmt;
use std::sync::Arc;

use super::Lookup;
use super::database::PostgresPool;
use super::models::{self, Embedder, Http};
pub(super) use source::KnowledgeSource;

/// A knowledge base that can be searched; clones share it.
#[derive(Clone)]
pub(super) struct KnowledgeBase(Arc<KnowledgeBaseInner>);

struct KnowledgeBaseInner {
    source: KnowledgeSource,
    database: PostgresPool,
    embedder: Arc<dyn Embedder>,
}

impl KnowledgeBase {
    /// The knowledge base at `source`; `credentials` and `http` are for its embedding model. Nothing is connected yet.
    ///
    /// # Errors
    /// Why it can never be searched, as a sentence for `/readyz`.
    pub(super) fn open(source: &KnowledgeSource, credentials: &Lookup, http: &Http) -> Result<Self, String> {
        let problem = |text| format!("knowledge base `{}`: {text}", source.name);
        let database = PostgresPool::open(&source.dsn).map_err(problem)?;
        let embedder = models::open_embedder(&source.embedding, credentials, http).map_err(problem)?;
        Ok(Self(Arc::new(KnowledgeBaseInner { source: source.clone(), database, embedder })))
    }

    /// The name of its tool.
    pub(super) fn tool(&self) -> &str {
        &self.0.source.tool
    }

    /// What it holds, for the model.
    pub(super) fn description(&self) -> &str {
        &self.0.source.description
    }

    /// What it says about `query`, the best first; as text for the model.
    ///
    /// # Errors
    /// The embedding model or the database failed, as a sentence.
    pub(super) async fn search(&self, query: &str) -> Result<String, String> {
        let KnowledgeBaseInner { source, database, embedder } = &*self.0;
        let vector = embedder.embed(query).await.map_err(|error| format!("the query cannot be embedded: {error}"))?;
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
