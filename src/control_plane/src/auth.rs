//! Who asks, and what he may see: rights on our kinds, as `kubectl get` needs them.

use std::{collections::HashSet, net::IpAddr, sync::Arc};

use cluster::{
    access::{Access, Denial, Network, OWN_AUTHORIZATION, Penalties, TokenState, Unavailable, bearer},
    reviews::{Identity, Right},
};
use crds::{ApiKind, KINDS, digest::sha256_hex};
use futures::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{
    api::problem::Problem,
    fleet::{FleetCache, KindVisibility, Visibility},
};

/// How many namespaces of one caller are asked about at a time.
pub(super) const CONCURRENT_REVIEWS: usize = 16;

/// How callers are told apart.
#[derive(Debug)]
pub(super) enum Auth {
    /// They are not. Unless `anywhere`, only what is asked of this machine by its own names is answered: a page of somebody
    /// else could have its own name lead here.
    None {
        /// Whether any name will do.
        any_host: bool,
    },
    /// As the API server says.
    Kubernetes(Access<()>, TokenPenalties),
}

/// Tokens that were refused, by the address that they came from.
#[derive(Debug, Default)]
pub(super) struct TokenPenalties {
    penalties: Penalties,
    trusted: Vec<Network>,
}

impl TokenPenalties {
    /// None yet; what proxies of these networks say of where a request comes from is believed.
    pub(super) fn with_trusted_proxies(trusted: Vec<Network>) -> Self {
        Self { penalties: Penalties::default(), trusted }
    }

    fn origin(&self, fields: &HeaderMap, peer: IpAddr) -> IpAddr {
        let chain: Vec<_> = fields.get_all("x-forwarded-for").iter().map(HeaderValue::as_bytes).collect();
        Network::client_address(&self.trusted, peer.to_canonical(), Network::hops(&chain))
    }
}

/// Who asks: as he says himself, until somebody judges his token.
#[derive(Debug, Clone, Default)]
pub(super) struct ApiCaller {
    /// His token; there is none where callers are not told apart.
    token: Option<Arc<str>>,
}

impl Auth {
    /// Who sent a request with these fields. Nobody is asked: whoever shows something asks for the right to see it, which
    /// is known for a while, or for the name.
    ///
    /// # Errors
    /// He does not say.
    pub(super) fn caller(&self, fields: &HeaderMap) -> Result<ApiCaller, Problem> {
        if let Self::None { any_host: anywhere } = self {
            return check_local_request(*anywhere, fields).map(|()| ApiCaller::default());
        }
        let own = fields.contains_key(OWN_AUTHORIZATION);
        let mut values = fields.get_all(if own { OWN_AUTHORIZATION } else { header::AUTHORIZATION }).iter();
        let token = match (values.next(), values.next()) {
            (None, _) => return Err(unauthenticated("this needs a token: send `Authorization: Bearer <token>`")),
            (Some(value), None) => bearer(value.as_bytes()),
            _ => None,
        };
        let single = "the credential is no single token: send `Authorization: Bearer <token>`";
        let token = token.ok_or_else(|| unauthenticated(single))?;
        Ok(ApiCaller { token: Some(token.into()) })
    }

    /// A caller's name; there is none where callers are not told apart.
    ///
    /// # Errors
    /// Nobody knows him, or nobody can be asked.
    pub(super) async fn user(&self, caller: &ApiCaller) -> Result<Option<String>, Problem> {
        match self.identity(caller).await {
            None => Ok(None),
            Some(Ok(Ok(identity))) => Ok(Some(identity.name.clone())),
            Some(Ok(Err(_))) => Err(invalid_token()),
            Some(Err(Unavailable)) => Err(unavailable()),
        }
    }

    /// What a caller is counted by: his name, or his token while nobody can be asked; `None`: callers are not told apart.
    ///
    /// # Errors
    /// Nobody knows him.
    pub(super) async fn account(&self, caller: &ApiCaller) -> Result<Option<String>, Problem> {
        match self.identity(caller).await {
            Some(Err(Unavailable)) => Ok(caller.token.as_deref().map(|token| sha256_hex(token.as_bytes()))),
            _ => self.user(caller).await,
        }
    }

