//! Finds the objects that a caller may list, by the rights to list their kinds in the whole cluster or in single namespaces.

use std::collections::HashSet;

use crds::{ApiKind, KINDS};
use futures::{StreamExt as _, stream};
use http::StatusCode;

use super::{ApiCaller, Auth, CONCURRENT_REVIEWS, forbidden};
use crate::{
    api::problem::Problem,
    fleet::{FleetCache, KindVisibility, Visibility},
};

impl Auth {
    /// Returns the caller's visibility of these kinds (of all kinds if there are none): the right to list them in the whole
    /// cluster, or else in each namespace that has objects of the kind. If namespaces are named, only those are reviewed.
    ///
    /// # Errors
    /// The API server cannot be queried, or [`Auth::require_visibility`] refuses.
    pub(crate) async fn visibility(
        &self,
        caller: &ApiCaller,
        fleet: &FleetCache,
        kinds: &[&'static ApiKind],
        namespaces: &[String],
    ) -> Result<Visibility, Problem> {
        let visible = self.reviewed_visibility(caller, fleet, kinds, namespaces).await?;
        Self::require_visibility(&visible, fleet, kinds, namespaces)?;
        Ok(visible)
    }

    /// Returns the same visibility for a caller that may see nothing: one that may get an object need not list any.
    ///
    /// # Errors
    /// The token is not valid, or the API server cannot be queried.
    pub(crate) async fn reviewed_visibility(
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
        Ok(Visibility::only(sights))
    }

    /// Refuses a caller that may see nothing of these kinds (of all kinds if there are none): an empty list would claim that
    /// there are no objects. If there really are none, the empty list is true and passes.
    ///
    /// # Errors
    /// The caller may not list the kinds in the one named namespace, or in any namespace that has objects of them.
    pub(crate) fn require_visibility(
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
            // The error is the same whether or not that namespace has objects.
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
            // The review is made even if the namespace has no objects, so that only the right decides.
            [one] => there = vec![one.clone()],
            // Named namespaces without objects are dropped: there may be many, each of which would cost a review.
            _ => there.retain(|namespace| named.contains(namespace)),
        }
        let may = async |namespace: String| Ok(self.may_list(caller, kind, &namespace).await?.then_some(namespace));
        let answers: Vec<_> = stream::iter(there).map(may).buffer_unordered(CONCURRENT_REVIEWS).collect().await;
        let seen = answers.into_iter().filter_map(Result::transpose).collect::<Result<HashSet<_>, _>>()?;
        Ok(KindVisibility::Namespaces(seen))
    }
}

fn nothing_visible() -> Problem {
    let detail =
        format!("you cannot list objects of Récif (API group {}): ask for the ClusterRole recif-view", crds::GROUP);
    Problem::new(StatusCode::FORBIDDEN, detail)
}
