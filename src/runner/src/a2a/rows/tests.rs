//! Task rows in a real PostgreSQL: storage, truncation, and deletion.

use sqlx::Executor;
use testing::postgres::PostgresServer;

use super::*;
use crate::{
    a2a::tasks::{MessagePart, UserMessage},
    conversations::{Conversations, Storage},
    database::Dsn,
};

fn rows(server: &PostgresServer, days: Option<i32>, limits: Limits) -> TaskRows {
    let dsn = Dsn::parse(&server.url("postgresql")).unwrap();
    let opened = Conversations::open(&Storage::Postgres { dsn, namespace: "n".into(), days }, "a").unwrap();
    TaskRows::new(opened.database_scope().unwrap(), limits)
}

fn working(id: &str, text: &str) -> Task {
    let sentence = UserMessage {
        id: "m\0".into(),
        pieces: vec![MessagePart::Text(text.into()), MessagePart::Data(serde_json::json!({ "a": 1 }))],
    };
    Task::new(id.into(), "c".into(), None, sentence)
}

async fn ended(rows: &TaskRows, id: &str, text: &str) {
    let task = working(id, text);
    assert!(task.end(TaskPhase::Completed, None));
    assert_eq!(rows.store(&task).await.unwrap(), RowState::Ended);
}

/// Returns the ids of all rows, the newest first.
async fn ids(rows: &TaskRows) -> Vec<String> {
    rows.summaries(&None).await.unwrap().into_iter().map(|head| head.id).collect()
}

#[test]
fn a_text_is_bounded_between_characters_and_says_so_when_it_is_whole() {
    assert_eq!(bounded("a\0é", 8, true), "aé");
    assert_eq!(bounded("aéb", 2, false), "a");
    assert_eq!(bounded("aéb", 3, true), format!("aé{CUT}"));
}

#[test]
fn every_phase_has_a_word_of_its_own() {
    use TaskPhase::{Canceled, Completed, Failed, InputRequired, Working};
    for one in [Working, InputRequired, Completed, Failed, Canceled] {
        assert_eq!(parse_phase(phase_name(one)), Some(one));
    }
    assert_eq!(parse_phase("later"), None);
}

#[tokio::test]
async fn what_was_stored_comes_back_and_an_end_stays() {
    let server = PostgresServer::start().await;
    let rows = rows(&server, None, Limits::default());
    let task = working("t", "nul \0");
    task.follow(&TaskProgress { text: "é".repeat(MAX_TEXT), ..task.snapshot() });
    rows.store(&task).await.unwrap();
    let read = async || rows.load(&["t".into()], &None).await.unwrap().pop().unwrap();
    let found = read().await;
    assert_eq!(
        (&found.message, found.snapshot().phase, found.snapshot().text.len()),
        (&task.message, TaskPhase::Working, MAX_PARTIAL_TEXT)
    );
    assert!(found.is_remote);

    assert!(task.end(TaskPhase::Failed, Some("no\0".into())));
    rows.store(&task).await.unwrap();
    let whole = read().await.snapshot();
    assert_eq!((whole.phase, whole.error.as_deref()), (TaskPhase::Failed, Some("no")));
    assert_eq!(whole.text, format!("{}{CUT}", "é".repeat(MAX_TEXT / 2)));
    rows.store(&working("t", "later")).await.unwrap();
    assert_eq!(read().await.snapshot(), whole, "an end is not taken back");

    let mut connection = server.connect().await;
    connection.execute("UPDATE recif_tasks SET message = '{\"unheard\": 1}'").await.unwrap();
    assert!(rows.load(&["t".into()], &None).await.unwrap().is_empty(), "a row of another version is left out");
    connection.execute("UPDATE recif_tasks SET phase = 'dreaming'").await.unwrap();
    assert!(ids(&rows).await.is_empty());
    connection.execute("DROP TABLE recif_tasks").await.unwrap();
    ended(&rows, "t", "x").await;
    assert_eq!(ids(&rows).await, ["t"], "a table that is gone is made again");
}

#[tokio::test]
async fn the_oldest_that_have_ended_go_by_number_by_bytes_and_by_age() {
    let server = PostgresServer::start().await;
    let few = rows(&server, Some(2), Limits { count: 3, bytes: 1000 });
    few.store(&working("works", "x")).await.unwrap();
    for id in ["a", "b", "c", "d"] {
        ended(&few, id, "x").await;
    }
    few.sweep().await.unwrap();
    let kept = |wanted: &[&str]| wanted.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    let all = rows(&server, None, Limits::default());
    assert_eq!(ids(&all).await, kept(&["d", "c", "b", "works"]), "one that works stays");
    assert_eq!(ids(&few).await.len(), 3, "no more are listed than are kept");

    ended(&few, "big", &"x".repeat(850)).await;
    few.sweep().await.unwrap();
    assert_eq!(ids(&all).await, kept(&["big", "d", "works"]));

    let mut connection = server.connect().await;
    connection.execute("UPDATE recif_tasks SET updated_at = now() - interval '3 days' WHERE id = 'd'").await.unwrap();
    all.sweep().await.unwrap();
    assert_eq!(ids(&all).await, kept(&["big", "d", "works"]), "younger than a week");
    few.stored_since_sweep.store(1, Ordering::Relaxed);
    few.sweep().await.unwrap();
    assert_eq!(ids(&all).await, kept(&["big", "works"]), "older than its conversation may be");
    connection.execute("UPDATE recif_tasks SET updated_at = now() - interval '8 days'").await.unwrap();
    all.stored_since_sweep.store(usize::MAX, Ordering::Relaxed);
    all.sweep().await.unwrap();
    assert!(ids(&all).await.is_empty(), "what nothing runs any more goes too");

    ended(&few, "f", "x").await;
    let other = TaskRows::new(DatabaseScope { agent: "b".into(), ..few.scope.clone() }, Limits { count: 0, bytes: 0 });
    other.sweep().await.unwrap();
    assert_eq!((ids(&few).await, ids(&other).await), (kept(&["f"]), kept(&[])), "each agent has its own");
}
