//! Authorization of lists: which of some workloads a caller may call.
//!
//! A right on all workloads of the cluster, or of a namespace, needs one review. Only where there is none each workload is
//! reviewed, so that a list costs little for most callers.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use cluster::reviews::Right;
use futures::future::join_all;
use tokio::sync::Semaphore;

use super::{LocalResponse, RootCaller, anonymous, authorizer::Authorizer};
use crate::routes::Route;

/// Reviews of one list that are in flight at a time.
const CONCURRENT: usize = 16;

/// Part of a list.
#[derive(Debug, Default)]
pub(crate) struct Callable {
    /// Workloads that the caller may call.
    pub(crate) callable: Vec<Arc<Route>>,
    /// Last workload that was judged, if further ones were not.
    pub(crate) until: Option<Arc<Route>>,
}

impl RootCaller<'_> {
    /// Selects from `workloads`, in their order, up to `most` that the caller at `origin` may call at the path `rest`. A list
    /// that takes more than a few reviews waits for one of `turns`.
    ///
    /// # Errors
    /// The refusal of a caller who needs a valid token, or there is no verdict.
    pub(crate) async fn callable(
        &self,
        workloads: Vec<Arc<Route>>,
        rest: &[u8],
        most: usize,
        turns: &Semaphore,
        origin: IpAddr,
    ) -> Result<Callable, LocalResponse> {
        let (gate, token) = match self {
            Self::Anyone => return Ok(cut(workloads, most)),
            Self::Anonymous(refusal) => {
                let open: Vec<_> = workloads.into_iter().filter(|route| self.may_see(route, rest)).collect();
                return if open.is_empty() { Err(refusal.clone()) } else { Ok(cut(open, most)) };
            }
            Self::Known { gate, token, .. } => (*gate, *token),
        };
        if workloads.is_empty() {
            return Ok(Callable::default());
        }
        if gate.holds(token, &right("", ""), origin).await? {
            return Ok(cut(workloads, most));
        }
        let _turn = if workloads.len() > CONCURRENT { turns.acquire().await.ok() } else { None };
        let mut scopes = Scopes { gate, token, origin, namespaces: HashMap::new() };
        let open = |route: &Arc<Route>| anonymous::covers(&route.object.anonymous_paths, rest);
        let mut listed = Callable::default();
        let mut rest_of_list = workloads.into_iter().peekable();
        while rest_of_list.peek().is_some() && listed.callable.len() < most {
            let batch: Vec<_> = rest_of_list.by_ref().take(CONCURRENT.min(most - listed.callable.len())).collect();
            let last = batch.last().cloned();
            for route in &batch {
                scopes.learn(&route.workload.namespace).await?;
            }
            let reviews: Vec<_> = batch.iter().map(|route| scopes.judge(route, open(route))).collect();
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

/// Rights of a caller on many workloads, but not on all.
struct Scopes<'a> {
    gate: &'a Authorizer,
    token: &'a str,
    origin: IpAddr,
    /// Right on all agents of a namespace, by its name.
    namespaces: HashMap<Box<str>, bool>,
}

impl Scopes<'_> {
    /// Reviews the right on a namespace.
    async fn learn(&mut self, namespace: &str) -> Result<(), LocalResponse> {
        if !self.namespaces.contains_key(namespace) {
            let all = self.gate.holds(self.token, &right(namespace, ""), self.origin).await?;
            self.namespaces.insert(namespace.into(), all);
        }
        Ok(())
    }

    /// Reports whether the caller may call an agent; `open` says that all may.
    async fn judge(&self, route: &Route, open: bool) -> Result<bool, LocalResponse> {
        let (namespace, name) = (&route.workload.namespace, &route.workload.name);
        if open || self.namespaces.get(namespace) == Some(&true) {
            return Ok(true);
        }
        self.gate.holds(self.token, &right(namespace, name), self.origin).await
    }
}

/// Returns the right to call an agent; with empty names all agents.
fn right<'a>(namespace: &'a str, name: &'a str) -> Right<'a> {
    Right { verb: "create", resource: "agents", subresource: "invoke", namespace, name }
}
