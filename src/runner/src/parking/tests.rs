//! Parked turns in memory and in PostgreSQL: claims, and what a lost claim can still do.

use std::sync::Arc;

use serde_json::json;
use sqlx::Executor;
use testing::postgres::PostgresServer;

use super::*;
use crate::{
    conversations::{Conversations, Storage, history::TurnStorage},
    database::Dsn,
    models::{Message, ToolCall},
};

fn open(server: &PostgresServer) -> Conversations {
    let dsn = Dsn::parse(&server.url("postgres")).unwrap();
    Conversations::open(&Storage::Postgres { dsn, namespace: "n".into(), days: None }, "a").unwrap()
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
        calls: vec![call],
        patience,
        tool_turns: 3,
        fallback: None,
        text: String::new(),
        needs_caller,
    }
}

fn decisions(is_approved: bool) -> Decisions {
    serde_json::from_value(json!({"approvals": [{"id": "1", "approved": is_approved}]})).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_decided_once_by_its_own_user() {
    let server = PostgresServer::start().await;
    let (ada, bob): (UserName, UserName) = (Some("ada".into()), Some("bob".into()));
    for parked in [ParkedTurns::open(None), ParkedTurns::open(open(&server).database_scope())] {
        assert!(parked.park(&id("t"), &ada, &turn(60, true)).await.unwrap().is_some());
        assert_eq!(parked.waiting(&ada).await.unwrap().len(), 1);
        assert_eq!(parked.waiting(&bob).await.unwrap().len(), 0);
        for user in [&bob, &None] {
            let refused = parked.decide("t", user, decisions(true)).await.unwrap_err();
            assert!(matches!(refused, DecisionError::UnknownTask(_)), "{refused}");
        }
        let claimed = parked.decide("t", &ada, decisions(true)).await.unwrap();
        assert_eq!((&claimed.owner, &claimed.turn), (&ada, &turn(60, true)));
        assert_eq!(parked.waiting(&ada).await.unwrap().len(), 0);
        for again in [decisions(false), decisions(true)] {
            let refused = parked.decide("t", &ada, again).await.unwrap_err();
            assert_eq!(refused.to_string(), "already decided by ada");
        }
        assert!(parked.renew(&claimed.claim).await.unwrap());
        assert!(parked.claim_due().await.unwrap().is_none(), "it is claimed, and needs its caller");

        assert!(parked.park_again(&claimed.claim, &id("u"), &turn(60, true)).await.unwrap().is_some());
        assert!(!parked.renew(&claimed.claim).await.unwrap(), "the claim ended");
        for again in [decisions(true), decisions(false)] {
            let refused = parked.decide("t", &ada, again).await.unwrap_err();
            assert!(matches!(refused, DecisionError::UnknownTask(_)), "{refused}");
        }
        assert!(
            parked.decide("u", &ada, decisions(false)).await.is_ok(),
            "further calls wait for a decision of their own"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_expires_is_continued_without_its_caller_or_forgotten() {
    let server = PostgresServer::start().await;
    for parked in [ParkedTurns::open(None), ParkedTurns::open(open(&server).database_scope())] {
        parked.park(&id("own"), &None, &turn(0, false)).await.unwrap();
        parked.park(&id("callers"), &None, &turn(0, true)).await.unwrap();
        let refused = parked.decide("own", &None, decisions(true)).await.unwrap_err();
        assert!(matches!(refused, DecisionError::Expired), "{refused}");
        let claimed = parked.claim_due().await.unwrap().unwrap();
        assert_eq!((claimed.claim.task.as_str(), &claimed.ruling), ("own", &None));
        assert!(parked.claim_due().await.unwrap().is_none());
        let refused = parked.decide("callers", &None, decisions(true)).await.unwrap_err();
        assert!(matches!(refused, DecisionError::UnknownTask(_)), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_lost_the_claim_writes_nothing() {
    let server = PostgresServer::start().await;
    let (conversations, user) = (open(&server), Some("ada".into()));
    let parked = ParkedTurns::open(conversations.database_scope());
    parked.park(&id("t"), &user, &turn(60, false)).await.unwrap();
    let stopped = parked.decide("t", &user, decisions(true)).await.unwrap().claim;
    let mut connection = server.connect().await;
    connection.execute("UPDATE recif_parked SET claimed_until = now() - interval '1 s'").await.unwrap();
    let next = parked.claim_due().await.unwrap().unwrap();
    assert!(next.ruling.is_some());

    assert!(!parked.renew(&stopped).await.unwrap());
    assert!(!parked.record(&stopped, &Progress::new()).await.unwrap());
    assert!(parked.park_again(&stopped, &id("u"), &turn(60, false)).await.unwrap().is_none());
    let messages = || vec![Arc::new(Message::user("pay")), Arc::new(Message::Assistant("paid".into()))];
    for (claim, expected) in
        [(&stopped, TurnStorage::Overtaken), (&next.claim, TurnStorage::Stored), (&next.claim, TurnStorage::Overtaken)]
    {
        let stored = conversations.add_claimed(claim, &id("talk"), &user, messages(), None).await.unwrap();
        assert_eq!(stored, expected);
    }
}

#[tokio::test]
async fn one_user_cannot_park_without_end() {
    let parked = ParkedTurns::open(None);
    let (ada, bob): (UserName, UserName) = (Some("ada".into()), Some("bob".into()));
    for number in 0..MOST_OF_USER {
        assert!(parked.park(&id(&number.to_string()), &ada, &turn(60, false)).await.unwrap().is_some());
    }
    assert!(parked.park(&id("more"), &ada, &turn(60, false)).await.unwrap().is_none());
    assert!(parked.park(&id("more"), &bob, &turn(60, false)).await.unwrap().is_some());
}
