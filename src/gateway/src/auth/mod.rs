//! Who may call what: a token is reviewed by the API server, and so is the right to `create` on `<plural>/invoke`.
//!
//! Rights on agents are given like every other right in the cluster, by roles and bindings, and the gateway keeps no list of
//! its own. It asks once a minute for each token and workload and remembers only digests, so a request that was let in
//! before costs no request to the API server.

mod anonymous;
mod authorizer;
mod credential;

use crate::local_response::unknown_workload;
use std::{net::IpAddr, sync::Arc};

pub(super) use authorizer::Authorizer;
use authorizer::WorkloadRef;
use http1::RequestHead;

use super::{local_response::LocalResponse, path::Path, routes::Route};

/// How callers are told apart.
#[derive(Debug)]
pub(super) enum Auth {
    /// They are not: everybody may ask everything.
    None,
    /// As the API server says.
    Kubernetes(Authorizer),
}

/// What let a request in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Admission {
    /// Nobody is asked for a credential.
    #[default]
    Open,
    /// Its caller has the right.
    Right,
    /// It asks for one of the paths that need no caller. No other one may be reached by it.
    Path,
    /// Every path of the workload needs none.
    EveryPath,
}

/// Whose request it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RequestCaller {
    /// What let it in.
    pub(super) admission: Admission,
    /// The name the workload is told in `X-Recif-User`; fit for a header.
    pub(super) user: Option<Arc<str>>,
    /// Whether `Authorization` was meant for the gateway and is not passed on.
    pub(super) hides_authorization: bool,
}

impl RequestCaller {
    /// Whether it may open a tunnel: of what is said in one nothing is judged, so it reaches whatever the workload serves.
    pub(super) fn may_upgrade(&self) -> bool {
        self.admission != Admission::Path
    }

    /// Whether there is only its path for it, so that it may not name another one besides.
    pub(super) fn is_anonymous(&self) -> bool {
        matches!(self.admission, Admission::Path | Admission::EveryPath)
    }
}

impl Auth {
    /// Admits a request, whose path leads to `route` if there is such a workload. The head is complete and valid; nothing of
    /// its body was read on purpose. `origin` is where it comes from. Whatever waits is boxed: this future is part of every connection.
    ///
    /// # Errors
    /// The refusal. One who may not ask does not learn whether there is a route.
    pub(super) async fn authorize(
        &self,
        head: &RequestHead<'_>,
        path: &Path<'_>,
        route: Option<&Route>,
        origin: impl Fn() -> IpAddr,
    ) -> Result<RequestCaller, LocalResponse> {
        let Self::Kubernetes(gate) = self else { return Ok(RequestCaller::default()) };
        let (credential, hides_authorization) = credential::find(head);
        let anonymous = route.map_or(&[][..], |route| &route.object.anonymous_paths);
        // Whoever has no token learns there where to get one (RFC 9728, section 3).
        let tells_where = path.is_metadata() && matches!(head.method, b"GET" | b"HEAD") && route.is_some();
        if tells_where || anonymous::covers(anonymous, path.rest) {
            let everything = anonymous::covers_all(anonymous);
            let admission = if everything { Admission::EveryPath } else { Admission::Path };
            return Ok(RequestCaller { admission, user: None, hides_authorization });
        }
        // What no workload can be called is not there, and there is no right that could be asked for.
        let Some(workload) = WorkloadRef::read(path.key) else { return Err(unknown_workload()) };
        let user = gate.authorize(&credential, workload, origin).await?;
        Ok(RequestCaller { admission: Admission::Right, user: Some(user), hides_authorization })
    }
}

#[cfg(test)]
pub(super) mod tests;
