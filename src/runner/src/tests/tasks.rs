//! A2A tasks shared by replicas: two servers over one real PostgreSQL.

use std::{
    future::{Future, pending},
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sqlx::{Executor, Row};
use testing::postgres::{PASSWORD, PostgresServer};
use tokio::sync::{Notify, mpsc};

use super::{
    Runner,
    a2a::{Gated, message, results, state},
    log::Log,
};
use crate::{
    conversations::{Conversations, Storage},
    database::Dsn,
};

/// Replica whose model says `one`, waits for its gate, and says `two`.
struct Replica {
    runner: Runner,
    gate: Arc<Notify>,
    drops: mpsc::UnboundedReceiver<()>,
}

impl Replica {
    async fn start(url: &str) -> Self {
        Self::until(url, pending()).await
    }

    async fn until(url: &str, stop: impl Future<Output = ()> + Send + 'static) -> Self {
        let dsn = Dsn::parse(url).unwrap();
        let storage = Storage::Postgres { dsn, namespace: "n".into(), days: Some(30) };
        let (dropped, drops) = mpsc::unbounded_channel();
        let gate = Arc::new(Notify::new());
        let model = Gated { gate: gate.clone(), dropped };
        let conversations = Conversations::open(&storage, "a").unwrap();
        Self { runner: Runner::with_model_and(model, conversations, stop).await, gate, drops }
    }

    fn request(&self, user: &str, method: &str, params: Value) -> reqwest::RequestBuilder {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        let request = self.runner.client.post(self.runner.url("/")).body(body.to_string());
        if user.is_empty() { request } else { request.header("x-recif-user", user) }
    }

    /// Returns the whole response, with its HTTP status added.
    async fn rpc_as(&self, user: &str, method: &str, params: Value) -> Value {
        let response = self.request(user, method, params).send().await.unwrap();
        let status = response.status().as_u16();
        let mut answer: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        answer["http"] = status.into();
        answer
    }

    async fn get(&self, about: &Value) -> Value {
        let mut answer = self.rpc_as("alice", "GetTask", about.clone()).await;
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].take()
    }

    /// Starts a task of alice that keeps working.
    async fn begin(&self) -> Value {
        let mut go = message("go");
        go["configuration"] = json!({ "returnImmediately": true });
        let mut answer = self.rpc_as("alice", "SendMessage", go).await;
        let task = answer["result"]["task"].take();
        assert_eq!(state(&task), "TASK_STATE_WORKING", "{answer}");
        task
    }

    /// Polls alice's task until `is_wanted` is true of it.
    async fn sees(&self, about: &Value, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..300 {
            last = self.rpc_as("alice", "GetTask", about.clone()).await["result"].take();
            if !last.is_null() && is_wanted(&last) {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("not seen, last: {last}");
    }
}

fn text(task: &Value) -> &str {
    task["artifacts"][0]["parts"][0]["text"].as_str().unwrap_or_default()
}

fn about(task: &Value) -> Value {
    json!({ "id": task["id"] })
}

/// Collects the events of a stream that must end by itself.
async fn ended(response: reqwest::Response) -> Vec<Value> {
    tokio::time::timeout(Duration::from_secs(30), results(response)).await.expect("the stream goes on")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_seen_and_followed_on_every_replica_by_its_user_alone() {
    let server = PostgresServer::start().await;
    let url = server.url("postgresql");
    let (one, other) = (Replica::start(&url).await, Replica::start(&url).await);
    let task = one.begin().await;
    let about = about(&task);
    let seen = other.get(&about).await;
    assert_eq!((state(&seen), &seen["contextId"]), ("TASK_STATE_WORKING", &task["contextId"]));
    assert_eq!(seen["history"][0]["parts"], json!([{ "text": "go" }]));
    other.sees(&about, |task| text(task) == "one ").await;

    for user in ["mallory", ""] {
        for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
            let refused = other.rpc_as(user, method, about.clone()).await["error"].take();
            let expected = format!("unknown task `{}`: not found or gone", task["id"].as_str().unwrap());
            assert_eq!((&refused["code"], &refused["message"]), (&json!(-32001), &json!(expected)), "{method} {user}");
        }
        let listed = other.rpc_as(user, "ListTasks", json!({ "contextId": task["contextId"] })).await;
        assert_eq!(listed["result"]["tasks"], json!([]), "{listed}");
    }
    let list = async |params: Value| other.rpc_as("alice", "ListTasks", params).await["result"].take();
    let listed = list(json!({ "status": "TASK_STATE_WORKING", "includeArtifacts": true })).await;
    assert_eq!((&listed["totalSize"], &listed["tasks"][0]["id"]), (&json!(1), &task["id"]), "{listed}");
    assert_eq!(text(&listed["tasks"][0]), "one ");

    let mut further = message("more");
    further["message"]["taskId"] = task["id"].clone();
    assert_eq!(other.rpc_as("alice", "SendMessage", further).await["error"]["code"], -32004);

    let following = other.request("alice", "SubscribeToTask", about.clone()).send().await.unwrap();
    one.gate.notify_one();
    let events = ended(following).await;
    assert_eq!(events[0]["task"]["id"], task["id"]);
    let more = events.iter().filter_map(|event| event["artifactUpdate"]["artifact"]["parts"][0]["text"].as_str());
    assert_eq!(format!("{}{}", text(&events[0]["task"]), more.collect::<String>()), "one two");
    assert_eq!(state(&events.last().unwrap()["statusUpdate"]), "TASK_STATE_COMPLETED");

    let done = other.get(&about).await;
    assert_eq!((state(&done), text(&done)), ("TASK_STATE_COMPLETED", "one two"));
    assert_eq!(other.rpc_as("alice", "SubscribeToTask", about.clone()).await["error"]["code"], -32004);
    assert_eq!(other.rpc_as("alice", "CancelTask", about.clone()).await["error"]["code"], -32002);

    other.gate.notify_one();
    let second = other.rpc_as("alice", "SendMessage", message("go")).await["result"]["task"].take();
    assert_eq!(state(&second), "TASK_STATE_COMPLETED");
    assert_eq!(
        state(&one.get(&json!({ "id": second["id"] })).await),
        "TASK_STATE_COMPLETED",
        "stored before it is answered"
    );
    let page = list(json!({ "pageSize": 1 })).await;
    assert_eq!((&page["totalSize"], &page["tasks"][0]["id"]), (&json!(2), &second["id"]));
    let rest = list(json!({ "pageSize": 1, "pageToken": page["nextPageToken"], "includeArtifacts": true })).await;
    assert_eq!((&rest["nextPageToken"], &rest["tasks"][0]["id"]), (&json!(""), &task["id"]));
    assert_eq!(text(&rest["tasks"][0]), "one two");
    for id in ["nul \0", "0000000000000000000000000000000f"] {
        assert_eq!(other.rpc_as("alice", "GetTask", json!({ "id": id })).await["error"]["code"], -32001);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_canceled_from_another_replica() {
    let server = PostgresServer::start().await;
    let url = server.url("postgresql");
    let (mut one, other) = (Replica::start(&url).await, Replica::start(&url).await);
    let (task, stays) = (one.begin().await, one.begin().await);
    let about = about(&task);
    one.sees(&about, |task| text(task) == "one ").await;
    for user in ["mallory", ""] {
        assert_eq!(other.rpc_as(user, "CancelTask", about.clone()).await["error"]["code"], -32001);
    }
    let canceled = other.rpc_as("alice", "CancelTask", about.clone()).await["result"].take();
    assert_eq!((state(&canceled), text(&canceled)), ("TASK_STATE_CANCELED", "one "));
    one.drops.recv().await.unwrap();
    assert_eq!(state(&one.get(&about).await), "TASK_STATE_CANCELED");
    assert_eq!(other.rpc_as("alice", "CancelTask", about.clone()).await["error"]["code"], -32002);
    assert_eq!(state(&other.get(&json!({ "id": stays["id"] })).await), "TASK_STATE_WORKING");

    // The turn stored no conversation yet: only its task knows the context.
    let mut next = message("again");
    next["message"]["contextId"] = task["contextId"].clone();
    let mut foreign = next.clone();
    foreign["configuration"] = json!({ "returnImmediately": true });
    assert_eq!(other.rpc_as("mallory", "SendMessage", foreign).await["error"]["code"], -32602);
    other.gate.notify_one();
    let next = other.rpc_as("alice", "SendMessage", next).await["result"]["task"].take();
    assert_eq!((state(&next), &next["contextId"]), ("TASK_STATE_COMPLETED", &task["contextId"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_task_of_a_replica_that_died_fails_after_a_minute() {
    let server = PostgresServer::start().await;
    let url = server.url("postgresql");
    let other = Replica::start(&url).await;
    let process = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let dies = process.spawn(async move {
        let replica = Replica::start(&url).await;
        (replica.begin().await, replica)
    });
    let (task, _dead) = dies.await.unwrap();
    let about = about(&task);
    let following = other.request("alice", "SubscribeToTask", about.clone()).send().await.unwrap();
    tokio::task::spawn_blocking(move || process.shutdown_timeout(Duration::from_secs(10))).await.unwrap();

    let asked = other.rpc_as("alice", "CancelTask", about.clone()).await["result"].take();
    assert_eq!(state(&asked), "TASK_STATE_WORKING", "its replica does not answer");

    let mut connection = server.connect().await;
    let heard = |seconds: u32| format!("UPDATE recif_tasks SET updated_at = now() - interval '{seconds} s'");
    connection.execute(sqlx::AssertSqlSafe(heard(50))).await.unwrap();
    assert_eq!(state(&other.get(&about).await), "TASK_STATE_WORKING");
    connection.execute(sqlx::AssertSqlSafe(heard(61))).await.unwrap();
    let lost = other.get(&about).await;
    assert_eq!(state(&lost), "TASK_STATE_FAILED");
    let why = "the replica that ran it has not been heard of for 60 s: it is gone, or cannot reach the database";
    assert_eq!(lost["status"]["message"]["parts"][0]["text"], why);
    assert_eq!(state(&ended(following).await.last().unwrap()["statusUpdate"]), "TASK_STATE_FAILED");

    let listed =
        async |phase: &str| other.rpc_as("alice", "ListTasks", json!({ "status": phase })).await["result"].take();
    assert_eq!(listed("TASK_STATE_FAILED").await["tasks"][0]["id"], task["id"]);
    assert_eq!(listed("TASK_STATE_WORKING").await["totalSize"], 0);
    assert_eq!(other.rpc_as("alice", "CancelTask", about.clone()).await["error"]["code"], -32002);
    assert_eq!(other.rpc_as("alice", "SubscribeToTask", about).await["error"]["code"], -32004);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_stops_no_turn_and_learns_of_it_later() {
    let mut server = PostgresServer::start().await;
    let url = server.url("postgresql");
    let (one, other) = (Replica::start(&url).await, Replica::start(&url).await);
    let first = one.begin().await;
    one.sees(&about(&first), |task| text(task) == "one ").await;
    server.stop();
    let second = one.begin().await;
    one.sees(&about(&second), |task| text(task) == "one ").await;
    let refused = other.rpc_as("alice", "GetTask", about(&first)).await;
    assert_eq!((&refused["http"], &refused["error"]["code"]), (&json!(503), &json!(-32603)), "{refused}");
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.starts_with("the tasks of other replicas cannot be looked for now, try again: "), "{why}");
    assert!(!why.contains(PASSWORD), "{why}");
    assert_eq!(one.rpc_as("alice", "ListTasks", json!({})).await["http"], 503, "a part is not given for the whole");

    // The turn has its answer; the conversation that cannot be stored is its error.
    one.gate.notify_one();
    let ended = one.sees(&about(&first), |task| state(task) != "TASK_STATE_WORKING").await;
    assert_eq!((state(&ended), text(&ended)), ("TASK_STATE_FAILED", "one two"));
    let why = ended["status"]["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(why.starts_with("the conversation cannot be kept now, try again: "), "{why}");

    server.resume().await;
    assert_eq!(text(&other.sees(&about(&first), |task| state(task) == "TASK_STATE_FAILED").await), "one two");
    other.sees(&about(&second), |task| text(task) == "one ").await;
    let mut connection = server.connect().await;
    let deleted = connection.execute("DELETE FROM recif_tasks WHERE phase = 'working'").await.unwrap();
    assert_eq!(deleted.rows_affected(), 1);
    other.sees(&about(&second), |task| text(task) == "one ").await;
    one.gate.notify_one();
    other.sees(&about(&second), |task| state(task) == "TASK_STATE_COMPLETED" && text(task) == "one two").await;
}

#[tokio::test]
async fn a_role_that_may_make_no_table_runs_tasks_that_only_their_replica_knows() {
    let server = PostgresServer::start().await;
    let url = server.url("postgresql");
    let all = Replica::start(&url).await;
    all.gate.notify_one();
    all.rpc_as("alice", "SendMessage", message("go")).await;
    let mut connection = server.connect().await;
    let limited = format!(
        "DROP TABLE recif_tasks; REVOKE CREATE ON SCHEMA public FROM public; CREATE ROLE limited LOGIN PASSWORD \
         '{PASSWORD}'; GRANT ALL ON recif_conversations, recif_turns TO limited"
    );
    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(limited))).await.unwrap();
    let one = Replica::start(&url.replace("//postgres:", "//limited:")).await;
    let (log, _kept) = Log::capture();
    one.gate.notify_one();
    one.rpc_as("alice", "SendMessage", message("go")).await;
    one.gate.notify_one();
    let task = one.rpc_as("alice", "SendMessage", message("go")).await["result"]["task"].take();
    assert_eq!((state(&task), text(&task)), ("TASK_STATE_COMPLETED", "one two"));
    assert_eq!(text(&one.get(&about(&task)).await), "one two");
    let log = log.drain();
    assert_eq!(log.matches("A2A tasks cannot be stored now").count(), 1, "{log}");
    assert!(log.contains("permission denied") && !log.contains(PASSWORD), "{log}");
    let unknown = one.rpc_as("alice", "GetTask", json!({ "id": "0000000000000000000000000000000f" })).await;
    assert!(unknown["error"]["message"].as_str().unwrap().contains("permission denied"), "{unknown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_waits_for_its_row_but_not_for_long() {
    let server = PostgresServer::start().await;
    let url = server.url("postgresql");
    let (one, other) = (Replica::start(&url).await, Replica::start(&url).await);
    one.begin().await;
    let mut connection = server.connect().await;
    let lock = "BEGIN; LOCK TABLE recif_tasks IN EXCLUSIVE MODE";
    connection.execute(sqlx::raw_sql(lock)).await.unwrap();
    let free = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let freed = Instant::now();
        connection.execute("COMMIT").await.unwrap();
        freed
    };
    let begin = async {
        one.begin().await;
        Instant::now()
    };
    let (freed, answered) = futures::join!(free, begin);
    assert!(answered > freed, "that it works is stored first");

    let free = async {
        let working = "SELECT count(*) FROM recif_tasks WHERE phase = 'working'";
        while connection.fetch_one(working).await.unwrap().get::<i64, _>(0) < 3 {}
        connection.execute(sqlx::raw_sql(lock)).await.unwrap();
        other.gate.notify_one();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let freed = Instant::now();
        connection.execute("COMMIT").await.unwrap();
        freed
    };
    let send = async {
        other.rpc_as("alice", "SendMessage", message("go")).await;
        Instant::now()
    };
    let (freed, answered) = futures::join!(free, send);
    assert!(answered > freed, "how it ended is stored first");

    connection.execute(sqlx::raw_sql(lock)).await.unwrap();
    let began = Instant::now();
    one.begin().await;
    assert!(began.elapsed() < Duration::from_secs(5), "a slow database holds up no answer for long");
}

#[tokio::test(flavor = "multi_thread")]
async fn how_a_task_ended_is_stored_before_the_process_ends() {
    let server = PostgresServer::start().await;
    let stop = Arc::new(Notify::new());
    let stopped = stop.clone();
    let one = Replica::until(&server.url("postgresql"), async move { stopped.notified().await }).await;
    let task = one.begin().await;
    stop.notify_one();
    while one.runner.get("/readyz").await.0 != 503 {}
    one.gate.notify_one();
    one.runner.serving.await.unwrap().unwrap();
    let row = server.connect().await.fetch_one("SELECT id, phase, text, owner FROM recif_tasks").await.unwrap();
    let text = |name: &str| row.get::<String, _>(name);
    let id = task["id"].as_str().unwrap();
    assert_eq!([text("id"), text("phase"), text("text"), text("owner")], [id, "completed", "one two", "alice"]);
}
