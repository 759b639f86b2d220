//! Authentication and authorization: the API server reviews a caller's token (TokenReview) and the right to `create` on
//! `<plural>/invoke` (SubjectAccessReview); of an Agent whose tools ask a person also that to `create` on `agents/approve`.
//!
//! Rights on agents are granted like every other right in the cluster, by roles and bindings; the gateway keeps no list
//! of its own. It asks about once a minute for each token and workload, and caches verdicts by digest only, so a
//! repeated request costs no request to the API server.

mod anonymous;
mod authorizer;
mod credential;
mod listing;
mod root_caller;

use crate::local_response::unknown_workload;
use std::{net::IpAddr, sync::Arc};

pub(super) use authorizer::Authorizer;
use authorizer::{Groups, WorkloadRef};
use credential::Credential;
use daemon::loopback;
use http1::RequestHead;
pub(super) use root_caller::RootCaller;

use super::{local_response::LocalResponse, path::Path, routes::Route};

/// Authentication mode.
#[derive(Debug)]
pub(super) enum Auth {
    /// None: every caller may call every workload. Unless `any_host`, only requests of this machine are answered, and none of
    /// other pages ([`loopback`]).
    None {
        /// Accepts any `Host`, and requests of any page.
        any_host: bool,
    },
    /// Tokens and rights are reviewed by the API server.
    Kubernetes(Authorizer),
}

/// Ground on which a request was admitted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Admission {
    /// Authentication is off.
    #[default]
    Open,
    /// The caller has the right.
    Right,
    /// The path needs no credential. The request may reach no other path.
    Path,
    /// No path of the workload needs a credential.
    EveryPath,
}

/// Caller of an admitted request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RequestCaller {
    /// Ground on which the request was admitted.
    pub(super) admission: Admission,
    /// Name for `X-Recif-User`, encoded for a header field; `None` for an anonymous caller.
    pub(super) user: Option<Arc<str>>,
    /// Groups of the caller.
    pub(super) groups: Groups,
    /// Set if the workload has tools that ask, and the caller may approve their calls.
    pub(super) is_approver: bool,
    /// Set if `Authorization` was meant for the gateway, and is not forwarded.
    pub(super) hides_authorization: bool,
}

impl RequestCaller {
    /// Reports whether the request may open a tunnel. Nothing is checked inside a tunnel, so it reaches whatever the
    /// workload serves.
    pub(super) fn may_upgrade(&self) -> bool {
        self.admission != Admission::Path
    }

    /// Reports whether the caller is anonymous, so that the request may not name another path in a header field.
    pub(super) fn is_anonymous(&self) -> bool {
        matches!(self.admission, Admission::Path | Admission::EveryPath)
    }
}

impl Auth {
    /// Admits a request whose path leads to `route`, if there is such a workload. The head is complete and valid;
    /// nothing of the body was read on purpose. `origin` returns the client's address. Every wait is boxed: this future
    /// is part of every connection.
    ///
    /// # Errors
    /// The refusal. A caller without rights does not learn whether the route exists.
    pub(super) async fn authorize(
        &self,
        head: &RequestHead<'_>,
        path: &Path<'_>,
        route: Option<&Route>,
        origin: impl Fn() -> IpAddr,
    ) -> Result<RequestCaller, LocalResponse> {
        let gate = match self {
            Self::Kubernetes(gate) => gate,
            Self::None { .. } => return self.check_origin(head).map(|()| RequestCaller::default()),
        };
        let (credential, hides_authorization) = credential::find(head);
        let anonymous = route.map_or(&[][..], |route| &route.object.anonymous_paths);
        // A client without a token learns there how to get one (RFC 9728, section 3).
        let tells_where = path.is_metadata() && matches!(head.method, b"GET" | b"HEAD") && route.is_some();
        if tells_where || anonymous::covers(anonymous, path.rest) {
            let everything = anonymous::covers_all(anonymous);
            let admission = if everything { Admission::EveryPath } else { Admission::Path };
            return Ok(RequestCaller { admission, hides_authorization, ..RequestCaller::default() });
        }
        // A name that no workload can have is unknown, and there is no right to review.
        let Some(workload) = WorkloadRef::read(path.key) else { return Err(unknown_workload()) };
        let (user, groups) = gate.authorize(&credential, workload, &origin).await?;
        let is_approver = match &credential {
            Credential::Token(token) if route.is_some_and(|route| route.object.approvals) => {
                match gate.cached_approver(token, workload) {
                    Some(is_approver) => is_approver,
                    None => Box::pin(gate.is_approver(token, workload, origin())).await,
                }
            }
            _ => false,
        };
        Ok(RequestCaller { admission: Admission::Right, user: Some(user), groups, is_approver, hides_authorization })
    }

    /// Returns the sender of a request that was refused, if its token is known: nothing is reviewed.
    pub(super) fn known_caller(&self, head: &RequestHead<'_>) -> Option<RequestCaller> {
        let Self::Kubernetes(gate) = self else { return None };
        let (Credential::Token(token), _) = credential::find(head) else { return None };
        let (user, groups) = gate.known_caller(token)?;
        Some(RequestCaller { user: Some(user), groups, ..RequestCaller::default() })
    }
}

impl Auth {
    /// Checks, without authentication, that no foreign web page sends the request.
    ///
    /// # Errors
    /// The refusal.
    fn check_origin(&self, head: &RequestHead<'_>) -> Result<(), LocalResponse> {
        match self {
            Self::None { any_host: false } if !is_local(head) => {
                Err(LocalResponse::new(403, "foreign-origin", loopback::REFUSAL))
            }
            _ => Ok(()),
        }
    }
}

fn is_local(head: &RequestHead<'_>) -> bool {
    loopback::is_local(|name| head.fields.values(head.bytes, name))
}

#[cfg(test)]
pub(super) mod tests;
