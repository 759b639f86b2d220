//! Agent2Agent, version 1.0 and the methods of 0.3: how other agents and their tools talk to an agent.
//!
//! | route | answer |
//! |---|---|
//! | `GET /.well-known/agent-card.json` | the [card] |
//! | `POST /` | JSON-RPC: `SendMessage`, `SendStreamingMessage`, `GetTask`, `CancelTask`, `SubscribeToTask`, `ListTasks`; in 0.3 `message/send`, `message/stream`, `tasks/get`, `tasks/cancel`, `tasks/resubscribe` |
//!
//! Each message becomes a [task](tasks) whose answer is one artifact, and its `contextId` is the conversation's id. A
//! model that fails makes the task fail; every other error is one of JSON-RPC. Tasks are kept by the replica that runs
//! them, and where conversations are in a database [there too](registry), for all replicas. They belong to the user who
//! began them: to others they are not there. Callers without a name cannot be distinguished, so to them only the tasks of a
//! context that they name are listed.

mod card;
mod events;
mod params;
mod registry;
mod rows;
mod rpc;
mod tasks;
mod wire;

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::{
        HeaderMap, StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH},
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use crds::digest;
use serde_json::{Map, Value, json};
use tokio_util::task::TaskTracker;

use self::{
    params::{About, List, Operation, Send, Version},
    registry::Registry,
    rows::Rows,
    rpc::{Call, Fault},
    tasks::{Limits, Phase, Stored, Task, Tasks},
};
use super::{
    agent::{Agent, Turn, TurnError},
    caller::Caller,
    conversations::history::ConversationId,
    shell::{Refusal, is_json},
};

/// An agent as other agents see it.
#[derive(Clone)]
pub(super) struct A2a {
    name: Arc<str>,
    agent: Result<Arc<Agent>, String>,
    requests: TaskTracker,
    tasks: Arc<Registry>,
}

impl A2a {
    /// The agent `name`, or why it cannot be served. Tasks that run count among `requests`.
    pub(super) fn new(name: &str, agent: Result<Arc<Agent>, String>, requests: TaskTracker) -> Self {
        let limits = Limits::default();
        let home = agent.as_ref().map(|agent| agent.home());
        let in_memory = matches!(home, Ok(None));
        let rows = home.ok().flatten().map(|home| Rows::new(home, limits));
        let tasks = Arc::new(Registry::new(Tasks::new(limits), rows, in_memory));
        Self { name: name.into(), agent, requests, tasks }
    }

    /// Its routes.
    pub(super) fn routes(self) -> Router {
        Router::new().route("/.well-known/agent-card.json", get(show_card)).route("/", post(call)).with_state(self)
    }

    /// Does what is asked for.
    async fn dispatch(&self, version: Option<&str>, caller: Caller, call: Call) -> Result<Response, Fault> {
        let Call { id, method, params } = call;
        let (version, operation) = params::method(&method, version)?;
        let request = Request::read(operation, params)?;
        let id = id.map_err(|why| Fault::Request(why.into()))?;
        let result = match request {
            Request::Send(send) => self.send(version, caller, send).await?,
            Request::Stream(send) => {
                return Ok(events::respond(version, id, self.start(&send, caller).await?, send.history));
            }
            Request::Get(About { id, history }) => {
                self.show(version, &*self.tasks.get(&id, &caller.user).await?, history)
            }
            Request::Cancel(About { id, history }) => {
                let task = self.tasks.get(&id, &caller.user).await?;
                self.show(version, &*self.tasks.cancel(task).await?, history)
            }
            Request::Subscribe(about) => {
                let task = self.tasks.get(&about.id, &caller.user).await?;
                if !task.is_working() {
                    return Err(Fault::Unsupported(format!("task `{}` has ended: ask for it", about.id)));
                }
                let events = events::respond(version, id, task.clone(), about.history);
                self.tasks.follow(task);
                return Ok(events);
            }
            Request::List(list) => self.list(version, &caller, &list).await?,
        };
        Ok(Json(rpc::result(&id, result)).into_response())
    }

    /// A page of the caller's tasks, those first whose state changed last.
    async fn list(&self, version: Version, caller: &Caller, list: &List) -> Result<Value, Fault> {
        if caller.user.is_none() && list.context.is_none() {
            let why = "callers without a name are not told apart here: list the tasks of a `contextId`";
            return Err(Fault::Unsupported(why.into()));
        }
        let mut found = self.tasks.heads(&caller.user).await?;
        found.retain(|task| {
            list.context.as_ref().is_none_or(|context| *context == task.context)
                && list.phase.is_none_or(|phase| phase == Some(task.phase))
                && list.after.is_none_or(|after| task.since >= after)
        });
        let total = found.len();
        let from = match &list.token {
            None => 0,
            Some(token) => found
                .iter()
                .position(|task| task.id == *token)
                .map(|at| at + 1)
                .ok_or_else(|| Fault::Params("`pageToken` is not of this list: begin anew".into()))?,
        };
        let page = &found[from..total.min(from + list.size)];
        let next = page.last().filter(|_| from + page.len() < total).map(|last| last.id.clone());
        let show = |task: &Arc<Task>| {
            let mut shown = self.show(version, task, list.history);
            if let (false, Some(fields)) = (list.artifacts, shown.as_object_mut()) {
                fields.remove("artifacts");
            }
            shown
        };
        let page = self.tasks.of(page, &caller.user).await?;
        Ok(json!({
            "tasks": page.iter().map(show).collect::<Vec<_>>(),
            "nextPageToken": next.unwrap_or_default(),
            "pageSize": list.size,
            "totalSize": total,
        }))
    }

