//! Diagnosis of an object: the reason for its state, and what it waits for.

use crds::{
    Role,
    diagnosis::{first_lines, reference_problem},
    why::why,
};
use futures::FutureExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use meta::{CommonStatus, HistoryEntry, Key, condition_type};
use serde::Deserialize as _;

use super::{
    children::children_of,
    object::find,
    operation::{OperationFuture, OperationRequest},
    problem::Problem,
    response::OperationResponse,
    step_types::Step,
    types::{Condition, Why},
};
use crate::{app::SharedAppState, auth::ApiCaller, fleet::Record};

/// Number of last steps in a diagnosis.
const STEPS: usize = 5;

/// Returns its diagnosis: the reason for its state.
pub(super) fn reason(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let record = find(&app, &caller, &asked).await?.record;
        let object = record.object();
        let metadata = ObjectMeta::deserialize(&object["metadata"]).map_err(|error| Problem::defect(&error))?;
        let stored = record.status();
        let answer = why(record.kind.name, &metadata, stored.as_ref());
        let status = stored.unwrap_or_default();
        let mut steps: Vec<&HistoryEntry> = status.history.iter().rev().take(STEPS).collect();
        steps.reverse();
        OperationResponse::of(&Why {
            sentence: answer.sentence,
            phase: answer.phase,
            condition: condition(&status),
            waiting_for: waiting_for(&app, &caller, &record, &metadata, &status).await?,
            steps: steps.into_iter().map(Step::from).collect(),
            children: children_of(&app, &caller, &record).await?,
        })
    }
    .boxed()
}

/// Returns the condition that gives the reason: Stalled if it is true, else Ready. The initial status, from the defaults of the
/// schema, has none, because its time is no real one.
fn condition(status: &CommonStatus) -> Option<Condition> {
    if status.is_initial() {
        return None;
    }
    let stalled = status.condition(condition_type::STALLED).filter(|stalled| stalled.status == "True");
    let found = stalled.or(status.condition(condition_type::READY))?;
    Some(Condition {
        type_: found.type_.clone(),
        status: found.status.clone(),
        reason: found.reason.clone(),
        message: found.message.clone(),
        since: found.last_transition_time.0.to_string(),
    })
}

/// Returns the lines that `recif why` adds, without those from logs; none for an object that is ready. Of objects that the
/// caller may not see, only their invisibility is reported.
async fn waiting_for(
    app: &SharedAppState,
    caller: &ApiCaller,
    record: &Record,
    metadata: &ObjectMeta,
    status: &CommonStatus,
) -> Result<Vec<String>, Problem> {
    let current = metadata.generation.is_none() || status.observed_generation >= metadata.generation;
    let ready = status.condition(condition_type::READY).is_some_and(|ready| ready.status == "True");
    if ready && current {
        return Ok(Vec::new());
    }
    let mut lines = Vec::new();
    for link in &record.references {
        if !app.auth.sees(caller, link.kind, &link.namespace, &link.name).await? {
            lines.push(format!("{} {}: not visible to you", link.kind.name, link.name));
            continue;
        }
        let found = app.fleet.get(link.kind, &Key::new(&*link.namespace, &*link.name));
        let status = found.map(|entry| entry.record.status().unwrap_or_default());
        lines.extend(reference_problem(link.kind.name, &link.name, status.as_ref()));
    }
    if record.kind.role == Role::Workload {
        let deployment = app.related.deployments.get(&record.key);
        lines.extend(deployment.iter().flat_map(|deployment| deployment.problems.iter().cloned()));
        let pods = app.related.pods_of(record.kind, &record.key);
        lines.extend(pods.iter().flat_map(|pod| app.related.problems_of(pod)));
    }
    Ok(first_lines(lines))
}
