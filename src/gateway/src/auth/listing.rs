//! Authorization of lists: which of some workloads a caller may call.
//!
//! A right on all workloads of the cluster, or of a namespace, needs one review. Only where there is none each workload is
//! reviewed, so that a list costs little for most callers.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use cluster::reviews::Right;
use futures::future::join_all;
use http1::RequestHead;

use super::{
    Auth, LocalResponse, anonymous,
    authorizer::{Authorizer, no_token},
    credential::{self, Credential},
};
use crate::routes::Route;

/// Reviews of one list that are in flight at a time.
const CONCURRENT: usize = 16;
/// Workloads that are judged for one list, at most.
const MAX_JUDGED: usize = 1000;

/// Part of a list.
#[derive(Debug, Default)]
pub(crate) struct Callable {
    /// Workloads that the caller may call.
    pub(crate) callable: Vec<Arc<Route>>,
    /// Last workload that was judged, if further ones were not.
    pub(crate) until: Option<Arc<Route>>,
}

impl Auth {
    /// Selects from `workloads`, in their order, up to `most` that the caller may call at the path `rest`. `origin`
    /// returns the client's address.
    ///
    /// # Errors
    /// The refusal of a caller who needs a valid token.
    pub(crate) async fn callable(
        &self,
        head: &RequestHead<'_>,
        workloads: Vec<Arc<Route>>,
        rest: &[u8],
        most: usize,
        origin: impl Fn() -> IpAddr,
    ) -> Result<Callable, LocalResponse> {
        let gate = match self {
            Self::Kubernetes(gate) => gate,
            Self::None { .. } => {
                self.check_origin(head)?;
                return Ok(cut(workloads, most));
            }
        };
        let (credential, _) = credential::find(head);
        let open = |route: &Arc<Route>| anonymous::covers(&route.object.anonymous_paths, rest);
        let Credential::Token(token) = credential else {
            let open: Vec<_> = workloads.into_iter().filter(open).collect();
            return if open.is_empty() { Err(no_token(&credential)) } else { Ok(cut(open, most)) };
        };
        let mut scopes = Scopes { gate, token, namespaces: HashMap::new(), cluster: None };
        let mut listed = Callable::default();
        let mut judged = 0;
        let mut rest_of_list = workloads.into_iter().peekable();
        while rest_of_list.peek().is_some() && judged < MAX_JUDGED && listed.callable.len() < most {
            let batch: Vec<_> = rest_of_list.by_ref().take(CONCURRENT.min(most - listed.callable.len())).collect();
            judged += batch.len();
            let last = batch.last().cloned();
            for route in &batch {
                scopes.learn(&route.workload.namespace, &origin).await?;
            }
            let reviews: Vec<_> = batch.iter().map(|route| scopes.judge(route, open(route), &origin)).collect();
            let verdicts = join_all(reviews).await;
            for (route, verdict) in batch.into_iter().zip(verdicts) {
                if verdict? {
                    listed.callable.push(route);
                }
            }
            listed.until = last.filter(|_| rest_of_list.peek().is_some());
        }
        Ok(listed)
    }
}

/// Takes the first `most` workloads.
fn cut(mut workloads: Vec<Arc<Route>>, most: usize) -> Callable {
    let until = if workloads.len() > most { workloads.get(most.saturating_sub(1)).cloned() } else { None };
    workloads.truncate(most);
    Callable { callable: workloads, until }
}

/// Rights of a caller on many workloads.
struct Scopes<'a> {
    gate: &'a Authorizer,
    token: &'a str,
    /// Right on all agents of a namespace, by its name.
    namespaces: HashMap<Box<str>, bool>,
    /// Right on all agents of the cluster, once it was reviewed.
    cluster: Option<bool>,
}

impl Scopes<'_> {
    /// Reviews the right on a namespace, unless it follows from that on the cluster.
    async fn learn(&mut self, namespace: &str, origin: &impl Fn() -> IpAddr) -> Result<(), LocalResponse> {
        let everywhere = match self.cluster {
            Some(known) => known,
            None => *self.cluster.insert(self.gate.holds(self.token, &right("", ""), origin).await?),
        };
        if !everywhere && !self.namespaces.contains_key(namespace) {
            let all = self.gate.holds(self.token, &right(namespace, ""), origin).await?;
            self.namespaces.insert(namespace.into(), all);
        }
        Ok(())
    }

    /// Reports whether the caller may call an agent; `open` says that all may.
    async fn judge(&self, route: &Route, open: bool, origin: &impl Fn() -> IpAddr) -> Result<bool, LocalResponse> {
        let (namespace, name) = (&route.workload.namespace, &route.workload.name);
        if open || self.cluster == Some(true) || self.namespaces.get(namespace) == Some(&true) {
            return Ok(true);
        }
        self.gate.holds(self.token, &right(namespace, name), origin).await
    }
}

/// Returns the right to call an agent; with empty names all agents.
fn right<'a>(namespace: &'a str, name: &'a str) -> Right<'a> {
    Right { verb: "create", resource: "agents", subresource: "invoke", namespace, name }
}
