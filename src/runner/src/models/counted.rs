//! Models and embedding models whose requests are counted.
//!
//! Each request is counted once, when its answer has ended, failed or was dropped: attempts that failed after their first piece
//! and answers that were cut off too, because a provider may bill them. Without the provider's own numbers the tokens are
//! estimated from the bytes.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use crds::provider::OLLAMA;
use crds::usage::{LATENCY_BUCKETS, Purpose, UsageKey, UsageTotals, cut_name, hour_of, latency_bucket, priced_name};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::{Map, Value};

use super::{
    Chunk, Embedder, Model, ModelError, ModelRequest, Usage,
    call_span::CallSpan,
    ollama::{EmbeddedText, OllamaEmbedder},
    output_limit::limited,
    request::request_bytes,
    title,
};
use crate::{
    caller::CallerKey,
    usage::{UsageAccount, UsageLedger, now_seconds},
};

/// Model whose requests are counted.
pub(super) struct CountedModel {
    /// Model.
    pub(super) model: Arc<dyn Model>,
    /// Name of its provider, the usual one.
    pub(super) provider: &'static str,
    /// Provider and id as they are configured, such as `openai/gpt-5`.
    pub(super) name: Arc<str>,
    /// Id at the provider.
    pub(super) id: Arc<str>,
    /// Generation config of every request.
    pub(super) config: Map<String, Value>,
    /// Set if it gives titles without a request.
    pub(super) has_own_titles: bool,
    /// Counter of the process.
    pub(super) ledger: UsageLedger,
}

/// Embedding model of Ollama whose requests are counted.
pub(super) struct CountedEmbedder {
    /// Model.
    pub(super) embedder: OllamaEmbedder,
    /// Provider and id as they are configured.
    pub(super) name: Arc<str>,
    /// Id at the provider.
    pub(super) id: Arc<str>,
    /// Counter of the process.
    pub(super) ledger: UsageLedger,
}

#[async_trait]
impl Embedder for CountedEmbedder {
    async fn embed(&self, text: &str, account: UsageAccount) -> Result<Vec<f32>, ModelError> {
        if let Some(end) = account.budget_end() {
            return Err(ModelError::over_budget(end.unit));
        }
        let Self { embedder, name, id, ledger } = self;
        let provider = OLLAMA.names.first().copied().unwrap_or_default();
        let trace = account.trace().clone();
        let mut record = CallRecord::new(ledger, account.with_purpose(Purpose::Embed), provider, [name, id]);
        record.asked = u64::try_from(text.len()).unwrap_or(u64::MAX);
        match embedder.embed(text, &trace).await {
            Ok(EmbeddedText { vector, usage }) => {
                record.usage = usage;
                record.has_ended = true;
                Ok(vector)
            }
            Err(error) => {
                record.has_failed = true;
                Err(error)
            }
        }
    }
}

#[async_trait]
impl Model for CountedModel {
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let request = limited(request, &self.config);
        let span = CallSpan::begin(&self.id, &self.config, self.provider, self.needs_key(), &request);
        let account = request.account.clone().within(span.scope());
        let names = [&self.name, &self.id];
        let mut record = CallRecord::new(&self.ledger, request.account.clone(), self.provider, names);
        record.asked = request_bytes(&request);
        record.span = Some(span);
        let state = (self.model.respond(ModelRequest { account, ..request }), record);
        let counted = stream::unfold(state, |(mut answer, mut record)| async move {
            let chunk = answer.next().await;
            record.observe(chunk.as_ref());
            chunk.map(|chunk| (chunk, (answer, record)))
        });
        // A chain polls once more after the end of an answer without a piece.
        counted.fuse().boxed()
    }

    async fn title(&self, first: &str, key: Option<CallerKey>, account: UsageAccount) -> String {
        if self.has_own_titles {
            return self.model.title(first, key, account).await;
        }
        title::request_title(|request| self.respond(ModelRequest { key, account, ..request }), first).await
    }

    fn names(&self) -> Vec<Arc<str>> {
        self.model.names()
    }

    fn needs_key(&self) -> bool {
        self.model.needs_key()
    }
}

