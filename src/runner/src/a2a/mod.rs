//! [Agent2Agent protocol](https://a2a-protocol.org), version 1.0 and the methods of 0.3: serves an agent to other
//! agents and their tools.
//!
//! | route | answer |
//! |---|---|
//! | `GET /.well-known/agent-card.json` | the [card] |
//! | `POST /`, 1.0 | JSON-RPC: `SendMessage`, `SendStreamingMessage`, `GetTask`, `CancelTask`, `SubscribeToTask`, `ListTasks` |
//! | `POST /`, 0.3 | JSON-RPC: `message/send`, `message/stream`, `tasks/get`, `tasks/cancel`, `tasks/resubscribe` |
//!
//! Each message becomes a [task](tasks) whose answer is one artifact, and its `contextId` is the id of the
//! conversation. A turn with calls that a person has to approve [waits](waiting) as `input-required`, and clients that know
//! [an extension](hitl) [decide](deciding) by a message to the task. A model error makes the task fail;
//! every other error is a JSON-RPC error. Tasks are kept in memory by
//! the replica that runs them and, where conversations are in a database, [in that database too](registry), for all
//! replicas. A task belongs to the user who started it: to other users it does not exist. Callers without a user name
//! cannot be told apart, so such a caller may list only the tasks of a context that the request names.

mod card;
mod deciding;
mod events;
mod hitl;
mod method;
mod params;
mod registry;
mod rows;
mod rpc;
mod tasks;
mod waiting;
mod wire;

use std::sync::Arc;

use ::a2a::Version;
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
use telemetry::SpanKind;
use telemetry::semconv::{A2A_METHOD_NAME, A2A_TASK_ID, A2A_TASK_STATE, GEN_AI_CONVERSATION_ID};
use tokio_util::task::TaskTracker;

pub(super) use card::CardSettings;

use self::{
    method::{A2aOperation, method},
    params::{ListParams, SendParams, TaskParams},
    registry::TaskRegistry,
    rows::TaskRows,
    rpc::{JsonRpcRequest, RpcError},
    tasks::{Limits, RowState, Task, TaskPhase, Tasks},
    wire::WireFormat,
};
use super::{
    agent::{Agent, ChatTurn, TurnError},
    caller::CallerContext,
    common_routes::{ErrorResponse, is_json},
    conversations::history::ConversationId,
    models::ModelErrorKind,
};

/// Serves one agent over A2A. Clones share its tasks.
#[derive(Clone)]
pub(super) struct A2a {
    name: Arc<str>,
    namespace: Arc<str>,
    card: Arc<CardSettings>,
    agent: Result<Arc<Agent>, String>,
    requests: TaskTracker,
    tasks: Arc<TaskRegistry>,
}

impl A2a {
    /// Creates the service of the agent `name` of this namespace, whose card has these settings. An `Err` holds the reason why the agent cannot be served. Running tasks
    /// count among `requests`, so that a drain waits for them.
    pub(super) fn new(
        name: &str,
        namespace: &str,
        card: Arc<CardSettings>,
        agent: Result<Arc<Agent>, String>,
        requests: TaskTracker,
    ) -> Self {
        let limits = Limits::default();
        let home = agent.as_ref().map(|agent| agent.database_scope());
        let in_memory = matches!(home, Ok(None));
        let rows = home.ok().flatten().map(|home| TaskRows::new(home, limits));
        let tasks = Arc::new(TaskRegistry::new(Tasks::new(limits), rows, in_memory));
        Self { name: name.into(), namespace: namespace.into(), card, agent, requests, tasks }
    }

    /// Returns the routes of A2A.
    pub(super) fn routes(self) -> Router {
        Router::new().route("/.well-known/agent-card.json", get(show_card)).route("/", post(call)).with_state(self)
    }

    /// Reports whether turns of this agent may wait for a person.
    fn asks_people(&self) -> bool {
        self.agent.as_ref().is_ok_and(|agent| agent.asks_callers())
    }

