//! Who asks, and what he may see: rights on our kinds, as `kubectl get` needs them.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use crds::{KINDS, Kind};
use futures::{StreamExt as _, stream};
use http::{HeaderMap, StatusCode, header};

use super::{
    api::problem::Problem,
    fleet::{Fleet, Sight, Visible, row},
};
use crate::cluster::{
    access::{Access, No, Unavailable, bearer},
    reviews::Right,
};

/// How many namespaces of one caller are asked about at a time.
const AT_A_TIME: usize = 16;

/// How callers are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum AuthMode {
    /// By the tokens and roles of the cluster
    Kubernetes,
    /// Not at all: everybody sees everything
    None,
}

/// Options about callers.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct AuthArgs {
    /// How callers are told apart
    #[arg(long, env = "RECIF_AUTH", value_enum, default_value_t = AuthMode::Kubernetes, value_name = "HOW")]
    auth: AuthMode,
    /// Let everybody in on an address that others reach: with --auth none
    #[arg(long, env = "RECIF_INSECURE")]
    pub(super) insecure: bool,
    /// Audiences that tokens may be meant for, separated by commas; the API server's when empty
    #[arg(long, env = "RECIF_TOKEN_AUDIENCE", value_delimiter = ',', value_name = "NAMES")]
    token_audience: Vec<String>,
}

/// An address on which everybody would be let in from everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "--auth none on {0} would show everything to everybody who reaches that address: bind to 127.0.0.1, or say --insecure"
)]
pub(super) struct Open(SocketAddr);

impl AuthArgs {
    /// How callers are told apart, if that is fit for this address.
    ///
    /// # Errors
    /// [`Open`].
    pub(super) fn mode(&self, bind: SocketAddr) -> Result<AuthMode, Open> {
        let open = self.auth == AuthMode::None && !self.insecure && !bind.ip().is_loopback();
        if open { Err(Open(bind)) } else { Ok(self.auth) }
    }

    /// The audiences that tokens may be meant for; none: the API server's.
    pub(super) fn audiences(&self) -> Vec<String> {
        // An empty variable is one empty name to the parser of lists.
        self.token_audience.iter().filter(|name| !name.is_empty()).cloned().collect()
    }
}

/// How callers are told apart.
#[derive(Debug)]
pub(super) enum Auth {
    /// They are not. Unless `anywhere`, only what is asked of this machine by its own names is answered: a page of somebody
    /// else could have its own name lead here.
    None {
        /// Whether any name will do.
        anywhere: bool,
    },
    /// As the API server says.
    Kubernetes(Access<()>),
}

/// Who asks.
#[derive(Debug, Clone, Default)]
pub(super) struct Caller {
    /// His token; there is none where callers are not told apart.
    token: Option<Arc<str>>,
    /// His name.
    pub(super) user: Option<String>,
}

impl Auth {
    /// Who sent a request with these fields.
    ///
    /// # Errors
    /// He does not say, or nobody knows him.
    pub(super) async fn who(&self, fields: &HeaderMap) -> Result<Caller, Problem> {
        let access = match self {
            Self::None { anywhere } => return local(*anywhere, fields).map(|()| Caller::default()),
            Self::Kubernetes(access) => access,
        };
        let mut values = fields.get_all(header::AUTHORIZATION).iter();
        let token = match (values.next(), values.next()) {
            (None, _) => return Err(unauthenticated("this needs a token: send `Authorization: Bearer <token>`")),
            (Some(value), None) => bearer(value.as_bytes()),
            _ => None,
        };
        let Some(token) = token else {
            return Err(unauthenticated("the credential is no single token: send `Authorization: Bearer <token>`"));
        };
        match access.who(token).await {
            Ok(Ok(identity)) => Ok(Caller { token: Some(token.into()), user: Some(identity.name.clone()) }),
            Ok(Err(_)) => Err(unknown()),
            Err(Unavailable) => Err(unavailable()),
        }
    }

    /// Lets a request with these fields go on to the gateway, whose judgement it needs where there is sign-in. Where there is
    /// none, only what is asked of this machine goes on, and nothing from pages of others; the relay looks at `Origin` itself.
    ///
    /// # Errors
    /// It comes from a page of others, or under the name of another machine.
    pub(super) fn may_relay(&self, fields: &HeaderMap) -> Result<(), Problem> {
        let Self::None { anywhere } = self else { return Ok(()) };
        local(*anywhere, fields)?;
        if fields.get("sec-fetch-site").is_some_and(|site| site == "same-site") { Err(foreign()) } else { Ok(()) }
    }

