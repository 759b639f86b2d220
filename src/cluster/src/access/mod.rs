//! Authentication and authorization of callers, by cached reviews of the API server (TokenReview, SubjectAccessReview).
//!
//! Rights are granted as everywhere in the cluster, by roles and bindings, and no list of them is kept here. The caches hold only digests
//! of tokens. A caller whose verdict is cached costs no request to the API server.

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

/// Lifetimes of a right: valid for a minute, and for five while the API server is unavailable.
const RIGHT_POLICY: CachePolicy =
    CachePolicy { renew: Duration::from_secs(50), fresh: Duration::from_secs(60), grace: Duration::from_secs(300) };
/// Lifetimes of an identity, on which many rights rest: it is reviewed again before the rights that rest on it are.
const IDENTITY_POLICY: CachePolicy =
    CachePolicy { renew: Duration::from_secs(30), fresh: Duration::from_secs(30), grace: Duration::ZERO };
/// Most reviews in flight, those of unknown tokens apart.
const MAX_REVIEWS: usize = 64;
/// Most reviews in flight of unknown tokens, which any client can make up, and most of those that wait for a permit.
const MAX_UNKNOWN: (usize, usize) = (32, 256);
/// Longest duration of a review, the wait for a permit included.
const DEADLINE: Duration = Duration::from_secs(10);
/// Shortest time between two log lines about failed reviews.
const LOG_EVERY: Duration = Duration::from_secs(5);

/// Port to the reviews of the API server.
#[async_trait]
pub trait Reviews: Send + Sync {
    /// Returns the identity behind a token; `None` for an invalid token.
    ///
    /// # Errors
    /// Fails if the API server does not answer.
    async fn identify(&self, token: &str, audiences: &[String]) -> Result<Option<Identity>, RequestError>;

    /// Reports whether an identity has a right.
    ///
    /// # Errors
    /// Fails if the API server does not answer.
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

/// Cached verdicts on callers and their rights. A granted right carries a `V` that is made from the caller's identity.
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

/// Shared context of the reviews.
struct ReviewContext {
    identities: ReviewCache<Arc<Identity>>,
    reviews: Arc<dyn Reviews>,
    audiences: Vec<String>,
    permits: Semaphore,
    unknown_permits: Semaphore,
    /// Permits of unknown tokens whose reviews are in flight or wait for that.
    unknown_queue: Semaphore,
    logged_at: Mutex<Option<Instant>>,
}

impl<V: Clone + Send + Sync + 'static> Access<V> {
    /// Creates empty caches. `reviews` is asked about tokens for one of `audiences` (none: the API server's own).
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

    /// Reports whether the owner of a token has a right, if that is cached and need not be reviewed again.
    pub fn cached(&self, token: &str, right: &Right<'_>) -> Option<Result<V, Denial>> {
        self.rights.cached(&key(token, right)).map(|answer| answer.verdict)
    }

    /// Returns the cached state of a token, before any review.
    pub fn token_state(&self, token: &str) -> TokenState {
        self.context.identities.token_state(&digest(&[token]))
    }

    /// Reports whether the owner of a token has a right.
    ///
    /// # Errors
    /// [`Unavailable`] if the API server could not be queried.
    pub async fn is_allowed(&self, token: &str, right: &Right<'_>) -> Result<Result<V, Denial>, Unavailable> {
        let review = || {
            let (asked, view, question) = (self.context.clone(), self.view, ReviewRequest::new(token, right));
            async move { asked.review(question, view).await }
        };
        self.rights.get(key(token, right), review).await.map(|answer| answer.verdict)
    }

    /// Returns the identity of a token's owner, if that is cached and need not be reviewed again.
    pub fn cached_identity(&self, token: &str) -> Option<Arc<Identity>> {
        self.context.identities.cached(&digest(&[token]))?.verdict.ok()
    }

    /// Returns the identity of a token's owner.
    ///
    /// # Errors
    /// [`Unavailable`] if the API server could not be queried.
    pub async fn identify(&self, token: &str) -> Result<Result<Arc<Identity>, Denial>, Unavailable> {
        self.context.identity(token).await.map(|answer| answer.verdict)
    }
}

/// Question to the API server, owned by the task of its review.
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
            // The right is no younger than the identity on which it rests.
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

    /// Sends a request once it has a permit, within [`DEADLINE`].
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

    /// Logs a failure, at most once per [`LOG_EVERY`].
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

/// Header field that only the gateway and the control plane read: it never reaches a workload, whatever proxy is in between.
pub const OWN_AUTHORIZATION: HeaderName = HeaderName::from_static("x-recif-authorization");

/// Returns the token in the value of an `Authorization` field: `Bearer <token>` (RFC 6750, section 2.1).
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

/// Returns the SHA-256 over the parts, none of which holds a line feed.
fn digest(parts: &[&str]) -> Digest {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
        hash.update(b"\n");
    }
    hash.finalize().into()
}
