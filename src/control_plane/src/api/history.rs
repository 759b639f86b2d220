//! History of the fleet and of single objects, as far back as the database goes.

use std::time::Duration;

use crds::KINDS;
use futures::FutureExt as _;
use http::StatusCode;
use tokio::time::timeout;

use super::{
    operation::{OperationFuture, OperationRequest, Param, ParamValues},
    problem::Problem,
    response::OperationResponse,
    step_types::{History, Step, Transition, Transitions},
};
use crate::{
    app::SharedAppState,
    auth::ApiCaller,
    fleet::{FleetCache, KindVisibility, Record, Visibility},
};

/// Page size unless the caller gives a limit.
const DEFAULT_LIMIT: usize = 100;
/// Limit of the page size.
const MAX_LIMIT: i64 = 1000;
/// Limit of the stored steps that are read for one object.
const MAX_STORED_STEPS: usize = 1000;
/// Timeout for the stored steps of an object; its newer steps are in memory and do not wait longer.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);

/// Parameters of the fleet's history.
pub(super) const TRANSITIONS: &[Param] = &[
    Param {
        name: "limit",
        about: "The most steps on the page.",
        values: ParamValues::Number(1, MAX_LIMIT),
        repeatable: false,
    },
    Param {
        name: "before",
        about: "Where the page begins: the `continue` of the page before it.",
        values: ParamValues::Text,
        repeatable: false,
    },
];

/// Lists the transitions of the fleet, the newest first.
pub(super) fn transitions(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let limit = asked.number("limit").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(DEFAULT_LIMIT);
        let before = asked.one("before").filter(|text| !text.is_empty()).map(str::parse::<store::Cursor>).transpose();
        let before = before.map_err(|()| Problem::parameter("before", "before: it was not given out here"))?;
        let visible = app.auth.visibility(&caller, &app.fleet, &[], &[]).await?;
        let page = app
            .store
            .latest(&store_visibility(&visible, &app.fleet), before.as_ref(), limit)
            .await
            .map_err(|error| store_unavailable(&error))?;
        let items = page.items.into_iter().map(Transition::from).collect();
        OperationResponse::of(&Transitions { items, next: page.next.map(|next| next.to_string()) })
    }
    .boxed()
}

/// Reports the state of the mirror that stores the history.
pub(super) fn history_status(app: SharedAppState, caller: ApiCaller, _: OperationRequest) -> OperationFuture {
    async move {
        // The response is the same for every caller with a valid token.
        app.auth.user(&caller).await?;
        OperationResponse::of(&History {
            behind_seconds: app.mirror.behind(&app.fleet).as_secs(),
            problem: app.mirror.problem(),
        })
    }
    .boxed()
}

/// Reads the stored steps of an object after this number that its status no longer holds. Returns none if the database does not
/// respond.
pub(super) async fn stored_steps(app: &SharedAppState, record: &Record, since: i64, known: &[Step]) -> Vec<Step> {
    let first = known.first().map_or(i64::MAX, |step| step.seq);
    // A client that follows an object polls this again and again, and mostly nothing is new.
    if record.seq <= since || first <= since.saturating_add(1) {
        return Vec::new();
    }
    let steps = with_timeout(app.store.steps(&record.uid, since, MAX_STORED_STEPS)).await.unwrap_or_default();
    steps.into_iter().map(|row| row.step.into()).filter(|step: &Step| step.seq < first).collect()
}

/// Reads the steps after this number of the last deleted object with this name; `None`: the database has none, or does not
/// respond.
pub(super) async fn steps_of_deleted(
    app: &SharedAppState,
    kind: &str,
    namespace: &str,
    name: &str,
    since: i64,
) -> Option<Vec<Step>> {
    let steps = with_timeout(async {
        let last = app.store.history(kind, namespace, name, 1).await?.pop();
        match last {
            Some(last) => app.store.steps(&last.uid, since, MAX_STORED_STEPS).await.map(Some),
            None => Ok(None),
        }
    });
    Some(steps.await??.into_iter().map(|row| row.step.into()).collect())
}

/// Returns the result of a query of the database; `None` after an error or [`STORE_TIMEOUT`].
async fn with_timeout<T>(answer: impl Future<Output = Result<T, store::StoreError>>) -> Option<T> {
    match timeout(STORE_TIMEOUT, answer).await {
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

/// Converts the visibility of a caller to a filter for the database.
pub(super) fn store_visibility(visible: &Visibility, fleet: &FleetCache) -> store::HistoryScope {
    let Some(sights) = visible.by_kind() else { return store::HistoryScope::All };
    if sights.iter().all(|sight| *sight == KindVisibility::All) {
        return store::HistoryScope::All;
    }
    let mut pairs = Vec::new();
    for ((row, kind), sight) in (0_u8..).zip(KINDS).zip(sights) {
        // For a kind that is visible everywhere: the namespaces that have objects of it now.
        let names = match sight {
            KindVisibility::All => fleet.namespaces(row),
            KindVisibility::Namespaces(names) => names.iter().cloned().collect(),
        };
        pairs.extend(names.into_iter().map(|namespace| (kind.name.to_owned(), namespace)));
    }
    store::HistoryScope::Only(pairs)
}

/// Logs an error of the database, and returns the problem for the caller.
pub(super) fn store_unavailable(error: &store::StoreError) -> Problem {
    tracing::warn!(%error, "what happened cannot be read");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the database does not answer: try again")
}
