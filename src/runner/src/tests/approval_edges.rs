//! Turns that wait while their surroundings change: tools, roles of the database, conversations, processes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use axum::http::{HeaderMap, HeaderValue};
use crds::usage::LEFT_HEADER;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use serde_json::{Value, json};
use sqlx::{Executor, Row};
use testing::postgres::{PASSWORD, PostgresServer};
use tokio_util::task::TaskTracker;

use super::{
    Runner,
    approval::{Bank, approve, database},
    log::Log,
};
use crate::{
    agent::{Agent, ChatTurn, TurnError},
    approvals,
    caller::{CallerContext, CallerKey},
    config::RunnerConfig,
    conversations::history::ConversationId,
    metrics::RunnerMetrics,
    models::{Chunk, Message, Model, ModelError, ModelErrorKind, ModelRequest, ToolCall},
    parking::Decisions,
    serve::build_app,
    tools::{CallableTool, Toolbox},
    usage::{UsageAccount, UsageLedger},
};

/// Longest wait for a sweep.
pub(super) const SOON: Duration = Duration::from_secs(30);

impl Bank {
    /// Returns an agent with the bank's tools, unless these variables name others, without a server.
    pub(super) fn agent_alone(&self, more: &[(&'static str, String)]) -> Arc<Agent> {
        let mut variables = more.to_vec();
        variables.push(("CORAIL_AGENT_NAME", "shop".to_owned()));
        variables.push(("CORAIL_TOOLS", self.tools().to_string()));
        let lookup = move |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, v)| v.clone());
        let config = RunnerConfig::read(&lookup).unwrap();
        build_app(config, Arc::new(lookup)).agent.unwrap()
    }
}

/// Lets the agent answer a message of `ada`, whose budgets these headers name, in the conversation `talk`. Returns the task that waits.
pub(super) async fn park(agent: &Agent, message: &str, headers: &HeaderMap, ledger: &UsageLedger) -> String {
    let account = UsageAccount::new("ada").with_budgets(headers, true, ledger);
    let turn = ChatTurn {
        caller: CallerContext { user: Some("ada".into()), account, ..CallerContext::default() },
        conversation: ConversationId::parse("talk"),
        may_create: true,
        may_wait: true,
        message: message.into(),
    };
    let turn = agent.prepare_turn(turn).await.unwrap();
    let reply = serde_json::to_value(agent.respond(turn, None).await.unwrap()).unwrap();
    reply["task"].as_str().unwrap().to_owned()
}

pub(super) fn ada() -> CallerContext {
    CallerContext { user: Some("ada".into()), ..CallerContext::default() }
}

