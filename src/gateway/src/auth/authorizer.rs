//! Authorizer: turns a credential into a verdict.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use cluster::{
    access::{Access, Denial, Penalties, Reviews, TokenState, Unavailable},
    reviews::{Identity, Reviewer, Right},
};

use tokio::time::timeout;

use super::{
    super::local_response::LocalResponse as Refusal,
    credential::{Credential, field_value},
};
use crate::object::RoutedKind;

/// Longest wait for the review of the right to approve. It goes on without the request, and the next one has its verdict.
const APPROVER_WAIT: Duration = Duration::from_secs(2);

/// Workload as a SubjectAccessReview names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkloadRef<'a> {
    /// Plural of the kind.
    pub(super) plural: &'static str,
    /// Namespace of the workload.
    pub(super) namespace: &'a str,
    /// Name of the workload.
    pub(super) name: &'a str,
}

impl<'a> WorkloadRef<'a> {
    /// Parses a key such as `agents/default/weather`. Returns `None` if no workload can have it.
    pub(super) fn read(key: &'a [u8]) -> Option<Self> {
        let mut parts = str::from_utf8(key).ok()?.split('/');
        let (word, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        let plural = RoutedKind::ALL.iter().find(|kind| kind.word() == word)?.plural();
        let fits = |part: &str| {
            (1..=63).contains(&part.len())
                && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        };
        (fits(namespace) && fits(name)).then_some(Self { plural, namespace, name })
    }

    /// Returns the right to call the workload.
    fn right(self) -> Right<'a> {
        let Self { plural, namespace, name } = self;
        Right { verb: "create", resource: plural, subresource: "invoke", namespace, name }
    }

    /// Returns the right to approve calls of the workload's tools.
    fn approval_right(self) -> Right<'a> {
        Right { subresource: "approve", ..self.right() }
    }
}

/// Groups of a caller, which all of its requests share.
pub(super) type Groups = Arc<[Box<str>]>;

/// Name of a caller as the workload gets it, and the caller's groups.
type NamedCaller = (Arc<str>, Groups);

/// Authorizer of callers, with cached reviews and a penalty for addresses that send wrong tokens.
pub(crate) struct Authorizer {
    /// Cache of verdicts; a positive one carries the caller's name as the workload gets it, and the caller's groups.
    access: Access<NamedCaller>,
    penalties: Penalties,
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorizer").finish_non_exhaustive()
    }
}

impl Authorizer {
    /// Creates an authorizer that uses `reviews`, and accepts tokens for one of `audiences`.
    pub(super) fn with_reviews(reviews: Arc<dyn Reviews>, audiences: Vec<String>) -> Self {
        Self { access: Access::new(reviews, audiences, named), penalties: Penalties::default() }
    }

    /// Creates an authorizer that asks the API server, and accepts tokens for one of `audiences` (empty: those of the
    /// API server).
    pub(crate) fn new(reviewer: Reviewer, audiences: Vec<String>) -> Self {
        Self::with_reviews(Arc::new(reviewer), audiences)
    }

    /// Authorizes a caller at `origin` for the workload. Returns the value of `X-Recif-User`, and the caller's groups.
    pub(super) async fn authorize(
        &self,
        credential: &Credential<'_>,
        workload: WorkloadRef<'_>,
        origin: impl Fn() -> IpAddr,
    ) -> Result<NamedCaller, Refusal> {
        let Credential::Token(token) = credential else { return Err(no_token(credential)) };
        let right = workload.right();
        let outcome = match self.access.cached(token, &right) {
            Some(verdict) => Ok(verdict),
            None => Box::pin(self.review(token, origin(), self.access.is_allowed(token, &right))).await?,
        };
        granted(outcome)?.ok_or_else(|| forbidden(workload))
    }

    /// Returns the value of `X-Recif-User` for the owner of a token, who calls from `origin`; `None` for a token that was
    /// valid when the API server could last say so.
    ///
    /// # Errors
    /// The token is not valid (401), or there is no verdict.
    pub(super) async fn identify(&self, token: &str, origin: IpAddr) -> Result<Option<Arc<str>>, Refusal> {
        let was_valid = self.access.token_state(token) == TokenState::Known;
        match self.review(token, origin, self.access.identify(token)).await? {
            Ok(Ok(who)) => Ok(Some(name_of(&who))),
            Ok(Err(_)) => Err(invalid_token()),
            Err(Unavailable) if was_valid => Ok(None),
            Err(Unavailable) => Err(unavailable()),
        }
    }

