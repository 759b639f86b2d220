//! What happened, as far back as the database goes: older steps of an object, and those of the whole fleet.

use std::time::Duration;

use crds::KINDS;
use futures::{FutureExt as _, future::BoxFuture};
use http::StatusCode;
use tokio::time::timeout;

use super::{
    answer::Answer,
    operation::{Asked, Param, Values},
    problem::Problem,
    types::{History, Step, Transition, Transitions},
};
use crate::{
    app::App,
    auth::Caller,
    fleet::{Fleet, Record, Sight, Visible},
};

/// Steps on a page unless somebody says how many.
const USUAL: usize = 100;
/// The most steps on a page.
const MOST: i64 = 1000;
/// The most older steps of one object.
const OLDER: usize = 1000;
/// How long the newer steps of an object, which are at hand, wait for the older ones.
const PATIENCE: Duration = Duration::from_secs(1);

/// Parameters of the fleet's history.
pub(super) const TRANSITIONS: &[Param] = &[
    Param { name: "limit", about: "The most steps on the page.", values: Values::Number(1, MOST), many: false },
    Param {
        name: "before",
        about: "Where the page begins: the `continue` of the page before it.",
        values: Values::Text,
        many: false,
    },
];

/// What happened in the fleet, the newest first.
pub(super) fn transitions(app: App, caller: Caller, asked: Asked) -> BoxFuture<'static, Result<Answer, Problem>> {
    async move {
        let limit = asked.number("limit").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(USUAL);
        let before = asked.one("before").filter(|text| !text.is_empty()).map(str::parse::<store::Cursor>).transpose();
        let before = before.map_err(|()| Problem::parameter("before", "before: it was not given out here"))?;
        let visible = app.auth.visible(&caller, &app.fleet, &[], &[]).await?;
        let page = app
            .store
            .latest(&seen(&visible, &app.fleet), before.as_ref(), limit)
            .await
            .map_err(|error| away(&error))?;
        let items = page.items.into_iter().map(Transition::from).collect();
        Answer::of(&Transitions { items, next: page.next.map(|next| next.to_string()) })
    }
    .boxed()
}

/// How far what happened is stored.
pub(super) fn how_far(app: App, caller: Caller, _: Asked) -> BoxFuture<'static, Result<Answer, Problem>> {
    async move {
        // It is the same for everybody, but for nobody whom nobody knows.
        app.auth.user(&caller).await?;
        Answer::of(&History { behind_seconds: app.mirror.behind(&app.fleet).as_secs(), problem: app.mirror.problem() })
    }
    .boxed()
}

/// The steps of an object after this number that its status does not hold any more. Without a database that answers there are
/// none.
pub(super) async fn older(app: &App, record: &Record, since: i64, known: &[Step]) -> Vec<Step> {
    let first = known.first().map_or(i64::MAX, |step| step.seq);
    // Who follows an object asks again and again: most often there is nothing new.
    if record.seq <= since || first <= since.saturating_add(1) {
        return Vec::new();
    }
    let steps = in_time(app.store.steps(&record.uid, since, OLDER)).await.unwrap_or_default();
    steps.into_iter().map(|told| told.step.into()).filter(|step: &Step| step.seq < first).collect()
}

/// The steps after this number of the last object of this name, which is gone; `None`: the database knows of none, or does not
/// answer.
pub(super) async fn of_the_gone(app: &App, kind: &str, namespace: &str, name: &str, since: i64) -> Option<Vec<Step>> {
    let steps = in_time(async {
        let last = app.store.history(kind, namespace, name, 1).await?.pop();
        match last {
            Some(last) => app.store.steps(&last.uid, since, OLDER).await.map(Some),
            None => Ok(None),
        }
    });
    Some(steps.await??.into_iter().map(|told| told.step.into()).collect())
}

/// What the database answers, if it does so in time.
async fn in_time<T>(answer: impl Future<Output = Result<T, store::StoreError>>) -> Option<T> {
    match timeout(PATIENCE, answer).await {
        Ok(Ok(found)) => Some(found),
        Ok(Err(error)) => {
            tracing::debug!(%error, "older steps cannot be read");
            None
        }
        Err(_) => {
            tracing::debug!("older steps cannot be read in time");
            None
        }
    }
}

/// What the database is to show of what a caller may see.
fn seen(visible: &Visible, fleet: &Fleet) -> store::Visible {
    let Some(sights) = visible.sights() else { return store::Visible::All };
    if sights.iter().all(|sight| *sight == Sight::All) {
        return store::Visible::All;
    }
    let mut pairs = Vec::new();
    for ((row, kind), sight) in (0_u8..).zip(KINDS).zip(sights) {
        // Of a kind that is seen everywhere: the namespaces that have some of it now.
        let names = match sight {
            Sight::All => fleet.namespaces(row),
            Sight::Namespaces(names) => names.iter().cloned().collect(),
        };
        pairs.extend(names.into_iter().map(|namespace| (kind.name.to_owned(), namespace)));
    }
    store::Visible::Only(pairs)
}

fn away(error: &store::StoreError) -> Problem {
    tracing::warn!(%error, "what happened cannot be read");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the database does not answer: try again")
}
