//! From a credential to a yes or no.

use std::{fmt, net::IpAddr, sync::Arc};

use cluster::{
    access::{Access, No, Penalties, Reviews, Standing, Unavailable},
    reviews::{Identity, Reviewer, Right},
};

use super::{
    super::answer::Answer as Refusal,
    credential::{Credential, field_value},
};
use crate::object::Kind;

/// A workload as rights name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Workload<'a> {
    /// The plural of its kind.
    pub(super) plural: &'static str,
    /// Its namespace.
    pub(super) namespace: &'a str,
    /// Its name.
    pub(super) name: &'a str,
}

impl<'a> Workload<'a> {
    /// What a key such as `agents/default/weather` names; `None`: nothing that could be there.
    pub(super) fn read(key: &'a [u8]) -> Option<Self> {
        let mut parts = str::from_utf8(key).ok()?.split('/');
        let (word, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        let plural = Kind::ALL.iter().find(|kind| kind.word() == word)?.plural();
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
pub(crate) struct Gate {
    /// A right comes with the caller as the workload is told of him.
    access: Access<Arc<str>>,
    penalties: Penalties,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

impl Gate {
    /// Lets in whom `reviews` knows by a token for one of `audiences` and allows it.
    pub(super) fn asking(reviews: Arc<dyn Reviews>, audiences: Vec<String>) -> Self {
        let told = |who: &Identity| field_value(&who.name).into();
        Self { access: Access::new(reviews, audiences, told), penalties: Penalties::default() }
    }

    /// Lets in whom the API server knows by a token for one of `audiences` (none: its own) and allows it.
    pub(crate) fn new(reviewer: Reviewer, audiences: Vec<String>) -> Self {
        Self::asking(Arc::new(reviewer), audiences)
    }

    /// The value of `X-Recif-User` of a caller who may call the workload, and asks for it from `origin`.
    pub(super) async fn admit(
        &self,
        credential: &Credential<'_>,
        workload: Workload<'_>,
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
        let outcome = match self.access.known(token, &right) {
            Some(verdict) => Ok(verdict),
            None => Box::pin(self.review(token, &right, origin())).await?,
        };
        match outcome {
            Ok(Ok(user)) => Ok(user),
            Ok(Err(No::Unknown)) => {
                Err(unauthenticated("the token is not valid here: it is wrong, has expired, or is meant for others"))
            }
            Ok(Err(No::Forbidden)) => Err(forbidden(workload)),
            Err(Unavailable) => {
                Err(Refusal::new(503, "auth-unavailable", "the API server cannot be asked who you are: try again"))
            }
        }
    }
}

impl Gate {
    /// Asks who the owner of a token is, and whether he has the right, unless too many wrong ones came from there.
    async fn review(
        &self,
        token: &str,
        right: &Right<'_>,
        origin: IpAddr,
    ) -> Result<Result<Result<Arc<str>, No>, Unavailable>, Refusal> {
        let is_unknown = self.access.standing(token) == Standing::Unknown;
        if is_unknown && self.penalties.holds(origin) {
            let error =
                "too many tokens from this address were refused: wait for 10 s, then try again with one that is right";
            let field = Some(("Retry-After", "10".into()));
            return Err(Refusal { field, ..Refusal::new(429, "too-many-unknown-tokens", error) });
        }
        let outcome = self.access.may(token, right).await;
        if is_unknown && outcome.as_ref().is_ok_and(|verdict| *verdict == Err(No::Unknown)) {
            self.penalties.refused(origin, token);
        }
        Ok(outcome)
    }
}

fn unauthenticated(error: &'static str) -> Refusal {
    // The challenge of RFC 6750, section 3.
    Refusal { field: Some(("WWW-Authenticate", "Bearer".into())), ..Refusal::new(401, "unauthenticated", error) }
}

fn forbidden(Workload { plural, namespace, name }: Workload<'_>) -> Refusal {
    let error = format!(
        "you may not call {plural}/{name} in namespace {namespace}: it takes the right to create {plural}/invoke in \
         API group {}, which the ClusterRole recif-invoker gives",
        crds::GROUP
    );
    Refusal::new(403, "forbidden", error)
}
