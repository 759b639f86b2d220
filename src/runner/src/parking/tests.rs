//! Parked turns in memory and in PostgreSQL: claims, limits, and what a lost claim can still do.

mod approvers;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::json;
use sqlx::{Executor, Row, postgres::PgRow};
use testing::postgres::PostgresServer;

use super::{
    turn::{MAX_MEMORY, MOST_ATTEMPTS, MOST_OF_USER},
    *,
};
use crate::{
    caller::CallerContext,
    conversations::{Conversations, Storage, history::TurnStorage},
    database::Dsn,
    models::{Message, ToolCall},
    tools::Decider,
    usage::BudgetHeaders,
};

fn open(server: &PostgresServer) -> Conversations {
    open_for(server, None)
}

/// Opens conversations that are kept for some days.
fn open_for(server: &PostgresServer, days: Option<i32>) -> Conversations {
    let dsn = Dsn::parse(&server.url("postgres")).unwrap();
    Conversations::open(&Storage::Postgres { dsn, namespace: "n".into(), days }, "a").unwrap()
}

fn both(server: &PostgresServer) -> [ParkedTurns; 2] {
    [ParkedTurns::open(None), ParkedTurns::open(open(server).database_scope())]
}

fn id(text: &str) -> ConversationId {
    ConversationId::parse(text).unwrap()
}

fn turn(patience: u64, needs_caller: bool) -> ParkedTurn {
    let call = ToolCall { id: "1".into(), name: "pay".into(), ..ToolCall::default() };
    ParkedTurn {
        conversation: id("talk"),
        title: None,
        messages: vec![Message::user("pay\0"), Message::Call(call.clone())],
        definitions: BTreeMap::from([("1".into(), "d".into())]),
        calls: vec![call],
        by: Decider::Caller,
        patience,
        round: 1,
        tool_turns: 3,
        fallback: None,
        text: String::new(),
        budgets: BudgetHeaders::default(),
        needs_caller,
        forwarded: Vec::new(),
        had_history: false,
    }
}

impl ParkedTurns {
    /// Decides as a request without further headers does.
    async fn decided(&self, task: &str, user: &UserName, decisions: Decisions) -> Result<ClaimedTurn, DecisionError> {
        self.decide(task, &CallerContext { user: user.clone(), ..CallerContext::default() }, false, decisions).await
    }
}

/// Returns a turn with a text of this many bytes.
fn large(bytes: usize) -> ParkedTurn {
    ParkedTurn { text: "x".repeat(bytes), ..turn(60, false) }
}

fn decisions(is_approved: bool) -> Decisions {
    serde_json::from_value(json!({"approvals": [{"id": "1", "approved": is_approved}]})).unwrap()
}

