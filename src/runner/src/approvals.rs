//! Routes by which a caller decides on calls that wait, and the continuation of turns without a request.
//!
//! | route | answer |
//! |---|---|
//! | `GET /approvals` | `{"approvals": [{conversation_id, user, decided, task, approval}]}`: what waits, or is decided and has not ended, of all users for an approver; 403 for a caller without a name |
//! | `GET /approvals/{task}` | `{conversation_id, user, decided, task, approval}` |
//! | `POST /approvals/{task}` `{"approvals": [{id, approved, rejection_reason?}]}` | as of `POST /chat`, once the turn has gone on |
//!
//! `approval.by` says who decides: the `Caller`, or an approver in its place, or an `Approver` other than the caller, for which others get
//! 403. A turn that needs headers or the key of its caller does not go on with the decision of an approver: that is kept, answered with 202, and
//! the next decision of the caller, which may name no call, goes on with the turn.
//!
//! 400 is for a decision that does not name each call that waits once, or without a header that tools send on and the first request had,
//! 404 for an unknown task or one of another user, 409 for one that was decided otherwise before or has expired, 503 where this process
//! ends before all calls were made. The same decision again goes on with a turn whose process died meanwhile, and is 503 with
//! `Retry-After` while a process goes on with the turn.
//!
//! The turn goes on in a task of its own: a client that disconnects does not break off a call that is being made.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State, rejection::BytesRejection},
    http::{
        StatusCode,
        header::{HeaderMap, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};
use tokio::sync::{
    Semaphore,
    mpsc::{self, Receiver, Sender},
};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::{
    agent::Agent,
    caller::CallerContext,
    common_routes::{ErrorResponse, wants_events},
    conversations::history::ConversationId,
    parking::{DecisionError, Decisions, WaitingTurn},
    sse,
    turn_event::TurnEvent,
    usage::UsageLedger,
};

/// Interval at which turns are looked for that no request continues.
const SWEEP: Duration = Duration::from_secs(5);
/// The same where no tool asks, so that only turns from before are left.
const IDLE_SWEEP: Duration = Duration::from_secs(60);
/// Interval at which turns are deleted that expired long ago.
const CLEANUP: Duration = Duration::from_secs(3600);
/// Most turns that go on at once without a request.
const MOST_AT_ONCE: usize = 8;
/// Seconds after which a client may send a decision again that is being carried out.
const BUSY_WAIT: &str = "5";
/// Longest wait for a client that does not read the events of a turn that goes on.
const UNREAD: Duration = Duration::from_secs(10);
/// Text of the answer to a decision that is kept.
const KEPT: &str = "[decided: the turn goes on with the next request of its own caller]";
/// Error for a caller without a name who lists what waits.
const NO_NAME: &str = "callers without a name cannot be told apart, so nothing is listed for them: decide with `recif approve agent/NAME TASK`, or \
                       POST /approvals/TASK, on the task that the answer named";
/// Error of a turn whose task ended.
const CUT_OFF: &str = "the turn was cut off";
/// Error for a client that did not read.
const NOT_READ: &str = "the events of the turn were not read: its answer is in the conversation";

/// State of the routes.
#[derive(Clone)]
struct ApprovalRoutes {
    /// Agent, or the reason why it cannot be served.
    agent: Result<Arc<Agent>, String>,
    /// Counts for the budgets of turns that go on.
    ledger: UsageLedger,
    /// Requests in flight; closed once the process drains.
    requests: TaskTracker,
}

/// Returns the routes of the agent; an `Err` holds the reason why it cannot be served. Turns that go on count among `requests`, and by
/// `ledger` for their budgets.
pub(super) fn routes(agent: Result<Arc<Agent>, String>, ledger: UsageLedger, requests: TaskTracker) -> Router {
    let routes = Router::new().route("/approvals", get(list)).route("/approvals/{task}", get(show).post(decide));
    routes.with_state(ApprovalRoutes { agent, ledger, requests })
}

/// Goes on with turns of the agent that are due and that no request continues, until the process drains or the handle is dropped; `None`
/// where there can be none. `ledger` counts for their budgets.
pub(super) fn sweep(agent: Arc<Agent>, ledger: UsageLedger, requests: TaskTracker) -> Option<AbortOnDropHandle<()>> {
    let interval = match (agent.asks_callers(), agent.parked.is_shared()) {
        (true, _) => SWEEP,
        (false, true) => IDLE_SWEEP,
        (false, false) => return None,
    };
    Some(AbortOnDropHandle::new(tokio::spawn(async move {
        let (mut cleaned, permits) = (None, Arc::new(Semaphore::new(MOST_AT_ONCE)));
        while !requests.is_closed() {
            agent.count_pending().await;
            tokio::time::sleep(interval).await;
            if cleaned.is_none_or(|last: Instant| last.elapsed() >= CLEANUP) {
                cleaned = Some(Instant::now());
                if let Err(error) = agent.parked.forget_old().await {
                    tracing::debug!("turns that expired long ago were not deleted: {error}");
                }
            }
            // Others are left to the next look, or to another replica.
            while let Ok(permit) = permits.clone().try_acquire_owned() {
                if requests.is_closed() {
                    return;
                }
                let Some((claimed, caller)) = agent.claim_due(&ledger).await else { break };
                let (agent, tracker) = (agent.clone(), requests.clone());
                requests.spawn(async move {
                    let _permit = permit;
                    if let Err(error) = agent.resume(claimed, caller, &tracker, None).await {
                        tracing::warn!("a parked turn did not go on: {error}");
                    }
                });
            }
        }
    })))
}

/// Passes the events of a turn on to its client, and reports whether all were read. The turn does not wait for a client that has
/// stopped reading.
async fn relay(mut events: Receiver<TurnEvent>, client: Sender<TurnEvent>) -> bool {
    while let Some(event) = events.recv().await {
        if !matches!(tokio::time::timeout(UNREAD, client.send(event)).await, Ok(Ok(()))) {
            return false;
        }
    }
    true
}

/// Parses a task.
fn task_id(task: &str) -> Result<ConversationId, DecisionError> {
    ConversationId::parse(task).ok_or_else(|| DecisionError::unknown(task))
}

async fn list(State(app): State<ApprovalRoutes>, headers: HeaderMap) -> Result<Json<Value>, ErrorResponse> {
    let agent = app.agent.map_err(|why| ErrorResponse(StatusCode::SERVICE_UNAVAILABLE, why))?;
    let user = CallerContext::user_of(&headers);
    if user.is_none() {
        return Err(ErrorResponse(StatusCode::FORBIDDEN, NO_NAME.into()));
    }
    let waiting = match CallerContext::is_approver(&headers) {
        true => agent.all_waiting().await?,
        false => agent.waiting(&user).await?,
    };
    Ok(Json(json!({ "approvals": waiting })))
}

async fn show(
    State(app): State<ApprovalRoutes>,
    Path(task): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ErrorResponse> {
    let agent = app.agent.map_err(|why| ErrorResponse(StatusCode::SERVICE_UNAVAILABLE, why))?;
    let task = task_id(&task)?;
    let (user, is_approver) = (CallerContext::user_of(&headers), CallerContext::is_approver(&headers));
    match agent.waiting_for(task.as_str(), &user, is_approver).await? {
        Some(waiting) => Ok(Json(waiting).into_response()),
        None => Err(DecisionError::unknown(task.as_str()).into()),
    }
}

async fn decide(
    State(app): State<ApprovalRoutes>,
    Path(task): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ErrorResponse> {
    let agent = app.agent.map_err(|why| ErrorResponse(StatusCode::SERVICE_UNAVAILABLE, why))?;
    let is_stream = wants_events(&headers);
    let caller = CallerContext::from_headers(headers);
    let decisions: Decisions = serde_json::from_slice(&body?).map_err(|error| {
        let form = r#"{"approvals": [{"id": "…", "approved": true}]}"#;
        ErrorResponse(StatusCode::BAD_REQUEST, format!("the body must be JSON like {form}: {error}"))
    })?;
    let claimed = match agent.decide(task_id(&task)?.as_str(), &caller, decisions).await {
        Err(busy @ DecisionError::Busy) => {
            return Ok(([(RETRY_AFTER, BUSY_WAIT)], ErrorResponse::from(busy)).into_response());
        }
        Err(DecisionError::Kept(decision)) => return Ok(kept(&decision.waiting, is_stream).await),
        decided => decided?,
    };
    let caller = Agent::caller_of(&claimed, caller, &app.ledger);
    let account = caller.account.clone();
    let (requests, tracker) = (app.requests.clone(), app.requests);
    if is_stream {
        let models = agent.models();
        let response = sse::respond(&models, async move |client| {
            let (tokens, events) = mpsc::channel(16);
            let resumed = requests.spawn(async move { agent.resume(claimed, caller, &tracker, Some(&tokens)).await });
            match (relay(events, client).await, resumed.await) {
                (true, Ok(Ok(reply))) => Ok(reply.done_event(&account)),
                (false, Ok(Ok(_))) => Err(NOT_READ.to_owned()),
                (_, Ok(Err(error))) => Err(error.to_string()),
                (_, Err(_)) => Err(CUT_OFF.to_owned()),
            }
        });
        return Ok(response.await);
    }
    let resumed = requests.spawn(async move { agent.resume(claimed, caller, &tracker, None).await });
    let ended = resumed.await.map_err(|_| ErrorResponse(StatusCode::INTERNAL_SERVER_ERROR, CUT_OFF.into()))?;
    Ok(ended?.into_response())
}

/// Returns the answer to a decision that is kept until the caller of its turn comes back.
async fn kept(waiting: &WaitingTurn, is_stream: bool) -> Response {
    // Texts and JSON values under string keys: this cannot fail.
    let mut reply = serde_json::to_value(waiting).unwrap_or_default();
    if is_stream {
        let last = json!({ "conversation_id": reply["conversation_id"], "decided": true });
        let note = async move |client: Sender<TurnEvent>| {
            let _ = client.send(KEPT.into()).await;
            Ok::<_, String>(last)
        };
        return sse::respond(&[], note).await;
    }
    reply["reply"] = KEPT.into();
    (StatusCode::ACCEPTED, Json(reply)).into_response()
}

impl From<DecisionError> for ErrorResponse {
    fn from(error: DecisionError) -> Self {
        let status = match &error {
            DecisionError::UnknownTask(_) => StatusCode::NOT_FOUND,
            DecisionError::Invalid(_) | DecisionError::MissingHeaders(_) => StatusCode::BAD_REQUEST,
            DecisionError::NotApprover | DecisionError::NotSignedIn => StatusCode::FORBIDDEN,
            DecisionError::Decided(_) | DecisionError::Expired | DecisionError::Kept(_) => StatusCode::CONFLICT,
            DecisionError::Random(_) => StatusCode::INTERNAL_SERVER_ERROR,
            DecisionError::Model(error) => error.response_status(),
            DecisionError::Busy | DecisionError::OtherVersion | DecisionError::Database(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        Self(status, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_reading_delays_no_turn() {
        let (tokens, events) = mpsc::channel(16);
        let (client, _unread) = mpsc::channel(1);
        for text in ["a", "b", "c"] {
            tokens.send(TurnEvent::from(text)).await.unwrap();
        }
        assert!(!relay(events, client).await);
        assert!(tokens.send("d".into()).await.is_err(), "the turn goes on without it");
    }
}
