//! Authentication and authorization of callers: the rights on our kinds that `kubectl get` needs, checked by TokenReview and
//! SubjectAccessReview.

mod visibility;

use std::{net::IpAddr, sync::Arc};

use cluster::{
    access::{Access, Denial, Network, OWN_AUTHORIZATION, Penalties, TokenState, Unavailable, bearer},
    reviews::{Identity, Right},
};
use crds::{ApiKind, digest::sha256_hex};
use daemon::loopback;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::api::problem::Problem;

/// SubjectAccessReviews of one caller that run at the same time.
pub(super) const CONCURRENT_REVIEWS: usize = 16;

/// Way in which callers are authenticated.
#[derive(Debug)]
pub(super) enum Auth {
    /// Without authentication. Unless `any_host`, only requests of this machine are answered, and none of other pages
    /// ([`loopback`]).
    None {
        /// Accepts any value of `Host`.
        any_host: bool,
    },
    /// By the API server: TokenReview and SubjectAccessReview.
    Kubernetes(Access<()>, TokenPenalties),
}

/// Counter of refused tokens by the client address that sent them.
#[derive(Debug, Default)]
pub(super) struct TokenPenalties {
    penalties: Penalties,
    trusted: Vec<Network>,
}

impl TokenPenalties {
    /// Creates an empty counter that believes `X-Forwarded-For` of proxies in these networks.
    pub(super) fn with_trusted_proxies(trusted: Vec<Network>) -> Self {
        Self { penalties: Penalties::default(), trusted }
    }

    fn origin(&self, fields: &HeaderMap, peer: IpAddr) -> IpAddr {
        let chain: Vec<_> = fields.get_all("x-forwarded-for").iter().map(HeaderValue::as_bytes).collect();
        Network::client_address(&self.trusted, peer.to_canonical(), Network::hops(&chain))
    }
}

/// Caller of a request, by the token that it sent; the token is not reviewed yet.
#[derive(Debug, Clone, Default)]
pub(super) struct ApiCaller {
    /// Bearer token; `None` where callers are not authenticated.
    token: Option<Arc<str>>,
}

impl Auth {
    /// Reads the caller from these header fields. No review is made here: the operation that shows an object checks the right
    /// to see it, which is cached for a while, or queries the name.
    ///
    /// # Errors
    /// The request has no token, or not exactly one.
    pub(super) fn caller(&self, fields: &HeaderMap) -> Result<ApiCaller, Problem> {
        if let Self::None { any_host } = self {
            return check_local_request(*any_host, fields).map(|()| ApiCaller::default());
        }
        let own = fields.contains_key(OWN_AUTHORIZATION);
        let mut values = fields.get_all(if own { OWN_AUTHORIZATION } else { header::AUTHORIZATION }).iter();
        let token = match (values.next(), values.next()) {
            (None, _) => return Err(unauthenticated("this needs a token: send `Authorization: Bearer <token>`")),
            (Some(value), None) => bearer(value.as_bytes()),
            _ => None,
        };
        let single = "the credential is not a single bearer token: send `Authorization: Bearer <token>`";
        let token = token.ok_or_else(|| unauthenticated(single))?;
        Ok(ApiCaller { token: Some(token.into()) })
    }

    /// Returns a caller's name; `None` where callers are not authenticated.
    ///
    /// # Errors
    /// The token is not valid, or the API server cannot be queried.
    pub(super) async fn user(&self, caller: &ApiCaller) -> Result<Option<String>, Problem> {
        match self.identity(caller).await {
            None => Ok(None),
            Some(Ok(Ok(identity))) => Ok(Some(identity.name.clone())),
            Some(Ok(Err(_))) => Err(invalid_token()),
            Some(Err(Unavailable)) => Err(unavailable()),
        }
    }

    /// Returns the key by which a caller's streams are counted: the name, or the token's digest while the API server cannot be
    /// queried; `None` where callers are not authenticated.
    ///
    /// # Errors
    /// The token is not valid.
    pub(super) async fn account(&self, caller: &ApiCaller) -> Result<Option<String>, Problem> {
        match self.identity(caller).await {
            Some(Err(Unavailable)) => Ok(caller.token.as_deref().map(|token| sha256_hex(token.as_bytes()))),
            _ => self.user(caller).await,
        }
    }

