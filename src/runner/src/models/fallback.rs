//! Model with others that stand in for it.
//!
//! Each turn begins at the first model. Where one cannot answer, the next is asked, as long as no piece of an answer has come:
//! what was said cannot be taken back. The further requests of a turn that a fallback has answered begin at that fallback: models
//! refuse calls of tools in a turn that lack their own signatures. A model that fails three times in a row is skipped for 30 s, by
//! all requests of the process with the same credentials; then one request tries it
//! ([circuit breaker](https://learn.microsoft.com/azure/architecture/patterns/circuit-breaker)).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use tokio::time::Instant;

use super::{Chunk, Model, ModelError, ModelErrorKind, ModelRequest, generation::portable, request::Answerer, title};
use crate::{
    caller::CallerKey,
    usage::{UsageAccount, UsageLedger},
};

/// Failures in a row after which a model is skipped.
const FAILURES: u32 = 3;
/// Time for which it is skipped.
const SKIPPED: Duration = Duration::from_secs(30);

/// First model, and those that stand in for it.
#[derive(Clone)]
pub(super) struct ModelChain {
    /// Models in their order. Invariant: there is at least one.
    pub(super) models: Arc<[ChainedModel]>,
    /// Counter of the process.
    pub(super) ledger: UsageLedger,
}

/// Model of a chain.
pub(super) struct ChainedModel {
    /// Client.
    pub(super) model: Arc<dyn Model>,
    /// Provider and id, such as `openai/gpt-5`.
    pub(super) name: Arc<str>,
    /// Breaker, which all chains with this model share.
    pub(super) breaker: Arc<Breaker>,
}

/// Stream of the pieces of an answer.
type ChunkStream = BoxStream<'static, Result<Chunk, ModelError>>;

#[async_trait]
impl Model for ModelChain {
    fn respond(&self, request: ModelRequest) -> ChunkStream {
        let chain = self.clone();
        stream::once(async move { begin(&chain, request).await }).try_flatten().boxed()
    }

    async fn title(&self, first: &str, key: Option<CallerKey>, account: UsageAccount) -> String {
        match &self.models[..] {
            [only] => only.model.title(first, key, account).await,
            _ => title::request_title(|request| self.respond(ModelRequest { key, account, ..request }), first).await,
        }
    }

    fn names(&self) -> Vec<Arc<str>> {
        self.models.iter().map(|model| model.name.clone()).collect()
    }

    fn needs_key(&self) -> bool {
        self.models.first().is_some_and(|first| first.model.needs_key())
    }

    fn failure(&self) -> Option<Arc<str>> {
        self.models.first()?.breaker.failure()
    }
}

/// Asks the models in their order and returns the first answer that has begun.
async fn begin(chain: &ModelChain, request: ModelRequest) -> Result<ChunkStream, ModelError> {
    let models = &chain.models;
    let mut failure = None;
    let stays = |name: &Arc<str>| models.iter().skip(1).position(|model| model.name == *name);
    let start = request.fallback.as_ref().and_then(stays).map_or(0, |place| place + 1);
    for place in start..models.len() {
        let (Some(model), rest) = (models.get(place), models.get(place + 1..).unwrap_or_default()) else { break };
        let now = Instant::now();
        if models.len() > 1 && !model.breaker.begins(now) {
            continue;
        }
        let has_fallback = rest.iter().any(|model| model.breaker.admits(now));
        match ask(chain, model, place, has_fallback, &request).await {
            Err(error) if error.is_of_model && has_fallback => {
                tracing::warn!(model = &*model.name, "another model is asked: {error}");
                failure = Some(error);
            }
            settled => return settled,
        }
    }
    match (failure, models.get(start)) {
        (None, Some(first)) => ask(chain, first, start, false, &request).await,
        (failure, _) => Err(failure.unwrap_or_else(ModelError::malformed)),
    }
}