    /// Lets a request go on unless its token is refused, which counts against the address that it comes from. Without a token, or
    /// while no review can be made, what the request asks for decides.
    ///
    /// # Errors
    /// The token is wrong, or too many wrong ones came from there.
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

    /// Lets a request with these fields go on to the gateway, whose judgement it needs where there is sign-in. Where there is
    /// none, only what is asked of this machine goes on, and nothing from pages of others; the relay looks at `Origin` itself.
    ///
    /// # Errors
    /// It comes from a page of others, or under the name of another machine.
    pub(super) fn may_relay(&self, fields: &HeaderMap) -> Result<(), Problem> {
        let Self::None { any_host: anywhere } = self else { return Ok(()) };
        check_local_request(*anywhere, fields)?;
        if fields.get("sec-fetch-site").is_some_and(|site| site == "same-site") {
            Err(foreign_origin())
        } else {
            Ok(())
        }
    }

    /// Puts the token of the cluster where no workload sees it, also behind a gateway that asks nobody who calls: in
    /// `Authorization` such a gateway would pass it on.
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

    /// Lets a caller read one object.
    ///
    /// # Errors
    /// He may not; the problem names the right.
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

    /// Whether a caller has a right.
    ///
    /// # Errors
    /// Nobody knows him, or nobody can be asked.
    async fn may(&self, caller: &ApiCaller, right: &Right<'_>) -> Result<bool, Problem> {
        let (Self::Kubernetes(access, _), Some(token)) = (self, &caller.token) else { return Ok(true) };
        match access.is_allowed(token, right).await {
            Ok(Ok(())) => Ok(true),
            Ok(Err(Denial::Forbidden)) => Ok(false),
            Ok(Err(Denial::Unknown)) => Err(invalid_token()),
            Err(Unavailable) => Err(unavailable()),
        }
    }

    /// Whether a caller may read one object.
    ///
    /// # Errors
    /// Nobody knows him, or nobody can be asked.
    pub(super) async fn sees(
        &self,
        caller: &ApiCaller,
        kind: &ApiKind,
        namespace: &str,
        name: &str,
    ) -> Result<bool, Problem> {
        self.may(caller, &Right { verb: "get", resource: kind.plural, subresource: "", namespace, name }).await
    }

    /// Whether a caller may list the objects of a kind in a namespace; in the whole cluster, when that is empty.
    ///
    /// # Errors
    /// Nobody knows him, or nobody can be asked.
    pub(super) async fn may_list(&self, caller: &ApiCaller, kind: &ApiKind, namespace: &str) -> Result<bool, Problem> {
        let right = Right { verb: "list", resource: kind.plural, subresource: "", namespace, name: "" };
        self.may(caller, &right).await
    }

