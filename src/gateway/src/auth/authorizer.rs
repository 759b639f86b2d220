//! From a credential to a yes or no.

use std::{fmt, net::IpAddr, sync::Arc};

use cluster::{
    access::{Access, Denial, Penalties, Reviews, TokenState, Unavailable},
    reviews::{Identity, Reviewer, Right},
};

use super::{
    super::local_response::LocalResponse as Refusal,
    credential::{Credential, field_value},
};
use crate::object::RoutedKind;

/// A workload as rights name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkloadRef<'a> {
    /// The plural of its kind.
    pub(super) plural: &'static str,
    /// Its namespace.
    pub(super) namespace: &'a str,
    /// Its name.
    pub(super) name: &'a str,
}

impl<'a> WorkloadRef<'a> {
    /// What a key such as `agents/default/weather` names; `None`: nothing that could be there.
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

    /// The right to call it.
    fn right(self) -> Right<'a> {
        let Self { plural, namespace, name } = self;
        Right { verb: "create", resource: plural, subresource: "invoke", namespace, name }
    }
}

/// Tells who is let in.
pub(crate) struct Authorizer {
    /// A right comes with the caller as the workload is told of him.
    access: Access<Arc<str>>,
    penalties: Penalties,
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorizer").finish_non_exhaustive()
    }
}

impl Authorizer {
    /// Lets in whom `reviews` knows by a token for one of `audiences` and allows it.
    pub(super) fn with_reviews(reviews: Arc<dyn Reviews>, audiences: Vec<String>) -> Self {
        let told = |who: &Identity| field_value(&who.name).into();
        Self { access: Access::new(reviews, audiences, told), penalties: Penalties::default() }
    }

    /// Lets in whom the API server knows by a token for one of `audiences` (none: its own) and allows it.
    pub(crate) fn new(reviewer: Reviewer, audiences: Vec<String>) -> Self {
        Self::with_reviews(Arc::new(reviewer), audiences)
    }

    /// The value of `X-Recif-User` of a caller who may call the workload, and asks for it from `origin`.
    pub(super) async fn authorize(
        &self,
        credential: &Credential<'_>,
        workload: WorkloadRef<'_>,
        origin: impl Fn() -> IpAddr,
    ) -> Result<Arc<str>, Refusal> {
        let token = match credential {
            Credential::Token(token) => *token,
            Credential::None => {
                return Err(unauthenticated("this needs a token: send `Authorization: Bearer <token>`"));
            }
            Credential::Unusable => {
                return Err(unauthenticated("the credential is no single token: send `Authorization: Bearer <token>`"));
            }
        };
        let right = workload.right();
        let outcome = match self.access.cached(token, &right) {
            Some(verdict) => Ok(verdict),
            None => Box::pin(self.review(token, &right, origin())).await?,
        };
        match outcome {
            Ok(Ok(user)) => Ok(user),
            Ok(Err(Denial::Unknown)) => {
                Err(unauthenticated("the token is not valid here: it is wrong, has expired, or is meant for others"))
            }
            Ok(Err(Denial::Forbidden)) => Err(forbidden(workload)),
            Err(Unavailable) => {
                Err(Refusal::new(503, "auth-unavailable", "the API server cannot be asked who you are: try again"))
            }
        }
    }
}

impl Authorizer {
    /// Asks who the owner of a token is, and whether he has the right, unless too many wrong ones came from there.
    async fn review(
        &self,
        token: &str,
        right: &Right<'_>,
        origin: IpAddr,
    ) -> Result<Result<Result<Arc<str>, Denial>, Unavailable>, Refusal> {
        let is_unknown = self.access.token_state(token) == TokenState::Unknown;
        if is_unknown && self.penalties.is_blocked(origin) {
            let error =
                "too many tokens from this address were refused: wait for 10 s, then try again with one that is right";
            let field = Some(("Retry-After", "10".into()));
            return Err(Refusal { field, ..Refusal::new(429, "too-many-unknown-tokens", error) });
        }
        let outcome = self.access.is_allowed(token, right).await;
        if is_unknown && outcome.as_ref().is_ok_and(|verdict| *verdict == Err(Denial::Unknown)) {
            self.penalties.record_refusal(origin, token);
        }
        Ok(outcome)
    }
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
