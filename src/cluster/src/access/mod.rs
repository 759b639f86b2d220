//! Who sent a token, and what he may do: the API server's reviews, remembered for a minute.
//!
//! Rights are given as everywhere in the cluster, by roles and bindings, and no list of them is kept here. Only digests of
//! tokens are remembered, so whoever was let in before costs no request to the API server.

mod args;
mod network;
mod penalty;
mod review_cache;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use http::HeaderName;
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use super::{
    error::RequestError,
    reviews::{Identity, Reviewer, Right},
};
pub use args::{AuthArgs, AuthMode, OpenBindError};
pub use network::{Network, NetworkParseError};
pub use penalty::Penalties;
use review_cache::{CachePolicy, Digest, ReviewCache, ReviewResult};
pub use review_cache::{Denial, ReviewVerdict, TokenState, Unavailable};

/// A right: believed for a minute, and for five while the API server is away.
const RIGHT_POLICY: CachePolicy =
    CachePolicy { renew: Duration::from_secs(50), fresh: Duration::from_secs(60), grace: Duration::from_secs(300) };
/// An identity, which many rights rest on: asked for again before the right that rests on it is.
const IDENTITY_POLICY: CachePolicy =
    CachePolicy { renew: Duration::from_secs(30), fresh: Duration::from_secs(30), grace: Duration::ZERO };
/// How many reviews are under way at most of those whose tokens were right before.
const MAX_REVIEWS: usize = 64;
/// How many of tokens that nobody has seen yet, which anybody can make up; and how many of those wait for their turn.
const MAX_UNKNOWN: (usize, usize) = (32, 256);
/// How long a review may take, the wait for its turn included.
const DEADLINE: Duration = Duration::from_secs(10);
/// How often it is logged that reviews fail.
const LOG_EVERY: Duration = Duration::from_secs(5);

/// Who answers.
#[async_trait]
pub trait Reviews: Send + Sync {
    /// Whose token this is; `None`: nobody's.
    ///
    /// # Errors
    /// There was no answer.
    async fn identify(&self, token: &str, audiences: &[String]) -> Result<Option<Identity>, RequestError>;

    /// Whether somebody has a right.
    ///
    /// # Errors
    /// There was no answer.
    async fn is_allowed(&self, who: &Identity, right: &Right<'_>) -> Result<bool, RequestError>;
}

#[async_trait]
impl Reviews for Reviewer {
    async fn identify(&self, token: &str, audiences: &[String]) -> Result<Option<Identity>, RequestError> {
        Self::identify(self, token, audiences).await
    }

    async fn is_allowed(&self, who: &Identity, right: &Right<'_>) -> Result<bool, RequestError> {
        Self::is_allowed(self, who, right).await
    }
}

/// What is known of callers and their rights. A right comes with what `V` is made of its owner.
pub struct Access<V> {
    rights: ReviewCache<V>,
    view: fn(&Identity) -> V,
    context: Arc<ReviewContext>,
}

impl<V> fmt::Debug for Access<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

/// What reviews need.
struct ReviewContext {
    identities: ReviewCache<Arc<Identity>>,
    reviews: Arc<dyn Reviews>,
    audiences: Vec<String>,
    permits: Semaphore,
    unknown_permits: Semaphore,
    /// Places of newcomers, with a turn or waiting for one.
    unknown_queue: Semaphore,
    logged_at: Mutex<Option<Instant>>,
}

impl<V: Clone + Send + Sync + 'static> Access<V> {
    /// Asks `reviews` about tokens for one of `audiences` (none: the API server's own).
    pub fn new(reviews: Arc<dyn Reviews>, audiences: Vec<String>, view: fn(&Identity) -> V) -> Self {
        let asked = ReviewContext {
            identities: ReviewCache::new(IDENTITY_POLICY),
            reviews,
            audiences,
            permits: Semaphore::new(MAX_REVIEWS),
            unknown_permits: Semaphore::new(MAX_UNKNOWN.0),
            unknown_queue: Semaphore::new(MAX_UNKNOWN.0 + MAX_UNKNOWN.1),
            logged_at: Mutex::new(None),
        };
        Self { rights: ReviewCache::new(RIGHT_POLICY), view, context: Arc::new(asked) }
    }

    /// Whether the owner of a token has a right, if that is known and need not be asked again.
    pub fn cached(&self, token: &str, right: &Right<'_>) -> Option<Result<V, Denial>> {
        self.rights.cached(&key(token, right)).map(|answer| answer.verdict)
    }

    /// What is known of a token before it is reviewed.
    pub fn token_state(&self, token: &str) -> TokenState {
        self.context.identities.token_state(&digest(&[token]))
    }