    /// Executes one JSON-RPC request, which activates the extension for approvals or not.
    async fn dispatch(
        &self,
        version: Option<&str>,
        asks_people: bool,
        caller: CallerContext,
        call: JsonRpcRequest,
    ) -> Result<Response, RpcError> {
        let JsonRpcRequest { id, method: name, params } = call;
        let (version, operation) = method(&name, version)?;
        let span = caller.account.trace().begin(operation.standard_name(), SpanKind::Server);
        span.set(A2A_METHOD_NAME, operation.standard_name());
        let caller = caller.within(span.scope());
        let format = WireFormat { version, asks_people };
        let response = self.perform(format, operation, caller, id, params).await;
        match &response {
            Ok(_) => span.succeed(),
            Err(error) => span.fail(error.code().0.to_string()),
        }
        response
    }

    async fn perform(
        &self,
        format: WireFormat,
        operation: A2aOperation,
        caller: CallerContext,
        id: Result<Value, &'static str>,
        params: Map<String, Value>,
    ) -> Result<Response, RpcError> {
        let request = A2aRequest::read(operation, params, format.asks_people)?;
        let id = id.map_err(|why| RpcError::Request(why.into()))?;
        let result = match request {
            A2aRequest::Send(send) => self.send(format, caller, send).await?,
            A2aRequest::Stream(send) => {
                let (task, is_copy) = (self.start(&send, caller).await?, send.decision.is_some());
                return Ok(events::respond(format, id, task, send.history, is_copy));
            }
            A2aRequest::Get(TaskParams { id, history }) => {
                let (task, now) = self.get(&id, caller).await?;
                wire::task(format, &task, &now, history)
            }
            A2aRequest::Cancel(TaskParams { id, history }) => {
                let task = self.tasks.get(&id, &caller.user).await?;
                if task.phase() == TaskPhase::InputRequired {
                    let end = self.withdraw(&task).await?;
                    wire::task(format, &task, &end, history)
                } else {
                    self.show(format, &*self.tasks.cancel(task).await?, history).await?
                }
            }
            A2aRequest::Subscribe(about) => {
                let task = self.tasks.get(&about.id, &caller.user).await?;
                if !task.is_working() {
                    return Err(RpcError::Unsupported(format!(
                        "task `{}` waits or has ended: get it instead",
                        about.id
                    )));
                }
                let events = events::respond(format, id, task.clone(), about.history, false);
                self.tasks.follow(task);
                return Ok(events);
            }
            A2aRequest::List(list) => self.list(format, &caller, &list).await?,
        };
        Ok(Json(rpc::result(&id, result)).into_response())
    }

    /// Returns a page of the caller's tasks, the most recently changed first.
    async fn list(&self, format: WireFormat, caller: &CallerContext, list: &ListParams) -> Result<Value, RpcError> {
        if caller.user.is_none() && list.context.is_none() {
            let why = "anonymous callers cannot be distinguished here: list the tasks of a `contextId`";
            return Err(RpcError::Unsupported(why.into()));
        }
        let mut found = self.tasks.summaries(&caller.user).await?;
        let waiting = self.update_phases(&caller.user, &mut found).await?;
        found.retain(|task| {
            list.context.as_ref().is_none_or(|context| *context == task.context)
                && list.phase.is_none_or(|phase| phase == Some(task.phase))
                && list.after.is_none_or(|after| task.since >= after)
        });
        let total = found.len();
        let from =
            match &list.token {
                None => 0,
                Some(token) => found.iter().position(|task| task.id == *token).map(|at| at + 1).ok_or_else(|| {
                    RpcError::Params("`pageToken` is not of this list: start from its first page".into())
                })?,
            };
        let page = &found[from..total.min(from + list.size)];
        let next = page.last().filter(|_| from + page.len() < total).map(|last| last.id.clone());
        let mut tasks = Vec::new();
        for task in self.tasks.load(page, &caller.user).await? {
            let progress = self.present_among(&task, &waiting).await?;
            let mut shown = wire::task(format, &task, &progress, list.history);
            if let (false, Some(fields)) = (list.artifacts, shown.as_object_mut()) {
                fields.remove("artifacts");
            }
            tasks.push(shown);
        }
        Ok(json!({
            "tasks": tasks,
            "nextPageToken": next.unwrap_or_default(),
            "pageSize": list.size,
            "totalSize": total,
        }))
    }