    /// Returns the owner of a token, if that is cached. Nothing is reviewed.
    pub(super) fn known_caller(&self, token: &str) -> Option<NamedCaller> {
        self.access.cached_identity(token).map(|who| named(&who))
    }

    /// Reports whether the owner of a token, who calls from `origin`, has a right.
    ///
    /// # Errors
    /// The token is not valid, or there is no verdict.
    pub(super) async fn holds(&self, token: &str, right: &Right<'_>, origin: IpAddr) -> Result<bool, Refusal> {
        let outcome = match self.access.cached(token, right) {
            Some(verdict) => Ok(verdict),
            None => self.review(token, origin, self.access.is_allowed(token, right)).await?,
        };
        Ok(granted(outcome)?.is_some())
    }
}

impl Authorizer {
    /// Reports whether the owner of a token may approve calls of the workload's tools, if that is cached and need not be reviewed again.
    pub(super) fn cached_approver(&self, token: &str, workload: WorkloadRef<'_>) -> Option<bool> {
        self.access.cached(token, &workload.approval_right()).map(|verdict| verdict.is_ok())
    }

    /// Reports whether the owner of a token, who calls from `origin`, may approve calls of the workload's tools; false without a verdict,
    /// because a request that decides on no call needs none.
    pub(super) async fn is_approver(&self, token: &str, workload: WorkloadRef<'_>, origin: IpAddr) -> bool {
        let right = workload.approval_right();
        matches!(timeout(APPROVER_WAIT, self.holds(token, &right, origin)).await, Ok(Ok(true)))
    }
}

/// Outcome of a review.
type Verdict<T> = Result<Result<T, Denial>, Unavailable>;

/// Returns the caller; `None` for a caller without the right.
fn granted(outcome: Verdict<NamedCaller>) -> Result<Option<NamedCaller>, Refusal> {
    match outcome {
        Ok(Ok(caller)) => Ok(Some(caller)),
        Ok(Err(Denial::Unknown)) => Err(invalid_token()),
        Ok(Err(Denial::Forbidden)) => Ok(None),
        Err(Unavailable) => Err(unavailable()),
    }
}

fn name_of(who: &Identity) -> Arc<str> {
    field_value(&who.name).into()
}

fn named(who: &Identity) -> NamedCaller {
    (name_of(who), who.groups.iter().map(|group| group.as_str().into()).collect())
}

impl Authorizer {
    /// Runs `review` of a token, unless its address sent too many wrong tokens.
    async fn review<T>(
        &self,
        token: &str,
        origin: IpAddr,
        review: impl Future<Output = Verdict<T>>,
    ) -> Result<Verdict<T>, Refusal> {
        let is_unknown = self.access.token_state(token) == TokenState::Unknown;
        if is_unknown && self.penalties.is_blocked(origin) {
            let error =
                "too many tokens from this address were refused: wait for 10 s, then try again with one that is right";
            let field = Some(("Retry-After", "10".into()));
            return Err(Refusal { field, ..Refusal::new(429, "too-many-unknown-tokens", error) });
        }
        let outcome = review.await;
        if is_unknown && matches!(outcome, Ok(Err(Denial::Unknown))) {
            self.penalties.record_refusal(origin, token);
        }
        Ok(outcome)
    }
}

/// Creates the refusal of a credential that is no token.
pub(super) fn no_token(credential: &Credential<'_>) -> Refusal {
    unauthenticated(match credential {
        Credential::Unusable => "the credential is not a single bearer token: send `Authorization: Bearer <token>`",
        Credential::None | Credential::Token(_) => "this needs a token: send `Authorization: Bearer <token>`",
    })
}

fn invalid_token() -> Refusal {
    unauthenticated("the token is not valid here: it is wrong, has expired, or is meant for others")
}

fn unavailable() -> Refusal {
    Refusal::new(503, "auth-unavailable", "the API server could not authenticate you: try again")
}

fn unauthenticated(error: &'static str) -> Refusal {
    // The challenge of RFC 6750, section 3.
    Refusal { field: Some(("WWW-Authenticate", "Bearer".into())), ..Refusal::new(401, "unauthenticated", error) }
}

fn forbidden(WorkloadRef { plural, namespace, name }: WorkloadRef<'_>) -> Refusal {
    let error = format!(
        "you may not call {plural}/{name} in namespace {namespace}: it takes the right to create {plural}/invoke in \
         API group {}, which the ClusterRole recif-invoker gives",
        crds::GROUP
    );
    Refusal::new(403, "forbidden", error)
}
