//! Cached rights of a client of the stream.

use std::collections::{BTreeSet, HashMap};

use crds::KINDS;
use futures::{StreamExt as _, stream};

use crate::{
    api::problem::Problem,
    app::SharedAppState,
    auth::{ApiCaller, Auth, CONCURRENT_REVIEWS},
    fleet::{FleetCache, Record},
};

/// Index of a kind in [`KINDS`], and a namespace; the empty one stands for the whole cluster.
pub(super) type ListScope = (u8, String);

/// Objects that a client may see.
#[derive(Debug)]
pub(super) enum SubscriberVisibility {
    /// Everything: callers are not authenticated.
    Unrestricted,
    /// Objects that its caller may list.
    Restricted(Rights),
}

impl SubscriberVisibility {
    /// Queries the rights of a caller for all kinds and namespaces that have objects now.
    ///
    /// # Errors
    /// The token is not valid, or the API server cannot be queried.
    pub(super) async fn of(app: &SharedAppState, caller: &ApiCaller) -> Result<Self, Problem> {
        if matches!(app.auth, Auth::None { .. }) {
            return Ok(Self::Unrestricted);
        }
        let mut rights = Rights::default();
        rights.query(app, caller, list_scopes(&app.fleet)).await?;
        Ok(Self::Restricted(rights))
    }

    /// Reports whether the client may see an object; `None`: the right was not queried yet.
    pub(super) fn sees(&self, record: &Record) -> Option<bool> {
        match self {
            Self::Unrestricted => Some(true),
            Self::Restricted(rights) => rights.get(record.row, &record.key.namespace),
        }
    }

    /// Queries the rights for scopes that are not known yet.
    ///
    /// # Errors
    /// The token is not valid, or the API server cannot be queried.
    pub(super) async fn query(
        &mut self,
        app: &SharedAppState,
        caller: &ApiCaller,
        scopes: BTreeSet<ListScope>,
    ) -> Result<(), Problem> {
        match self {
            Self::Unrestricted => Ok(()),
            Self::Restricted(rights) => rights.query(app, caller, scopes).await,
        }
    }

    /// Queries all known rights again, and those for scopes that have objects now. Reports whether a known right has changed.
    ///
    /// # Errors
    /// The token is no longer valid, or the API server cannot be queried.
    pub(super) async fn review(&mut self, app: &SharedAppState, caller: &ApiCaller) -> Result<bool, Problem> {
        let Self::Restricted(rights) = self else { return Ok(false) };
        let there = list_scopes(&app.fleet);
        let mut now = Rights::default();
        now.query(app, caller, there.iter().cloned().chain(rights.scopes()).collect()).await?;
        let changed = rights.differs(&now);
        // Scopes without objects are dropped, and queried again when they have some.
        now.retain(&there);
        *rights = now;
        Ok(changed)
    }
}

/// Verdicts on the right to list: by namespace, for each of [`KINDS`]; `None`: not queried yet.
#[derive(Debug, Default)]
pub(super) struct Rights(HashMap<String, [Option<bool>; KINDS.len()]>);

impl Rights {
    fn get(&self, row: u8, namespace: &str) -> Option<bool> {
        self.decision(row, "").filter(|whole| *whole).or_else(|| self.decision(row, namespace))
    }

    fn decision(&self, row: u8, namespace: &str) -> Option<bool> {
        *self.0.get(namespace)?.get(usize::from(row))?
    }

    fn scopes(&self) -> impl Iterator<Item = ListScope> {
        let of = |(name, answers): (&String, &[Option<bool>; KINDS.len()])| {
            let rows = (0_u8..).zip(*answers).filter(|(_, answer)| answer.is_some());
            let name = name.clone();
            rows.map(move |(row, _)| (row, name.clone()))
        };
        self.0.iter().flat_map(of)
    }

    /// Reports whether both know a verdict on which they differ.
    fn differs(&self, other: &Self) -> bool {
        self.scopes()
            .any(|(row, name)| other.decision(row, &name).is_some_and(|now| Some(now) != self.decision(row, &name)))
    }

    /// Drops the verdicts on all other scopes.
    fn retain(&mut self, scopes: &BTreeSet<ListScope>) {
        self.0.retain(|name, answers| {
            for (row, answer) in (0_u8..).zip(answers.iter_mut()) {
                *answer = answer.filter(|_| scopes.contains(&(row, name.clone())));
            }
            answers.iter().any(Option::is_some)
        });
    }

    async fn query(
        &mut self,
        app: &SharedAppState,
        caller: &ApiCaller,
        scopes: BTreeSet<ListScope>,
    ) -> Result<(), Problem> {
        let rows: BTreeSet<u8> = scopes.iter().map(|(row, _)| *row).collect();
        self.query_undecided(app, caller, rows.into_iter().map(|row| (row, String::new())).collect()).await?;
        self.query_undecided(app, caller, scopes.into_iter().collect()).await
    }

    async fn query_undecided(
        &mut self,
        app: &SharedAppState,
        caller: &ApiCaller,
        mut scopes: Vec<ListScope>,
    ) -> Result<(), Problem> {
        scopes.retain(|(row, namespace)| self.get(*row, namespace).is_none());
        let ask = async |(row, namespace): ListScope| {
            let Some(kind) = KINDS.get(usize::from(row)) else { return Ok((row, namespace, false)) };
            let may = app.auth.may_list(caller, kind, &namespace).await?;
            Ok((row, namespace, may))
        };
        let answers: Vec<_> = stream::iter(scopes).map(ask).buffer_unordered(CONCURRENT_REVIEWS).collect().await;
        for answer in answers {
            let (row, namespace, may) = answer?;
            if let Some(known) = self.0.entry(namespace).or_default().get_mut(usize::from(row)) {
                *known = Some(may);
            }
        }
        Ok(())
    }
}

/// Returns every kind with each namespace that has objects of it, and with the whole cluster.
fn list_scopes(fleet: &FleetCache) -> BTreeSet<ListScope> {
    let rows = (0_u8..).zip(KINDS).map(|(row, _)| row);
    let of = |row| fleet.namespaces(row).into_iter().chain([String::new()]).map(move |name| (row, name));
    rows.flat_map(of).collect()
}