async fn ask(
    chain: &ModelChain,
    ChainedModel { model, name, breaker }: &ChainedModel,
    place: usize,
    has_fallback: bool,
    request: &ModelRequest,
) -> Result<ChunkStream, ModelError> {
    let is_fallback = place > 0;
    let mut request = ModelRequest { has_fallback, ..request.clone() };
    if is_fallback {
        // The other settings of a prompt are for the first model alone.
        request.config = portable(&request.config).into();
    }
    let mut answer = model.respond(request);
    let first = match answer.try_next().await {
        Ok(first) => first,
        Err(mut error) => {
            // It is the caller's key that is refused: neither may the operator's answer instead, nor is it the model's failure.
            error.is_of_model &= error.kind != ModelErrorKind::Refused || !model.needs_key();
            if error.is_of_model {
                breaker.failed(Instant::now());
                breaker.note(&error);
            } else if error.kind != ModelErrorKind::NoKey {
                // The model works: it has judged the request.
                breaker.succeeded();
            }
            return Err(error);
        }
    };
    breaker.succeeded();
    if is_fallback {
        tracing::info!(model = &**name, "a fallback answers");
        if let Some(first) = chain.models.first() {
            chain.ledger.metrics().count_fallback(&first.name, name);
        }
    }
    let answerer = Chunk::Answerer(Answerer { model: name.clone(), is_fallback });
    Ok(stream::iter([answerer]).chain(stream::iter(first)).map(Ok).chain(answer).boxed())
}

/// Circuit breaker of one model.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<BreakerState>);

#[derive(Debug, Default)]
struct BreakerState {
    /// Failures in a row.
    failures: u32,
    /// End of the time for which the model is skipped.
    until: Option<Instant>,
    /// Last failure, in a few words.
    failure: Option<Arc<str>>,
}

impl Breaker {
    /// Reports whether the model would be asked.
    fn admits(&self, now: Instant) -> bool {
        self.state().until.is_none_or(|until| until <= now)
    }

    /// Reports whether the model is asked now. The request that tries it again is the only one for a while.
    fn begins(&self, now: Instant) -> bool {
        let mut state = self.state();
        match state.until {
            Some(until) if until > now => false,
            Some(_) => {
                state.until = Some(now + SKIPPED);
                true
            }
            None => true,
        }
    }

    fn failed(&self, now: Instant) {
        let mut state = self.state();
        state.failures = state.failures.saturating_add(1);
        if state.failures >= FAILURES {
            state.until = Some(now + SKIPPED);
        }
    }

    /// Keeps what failed, until the model answers.
    fn note(&self, error: &ModelError) {
        self.state().failure = Some(error.summary().into());
    }

    /// Returns what failed last, if the model has not answered since.
    fn failure(&self) -> Option<Arc<str>> {
        self.state().failure.clone()
    }

    fn succeeded(&self) {
        *self.state() = BreakerState::default();
    }

    fn state(&self) -> std::sync::MutexGuard<'_, BreakerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Breakers of a process, by model, address and credentials.
#[derive(Clone, Default)]
pub(super) struct Breakers(Arc<Mutex<HashMap<String, Arc<Breaker>>>>);

impl Breakers {
    /// Returns the breaker of the model that `key` names.
    pub(super) fn of(&self, key: String) -> Arc<Breaker> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_three_failures_one_request_in_30_s_tries_the_model() {
        let breaker = Breaker::default();
        for _ in 0..2 {
            breaker.failed(Instant::now());
            assert!(breaker.begins(Instant::now()));
        }
        breaker.failed(Instant::now());
        assert!(!breaker.admits(Instant::now()) && !breaker.begins(Instant::now()));
        tokio::time::advance(SKIPPED).await;
        let now = Instant::now();
        assert_eq!([breaker.admits(now), breaker.begins(now), breaker.begins(now)], [true, true, false]);
        tokio::time::advance(SKIPPED).await;
        assert!(breaker.begins(Instant::now()), "the request that tried it was cut off");
        breaker.succeeded();
        breaker.failed(Instant::now());
        assert!(breaker.begins(Instant::now()), "the failures were not in a row");
    }
}
