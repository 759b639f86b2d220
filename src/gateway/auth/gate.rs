//! From a credential to a yes or no.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use super::{
    super::answer::Answer as Refusal,
    credential::{Credential, field_value},
    verdicts::{Answer, Digest, No, Outcome, Terms, Unavailable, Verdicts},
};
use crate::{
    cluster::{
        error::RequestError,
        reviews::{Identity, Reviewer, Right},
    },
    gateway::object::Kind,
};

/// A right: believed for a minute, and for five while the API server is away.
const RIGHTS: Terms =
    Terms { renew: Duration::from_secs(50), fresh: Duration::from_secs(60), grace: Duration::from_secs(300) };
/// An identity, which many rights rest on: asked for again before the right that rests on it is.
const IDENTITIES: Terms =
    Terms { renew: Duration::from_secs(30), fresh: Duration::from_secs(30), grace: Duration::ZERO };
/// How many reviews are under way at most.
const REVIEWS: usize = 64;
/// How long a review may take, the wait for its turn included.
const DEADLINE: Duration = Duration::from_secs(10);
/// How often it is logged that reviews fail.
const COMPLAIN: Duration = Duration::from_secs(5);

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
}

/// Who answers.
#[async_trait]
pub(super) trait Reviews: Send + Sync {
    /// Whose token this is; `None`: nobody's.
    async fn identify(&self, token: &str, audiences: &[String]) -> Result<Option<Identity>, RequestError>;
    /// Whether somebody has a right.
    async fn may(&self, who: &Identity, right: &Right<'_>) -> Result<bool, RequestError>;
}

#[async_trait]
impl Reviews for Reviewer {
    async fn identify(&self, token: &str, audiences: &[String]) -> Result<Option<Identity>, RequestError> {
        Self::identify(self, token, audiences).await
    }

    async fn may(&self, who: &Identity, right: &Right<'_>) -> Result<bool, RequestError> {
        Self::may(self, who, right).await
    }
}

/// Tells who is let in.
pub(in crate::gateway) struct Gate {
    /// By token and workload: the caller as the workload is told of him.
    rights: Verdicts<Arc<str>>,
    asked: Arc<Asked>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

/// What reviews need.
struct Asked {
    identities: Verdicts<Arc<Identity>>,
    reviews: Arc<dyn Reviews>,
    audiences: Vec<String>,
    turns: Semaphore,
    complained: Mutex<Option<Instant>>,
}

impl Gate {
    /// Lets in whom `reviews` knows by a token for one of `audiences` and allows it.
    pub(super) fn asking(reviews: Arc<dyn Reviews>, audiences: Vec<String>) -> Self {
        let asked = Asked {
            identities: Verdicts::new(IDENTITIES),
            reviews,
            audiences,
            turns: Semaphore::new(REVIEWS),
            complained: Mutex::new(None),
        };
        Self { rights: Verdicts::new(RIGHTS), asked: Arc::new(asked) }
    }

    /// Lets in whom the API server knows by a token for one of `audiences` (none: its own) and allows it.
    pub(in crate::gateway) fn new(reviewer: Reviewer, audiences: Vec<String>) -> Self {
        Self::asking(Arc::new(reviewer), audiences)
    }

    /// The value of `X-Recif-User` of a caller who may call the workload.
    pub(super) async fn admit(&self, credential: &Credential<'_>, workload: Workload<'_>) -> Result<Arc<str>, Refusal> {
        let token = match credential {
            Credential::Token(token) => *token,
            Credential::None => {
                return Err(unauthenticated("this needs a token: send `Authorization: Bearer <token>`"));
            }
            Credential::Unusable => {
                return Err(unauthenticated("the credential is no single token: send `Authorization: Bearer <token>`"));
            }
        };
        let Workload { plural, namespace, name } = workload;
        let key = digest(&[token, plural, namespace, name]);
        let review = || {
            let question = Question { token: token.into(), plural, namespace: namespace.into(), name: name.into() };
            self.asked.clone().review(question)
        };
        let outcome = match self.rights.known(&key) {
            Some(answer) => Ok(answer),
            None => Box::pin(self.rights.get(key, review)).await,
        };
        match outcome {
            Ok(Answer { verdict: Ok(user), .. }) => Ok(user),
            Ok(Answer { verdict: Err(No::Unknown), .. }) => {
                Err(unauthenticated("the token is not valid here: it is wrong, has expired, or is meant for others"))
            }
            Ok(Answer { verdict: Err(No::Forbidden), .. }) => Err(forbidden(workload)),
            Err(Unavailable) => {
                Err(Refusal::new(503, "auth-unavailable", "the API server cannot be asked who you are: try again"))
            }
        }
    }
}

/// A question, kept for as long as its review is under way.
struct Question {
    token: String,
    plural: &'static str,
    namespace: String,
    name: String,
}

impl Asked {
    async fn review(self: Arc<Self>, question: Question) -> Outcome<Arc<str>> {
        let identity = self.identity(&question.token).await?;
        let who = match identity.verdict {
            Ok(who) => who,
            Err(no) => return Ok(Answer { verdict: Err(no), at: identity.at }),
        };
        let right = Right {
            verb: "create",
            resource: question.plural,
            subresource: "invoke",
            namespace: &question.namespace,
            name: &question.name,
        };
        let asked = Instant::now();
        match self.turn(self.reviews.may(&who, &right)).await? {
            // The right is no younger than what it rests on.
            true => Ok(Answer { verdict: Ok(field_value(&who.name).into()), at: identity.at }),
            false => Ok(Answer { verdict: Err(No::Forbidden), at: asked }),
        }
    }

    async fn identity(self: &Arc<Self>, token: &str) -> Outcome<Arc<Identity>> {
        let review = || {
            let (asked, token) = (self.clone(), token.to_owned());
            async move {
                let at = Instant::now();
                let found = asked.turn(asked.reviews.identify(&token, &asked.audiences)).await?;
                Ok(Answer { verdict: found.map(Arc::new).ok_or(No::Unknown), at })
            }
        };
        self.identities.get(digest(&[token]), review).await
    }

    /// Does a request when it is its turn.
    async fn turn<T>(&self, request: impl Future<Output = Result<T, RequestError>>) -> Result<T, Unavailable> {
        let in_turn = async {
            let _turn = self.turns.acquire().await.ok();
            request.await
        };
        match timeout(DEADLINE, in_turn).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                self.complain(&error.to_string());
                Err(Unavailable)
            }
            Err(_) => {
                self.complain("no answer in time");
                Err(Unavailable)
            }
        }
    }

    /// Logs a failure, but not the thousandth of the same moment.
    fn complain(&self, error: &str) {
        let now = Instant::now();
        let mut last = self.complained.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| now - last >= COMPLAIN) {
            *last = Some(now);
            tracing::warn!(error, "callers cannot be reviewed");
        }
    }
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