    /// Lets a caller read one object.
    ///
    /// # Errors
    /// He may not; the problem names the right.
    pub(super) async fn may_get(
        &self,
        caller: &Caller,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<(), Problem> {
        let (Self::Kubernetes(access), Some(token)) = (self, &caller.token) else { return Ok(()) };
        let right = Right { verb: "get", resource: kind.plural, subresource: "", namespace, name };
        match access.may(token, &right).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(No::Unknown)) => Err(unknown()),
            Ok(Err(No::Forbidden)) => Err(forbidden("get", kind, namespace)),
            Err(Unavailable) => Err(unavailable()),
        }
    }

    /// What a caller may see of these kinds, of all when there are none: what he may list, in the whole cluster or else in
    /// each namespace that has objects of the kind.
    ///
    /// # Errors
    /// Nobody can be asked, or he may list nothing of the one kind, in the one namespace, that he asks for.
    pub(super) async fn visible(
        &self,
        caller: &Caller,
        fleet: &Fleet,
        kinds: &[&'static Kind],
        namespaces: &[String],
    ) -> Result<Visible, Problem> {
        let (Self::Kubernetes(access), Some(token)) = (self, &caller.token) else { return Ok(Visible::ALL) };
        let mut sights = vec![Sight::Namespaces(HashSet::new()); KINDS.len()];
        let wanted = |kind: &&Kind| kinds.is_empty() || kinds.iter().any(|wanted| wanted.name == kind.name);
        for kind in KINDS.iter().filter(wanted) {
            let Some(row) = row(kind) else { continue };
            let sight = self::sight(access, token, kind, row, fleet, namespaces).await?;
            if let Some(place) = sights.get_mut(usize::from(row)) {
                *place = sight;
            }
        }
        // An empty list would say that there is nothing; where there is nothing, it is true.
        let nothing = |kind: &Kind| {
            let Some(row) = row(kind) else { return false };
            let sight = sights.get(usize::from(row));
            let none = sight.is_some_and(|sight| matches!(sight, Sight::Namespaces(names) if names.is_empty()));
            none && !(namespaces.is_empty() && fleet.namespaces(row).is_empty())
        };
        match (kinds, namespaces) {
            ([kind], [namespace]) if nothing(kind) => Err(forbidden("list", kind, namespace)),
            ([kind], []) if nothing(kind) => Err(forbidden("list", kind, "")),
            _ => Ok(Visible::only(sights)),
        }
    }
}

async fn sight(
    access: &Access<()>,
    token: &Arc<str>,
    kind: &'static Kind,
    row: u8,
    fleet: &Fleet,
    namespaces: &[String],
) -> Result<Sight, Problem> {
    let may = async |namespace: String| {
        let right = Right { verb: "list", resource: kind.plural, subresource: "", namespace: &namespace, name: "" };
        match access.may(token, &right).await {
            Ok(Ok(())) => Ok(Some(namespace)),
            Ok(Err(No::Forbidden)) => Ok(None),
            Ok(Err(No::Unknown)) => Err(unknown()),
            Err(Unavailable) => Err(unavailable()),
        }
    };
    if may(String::new()).await?.is_some() {
        return Ok(Sight::All);
    }
    let asked = if namespaces.is_empty() { fleet.namespaces(row) } else { namespaces.to_vec() };
    let answers: Vec<_> = stream::iter(asked).map(may).buffer_unordered(AT_A_TIME).collect().await;
    let seen = answers.into_iter().filter_map(Result::transpose).collect::<Result<HashSet<_>, _>>()?;
    Ok(Sight::Namespaces(seen))
}

/// Refuses, where there is no sign-in, what is asked under the name of another machine or by a page of others.
fn local(anywhere: bool, fields: &HeaderMap) -> Result<(), Problem> {
    let own = anywhere || fields.get(header::HOST).is_none_or(|host| is_own(host.as_bytes()));
    let cross = fields.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
    if own && !cross { Ok(()) } else { Err(foreign()) }
}

fn foreign() -> Problem {
    let detail =
        "without sign-in only what is asked of this machine as localhost, and by no page of others, is answered";
    Problem::new(StatusCode::FORBIDDEN, detail)
}

/// Whether the value of `Host` is a name of this machine itself.
fn is_own(host: &[u8]) -> bool {
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

fn unknown() -> Problem {
    unauthenticated("the token is not valid here: it is wrong, has expired, or is meant for others")
}

fn unavailable() -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the API server cannot be asked who you are: try again")
}

fn forbidden(verb: &str, kind: &Kind, namespace: &str) -> Problem {
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
#[path = "auth_tests.rs"]
mod tests;