    /// What a caller may see of these kinds, of all when there are none: what he may list, in the whole cluster or else in
    /// each namespace that has objects of the kind. If namespaces are named, only those are asked about.
    ///
    /// # Errors
    /// Nobody can be asked, or [`Auth::sighted`] refuses.
    pub(super) async fn visibility(
        &self,
        caller: &ApiCaller,
        fleet: &FleetCache,
        kinds: &[&'static ApiKind],
        namespaces: &[String],
    ) -> Result<Visibility, Problem> {
        if matches!(self, Self::None { .. }) {
            return Ok(Visibility::ALL);
        }
        let mut sights = Vec::with_capacity(KINDS.len());
        for (row, kind) in (0_u8..).zip(KINDS) {
            let wanted = kinds.is_empty() || kinds.iter().any(|wanted| wanted.name == kind.name);
            sights.push(if wanted {
                self.kind_visibility(caller, kind, fleet.namespaces(row), namespaces).await?
            } else {
                KindVisibility::Namespaces(HashSet::new())
            });
        }
        let visible = Visibility::only(sights);
        Self::require_visibility(&visible, fleet, kinds, namespaces)?;
        Ok(visible)
    }

    /// Refuses who sees nothing of these kinds, of all when there are none: an empty list would say that there is nothing.
    /// Where there is nothing, it is true.
    ///
    /// # Errors
    /// He may list nothing of the kinds, in the one namespace or in any that has some.
    pub(super) fn require_visibility(
        visible: &Visibility,
        fleet: &FleetCache,
        kinds: &[&'static ApiKind],
        namespaces: &[String],
    ) -> Result<(), Problem> {
        let Some(sights) = visible.by_kind() else { return Ok(()) };
        let wanted = |kind: &ApiKind| kinds.is_empty() || kinds.iter().any(|wanted| wanted.name == kind.name);
        let mut there = false;
        for ((row, _), sight) in (0_u8..).zip(KINDS).zip(sights).filter(|((_, kind), _)| wanted(kind)) {
            if !matches!(sight, KindVisibility::Namespaces(names) if names.is_empty()) {
                return Ok(());
            }
            there = there || !fleet.namespaces(row).is_empty();
        }
        match (kinds, namespaces) {
            // Whether there is something in that namespace is not told either.
            ([kind], [namespace]) => Err(forbidden("list", kind, namespace)),
            ([kind], _) if there => Err(forbidden("list", kind, "")),
            ([], [_]) => Err(nothing_visible()),
            _ if there => Err(nothing_visible()),
            _ => Ok(()),
        }
    }

    async fn kind_visibility(
        &self,
        caller: &ApiCaller,
        kind: &'static ApiKind,
        mut there: Vec<String>,
        named: &[String],
    ) -> Result<KindVisibility, Problem> {
        if self.may_list(caller, kind, "").await? {
            return Ok(KindVisibility::All);
        }
        match named {
            [] => {}
            // Nothing but the right tells whether there is something.
            [one] => there = vec![one.clone()],
            // There may be many, of which nobody has ever heard.
            _ => there.retain(|namespace| named.contains(namespace)),
        }
        let may = async |namespace: String| Ok(self.may_list(caller, kind, &namespace).await?.then_some(namespace));
        let answers: Vec<_> = stream::iter(there).map(may).buffer_unordered(CONCURRENT_REVIEWS).collect().await;
        let seen = answers.into_iter().filter_map(Result::transpose).collect::<Result<HashSet<_>, _>>()?;
        Ok(KindVisibility::Namespaces(seen))
    }
}

/// Refuses, where there is no sign-in, what is asked under the name of another machine or by a page of others.
fn check_local_request(anywhere: bool, fields: &HeaderMap) -> Result<(), Problem> {
    let own = anywhere || fields.get(header::HOST).is_none_or(|host| is_loopback_name(host.as_bytes()));
    let cross = fields.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
    if own && !cross { Ok(()) } else { Err(foreign_origin()) }
}

fn foreign_origin() -> Problem {
    let detail =
        "without sign-in only what is asked of this machine as localhost, and by no page of others, is answered";
    Problem::new(StatusCode::FORBIDDEN, detail)
}

/// Whether the value of `Host` is a name of this machine itself.
fn is_loopback_name(host: &[u8]) -> bool {
    let Ok(host) = str::from_utf8(host) else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn unauthenticated(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, detail)
}

fn invalid_token() -> Problem {
    unauthenticated("the token is not valid here: it is wrong, has expired, or is meant for others")
}

fn unavailable() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the API server cannot be asked who you are: try again")
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

fn nothing_visible() -> Problem {
    let detail = format!(
        "you cannot list objects of Récif (API group {}): ask for the ClusterRole recif-view, as in `kubectl create rolebinding \
         NAME --clusterrole=recif-view --serviceaccount=NAMESPACE:NAME -n NAMESPACE`",
        crds::GROUP,
    );
    Problem::new(StatusCode::FORBIDDEN, detail)
}

#[cfg(test)]
#[path = "auth_tests.rs"]
mod tests;
