//! Who may call what: a token is reviewed by the API server, and so is the right to `create` on `<plural>/invoke`.
//!
//! Rights on agents are given like every other right in the cluster, by roles and bindings, and the gateway keeps no list of
//! its own. It asks once a minute for each token and workload and remembers only digests, so a request that was let in
//! before costs no request to the API server.

mod anonymous;
mod credential;
mod gate;

use std::sync::Arc;

pub(super) use gate::Gate;
use gate::Workload;

use super::{answer::Answer, path::Path, routes::Route};
use crate::http1::RequestHead;

/// How callers are told apart.
#[derive(Debug)]
pub(super) enum Auth {
    /// They are not: everybody may ask everything.
    None,
    /// As the API server says.
    Kubernetes(Gate),
}

/// Whose request it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Caller {
    /// The name the workload is told in `X-Recif-User`; fit for a header.
    pub(super) user: Option<Arc<str>>,
    /// Whether `Authorization` was meant for the gateway and is not passed on.
    pub(super) hides_authorization: bool,
}

impl Auth {
    /// Admits a request, whose path leads to `route` if there is such a workload. The head is complete and valid; nothing of
    /// its body was read on purpose. Whatever waits is boxed: this future is part of every connection.
    ///
    /// # Errors
    /// The refusal. One who may not ask does not learn whether there is a route.
    pub(super) async fn admit(
        &self,
        head: &RequestHead<'_>,
        path: &Path<'_>,
        route: Option<&Route>,
    ) -> Result<Caller, Answer> {
        let Self::Kubernetes(gate) = self else { return Ok(Caller::default()) };
        let (credential, hides_authorization) = credential::find(head);
        let anonymous = route.map_or(&[][..], |route| &route.object.anonymous_paths);
        // Whoever has no token learns there where to get one (RFC 9728, section 3).
        let tells_where = path.is_metadata() && matches!(head.method, b"GET" | b"HEAD") && route.is_some();
        if tells_where || anonymous::covers(anonymous, path.rest) {
            return Ok(Caller { user: None, hides_authorization });
        }
        // What no workload can be called needs no right: there is nothing to find.
        let Some(workload) = Workload::read(path.key) else { return Ok(Caller::default()) };
        let user = gate.admit(&credential, workload).await?;
        Ok(Caller { user: Some(user), hides_authorization })
    }
}

#[cfg(test)]
mod tests;
