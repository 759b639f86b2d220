//! Agent2Agent, version 1.0 and the methods of 0.3: how other agents and their tools talk to an agent.
//!
//! | route | answer |
//! |---|---|
//! | `GET /.well-known/agent-card.json` | the [card] |
//! | `POST /` | JSON-RPC: `SendMessage`, `SendStreamingMessage`, `GetTask`, `CancelTask`, `SubscribeToTask`; in 0.3 `message/send`, `message/stream`, `tasks/get`, `tasks/cancel`, `tasks/resubscribe` |
//!
//! Each message becomes a [task](tasks) whose answer is one artifact, and its `contextId` is the conversation's id. A
//! model that fails makes the task fail; every other error is one of JSON-RPC. Tasks are kept in memory, by the replica
//! that runs them. They cannot be listed, because clients are not told apart here: who knows a task's id may see it.

mod card;
mod events;
mod params;
mod rpc;
mod tasks;
mod wire;

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::Value;
use tokio_util::task::TaskTracker;

use self::params::{About, Operation, Send, Version};
use self::rpc::{Call, Fault};
use self::tasks::{Limits, Phase, Task, Tasks};
use super::agent::{Agent, Turn};
use super::conversations::ConversationId;
use super::shell::Refusal;

/// An agent as other agents see it.
#[derive(Clone)]
pub(super) struct A2a {
    name: Arc<str>,
    agent: Result<Arc<Agent>, String>,
    requests: TaskTracker,
    tasks: Arc<Tasks>,
}

impl A2a {
    /// The agent `name`, or why it cannot be served. Tasks that run count among `requests`.
    pub(super) fn new(name: &str, agent: Result<Arc<Agent>, String>, requests: TaskTracker) -> Self {
        Self { name: name.into(), agent, requests, tasks: Arc::new(Tasks::new(Limits::default())) }
    }

    /// Its routes.
    pub(super) fn routes(self) -> Router {
        Router::new().route("/.well-known/agent-card.json", get(show_card)).route("/", post(call)).with_state(self)
    }

    /// Does what is asked for.
    async fn dispatch(&self, version: Option<&str>, call: Call) -> Result<Response, Fault> {
        let Call { id, method, params } = call;
        let (version, operation) = params::method(&method, version)?;
        let result = match operation {
            Operation::Send => self.send(version, Send::read(params)?).await?,
            Operation::Stream => {
                let send = Send::read(params)?;
                return Ok(events::respond(version, id, self.start(&send)?, send.history));
            }
            Operation::Get => {
                let About { id, history } = About::read(params)?;
                self.show(version, &*self.task(&id)?, history)
            }
            Operation::Cancel => {
                let About { id, history } = About::read(params)?;
                let task = self.task(&id)?;
                if !task.cancel() {
                    return Err(Fault::NotCancelable(id));
                }
                self.show(version, &task, history)
            }
            Operation::Subscribe => {
                let about = About::read(params)?;
                let task = self.task(&about.id)?;
                if task.watch().borrow().phase != Phase::Working {
                    return Err(Fault::Unsupported(format!("task `{}` has ended: ask for it", about.id)));
                }
                return Ok(events::respond(version, id, task, about.history));
            }
            Operation::Push => return Err(Fault::Push),
            Operation::Not(why) => return Err(Fault::Unsupported(why.into())),
        };
        Ok(Json(rpc::result(&id, result)).into_response())
    }

    async fn send(&self, version: Version, send: Send) -> Result<Value, Fault> {
        let task = self.start(&send)?;
        if !send.at_once {
            let mut progress = task.watch();
            let ended = progress.wait_for(|progress| progress.phase != Phase::Working).await;
            ended.map_err(|_| Fault::Internal("the task was lost".into()))?;
        }
        Ok(wire::wrapped(version, self.show(version, &task, send.history)))
    }

    /// Starts a task that answers.
    fn start(&self, send: &Send) -> Result<Arc<Task>, Fault> {
        let agent = self.agent.clone().map_err(Fault::Unavailable)?;
        if let Some(id) = &send.task {
            let task = self.task(id)?;
            if send.context.as_ref().is_some_and(|context| context.to_string() != task.context) {
                return Err(Fault::Params(format!("task `{id}` is of another context than `message.contextId`")));
            }
            let wrong = "takes no further message: send it without `taskId`, with the task's `contextId`";
            return Err(Fault::Unsupported(format!("task `{id}` {wrong}")));
        }
        let message = send.text()?;
        let random = || ConversationId::random().map_err(|error| Fault::Internal(error.to_string()));
        let context = send.context.clone().map_or_else(random, Ok)?;
        let task = Task::new(random()?.to_string(), context.to_string(), send.said.clone());
        let full = || Fault::Unavailable("too many tasks are running; try again later".into());
        let task = self.tasks.keep(task).ok_or_else(full)?;
        let running = task.clone();
        self.requests.spawn(async move {
            let turn = Turn { conversation: Some(context), message };
            let answer = async move |tokens| match agent.answer(turn, Some(&tokens)).await {
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            };
            running.run(answer).await;
        });
        Ok(task)
    }

    fn task(&self, id: &str) -> Result<Arc<Task>, Fault> {
        self.tasks.get(id).ok_or_else(|| Fault::NoTask(id.into()))
    }

    fn show(&self, version: Version, task: &Task, history: Option<usize>) -> Value {
        wire::task(version, task, &task.watch().borrow(), history)
    }
}

async fn show_card(State(a2a): State<A2a>, headers: HeaderMap) -> Result<Json<Value>, Refusal> {
    let address = card::address(&headers);
    let url = address.ok_or_else(|| Refusal(StatusCode::BAD_REQUEST, "the request has no usable `Host`".into()))?;
    Ok(Json(card::card(&a2a.name, &url)))
}

async fn call(State(a2a): State<A2a>, headers: HeaderMap, body: Result<Bytes, BytesRejection>) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            return Fault::TooLarge.answer(&Value::Null);
        }
        Err(_) => return Fault::Request("the body broke off".into()).answer(&Value::Null),
    };
    let version = headers.get("a2a-version").map(|version| version.to_str().unwrap_or("?"));
    match Call::read(&body) {
        Ok(call) => {
            let id = call.id.clone();
            a2a.dispatch(version, call).await.unwrap_or_else(|fault| fault.answer(&id))
        }
        Err((id, fault)) => fault.answer(&id),
    }
}
