//! Conversations in a real PostgreSQL, shared by several replicas of an agent.

use std::sync::Arc;

use serde_json::json;
use sqlx::{Executor, Row};
use testing::postgres::{PASSWORD, PostgresServer};

use super::Runner;
use crate::{
    conversations::{
        Conversations, Storage,
        history::{ConversationId, History, StoredConversation, TurnStorage, UserName},
    },
    database::Dsn,
    models::{Message, ToolCall},
};

fn open(server: &PostgresServer, namespace: &str, agent: &str) -> Conversations {
    let dsn = Dsn::parse(&server.url("postgresql+asyncpg")).unwrap();
    Conversations::open(&Storage::Postgres { dsn, namespace: namespace.into(), days: Some(30) }, agent).unwrap()
}

fn id(text: &str) -> ConversationId {
    ConversationId::parse(text).unwrap()
}

/// Returns the messages of the conversation `name`, for a caller without a user name.
async fn messages(conversations: &Conversations, name: &str) -> Vec<Arc<Message>> {
    match conversations.history(&id(name), &None).await.unwrap() {
        History::Known(conversation) => conversation.messages,
        History::Unknown => Vec::new(),
        History::Foreign => panic!("{name} is another's"),
    }
}

fn user_message(text: impl Into<String>) -> Vec<Arc<Message>> {
    let text = text.into();
    vec![Arc::new(Message::user(&*text)), Arc::new(Message::Assistant(format!("echo: {text}")))]
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_conversations_and_every_turn_stays_whole() {
    let server = PostgresServer::start().await;
    let replicas: Vec<_> = (0..4).map(|_| open(&server, "default", "a")).collect();
    let talk = id("talk");
    let turns = replicas.iter().enumerate().map(|(number, replica)| {
        let talk = &talk;
        async move {
            for turn in 0..10 {
                replica
                    .add(talk, &None, user_message(format!("{number}-{turn}")), Some(&format!("by {number}\0")))
                    .await
                    .unwrap();
            }
        }
    });
    futures::future::join_all(turns).await;

    let all = messages(&replicas[0], "talk").await;
    assert_eq!(all.len(), 80);
    assert_eq!(all, messages(&replicas[3], "talk").await);
    for turn in all.chunks(2) {
        let Message::Assistant(answer) = &*turn[1] else { panic!("{turn:?}") };
        assert_eq!(*turn[0], Message::user(answer.strip_prefix("echo: ").unwrap()));
    }
    for number in 0..4 {
        let own: Vec<_> = all.iter().filter(|one| format!("{one:?}").contains(&format!("echo: {number}-"))).collect();
        let order: Vec<_> = (0..10).map(|turn| Message::Assistant(format!("echo: {number}-{turn}"))).collect();
        assert!(own.iter().map(|one| &***one).eq(&order), "{own:?}");
    }
    for (namespace, agent) in [("other", "a"), ("default", "b")] {
        assert!(messages(&open(&server, namespace, agent), "talk").await.is_empty());
    }

    let mut connection = server.connect().await;
    let row = connection.fetch_one("SELECT title, turns FROM recif_conversations").await.unwrap();
    let title: String = row.get("title");
    assert!(title.starts_with("by ") && !title.contains('\0'), "{title}");
    assert_eq!(row.get::<i64, _>("turns"), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_said_comes_back_and_the_oldest_goes_when_it_is_too_much() {
    let server = PostgresServer::start().await;
    let conversations = open(&server, "n", "a");
    let call = json!({"name": "t", "arguments": {"a": "é\u{0}"}, "id": "1"});
    let call: ToolCall = serde_json::from_value(call).unwrap();
    let turn: Vec<_> =
        [Message::user("nul \0 and 'quotes' \""), Message::Call(call), Message::Assistant(String::new())]
            .map(Arc::new)
            .into();
    conversations.add(&id("all"), &None, turn.clone(), None).await.unwrap();
    assert_eq!(messages(&conversations, "all").await, turn);
    assert!(messages(&conversations, "unknown").await.is_empty());

    for letter in ["a", "b", "c", "d"] {
        conversations
            .add(&id("long"), &None, vec![Arc::new(Message::user(letter.repeat(1_500_000)))], None)
            .await
            .unwrap();
    }
    let kept = messages(&conversations, "long").await;
    assert_eq!(kept, [Arc::new(Message::user("c".repeat(1_500_000))), Arc::new(Message::user("d".repeat(1_500_000)))]);
    conversations.add(&id("long"), &None, user_message("x".repeat(5_000_000)), None).await.unwrap();
    assert!(messages(&conversations, "long").await.is_empty());

    let mut connection = server.connect().await;
    connection.execute("UPDATE recif_turns SET messages = '[{\"unheard\": 1}]'").await.unwrap();
    assert!(messages(&conversations, "all").await.is_empty(), "a turn of another version is left out");
    connection.execute("DROP TABLE recif_turns, recif_conversations").await.unwrap();
    conversations.add(&id("all"), &None, turn.clone(), None).await.unwrap();
    assert_eq!(messages(&conversations, "all").await, turn, "tables that are gone are made again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_is_a_503_until_it_is_back() {
    let mut server = PostgresServer::start().await;
    let runner = Runner::with(&[
        ("CORAIL_STORAGE", "postgresql".into()),
        ("CORAIL_DATABASE_URL", server.url("postgres")),
        ("CORAIL_AGENT_NAME", "shop".into()),
        ("RECIF_NAMESPACE", "team".into()),
    ])
    .await;
    let say = || runner.chat(json!({"message": "hi", "conversation_id": "c"}));
    let (status, first) = say().await;
    assert_eq!((status, &first["title"]), (200, &json!("hi")), "{first}");
    assert_eq!(runner.get("/readyz").await.0, 200);

    server.stop();
    let (status, answer) = say().await;
    assert_eq!(status, 503, "{answer}");
    let text = answer["error"].as_str().unwrap();
    assert!(text.starts_with("the conversation cannot be kept now, try again: the database does not answer"), "{text}");
    let (status, why) = runner.get("/readyz").await;
    assert!(
        status == 200 && why.contains("conversations: the database does not answer"),
        "an outage fails no agent: {why}"
    );
    assert!(!format!("{text}{why}").contains(PASSWORD));
    assert_eq!(runner.get("/healthz").await.0, 200);

    server.resume().await;
    assert_eq!(runner.get("/readyz").await.0, 200);
    let (status, second) = say().await;
    assert_eq!((status, second.get("title")), (200, None), "{second}");
    let mut connection = server.connect().await;
    let row = connection.fetch_one("SELECT namespace, agent, id, title, turns FROM recif_conversations").await.unwrap();
    let text = |name: &str| row.get::<String, _>(name);
    assert_eq!([text("namespace"), text("agent"), text("id"), text("title")], ["team", "shop", "c", "hi"]);
    assert_eq!(row.get::<i64, _>("turns"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_turns_that_replicas_add_after_the_same_one_the_second_is_refused() {
    let server = PostgresServer::start().await;
    let (one, other) = (open(&server, "n", "a"), open(&server, "n", "a"));
    let (talk, alice) = (id("talk"), Some("alice".into()));
    assert!(one.add(&talk, &alice, user_message("first"), None).await.unwrap());
    let add = |replica: &'static str, turns| {
        let conversations = if replica == "one" { &one } else { &other };
        conversations.add_after(Some(turns), &talk, &alice, user_message(replica), None)
    };
    let (left, right) = tokio::join!(add("one", 1), add("other", 1));
    let mut found = [left.unwrap(), right.unwrap()];
    found.sort_by_key(|storage| *storage != TurnStorage::Stored);
    assert_eq!(found, [TurnStorage::Stored, TurnStorage::Overtaken]);
    let History::Known(known) = other.history(&talk, &alice).await.unwrap() else { panic!("it is gone") };
    assert_eq!((known.turns, known.messages.len()), (2, 4));
    assert_eq!(add("one", 2).await.unwrap(), TurnStorage::Stored);
    let foreign = one.add_after(Some(3), &talk, &None, user_message("x"), None).await.unwrap();
    assert_eq!(foreign, TurnStorage::Foreign);
    let forgotten = one.add_after(Some(3), &id("forgotten"), &alice, user_message("x"), None).await.unwrap();
    assert_eq!(forgotten, TurnStorage::Stored);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_its_users_alone_and_an_older_one_of_who_goes_on_first() {
    let server = PostgresServer::start().await;
    let conversations = open(&server, "n", "a");
    let (alice, mallory): (UserName, UserName) = (Some("alice".into()), Some("mallory".into()));
    assert!(conversations.add(&id("c"), &alice, user_message("x"), None).await.unwrap());
    for other in [&mallory, &None] {
        assert_eq!(conversations.history(&id("c"), other).await.unwrap(), History::Foreign);
        assert!(!conversations.add(&id("c"), other, user_message("y"), None).await.unwrap());
    }
    let known = || History::Known(StoredConversation { messages: user_message("x"), turns: 1 });
    assert_eq!(conversations.history(&id("c"), &alice).await.unwrap(), known());
    assert!(conversations.add(&id("nameless"), &None, user_message("x"), None).await.unwrap());
    assert_eq!(conversations.history(&id("nameless"), &alice).await.unwrap(), History::Foreign);

    // The schema of a version without owners.
    let mut connection = server.connect().await;
    connection.execute("ALTER TABLE recif_conversations DROP COLUMN owner").await.unwrap();
    let next = open(&server, "n", "a");
    assert_eq!(next.history(&id("c"), &mallory).await.unwrap(), known());
    assert_eq!(next.history(&id("c"), &alice).await.unwrap(), History::Foreign);
    assert!(next.add(&id("c"), &mallory, user_message("y"), None).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_conversations_are_deleted_and_no_others() {
    let server = PostgresServer::start().await;
    for (namespace, agent, talk) in [("n", "a", "old"), ("n", "a", "young"), ("n", "b", "old"), ("o", "a", "old")] {
        open(&server, namespace, agent).add(&id(talk), &None, user_message("x"), None).await.unwrap();
    }
    let mut connection = server.connect().await;
    let age =
        "UPDATE recif_conversations SET updated_at = now() - interval '1 day' * CASE id WHEN 'old' THEN 31 ELSE 29 END";
    connection.execute(age).await.unwrap();
    let ids = "SELECT string_agg(namespace || agent || id, ' ' ORDER BY namespace, agent, id) FROM recif_conversations";
    let dsn = Dsn::parse(&server.url("postgresql")).unwrap();
    let keeps = Conversations::open(&Storage::Postgres { dsn, namespace: "n".into(), days: None }, "a").unwrap();
    for (all, expected) in [(keeps, "naold nayoung nbold oaold"), (open(&server, "n", "a"), "nayoung nbold oaold")] {
        all.add(&id("young"), &None, user_message("x"), None).await.unwrap();
        assert_eq!(connection.fetch_one(ids).await.unwrap().get::<String, _>(0), expected);
    }
    let turns = connection.fetch_one("SELECT count(*) FROM recif_turns WHERE agent = 'a' AND namespace = 'n'");
    assert_eq!(turns.await.unwrap().get::<i64, _>(0), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_database_names_no_password() {
    let server = PostgresServer::start().await;
    let url = server.url("postgresql").replace(PASSWORD, "other-SECRET");
    let storage = Storage::Postgres { dsn: Dsn::parse(&url).unwrap(), namespace: "n".into(), days: None };
    let conversations = Conversations::open(&storage, "a").unwrap();
    let error = conversations.history(&id("x"), &None).await.unwrap_err();
    assert!(error.to_string().contains("password authentication failed"), "{error}");
    assert!(!format!("{error} {error:?} {storage:?}").contains("SECRET"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_database_that_takes_connections_and_says_nothing_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dsn = Dsn::parse(&format!("postgresql://u:{PASSWORD}@{}/d", listener.local_addr().unwrap())).unwrap();
    let conversations =
        Conversations::open(&Storage::Postgres { dsn, namespace: "n".into(), days: None }, "a").unwrap();
    let error = conversations.check().await.unwrap_err().to_string();
    assert_eq!(error, "the database does not answer: no connection within 3 s");
}