    /// Lets a request pass unless its token is refused. A refusal counts against the client address. Without a token, or while
    /// no review can be made, the operation decides.
    ///
    /// # Errors
    /// The token is not valid, or too many invalid tokens came from that address.
    pub(super) async fn check_token(&self, fields: &HeaderMap, peer: Option<IpAddr>) -> Result<(), Problem> {
        let (Self::Kubernetes(access, guesses), Some(peer)) = (self, peer) else { return Ok(()) };
        let Ok(ApiCaller { token: Some(token) }) = self.caller(fields) else { return Ok(()) };
        match access.token_state(&token) {
            TokenState::Known => return Ok(()),
            TokenState::Refused => return Err(invalid_token()),
            TokenState::Unknown => {}
        }
        let (penalties, origin) = (&guesses.penalties, guesses.origin(fields, peer));
        if penalties.is_blocked(origin) {
            let detail =
                "too many tokens from this address were refused: wait for 10 s, then try again with one that is right";
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail));
        }
        if let Ok(Err(_)) = access.identify(&token).await {
            penalties.record_refusal(origin, &token);
            return Err(invalid_token());
        }
        Ok(())
    }

    async fn identity(&self, caller: &ApiCaller) -> Option<Result<Result<Arc<Identity>, Denial>, Unavailable>> {
        let (Self::Kubernetes(access, _), Some(token)) = (self, &caller.token) else { return None };
        Some(access.identify(token).await)
    }

    /// Lets a request with these header fields pass to the gateway. With authentication the gateway judges it. Without, only
    /// requests under a loopback name pass, and none from pages of other sites; the relay checks `Origin` itself.
    ///
    /// # Errors
    /// The request comes from a page of another site, or its `Host` names another machine.
    pub(super) fn may_relay(&self, fields: &HeaderMap) -> Result<(), Problem> {
        let Self::None { any_host } = self else { return Ok(()) };
        check_local_request(*any_host, fields)?;
        if fields.get("sec-fetch-site").is_some_and(|site| site == "same-site") {
            Err(foreign_origin())
        } else {
            Ok(())
        }
    }

    /// Moves the cluster token to a header field that no workload gets, even behind a gateway that authenticates no callers:
    /// such a gateway would forward `Authorization`.
    pub(super) fn hide_cluster_token(&self, fields: &mut HeaderMap) {
        if matches!(self, Self::None { .. }) || fields.contains_key(OWN_AUTHORIZATION) {
            return;
        }
        let mut values = fields.get_all(header::AUTHORIZATION).iter();
        if let (Some(value), None) = (values.next(), values.next())
            && bearer(value.as_bytes()).is_some()
        {
            let value = value.clone();
            fields.remove(header::AUTHORIZATION);
            fields.insert(OWN_AUTHORIZATION, value);
        }
    }

    /// Checks that a caller may read one object.
    ///
    /// # Errors
    /// The caller may not; the problem names the missing right.
    pub(super) async fn may_get(
        &self,
        caller: &ApiCaller,
        kind: &ApiKind,
        namespace: &str,
        name: &str,
    ) -> Result<(), Problem> {
        let right = Right { verb: "get", resource: kind.plural, subresource: "", namespace, name };
        if self.may(caller, &right).await? { Ok(()) } else { Err(forbidden("get", kind, namespace)) }
    }

    /// Reports whether a caller has a right.
    ///
    /// # Errors
    /// The token is not valid, or the API server cannot be queried.
    async fn may(&self, caller: &ApiCaller, right: &Right<'_>) -> Result<bool, Problem> {
        let (Self::Kubernetes(access, _), Some(token)) = (self, &caller.token) else { return Ok(true) };
        match access.is_allowed(token, right).await {
            Ok(Ok(())) => Ok(true),
            Ok(Err(Denial::Forbidden)) => Ok(false),
            Ok(Err(Denial::Unknown)) => Err(invalid_token()),
            Err(Unavailable) => Err(unavailable()),
        }
    }

    /// Reports whether a caller may read one object.
    ///
    /// # Errors
    /// The token is not valid, or the API server cannot be queried.
    pub(super) async fn sees(
        &self,
        caller: &ApiCaller,
        kind: &ApiKind,
        namespace: &str,
        name: &str,
    ) -> Result<bool, Problem> {
        self.may(caller, &Right { verb: "get", resource: kind.plural, subresource: "", namespace, name }).await
    }

    /// Reports whether a caller may list the objects of a kind in a namespace, or in the whole cluster if the namespace is
    /// empty.
    ///
    /// # Errors
    /// The token is not valid, or the API server cannot be queried.
    pub(super) async fn may_list(&self, caller: &ApiCaller, kind: &ApiKind, namespace: &str) -> Result<bool, Problem> {
        let right = Right { verb: "list", resource: kind.plural, subresource: "", namespace, name: "" };
        self.may(caller, &right).await
    }
}

/// Refuses what pages of other origins send, and what is not for this machine. With `any_host` only cross-site requests are
/// refused: which origins are the server's own is not known then. Used where callers are not authenticated.
fn check_local_request(any_host: bool, fields: &HeaderMap) -> Result<(), Problem> {
    let passes = match any_host {
        true => fields.get("sec-fetch-site").is_none_or(|site| site != "cross-site"),
        false => loopback::is_local(|name| fields.get_all(name).iter().map(HeaderValue::as_bytes)),
    };
    if passes { Ok(()) } else { Err(foreign_origin()) }
}

fn foreign_origin() -> Problem {
    Problem::new(StatusCode::FORBIDDEN, loopback::REFUSAL)
}

fn unauthenticated(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, detail)
}

fn invalid_token() -> Problem {
    unauthenticated("the token is not valid here: it is wrong, has expired, or is meant for others")
}

fn unavailable() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the API server could not authenticate you: try again")
}

fn forbidden(verb: &str, kind: &ApiKind, namespace: &str) -> Problem {
    let place = if namespace.is_empty() { "in any namespace".to_owned() } else { format!("in namespace {namespace}") };
    let detail = format!(
        "you may not {verb} {plural} {place}: it takes the right to {verb} {plural} in API group {}, which the ClusterRole \
         recif-view gives",
        crds::GROUP,
        plural = kind.plural,
    );
    Problem::new(StatusCode::FORBIDDEN, detail)
}

#[cfg(test)]
mod tests;
