//! Turns that go on while a database, a model or a claim fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use axum::http::HeaderMap;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use serde_json::json;
use sqlx::{Executor, Row};
use testing::postgres::PostgresServer;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::{
    approval::{Bank, database},
    approval_edges::{SOON, ada, park, yes},
};
use crate::{
    agent::Agent,
    approvals,
    caller::CallerKey,
    metrics::RunnerMetrics,
    models::{Chunk, Message, Model, ModelError, ModelErrorKind, ModelRequest, ToolCall},
    parking::RENEWAL,
    tools::{CallableTool, Toolbox},
    turn_event::TurnEvent,
    usage::{UsageAccount, UsageLedger},
};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_turn_has_come_to_is_written_until_the_database_takes_it_and_then_told() {
    let (server, bank) = (PostgresServer::start().await, Bank::open().await);
    let agent = bank.agent_alone(&database(&server.url("postgres")));
    let task = park(&agent, "/tool pay {}", &HeaderMap::new(), &UsageLedger::default()).await;
    let claimed = agent.decide(&task, &ada(), yes()).await.unwrap();
    let mut connection = server.connect().await;
    let faults = "CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'fault'; END $$; \
         CREATE TRIGGER results BEFORE UPDATE ON recif_parked FOR EACH ROW WHEN (NEW.progress LIKE '%finished%') \
         EXECUTE FUNCTION fault(); \
         CREATE TRIGGER ends BEFORE INSERT ON recif_turns FOR EACH ROW EXECUTE FUNCTION fault()";
    connection.execute(sqlx::raw_sql(faults)).await.unwrap();
    let (tokens, mut events) = mpsc::channel(16);
    let resumed = agent.clone();
    let running = tokio::spawn(async move { resumed.resume(claimed, ada(), &TaskTracker::new(), Some(&tokens)).await });
    let begun = Instant::now();
    while bank.payments() == 0 {
        assert!(begun.elapsed() < SOON, "the call was not made");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(matches!(events.recv().await, Some(TurnEvent::Call(_))));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(events.try_recv().is_err(), "the result is not sent before it is stored");
    connection.execute("DROP TRIGGER results ON recif_parked").await.unwrap();
    assert!(matches!(events.recv().await, Some(TurnEvent::Outcome { ok: true, .. })));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(!running.is_finished(), "the turn is not stored");
    connection.execute("DROP TRIGGER ends ON recif_turns").await.unwrap();
    let reply = running.await.unwrap().unwrap();
    assert_eq!((reply.reply.as_str(), bank.payments()), ("paid 1", 1));
    let counts = "SELECT (SELECT count(*) FROM recif_parked), (SELECT count(*) FROM recif_turns)";
    let counts = connection.fetch_one(counts).await.unwrap();
    assert_eq!((counts.get::<i64, _>(0), counts.get::<i64, _>(1)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_gone_leaves_time_for_an_answer_that_is_on_its_way() {
    let bank = Bank::open().await;
    let agent = bank.agent_alone(&[]);
    let task = park(&agent, "/tool pay {}", &HeaderMap::new(), &UsageLedger::default()).await;
    let claim = agent.decide(&task, &ada(), yes()).await.unwrap().claim;
    assert!(agent.parked.forget(&claim).await.unwrap());
    let begun = tokio::time::Instant::now();
    agent.keep(&claim).await;
    assert!(begun.elapsed() >= RENEWAL + Duration::from_millis(900), "{:?}", begun.elapsed());
}

/// Behavior of [`Scripted`] once it has the result of its first call.
#[derive(Clone, Copy, PartialEq)]
enum Script {
    /// It never answers.
    Hangs,
    /// It says something, makes a further call, and fails with its result.
    FailsLater,
}

/// Model that first calls this tool.
struct Scripted {
    tool: &'static str,
    script: Script,
    /// Number of requests with a result.
    continued: Arc<AtomicUsize>,
}

#[async_trait]
impl Model for Scripted {
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let results = request.messages.iter().filter(|message| matches!(***message, Message::ToolResult { .. }));
        let results = results.count();
        let call = |id: &str, name: &str| {
            Ok(Chunk::Call(ToolCall { id: id.into(), name: name.into(), arguments: json!({}), thought: None }))
        };
        if results == 0 {
            return stream::iter([call("call_1", self.tool)]).boxed();
        }
        self.continued.fetch_add(1, Ordering::SeqCst);
        match (self.script, results) {
            (Script::Hangs, _) => stream::pending().boxed(),
            (Script::FailsLater, 1) => {
                stream::iter([Ok(Chunk::Token("One moment. ".into())), call("call_2", "free")]).boxed()
            }
            (Script::FailsLater, _) => {
                stream::iter([Err(ModelError::new(ModelErrorKind::Timeout, "it is asleep"))]).boxed()
            }
        }
    }

    async fn title(&self, _: &str, _: Option<CallerKey>, _: UsageAccount) -> String {
        String::new()
    }
}

/// Returns an agent with the bank's tools and such a model, and the number of its requests with a result.
fn scripted(bank: &Bank, tool: &'static str, script: Script) -> (Arc<Agent>, Arc<AtomicUsize>) {
    let tools = CallableTool::read_all(&bank.tools().to_string()).unwrap();
    let tools = Toolbox::new(tools, Arc::new(|_: &str| None), RunnerMetrics::default());
    let continued = Arc::new(AtomicUsize::new(0));
    let model: Arc<dyn Model> = Arc::new(Scripted { tool, script, continued: continued.clone() });
    (Arc::new(Agent::with(model.clone(), model, None, tools)), continued)
}

#[tokio::test]
async fn what_the_model_said_before_it_failed_is_in_the_reply() {
    let bank = Bank::open().await;
    let (agent, _) = scripted(&bank, "pay", Script::FailsLater);
    let task = park(&agent, "pay", &HeaderMap::new(), &UsageLedger::default()).await;
    let claimed = agent.decide(&task, &ada(), yes()).await.unwrap();
    let reply = agent.resume(claimed, ada(), &TaskTracker::new(), None).await.unwrap();
    assert_eq!(reply.reply, "One moment. [stopped: the model did not answer: it is asleep]");
    assert_eq!(bank.payments(), 2);
}

#[tokio::test]
async fn a_process_goes_on_with_a_bounded_number_of_turns_that_no_request_carries() {
    let bank = Bank::open().await;
    let (agent, continued) = scripted(&bank, "hasty", Script::Hangs);
    for _ in 0..10 {
        park(&agent, "hurry", &HeaderMap::new(), &UsageLedger::default()).await;
    }
    // The turns expire by the clock of the machine, which does not stand still.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    tokio::time::pause();
    let sweep = approvals::sweep(agent, UsageLedger::default(), TaskTracker::new());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(sweep.is_some());
    assert_eq!(continued.load(Ordering::SeqCst), 8);
}