fn is_parked(result: Result<ParkResult, DatabaseError>) -> bool {
    matches!(result.unwrap(), ParkResult::Parked(_))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_decided_once_by_its_own_user() {
    let server = PostgresServer::start().await;
    let (ada, bob): (UserName, UserName) = (Some("ada".into()), Some("bob".into()));
    for parked in both(&server) {
        assert!(!parked.is_open(&id("talk"), &ada).await.unwrap(), "there is no table yet");
        assert!(is_parked(parked.park(&id("t"), &ada, &turn(60, true)).await));
        for (user, expected) in [(&ada, 1), (&bob, 0)] {
            assert_eq!(parked.waiting(user).await.unwrap().len(), expected);
            assert_eq!(parked.is_open(&id("talk"), user).await.unwrap(), expected == 1);
        }
        for user in [&bob, &None] {
            let refused = parked.decided("t", user, decisions(true)).await.unwrap_err();
            assert!(matches!(refused, DecisionError::UnknownTask(_)), "{refused}");
        }
        let claimed = parked.decided("t", &ada, decisions(true)).await.unwrap();
        assert_eq!((&claimed.owner, &claimed.turn), (&ada, &turn(60, true)));
        assert_eq!((claimed.attempts, claimed.forced_end()), (1, None));
        let listed: Vec<_> = parked.waiting(&ada).await.unwrap().iter().map(|turn| turn.decided).collect();
        assert_eq!(listed, [true], "its caller can go on with it where its process died");
        assert!(parked.waiting_for("t", &ada, false).await.unwrap().unwrap().decided);
        assert!(parked.waiting_for("t", &bob, false).await.unwrap().is_none());
        assert!(parked.is_open(&id("talk"), &ada).await.unwrap(), "it has not ended");
        let other = parked.decided("t", &ada, decisions(false)).await.unwrap_err();
        assert_eq!(other.to_string(), "already decided by ada");
        let same = parked.decided("t", &ada, decisions(true)).await.unwrap_err();
        assert!(matches!(same, DecisionError::Busy), "{same}");
        assert!(parked.renew(&claimed.claim).await.unwrap());
        assert!(parked.claim_due().await.unwrap().is_none(), "it is claimed, and needs its caller");

        assert!(is_parked(parked.park_again(&claimed.claim, &id("u"), &turn(60, true)).await));
        assert!(!parked.renew(&claimed.claim).await.unwrap(), "the claim ended");
        for again in [decisions(true), decisions(false)] {
            let refused = parked.decided("t", &ada, again).await.unwrap_err();
            assert!(matches!(refused, DecisionError::UnknownTask(_)), "{refused}");
        }
        let further = parked.decided("u", &ada, decisions(false)).await.unwrap();
        assert_eq!(further.attempts, 1, "further calls wait for a decision of their own");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_all_users_are_pending_until_they_are_decided_or_expire() {
    let server = PostgresServer::start().await;
    let (ada, bob): (UserName, UserName) = (Some("ada".into()), Some("bob".into()));
    for parked in both(&server) {
        let pending = async || {
            let pending = parked.pending().await.unwrap();
            assert!((jiff::Timestamp::now().as_millisecond() - pending.at).abs() < 60_000, "{pending}");
            (pending.calls, pending.until - pending.since)
        };
        assert_eq!(pending().await, (0, 0), "there is no table yet");
        assert!(is_parked(parked.park(&id("one"), &ada, &turn(60, false)).await));
        let call = ToolCall { arguments: json!({ "text": "\0" }), ..turn(0, false).calls.remove(0) };
        let two = ParkedTurn { calls: vec![call.clone(), ToolCall { id: "2".into(), ..call }], ..turn(3600, false) };
        assert!(is_parked(parked.park(&id("two"), &bob, &two).await));
        assert!(is_parked(parked.park(&id("expired"), &bob, &turn(0, false)).await));
        let (calls, seconds) = pending().await;
        assert!(calls == 3 && (3600..3660).contains(&seconds), "{calls} calls, from the first to the last {seconds} s");
        let claimed = parked.decided("one", &ada, decisions(true)).await.unwrap();
        assert_eq!(pending().await.0, 2);
        assert!(is_parked(parked.park_again(&claimed.claim, &id("further"), &turn(60, false)).await));
        assert_eq!(pending().await.0, 3);
    }
}

#[test]
fn arguments_are_shown_with_every_digit() {
    let call = ToolCall { arguments: json!({ "id": 9_007_199_254_740_993_u64 }), ..ToolCall::default() };
    let shown = serde_json::to_value(ParkedReply::new("t", &[call], Decider::Caller, jiff::Timestamp::now())).unwrap();
    let text = &shown["approval"]["tools"][0]["args_text"];
    assert_eq!(text, "{\n  \"id\": 9007199254740993\n}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_expires_is_continued_or_ended_without_its_caller() {
    let server = PostgresServer::start().await;
    for parked in both(&server) {
        for (task, needs_caller, forced) in [("own", false, None), ("callers", true, Some(ForcedEnd::NoCaller))] {
            assert!(is_parked(parked.park(&id(task), &None, &turn(0, needs_caller)).await));
            let refused = parked.decided(task, &None, decisions(true)).await.unwrap_err();
            assert!(matches!(refused, DecisionError::Expired), "{refused}");
            let claimed = parked.claim_due().await.unwrap().unwrap();
            assert_eq!((claimed.claim.task.as_str(), &claimed.ruling), (task, &None));
            assert_eq!(claimed.forced_end(), forced);
            assert!(parked.claim_due().await.unwrap().is_none());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decided_turn_whose_caller_does_not_come_back_is_kept_for_a_day_and_then_ended() {
    let server = PostgresServer::start().await;
    let parked = ParkedTurns::open(open(&server).database_scope());
    assert!(is_parked(parked.park(&id("t"), &None, &turn(60, true)).await));
    let claimed = parked.decided("t", &None, decisions(true)).await.unwrap();
    let progress = Progress::from([("1".into(), CallProgress::Started)]);
    assert!(parked.record(&claimed.claim, &progress).await.unwrap());
    let mut connection = server.connect().await;
    for (hours, is_due) in [(23, false), (25, true)] {
        let set =
            format!("UPDATE recif_parked SET claimed_until = 'epoch', expires_at = now() - interval '{hours} hours'");
        connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(set))).await.unwrap();
        let found = parked.claim_due().await.unwrap();
        assert_eq!(found.is_some(), is_due, "after {hours} hours");
        if let Some(found) = found {
            assert_eq!((found.forced_end(), found.progress), (Some(ForcedEnd::NoCaller), progress.clone()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_breaks_off_again_and_again_is_ended() {
    let server = PostgresServer::start().await;
    let parked = ParkedTurns::open(open(&server).database_scope());
    assert!(is_parked(parked.park(&id("t"), &None, &turn(0, false)).await));
    let mut connection = server.connect().await;
    for attempt in 1..=MOST_ATTEMPTS + 1 {
        let claimed = parked.claim_due().await.unwrap().unwrap();
        let expected = (attempt > MOST_ATTEMPTS).then_some(ForcedEnd::BrokeOff);
        assert_eq!((claimed.attempts, claimed.forced_end()), (attempt, expected));
        if attempt == 1 {
            parked.release(&claimed.claim).await.unwrap();
            let again = parked.claim_due().await.unwrap().unwrap();
            assert_eq!(again.attempts, 1, "one that was given back does not count");
        }
        connection.execute("UPDATE recif_parked SET claimed_until = 'epoch'").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_another_version_is_given_back_and_stops_no_other() {
    let server = PostgresServer::start().await;
    let parked = ParkedTurns::open(open_for(&server, Some(7)).database_scope());
    for task in ["newer", "own"] {
        assert!(is_parked(parked.park(&id(task), &None, &turn(0, false)).await));
    }
    let mut connection = server.connect().await;
    let newer = "UPDATE recif_parked SET turn = '{}', expires_at = now() - interval '1 hour' WHERE task = 'newer'";
    connection.execute(newer).await.unwrap();
    // The decision is for a process that can read the turn: nothing is written.
    connection
        .execute("UPDATE recif_parked SET expires_at = now() + interval '1 hour' WHERE task = 'newer'")
        .await
        .unwrap();
    let refused = parked.decided("newer", &None, decisions(true)).await.unwrap_err();
    assert!(matches!(refused, DecisionError::OtherVersion), "{refused}");
    let ruled = connection.fetch_one("SELECT count(*) FROM recif_parked WHERE ruling IS NOT NULL").await.unwrap();
    assert_eq!(ruled.get::<i64, _>(0), 0);
    connection.execute(newer).await.unwrap();
    let claimed = parked.claim_due().await.unwrap().unwrap();
    assert_eq!(claimed.claim.task, "own");
    let count = "SELECT count(*) FROM recif_parked WHERE task = 'newer' AND claim = '' AND attempts = 0";
    let left = |row: PgRow| row.get::<i64, _>(0);
    assert_eq!(left(connection.fetch_one(count).await.unwrap()), 1, "another process can take it");

    parked.forget_old().await.unwrap();
    assert_eq!(left(connection.fetch_one(count).await.unwrap()), 1);
    connection.execute("UPDATE recif_parked SET expires_at = now() - interval '8 days'").await.unwrap();
    parked.forget_old().await.unwrap();
    assert_eq!(left(connection.fetch_one(count).await.unwrap()), 0, "it expired longer ago than is kept");
    assert!(parked.renew(&claimed.claim).await.unwrap(), "the claimed one stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_lost_the_claim_writes_nothing() {
    let server = PostgresServer::start().await;
    let (conversations, user) = (open(&server), Some("ada".into()));
    let parked = ParkedTurns::open(conversations.database_scope());
    assert!(is_parked(parked.park(&id("t"), &user, &turn(60, false)).await));
    let stopped = parked.decided("t", &user, decisions(true)).await.unwrap().claim;
    let mut connection = server.connect().await;
    connection.execute("UPDATE recif_parked SET claimed_until = now() - interval '1 s'").await.unwrap();
    let next = parked.claim_due().await.unwrap().unwrap();
    assert!(next.ruling.is_some());

    assert!(!parked.renew(&stopped).await.unwrap());
    assert!(!parked.record(&stopped, &Progress::new()).await.unwrap());
    assert!(!parked.forget(&stopped).await.unwrap());
    parked.release(&stopped).await.unwrap();
    let again = parked.park_again(&stopped, &id("u"), &turn(60, false)).await.unwrap();
    assert_eq!(again, ParkResult::ClaimLost);
    let messages = || vec![Arc::new(Message::user("pay")), Arc::new(Message::Assistant("paid".into()))];
    for (claim, expected) in
        [(&stopped, TurnStorage::Overtaken), (&next.claim, TurnStorage::Stored), (&next.claim, TurnStorage::Overtaken)]
    {
        let stored = conversations.add_claimed(claim, &id("talk"), &user, messages(), None).await.unwrap();
        assert_eq!(stored, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_kept_while_one_of_its_turns_waits() {
    let (server, user) = (PostgresServer::start().await, Some("ada".into()));
    let conversations = open(&server);
    let parked = ParkedTurns::open(conversations.database_scope());
    let message = || vec![Arc::new(Message::user("hi"))];
    let mut connection = server.connect().await;
    for (waits, expected) in [(false, 0), (true, 1)] {
        assert!(conversations.add(&id("talk"), &user, message(), None).await.unwrap());
        if waits {
            assert!(is_parked(parked.park(&id("t"), &user, &turn(60, false)).await));
        }
        connection.execute("UPDATE recif_conversations SET updated_at = now() - interval '8 days'").await.unwrap();
        // The first turn of a process deletes what is old.
        assert!(open_for(&server, Some(7)).add(&id("other"), &user, message(), None).await.unwrap());
        let left = connection.fetch_one("SELECT count(*) FROM recif_conversations WHERE id = 'talk'").await.unwrap();
        assert_eq!(left.get::<i64, _>(0), expected, "a turn waits: {waits}");
    }
}

#[tokio::test]
async fn one_user_cannot_park_without_end() {
    let parked = ParkedTurns::open(None);
    let (ada, bob): (UserName, UserName) = (Some("ada".into()), Some("bob".into()));
    for number in 0..MOST_OF_USER {
        assert!(is_parked(parked.park(&id(&number.to_string()), &ada, &turn(60, false)).await));
    }
    assert!(!is_parked(parked.park(&id("more"), &ada, &turn(60, false)).await));
    assert!(is_parked(parked.park(&id("more"), &bob, &turn(60, false)).await));
}

#[tokio::test]
async fn turns_in_memory_are_bounded_by_their_size() {
    let parked = ParkedTurns::open(None);
    assert!(!is_parked(parked.park(&id("large"), &None, &large(MAX_TURN)).await), "one that is too large");
    let half = large(MAX_TURN / 2);
    let fit = MAX_MEMORY / half.bytes();
    for number in 0..fit {
        assert!(is_parked(parked.park(&id(&number.to_string()), &None, &half).await), "{number}");
    }
    assert!(!is_parked(parked.park(&id("more"), &None, &half).await), "all together");
    assert!(is_parked(parked.park(&id("small"), &None, &turn(60, false)).await));
}

#[tokio::test]
async fn a_turn_that_goes_on_takes_the_room_that_it_had_and_its_results_count() {
    let parked = ParkedTurns::open(None);
    let half = large(MAX_TURN / 2);
    let fit = MAX_MEMORY / half.bytes();
    for number in 0..fit {
        assert!(is_parked(parked.park(&id(&number.to_string()), &None, &half).await), "{number}");
    }
    let claimed = parked.decided("0", &None, decisions(true)).await.unwrap();
    let again = parked.park_again(&claimed.claim, &id("further"), &half).await;
    assert!(is_parked(again), "in place of the one before");
    let claimed = parked.decided("1", &None, decisions(true)).await.unwrap();
    let result = Progress::from([("1".into(), CallProgress::Finished(Ok("x".repeat(MAX_TURN / 2))))]);
    assert!(parked.record(&claimed.claim, &result).await.unwrap());
    assert!(!is_parked(parked.park(&id("small"), &None, &turn(60, false)).await), "its result is there too");
}
