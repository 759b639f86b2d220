//! Caller of a request that names no workload in its path: known by its token, before any right is asked for.

use std::{net::IpAddr, sync::Arc};

use http1::RequestHead;

use super::{
    Auth, LocalResponse, anonymous,
    authorizer::{Authorizer, no_token},
    credential::{self, Credential},
};
use crate::{clients::ClientId, routes::Route};

/// Caller at the root.
pub(crate) enum RootCaller<'a> {
    /// Authentication is off.
    Anyone,
    /// Caller without a valid token, who may call what is open to all, and gets this refusal of everything else.
    Anonymous(LocalResponse),
    /// Owner of a token.
    Known {
        /// Authorizer that knows the rights.
        gate: &'a Authorizer,
        /// Token.
        token: &'a str,
        /// Name; `None` while the API server cannot say it of a token that was valid before.
        name: Option<Arc<str>>,
    },
}

impl Auth {
    /// Identifies the caller at `origin`.
    ///
    /// # Errors
    /// The refusal of a foreign web page, of an address that sent too many wrong tokens, or for want of an answer.
    pub(crate) async fn identify<'a>(
        &'a self,
        head: &'a RequestHead<'a>,
        origin: IpAddr,
    ) -> Result<RootCaller<'a>, LocalResponse> {
        let gate = match self {
            Self::Kubernetes(gate) => gate,
            Self::None { .. } => return self.check_origin(head).map(|()| RootCaller::Anyone),
        };
        let (credential, _) = credential::find(head);
        let Credential::Token(token) = credential else { return Ok(RootCaller::Anonymous(no_token(&credential))) };
        match gate.identify(token, origin).await {
            Ok(name) => Ok(RootCaller::Known { gate, token, name }),
            Err(refusal) if refusal.status == 401 => Ok(RootCaller::Anonymous(refusal)),
            Err(refusal) => Err(refusal),
        }
    }
}

impl RootCaller<'_> {
    /// Returns the client for which the requests of this caller at `origin` are counted.
    pub(crate) fn client(&self, origin: IpAddr) -> ClientId {
        match self {
            Self::Known { name: Some(name), .. } => ClientId::User(name.clone()),
            _ => ClientId::Address(origin),
        }
    }

    /// Reports whether the caller may perhaps call an agent at the path `rest`. Nothing is reviewed.
    pub(crate) fn may_see(&self, route: &Route, rest: &[u8]) -> bool {
        !matches!(self, Self::Anonymous(_)) || anonymous::covers(&route.object.anonymous_paths, rest)
    }
}