    /// Whether the owner of a token has a right.
    ///
    /// # Errors
    /// Nobody could be asked.
    pub async fn is_allowed(&self, token: &str, right: &Right<'_>) -> Result<Result<V, Denial>, Unavailable> {
        let review = || {
            let (asked, view, question) = (self.context.clone(), self.view, ReviewRequest::new(token, right));
            async move { asked.review(question, view).await }
        };
        self.rights.get(key(token, right), review).await.map(|answer| answer.verdict)
    }

    /// Whose token it is.
    ///
    /// # Errors
    /// Nobody could be asked.
    pub async fn identify(&self, token: &str) -> Result<Result<Arc<Identity>, Denial>, Unavailable> {
        self.context.identity(token).await.map(|answer| answer.verdict)
    }
}

/// A question, kept for as long as its review is under way.
struct ReviewRequest {
    token: String,
    /// Verb, resource, subresource, namespace, name.
    right: [String; 5],
}

impl ReviewRequest {
    fn new(token: &str, right: &Right<'_>) -> Self {
        let Right { verb, resource, subresource, namespace, name } = *right;
        Self { token: token.into(), right: [verb, resource, subresource, namespace, name].map(str::to_owned) }
    }
}

impl ReviewContext {
    async fn review<V>(self: Arc<Self>, question: ReviewRequest, view: fn(&Identity) -> V) -> ReviewResult<V> {
        let identity = self.identity(&question.token).await?;
        let who = match identity.verdict {
            Ok(who) => who,
            Err(no) => return Ok(ReviewVerdict { verdict: Err(no), at: identity.at }),
        };
        let [verb, resource, subresource, namespace, name] = &question.right;
        let right = Right { verb, resource, subresource, namespace, name };
        let asked = Instant::now();
        match self.run_with_permit(&self.permits, self.reviews.is_allowed(&who, &right)).await? {
            // The right is no younger than what it rests on.
            true => Ok(ReviewVerdict { verdict: Ok(view(&who)), at: identity.at }),
            false => Ok(ReviewVerdict { verdict: Err(Denial::Forbidden), at: asked }),
        }
    }

    async fn identity(self: &Arc<Self>, token: &str) -> ReviewResult<Arc<Identity>> {
        let key = digest(&[token]);
        let is_newcomer = self.identities.token_state(&key) == TokenState::Unknown;
        let review = || {
            let (asked, token) = (self.clone(), token.to_owned());
            async move {
                let at = Instant::now();
                let review = asked.reviews.identify(&token, &asked.audiences);
                let found = match is_newcomer {
                    false => asked.run_with_permit(&asked.permits, review).await?,
                    true => {
                        let place = asked.unknown_queue.try_acquire();
                        let _place = place.map_err(|_| asked.log_failure("too many unknown tokens wait for theirs"))?;
                        asked.run_with_permit(&asked.unknown_permits, review).await?
                    }
                };
                Ok(ReviewVerdict { verdict: found.map(Arc::new).ok_or(Denial::Unknown), at })
            }
        };
        self.identities.get(key, review).await
    }

    /// Does a request when it is its turn.
    async fn run_with_permit<T>(
        &self,
        turns: &Semaphore,
        request: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, Unavailable> {
        let in_turn = async {
            let _turn = turns.acquire().await.ok();
            request.await
        };
        match timeout(DEADLINE, in_turn).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.log_failure(&error.to_string())),
            Err(_) => Err(self.log_failure("no answer in time")),
        }
    }

    /// Logs a failure, but not the thousandth of the same moment.
    fn log_failure(&self, error: &str) -> Unavailable {
        let now = Instant::now();
        let mut last = self.logged_at.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| now - last >= LOG_EVERY) {
            *last = Some(now);
            tracing::warn!(error, "callers cannot be reviewed");
        }
        Unavailable
    }
}

/// The field that only gateway and control plane read: a workload never sees it, whatever stands between.
pub const OWN_AUTHORIZATION: HeaderName = HeaderName::from_static("x-recif-authorization");

/// The token in the value of an `Authorization` field: `Bearer <token>` (RFC 6750, section 2.1).
pub fn bearer(value: &[u8]) -> Option<&str> {
    let (scheme, token) = value.split_at_checked(7)?;
    let token = str::from_utf8(token).ok()?.trim_start_matches(' ');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty() && token.bytes().all(fits)).then_some(token)
}

fn key(token: &str, right: &Right<'_>) -> Digest {
    let Right { verb, resource, subresource, namespace, name } = *right;
    digest(&[token, verb, resource, subresource, namespace, name])
}

/// SHA-256 over the parts, none of which holds a line feed.
fn digest(parts: &[&str]) -> Digest {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
        hash.update(b"\n");
    }
    hash.finalize().into()
}