/// Request to a model, counted on drop.
struct CallRecord {
    ledger: UsageLedger,
    account: UsageAccount,
    provider: &'static str,
    name: Arc<str>,
    id: Arc<str>,
    began: Instant,
    /// Bytes of the request.
    asked: u64,
    /// Bytes of the answer so far.
    said: u64,
    /// Set once a piece of the answer has come.
    has_begun: bool,
    has_failed: bool,
    has_ended: bool,
    /// Tokens, once the provider has reported them.
    usage: Option<Usage>,
    /// Span of the request; `None` for an embedding, whose client makes the span.
    span: Option<CallSpan>,
}

impl CallRecord {
    /// Creates the record of a request that begins now; the names are the configured one and the id at the provider.
    fn new(ledger: &UsageLedger, account: UsageAccount, provider: &'static str, [name, id]: [&Arc<str>; 2]) -> Self {
        Self {
            ledger: ledger.clone(),
            account,
            provider,
            name: name.clone(),
            id: id.clone(),
            began: Instant::now(),
            asked: 0,
            said: 0,
            has_begun: false,
            has_failed: false,
            has_ended: false,
            usage: None,
            span: None,
        }
    }

    /// Records a piece of the answer, or its end.
    fn observe(&mut self, chunk: Option<&Result<Chunk, ModelError>>) {
        if let Some(span) = &mut self.span {
            span.observe(chunk);
        }
        match chunk {
            Some(Ok(Chunk::Token(text))) => self.say(text.len()),
            Some(Ok(Chunk::Call(call))) => self.say(call.name.len() + call.arguments.to_string().len()),
            Some(Ok(Chunk::Usage(usage))) => self.usage = Some(*usage),
            Some(Ok(Chunk::Answerer(_) | Chunk::Truncated)) => {}
            Some(Err(_)) => self.has_failed = true,
            None => self.has_ended = true,
        }
    }

    fn say(&mut self, bytes: usize) {
        self.has_begun = true;
        self.said = self.said.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Returns the tokens, and how many of them are estimated.
    fn tokens(&self) -> (Usage, u64) {
        match self.usage {
            Some(usage) => {
                let bytes = self.asked.saturating_add(self.said);
                self.ledger.learn(&self.name, bytes, usage.input.saturating_add(usage.output));
                (usage, 0)
            }
            // A request that was refused costs nothing.
            None if self.has_failed && !self.has_begun => (Usage::default(), 0),
            None => {
                let estimate = |bytes| self.ledger.estimate(&self.name, bytes);
                let usage = Usage::new(estimate(self.asked), estimate(self.said));
                (usage, usage.input.saturating_add(usage.output))
            }
        }
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        let is_answered = self.has_ended && !self.has_failed;
        let (usage, estimated) = self.tokens();
        if let Some(span) = &self.span {
            span.end(&usage, is_answered);
        }
        let Usage { input, cache_read, cache_write, output, reasoning } = usage;
        let took = self.began.elapsed();
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let mut latency = [0; LATENCY_BUCKETS];
        latency[latency_bucket(millis)] = 1;
        let (calls, failed) = (u64::from(is_answered), u64::from(!is_answered));
        let totals =
            UsageTotals { calls, failed, input, cache_read, cache_write, output, reasoning, estimated, latency };
        let key = UsageKey {
            hour: hour_of(now_seconds()),
            caller: cut_name(self.account.caller()).to_owned(),
            provider: self.provider.to_owned(),
            model: cut_name(&self.id).to_owned(),
            purpose: self.account.purpose(),
        };
        // Gateways find the price of the response by this name: a configured one may be another name of the provider.
        self.account.add(&priced_name(self.provider, &key.model).into(), &totals);
        self.ledger.count(&self.name, key, &totals);
        self.ledger.metrics().observe(&self.name, took);
    }
}
