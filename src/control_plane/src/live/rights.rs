//! What one who follows may see, as far as it was asked.

use std::collections::{BTreeSet, HashMap};

use crds::KINDS;
use futures::{StreamExt as _, stream};

use crate::{
    api::problem::Problem,
    app::App,
    auth::{AT_A_TIME, Auth, Caller},
    fleet::{Fleet, Record},
};

/// A place of a kind in [`KINDS`], and a namespace; the empty one stands for the whole cluster.
pub(super) type Place = (u8, String);

/// What a client may see.
#[derive(Debug)]
pub(super) enum Sight {
    /// Everything: callers are not told apart.
    Everything,
    /// What its caller may list.
    Given(Rights),
}

impl Sight {
    /// What a caller may see of what there is now.
    ///
    /// # Errors
    /// Nobody knows him, or nobody can be asked.
    pub(super) async fn of(app: &App, caller: &Caller) -> Result<Self, Problem> {
        if matches!(app.auth, Auth::None { .. }) {
            return Ok(Self::Everything);
        }
        let mut rights = Rights::default();
        rights.ask(app, caller, places(&app.fleet)).await?;
        Ok(Self::Given(rights))
    }

    /// Whether the client may see an object; `None`: this was not asked yet.
    pub(super) fn sees(&self, record: &Record) -> Option<bool> {
        match self {
            Self::Everything => Some(true),
            Self::Given(rights) => rights.get(record.row, &record.key.namespace),
        }
    }

    /// Asks about places of which nothing is known.
    ///
    /// # Errors
    /// Nobody knows the caller, or nobody can be asked.
    pub(super) async fn ask(&mut self, app: &App, caller: &Caller, places: BTreeSet<Place>) -> Result<(), Problem> {
        match self {
            Self::Everything => Ok(()),
            Self::Given(rights) => rights.ask(app, caller, places).await,
        }
    }

    /// Asks again about everything that is known, and about what there is now. Returns whether something changed.
    ///
    /// # Errors
    /// Nobody knows the caller any more, or nobody can be asked.
    pub(super) async fn review(&mut self, app: &App, caller: &Caller) -> Result<bool, Problem> {
        let Self::Given(rights) = self else { return Ok(false) };
        let there = places(&app.fleet);
        let mut now = Rights::default();
        now.ask(app, caller, there.iter().cloned().chain(rights.places()).collect()).await?;
        let changed = rights.differs(&now);
        // What has no objects any more is asked about again when it has some.
        now.keep(&there);
        *rights = now;
        Ok(changed)
    }
}

/// What a client may list and what not: in each namespace, of each of [`KINDS`].
#[derive(Debug, Default)]
pub(super) struct Rights(HashMap<String, [Option<bool>; KINDS.len()]>);

impl Rights {
    fn get(&self, row: u8, namespace: &str) -> Option<bool> {
        self.asked(row, "").filter(|whole| *whole).or_else(|| self.asked(row, namespace))
    }

    fn asked(&self, row: u8, namespace: &str) -> Option<bool> {
        *self.0.get(namespace)?.get(usize::from(row))?
    }

    fn places(&self) -> impl Iterator<Item = Place> {
        let of = |(name, answers): (&String, &[Option<bool>; KINDS.len()])| {
            let rows = (0_u8..).zip(*answers).filter(|(_, answer)| answer.is_some());
            let name = name.clone();
            rows.map(move |(row, _)| (row, name.clone()))
        };
        self.0.iter().flat_map(of)
    }

    /// Whether something that both know is another now.
    fn differs(&self, other: &Self) -> bool {
        self.places().any(|(row, name)| other.asked(row, &name).is_some_and(|now| Some(now) != self.asked(row, &name)))
    }

    /// Forgets what was answered about other places.
    fn keep(&mut self, places: &BTreeSet<Place>) {
        self.0.retain(|name, answers| {
            for (row, answer) in (0_u8..).zip(answers.iter_mut()) {
                *answer = answer.filter(|_| places.contains(&(row, name.clone())));
            }
            answers.iter().any(Option::is_some)
        });
    }

    async fn ask(&mut self, app: &App, caller: &Caller, places: BTreeSet<Place>) -> Result<(), Problem> {
        let rows: BTreeSet<u8> = places.iter().map(|(row, _)| *row).collect();
        self.answer(app, caller, rows.into_iter().map(|row| (row, String::new())).collect()).await?;
        self.answer(app, caller, places.into_iter().collect()).await
    }

    async fn answer(&mut self, app: &App, caller: &Caller, mut places: Vec<Place>) -> Result<(), Problem> {
        places.retain(|(row, namespace)| self.get(*row, namespace).is_none());
        let ask = async |(row, namespace): Place| {
            let Some(kind) = KINDS.get(usize::from(row)) else { return Ok((row, namespace, false)) };
            let may = app.auth.may_list(caller, kind, &namespace).await?;
            Ok((row, namespace, may))
        };
        let answers: Vec<_> = stream::iter(places).map(ask).buffer_unordered(AT_A_TIME).collect().await;
        for answer in answers {
            let (row, namespace, may) = answer?;
            if let Some(known) = self.0.entry(namespace).or_default().get_mut(usize::from(row)) {
                *known = Some(may);
            }
        }
        Ok(())
    }
}

/// Every kind with each namespace that has objects of it, and with none.
fn places(fleet: &Fleet) -> BTreeSet<Place> {
    let rows = (0_u8..).zip(KINDS).map(|(row, _)| row);
    let of = |row| fleet.namespaces(row).into_iter().chain([String::new()]).map(move |name| (row, name));
    rows.flat_map(of).collect()
}