    async fn send(&self, format: WireFormat, caller: CallerContext, send: SendParams) -> Result<Value, RpcError> {
        let trace = caller.account.trace().clone();
        let mut task = self.start(&send, caller).await?;
        if !send.return_immediately {
            let mut progress = task.watch();
            let ended = progress.wait_for(|progress| progress.phase != TaskPhase::Working).await;
            ended.map_err(|_| RpcError::Internal("the task was lost".into()))?;
            drop(progress);
            self.tasks.wait_stored(&task, RowState::Ended).await;
            if send.decision.is_some() {
                task = self.decided(task).await?;
            }
        }
        trace.set(A2A_TASK_STATE, wire::state(Version::V1, task.snapshot().phase));
        Ok(wire::wrapped(format.version, self.show(format, &task, send.history).await?))
    }

    /// Starts a task that answers the message, or takes a message to one.
    async fn start(&self, send: &SendParams, caller: CallerContext) -> Result<Arc<Task>, RpcError> {
        let agent = self.agent.clone().map_err(RpcError::Unavailable)?;
        if let Some(id) = &send.task {
            return self.message_to(agent, id, send, caller).await;
        }
        if send.decision.is_some() {
            return Err(RpcError::Params("a decision is on the calls of a task: name it in `message.taskId`".into()));
        }
        let message = send.text()?;
        let id = ConversationId::random().map_err(|error| RpcError::Internal(error.to_string()))?;
        // What a task that waited has come to is known by its conversation, so that no other turn comes between.
        if let Some(context) = &send.context
            && agent.asks_callers()
        {
            if agent.parked.is_open(context, &caller.user).await.map_err(TurnError::from)? {
                return Err(TurnError::Waits.into());
            }
            self.settle_waited(context, &caller.user).await?;
        }
        // The first turn of a conversation may still run, or have failed: then only its task knows the conversation.
        let may_begin = match &send.context {
            Some(context) if context.is_generated() => {
                self.tasks.has_context(&context.to_string(), &caller.user).await?
            }
            _ => true,
        };
        let (user, trace) = (caller.user.clone(), caller.account.trace().clone());
        let conversation = send.context.clone();
        let turn = ChatTurn { caller, conversation, may_create: may_begin, may_wait: send.may_wait, message };
        let turn = agent.prepare_turn(turn).await?.answering(id.as_str());
        let task = Task::new(id.to_string(), turn.id().to_string(), user, send.message.clone());
        trace.set(A2A_TASK_ID, task.id.clone());
        trace.set(A2A_TASK_STATE, wire::state(Version::V1, TaskPhase::Working));
        trace.set(GEN_AI_CONVERSATION_ID, task.context.clone());
        let full = || RpcError::Unavailable("too many tasks are running; try again later".into());
        let task = self.tasks.insert(task).ok_or_else(full)?;
        let (running, tasks, service) = (task.clone(), self.tasks.clone(), self.clone());
        let user = task.user.clone();
        self.requests.spawn(async move {
            let answer = async move |tokens| match agent.respond(turn, Some(&tokens)).await {
                Ok(reply) => Ok(reply.parked.map(|parked| service.wait(&parked, &user))),
                Err(error) => Err(error.to_string()),
            };
            running.run(answer).await;
            tasks.wait_stored(&running, RowState::Ended).await;
        });
        self.tasks.wait_stored(&task, RowState::Working).await;
        Ok(task)
    }

    async fn show(&self, format: WireFormat, task: &Task, history: Option<usize>) -> Result<Value, RpcError> {
        Ok(wire::task(format, task, &self.present(task).await?, history))
    }
}