    async fn send(&self, version: Version, caller: Caller, send: Send) -> Result<Value, Fault> {
        let task = self.start(&send, caller).await?;
        if !send.at_once {
            let mut progress = task.watch();
            let ended = progress.wait_for(|progress| progress.phase != Phase::Working).await;
            ended.map_err(|_| Fault::Internal("the task was lost".into()))?;
            drop(progress);
            self.tasks.stored(&task, Stored::Ended).await;
        }
        Ok(wire::wrapped(version, self.show(version, &task, send.history)))
    }

    /// Starts a task that answers.
    async fn start(&self, send: &Send, caller: Caller) -> Result<Arc<Task>, Fault> {
        let agent = self.agent.clone().map_err(Fault::Unavailable)?;
        if let Some(id) = &send.task {
            let task = self.tasks.get(id, &caller.user).await?;
            if send.context.as_ref().is_some_and(|context| context.to_string() != task.context) {
                return Err(Fault::Params(format!("task `{id}` is of another context than `message.contextId`")));
            }
            let wrong = "takes no further message: send it without `taskId`, with the task's `contextId`";
            return Err(Fault::Unsupported(format!("task `{id}` {wrong}")));
        }
        let message = send.text()?;
        let id = ConversationId::random().map_err(|error| Fault::Internal(error.to_string()))?;
        // The first turn of a conversation may still run, or have failed: then only its task knows the conversation.
        let may_begin = match &send.context {
            Some(context) if context.is_ours() => self.tasks.knows(&context.to_string(), &caller.user).await?,
            _ => true,
        };
        let user = caller.user.clone();
        let turn = Turn { caller, conversation: send.context.clone(), may_begin, message };
        let turn = agent.begin(turn).await?;
        let task = Task::new(id.to_string(), turn.id().to_string(), user, send.said.clone());
        let full = || Fault::Unavailable("too many tasks are running; try again later".into());
        let task = self.tasks.keep(task).ok_or_else(full)?;
        let (running, tasks) = (task.clone(), self.tasks.clone());
        self.requests.spawn(async move {
            let answer = async move |tokens| match agent.answer(turn, Some(&tokens)).await {
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            };
            running.run(answer).await;
            tasks.stored(&running, Stored::Ended).await;
        });
        self.tasks.stored(&task, Stored::Begun).await;
        Ok(task)
    }

    fn show(&self, version: Version, task: &Task, history: Option<usize>) -> Value {
        wire::task(version, task, &task.now(), history)
    }
}

/// What a client asks for, with parameters that are right.
enum Request {
    Send(Send),
    Stream(Send),
    Get(About),
    Cancel(About),
    Subscribe(About),
    List(List),
}

impl Request {
    /// Reads the parameters of `operation`.
    ///
    /// # Errors
    /// They are wrong, or the operation is not offered.
    fn read(operation: Operation, params: Map<String, Value>) -> Result<Self, Fault> {
        Ok(match operation {
            Operation::Send => Self::Send(Send::read(params)?),
            Operation::Stream => Self::Stream(Send::read(params)?),
            Operation::Get => Self::Get(About::read(params)?),
            Operation::Cancel => Self::Cancel(About::read(params)?),
            Operation::Subscribe => Self::Subscribe(About::read(params)?),
            Operation::List => Self::List(List::read(params)?),
            Operation::Push => return Err(Fault::Push),
            Operation::Not(why) => return Err(Fault::Unsupported(why.into())),
        })
    }
}

impl From<TurnError> for Fault {
    fn from(error: TurnError) -> Self {
        match error {
            TurnError::NoConversation(id) => Self::Params(format!(
                "there is no context `{id}`: it was never begun, has been forgotten, or is another user's; leave \
                 `message.contextId` out to begin one"
            )),
            TurnError::Conversations(_) => Self::Unavailable(error.to_string()),
            TurnError::Random(_) | TurnError::Model(_) => Self::Internal(error.to_string()),
        }
    }
}

/// How long a client may use a card without asking again (specification, section 8.6.1).
const FRESH: &str = "private, max-age=60";

async fn show_card(State(a2a): State<A2a>, headers: HeaderMap) -> Result<Response, Refusal> {
    let address = card::address(&headers);
    let url = address.ok_or_else(|| Refusal(StatusCode::BAD_REQUEST, "the request has no usable `Host`".into()))?;
    let card = card::card(&a2a.name, &url);
    let tag = format!("\"{}\"", digest::sha256_hex(card.to_string().as_bytes()));
    let about = [(CACHE_CONTROL, FRESH.to_owned()), (ETAG, tag.clone())];
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if known.split(',').any(|one| one.trim() == tag || one.trim() == "*") {
        return Ok((StatusCode::NOT_MODIFIED, about).into_response());
    }
    Ok((about, Json(card)).into_response())
}

async fn call(State(a2a): State<A2a>, headers: HeaderMap, body: Result<Bytes, BytesRejection>) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            return Fault::TooLarge.answer(&Value::Null);
        }
        Err(_) => return Fault::Request("the body broke off".into()).answer(&Value::Null),
    };
    if headers.contains_key(CONTENT_TYPE) && !is_json(&headers) {
        return Fault::ContentType("the body must be application/json".into()).answer(&Value::Null);
    }
    let version = headers.get("a2a-version").map(|version| version.to_str().unwrap_or("?"));
    match Call::read(&body) {
        Ok(call) => {
            let id = call.id.clone().unwrap_or_default();
            a2a.dispatch(version, Caller::of(&headers), call).await.unwrap_or_else(|fault| fault.answer(&id))
        }
        Err((id, fault)) => fault.answer(&id),
    }
}