pub(super) fn yes() -> Decisions {
    serde_json::from_value(json!({ "approvals": approve("call_1") })).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_call_is_not_made_with_a_tool_that_has_changed_since() {
    let (server, bank) = (PostgresServer::start().await, Bank::open().await);
    let first = bank.agent(Some(&server)).await;
    let (status, waits) = first.chat_as("ada", "/tool pay {}").await;
    assert_eq!(status, 202, "{waits}");
    first.serving.abort();
    let mut tools = bank.tools();
    for tool in tools.as_array_mut().unwrap() {
        tool["method"] = json!("PATCH");
    }
    let more = database(&server.url("postgres"));
    let other = bank.agent_with(&[&more[..], &[("CORAIL_TOOLS", tools.to_string())]].concat()).await;
    let (status, answer) = other.decide("ada", &waits["task"], approve("call_1")).await;
    assert_eq!((status, bank.payments()), (200, 0), "{answer}");
    assert!(answer["reply"].as_str().unwrap().starts_with("tool pay failed: the tool has changed since"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_make_no_table_has_calls_refused() {
    let (server, bank) = (PostgresServer::start().await, Bank::open().await);
    let all =
        bank.agent_with(&[&database(&server.url("postgres"))[..], &[("CORAIL_TOOLS", "[]".to_owned())]].concat()).await;
    assert_eq!(all.chat_as("ada", "hi").await.0, 200);
    let limited = format!(
        "REVOKE CREATE ON SCHEMA public FROM public; CREATE ROLE limited LOGIN PASSWORD '{PASSWORD}'; \
         GRANT ALL ON recif_conversations, recif_turns TO limited"
    );
    let mut connection = server.connect().await;
    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(limited))).await.unwrap();
    let url = server.url("postgres").replace("//postgres:", "//limited:");
    let runner = bank.agent_with(&database(&url)).await;
    let (_, ready) = runner.get("/readyz").await;
    assert!(ready.contains("turns that wait for a person"), "{ready}");
    let (status, answer) = runner.chat_as("ada", "/tool pay {}").await;
    assert_eq!((status, bank.payments()), (200, 0), "{answer}");
    assert!(answer["reply"].as_str().unwrap().contains("no user can be asked here"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_conversation_another_user_has_begun_is_deleted_and_makes_no_call() {
    let (server, bank) = (PostgresServer::start().await, Bank::open().await);
    let agent = bank.agent_alone(&database(&server.url("postgres")));
    let task = park(&agent, "/tool pay {}", &HeaderMap::new(), &UsageLedger::default()).await;
    let runner = bank.agent(Some(&server)).await;
    let begun = runner.client.post(runner.url("/chat")).header("x-recif-user", "bob");
    let begun = begun.body(json!({ "message": "hi", "conversation_id": "talk" }).to_string()).send().await.unwrap();
    assert_eq!(begun.status(), 200);
    let claimed = agent.decide(&task, &ada(), yes()).await.unwrap();
    let refused = agent.resume(claimed, ada(), &TaskTracker::new(), None).await.unwrap_err();
    assert!(matches!(refused, TurnError::NoConversation(_)), "{refused}");
    let mut connection = server.connect().await;
    let left = connection.fetch_one("SELECT count(*) FROM recif_parked").await.unwrap();
    assert_eq!((left.get::<i64, _>(0), bank.payments()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_conversation_was_forgotten_makes_no_call_and_says_so() {
    let (server, bank) = (PostgresServer::start().await, Bank::open().await);
    let agent = bank.agent_alone(&database(&server.url("postgres")));
    let talk = ConversationId::parse("talk");
    let before = ChatTurn { caller: ada(), conversation: talk, may_create: true, may_wait: true, message: "hi".into() };
    let before = agent.prepare_turn(before).await.unwrap();
    agent.respond(before, None).await.unwrap();
    let task = park(&agent, "/tool pay {}", &HeaderMap::new(), &UsageLedger::default()).await;
    server.connect().await.execute("DELETE FROM recif_conversations").await.unwrap();
    let decisions = serde_json::from_value(json!({ "approvals": approve("call_3") })).unwrap();
    let claimed = agent.decide(&task, &ada(), decisions).await.unwrap();
    let reply = agent.resume(claimed, ada(), &TaskTracker::new(), None).await.unwrap();
    assert_eq!((reply.reply.as_str(), bank.payments()), ("[stopped: its conversation was forgotten]", 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_drains_begins_no_approved_call_and_gives_the_turn_back() {
    let (server, bank) = (PostgresServer::start().await, Bank::open().await);
    let agent = bank.agent_alone(&database(&server.url("postgres")));
    let task = park(&agent, "/tool pay {}", &HeaderMap::new(), &UsageLedger::default()).await;
    let claimed = agent.decide(&task, &ada(), yes()).await.unwrap();
    let requests = TaskTracker::new();
    requests.close();
    let refused = agent.resume(claimed, ada(), &requests, None).await.unwrap_err();
    assert!(matches!(refused, TurnError::Draining), "{refused}");
    assert_eq!(bank.payments(), 0);
    let (claimed, caller) = agent.claim_due(&UsageLedger::default()).await.unwrap();
    assert_eq!(claimed.attempts, 1);
    let reply = agent.resume(claimed, caller, &TaskTracker::new(), None).await.unwrap();
    assert_eq!((reply.reply.as_str(), bank.payments()), ("paid 1", 1));
}

#[tokio::test]
async fn a_turn_that_expired_is_logged_and_keeps_the_budgets_of_its_last_request() {
    let bank = Bank::open().await;
    let (agent, ledger) = (bank.agent_alone(&[]), UsageLedger::default());
    let headers = HeaderMap::from_iter([(LEFT_HEADER.parse().unwrap(), HeaderValue::from_static("day=1, all=7"))]);
    let task = park(&agent, "/tool hasty {}", &headers, &ledger).await;
    let begun = Instant::now();
    let (claimed, caller) = loop {
        if let Some(found) = agent.claim_due(&ledger).await {
            break found;
        }
        assert!(begun.elapsed() < SOON, "it did not expire");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!((&claimed.claim.task, caller.user.as_deref()), (&task, Some("ada")));
    let told = UsageAccount::new("ada").with_budgets(&headers, true, &ledger);
    assert_eq!(caller.account.budget_headers(), told.budget_headers());
    assert_ne!(caller.account.budget_headers(), UsageAccount::new("ada").budget_headers());
    let (log, _kept) = Log::capture();
    let reply = agent.resume(claimed, caller, &TaskTracker::new(), None).await.unwrap();
    assert_eq!(reply.reply, "tool hasty failed: no user approved this call within 1 s");
    let log = log.drain();
    assert!(log.contains("no user decided on calls in time") && log.contains("hasty"), "{log}");
    let late = agent.decide(&task, &ada(), yes()).await.unwrap_err().to_string();
    let expected = "it was decided, expired or cancelled, never existed, or is another user's";
    assert_eq!(late, format!("unknown task `{task}`: {expected}"));
}

/// Model that calls `pay`, and fails once it has the result.
struct Failing;

#[async_trait]
impl Model for Failing {
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let next = match request.messages.last().map(Arc::as_ref) {
            Some(Message::ToolResult { .. }) => Err(ModelError::new(ModelErrorKind::Timeout, "it is asleep")),
            _ => Ok(Chunk::Call(ToolCall { id: "1".into(), name: "pay".into(), arguments: json!({}), thought: None })),
        };
        stream::iter([next]).boxed()
    }

    async fn title(&self, _: &str, _: Option<CallerKey>, _: UsageAccount) -> String {
        String::new()
    }
}

#[tokio::test]
async fn a_turn_that_cannot_wait_is_kept_where_the_model_then_fails() {
    let bank = Bank::open().await;
    let tools = CallableTool::read_all(&bank.tools().to_string()).unwrap();
    let tools = Toolbox::new(tools, Arc::new(|_: &str| None), RunnerMetrics::default());
    let model: Arc<dyn Model> = Arc::new(Failing);
    let agent = Agent::with(model.clone(), model, None, tools);
    // More than is parked of one turn.
    let message = "x".repeat(5 << 20);
    let talk = ConversationId::parse("talk");
    let turn = ChatTurn { caller: ada(), conversation: talk.clone(), may_create: true, may_wait: true, message };
    let turn = agent.prepare_turn(turn).await.unwrap();
    let reply = agent.respond(turn, None).await.unwrap();
    assert_eq!(reply.reply, "[stopped: the model did not answer: it is asleep]");
    assert_eq!((reply.parked.is_none(), bank.payments()), (true, 0));
}

#[tokio::test]
async fn turns_from_before_are_looked_for_also_where_no_tool_asks() {
    let bank = Bank::open().await;
    let nothing = ("CORAIL_TOOLS", "[]".to_owned());
    let away = database("postgres://u:p@127.0.0.1:1/d");
    for (more, looks) in [(vec![nothing.clone()], false), (vec![], true), ([&away[..], &[nothing][..]].concat(), true)]
    {
        let agent = bank.agent_alone(&more);
        let sweep = approvals::sweep(agent, UsageLedger::default(), TaskTracker::new());
        assert_eq!(sweep.is_some(), looks, "{more:?}");
    }
}

#[tokio::test]
async fn a_decision_is_logged_with_the_names_of_the_tools() {
    let bank = Bank::open().await;
    let agent = bank.agent_alone(&[]);
    let task = park(&agent, "/tool pay {}", &HeaderMap::new(), &UsageLedger::default()).await;
    let (log, _kept) = Log::capture();
    agent.decide(&task, &ada(), yes()).await.unwrap();
    let log = log.drain();
    let fields = ["user=\"ada\"", "approver=\"ada\"", "round=1", "approved=\"pay\"", "rejected=\"\""];
    for part in ["calls that waited were decided on", &task].into_iter().chain(fields) {
        assert!(log.contains(part), "{part}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_no_request_continues_has_no_headers_and_its_conversation_waits_for_its_end() {
    let (server, bank) = (PostgresServer::start().await, Bank::open().await);
    let mut tools = bank.tools();
    for tool in tools.as_array_mut().unwrap() {
        tool["forwardHeaders"] = json!(["X-Tenant"]);
    }
    let more = database(&server.url("postgres"));
    let runner = bank.agent_with(&[&more[..], &[("CORAIL_TOOLS", tools.to_string())]].concat()).await;
    let (status, waits) = chat(&runner, json!({ "message": "/tool pay {}" })).await;
    assert_eq!(status, 202, "{waits}");
    let mut connection = server.connect().await;
    let busy = r#"UPDATE recif_parked SET ruling = '{"by":"ada","calls":{"call_1":"approved"}}',
                  claimed_until = now() + interval '1 minute'"#;
    connection.execute(busy).await.unwrap();
    let path = runner.url(&format!("/approvals/{}", waits["task"].as_str().unwrap()));
    let (status, shown) = super::approval::answer(runner.client.get(&path).header("x-recif-user", "ada")).await;
    assert_eq!((status, &shown["decided"]), (200, &json!(true)), "{shown}");
    let again = runner.client.post(&path).header("x-recif-user", "ada").header("x-tenant", "blue");
    let again = again.body(json!({ "approvals": approve("call_1") }).to_string()).send().await.unwrap();
    assert_eq!((again.status().as_u16(), again.headers()["retry-after"].to_str().unwrap()), (503, "5"));
    let (status, early) = chat(&runner, json!({ "message": "hi", "conversation_id": waits["conversation_id"] })).await;
    assert_eq!((status, bank.payments()), (409, 0), "the turn before is decided and has not ended: {early}");

    // As if the turn did not need its caller: even then nothing of the caller is there to be sent.
    let alone = r#"UPDATE recif_parked SET needs_caller = false, claimed_until = 'epoch',
                   turn = replace(turn, '"needs_caller":true', '"needs_caller":false')"#;
    connection.execute(alone).await.unwrap();
    let begun = Instant::now();
    while bank.payments() == 0 {
        assert!(begun.elapsed() < SOON, "no process continued the turn");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(bank.last_header("x-tenant"), None);
    assert!(bank.last_key().is_some());
}

/// Sends a body to `/chat` as `ada`, with a header that the tools forward.
async fn chat(runner: &Runner, body: Value) -> (u16, Value) {
    let request = runner.client.post(runner.url("/chat")).header("x-recif-user", "ada").header("x-tenant", "blue");
    super::approval::answer(request.body(body.to_string())).await
}