/// Request of a client, with validated parameters.
enum A2aRequest {
    Send(SendParams),
    Stream(SendParams),
    Get(TaskParams),
    Cancel(TaskParams),
    Subscribe(TaskParams),
    List(ListParams),
}

impl A2aRequest {
    /// Reads the parameters of `operation`. A message may decide on calls where it `decides`.
    ///
    /// # Errors
    /// The parameters are invalid, or the operation is not offered.
    fn read(operation: A2aOperation, params: Map<String, Value>, decides: bool) -> Result<Self, RpcError> {
        Ok(match operation {
            A2aOperation::Send => Self::Send(SendParams::read(params, decides)?),
            A2aOperation::Stream => Self::Stream(SendParams::read(params, decides)?),
            A2aOperation::Get => Self::Get(TaskParams::read(params)?),
            A2aOperation::Cancel => Self::Cancel(TaskParams::read(params)?),
            A2aOperation::Subscribe => Self::Subscribe(TaskParams::read(params)?),
            A2aOperation::List => Self::List(ListParams::read(params)?),
            A2aOperation::PushNotifications => return Err(RpcError::Push),
            A2aOperation::Unsupported(why) => return Err(RpcError::Unsupported(why.into())),
        })
    }
}

impl From<TurnError> for RpcError {
    fn from(error: TurnError) -> Self {
        match error {
            TurnError::NoConversation(id) => Self::Params(format!(
                "unknown context `{id}`: it was never begun, has been forgotten, or is another user's; leave \
                 `message.contextId` out to begin one"
            )),
            TurnError::Conversations(_) | TurnError::Interrupted(_) | TurnError::Draining => {
                Self::Unavailable(error.to_string())
            }
            TurnError::Model(ref model) if model.kind == ModelErrorKind::NoKey => Self::NoKey(error.to_string()),
            TurnError::Waits => Self::Params(error.to_string()),
            TurnError::Random(_) | TurnError::Model(_) | TurnError::Overtaken | TurnError::ClaimLost => {
                Self::Internal(error.to_string())
            }
        }
    }
}

/// `Cache-Control` of the card: a client may use it for 60 s without revalidation (specification, section 8.6.1).
const CARD_CACHE_CONTROL: &str = "private, max-age=60";

async fn show_card(State(a2a): State<A2a>, headers: HeaderMap) -> Result<Response, ErrorResponse> {
    let address = card::address(&headers);
    let url =
        address.ok_or_else(|| ErrorResponse(StatusCode::BAD_REQUEST, "the request has no usable `Host`".into()))?;
    let card = card::card(&a2a.name, &a2a.card, &url, a2a.asks_people());
    let tag = format!("\"{}\"", digest::sha256_hex(card.to_string().as_bytes()));
    let about = [(CACHE_CONTROL, CARD_CACHE_CONTROL.to_owned()), (ETAG, tag.clone())];
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
            return RpcError::TooLarge.respond(&Value::Null);
        }
        Err(_) => return RpcError::Request("the body broke off".into()).respond(&Value::Null),
    };
    if headers.contains_key(CONTENT_TYPE) && !is_json(&headers) {
        return RpcError::ContentType("the body must be application/json".into()).respond(&Value::Null);
    }
    let version = headers.get("a2a-version").map(|version| version.to_str().unwrap_or("?").to_owned());
    // An agent whose tools ask no person does not have the extension.
    let extensions = if a2a.asks_people() { hitl::requested(&headers) } else { Vec::new() };
    let mut response = match JsonRpcRequest::read(&body) {
        Ok(call) => {
            let id = call.id.clone().unwrap_or_default();
            a2a.dispatch(version.as_deref(), !extensions.is_empty(), CallerContext::from_headers(headers), call)
                .await
                .unwrap_or_else(|fault| fault.respond(&id))
        }
        Err((id, fault)) => fault.respond(&id),
    };
    hitl::echo(response.headers_mut(), extensions);
    response
}
