//! Tools whose calls a person has to approve, in Agent2Agent.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testing::postgres::PostgresServer;

use super::{
    Runner,
    a2a::{message, results, state},
    approval::{Bank, answer, approve, database, reject},
    approval_edges::SOON,
};

/// Text of the status of a task that waits.
const WAITS: &str = "waiting until you approve `pay`: recif approve agent/shop -n team";

impl Bank {
    /// Starts the agent `shop` of namespace `team`.
    async fn shop(&self, more: &[(&'static str, String)]) -> Runner {
        self.agent_with(&[more, &[("RECIF_NAMESPACE", "team".to_owned())]].concat()).await
    }
}

/// Returns the response to a JSON-RPC request of this user.
async fn rpc(runner: &Runner, user: &str, method: &str, params: &Value) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
    let request = runner.client.post(runner.url("/")).header("x-recif-user", user).header("a2a-version", "1.0");
    answer(request.body(body)).await.1
}

/// Sends a message of `ada`, and returns its task.
async fn send(runner: &Runner, params: &Value) -> Value {
    rpc(runner, "ada", "SendMessage", params).await["result"]["task"].take()
}

/// Returns a task of `ada` as it is now.
async fn get(runner: &Runner, task: &Value) -> Value {
    rpc(runner, "ada", "GetTask", &json!({ "id": task["id"] })).await["result"].take()
}

/// Returns the ids of the tasks of `ada` in this state.
async fn ids(runner: &Runner, state: &str) -> Vec<Value> {
    let mut listed = rpc(runner, "ada", "ListTasks", &json!({ "status": state })).await;
    let tasks = listed["result"]["tasks"].as_array_mut().unwrap();
    tasks.iter_mut().map(|task| task["id"].take()).collect()
}

/// Sends `ada`'s first message again in the context of this task, and returns the new task.
async fn say_again(runner: &Runner, task: &Value) -> Value {
    let mut next = message("/tool pay {}");
    next["message"]["contextId"] = task["contextId"].clone();
    send(runner, &next).await
}

/// Approves all calls for which a task of `ada` waits.
async fn approve_all(runner: &Runner, task: &Value) {
    let waiting = &task["status"]["message"]["metadata"]["recif.dev/waiting"];
    let id = waiting["approval"]["tools"][0]["id"].as_str().unwrap();
    assert_eq!(runner.decide("ada", &waiting["task"], approve(id)).await.0, 200, "{task}");
}

fn text(task: &Value) -> &str {
    task["artifacts"][0]["parts"][0]["text"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_task_waits_for_its_caller_and_has_the_answer_once_its_calls_are_decided() {
    let bank = Bank::open().await;
    let shop = bank.shop(&[]).await;
    let task = send(&shop, &message("/tool pay {}")).await;
    assert_eq!(state(&task), "TASK_STATE_INPUT_REQUIRED", "{task}");
    assert_eq!(text(&task), "", "its status says what waits");
    let said = &task["status"]["message"];
    assert_eq!(said["parts"][0]["text"], WAITS, "a model that reads it cannot decide");
    let waiting = &said["metadata"]["recif.dev/waiting"];
    assert_eq!(waiting["approval"]["tools"][0]["name"], "pay");
    let shown = get(&shop, &task).await;
    assert_eq!((state(&shown), &shown["status"]["message"]), (state(&task), said));
    assert_eq!(ids(&shop, "TASK_STATE_INPUT_REQUIRED").await, [task["id"].clone()]);
    let other = rpc(&shop, "bob", "GetTask", &json!({ "id": task["id"] })).await;
    assert_eq!(other["error"]["code"], -32001, "{other}");

    let mut next = message("yes");
    next["message"]["contextId"] = task["contextId"].clone();
    let early = rpc(&shop, "ada", "SendMessage", &next).await;
    assert!(early["error"]["message"].as_str().unwrap().starts_with("the turn before is not over"), "{early}");
    next["message"]["taskId"] = task["id"].clone();
    let early = rpc(&shop, "ada", "SendMessage", &next).await;
    assert!(early["error"]["message"].as_str().unwrap().ends_with(WAITS), "{early}");

    assert_eq!(shop.decide("ada", &waiting["task"], approve("call_1")).await.0, 200);
    let done = get(&shop, &task).await;
    assert_eq!((state(&done), text(&done), bank.payments()), ("TASK_STATE_COMPLETED", "paid 1", 1), "{done}");
    assert_eq!(ids(&shop, "TASK_STATE_INPUT_REQUIRED").await, Vec::<Value>::new());
    assert_eq!(ids(&shop, "TASK_STATE_COMPLETED").await, [task["id"].clone()]);
    let late = rpc(&shop, "ada", "SendMessage", &next).await;
    assert!(late["error"]["message"].as_str().unwrap().contains("takes no further message"), "{late}");
    next["message"].as_object_mut().unwrap().remove("taskId");
    assert_eq!(text(&send(&shop, &next).await), "echo: yes");
}

#[tokio::test]
async fn a_caller_without_a_name_gets_to_know_where_the_task_of_the_command_is() {
    let bank = Bank::open().await;
    let shop = bank.shop(&[]).await;
    let task = rpc(&shop, "", "SendMessage", &message("/tool pay {}")).await["result"]["task"].take();
    let said = &task["status"]["message"];
    let expected = "waiting until you approve `pay`: recif approve agent/shop TASK -n team, where TASK is in the metadata \
                    recif.dev/waiting";
    assert_eq!(said["parts"][0]["text"], expected, "a model that reads it cannot decide");
    let shown = rpc(&shop, "", "GetTask", &json!({ "id": task["id"] })).await;
    assert_eq!(shown["result"]["status"]["message"], *said);
    let waiting = &said["metadata"]["recif.dev/waiting"];
    assert_eq!(shop.decide("", &waiting["task"], approve("call_1")).await.0, 200, "{task}");
}

#[tokio::test]
async fn what_became_of_a_task_stays_as_its_conversation_goes_on() {
    let bank = Bank::open().await;
    let shop = bank.shop(&[]).await;
    let first = send(&shop, &message("/tool pay {}")).await;
    approve_all(&shop, &first).await;
    // No client has asked for the first task since, and the next one has the same message.
    let second = say_again(&shop, &first).await;
    let shown = get(&shop, &first).await;
    assert_eq!((state(&shown), text(&shown)), ("TASK_STATE_COMPLETED", "paid 1"), "{shown}");
    assert_eq!(ids(&shop, "TASK_STATE_INPUT_REQUIRED").await, [second["id"].clone()]);
    approve_all(&shop, &second).await;
    let shown = [get(&shop, &first).await, get(&shop, &second).await];
    assert_eq!(shown.each_ref().map(text), ["paid 1", "paid 2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_waits_can_be_canceled_and_its_calls_are_not_made() {
    let (server, bank) = (PostgresServer::start().await, Bank::open().await);
    for more in [Vec::new(), database(&server.url("postgres")).to_vec()] {
        let shop = bank.shop(&more).await;
        let task = send(&shop, &message("/tool pay {}")).await;
        let about = json!({ "id": task["id"] });
        let other = rpc(&shop, "bob", "CancelTask", &about).await;
        assert_eq!(other["error"]["code"], -32001, "{other}");
        let canceled = rpc(&shop, "ada", "CancelTask", &about).await["result"].take();
        assert_eq!(state(&canceled), "TASK_STATE_CANCELED", "{canceled}");
        let parked = &task["status"]["message"]["metadata"]["recif.dev/waiting"]["task"];
        assert_eq!(shop.decide("ada", parked, approve("call_1")).await.0, 404);
        let shown = get(&shop, &task).await;
        assert_eq!((state(&shown), bank.payments()), ("TASK_STATE_CANCELED", 0), "{shown}");
        assert_eq!(ids(&shop, "TASK_STATE_CANCELED").await, [task["id"].clone()]);
        assert_eq!(rpc(&shop, "ada", "CancelTask", &about).await["error"]["code"], -32002);
        let next = say_again(&shop, &task).await;
        assert_eq!(state(&next), "TASK_STATE_INPUT_REQUIRED", "the conversation goes on: {next}");
    }
}

#[tokio::test]
async fn a_list_says_of_a_task_that_expired_what_the_task_says() {
    let bank = Bank::open().await;
    let shop = bank.shop(&[]).await;
    let task = send(&shop, &message("/tool hasty {}")).await;
    let begun = Instant::now();
    while ids(&shop, "TASK_STATE_COMPLETED").await.is_empty() {
        assert!(begun.elapsed() < SOON, "it did not expire");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let done = get(&shop, &task).await;
    assert_eq!(state(&done), "TASK_STATE_COMPLETED", "{done}");
    assert!(text(&done).ends_with("no user approved this call within 1 s"), "{done}");
}

#[tokio::test]
async fn a_stream_ends_where_the_task_waits() {
    let bank = Bank::open().await;
    let shop = bank.shop(&[]).await;
    let stream =
        json!({ "jsonrpc": "2.0", "id": 7, "method": "SendStreamingMessage", "params": message("/tool pay {}") });
    let request = shop.client.post(shop.url("/")).header("x-recif-user", "ada").header("a2a-version", "1.0");
    let events = results(request.body(stream.to_string()).send().await.unwrap()).await;
    let last = &events.last().unwrap()["statusUpdate"];
    assert_eq!(
        (state(last), &last["status"]["message"]["parts"][0]["text"]),
        ("TASK_STATE_INPUT_REQUIRED", &json!(WAITS))
    );
}

#[tokio::test]
async fn a_call_is_refused_where_no_person_reads_the_answer() {
    let bank = Bank::open().await;
    let shop = bank.shop(&[]).await;
    let mut alone = message("/tool pay {}");
    alone["metadata"] = json!({ "recif.dev/may-wait": false });
    let task = send(&shop, &alone).await;
    assert!(state(&task) == "TASK_STATE_COMPLETED" && text(&task).starts_with("tool pay failed: refused"), "{task}");
    let asks = json!([{ "name": "ask", "type": "agent", "endpoint": shop.url(""), "agentProtocol": "a2a" }]);
    let other = Runner::with_tools(asks).await.say(r#"/tool ask {"message": "/tool pay {}"}"#).await;
    assert!(other.starts_with("tool pay failed: refused"), "an agent that asks this one: {other}");
    assert_eq!(bank.payments(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_replica_tells_what_became_of_a_task_that_waited() {
    let (server, bank) = (PostgresServer::start().await, Bank::open().await);
    let more = database(&server.url("postgres"));
    let (one, other) = (bank.shop(&more).await, bank.shop(&more).await);
    let task = send(&one, &message("/tool pay {}")).await;
    assert_eq!(state(&task), "TASK_STATE_INPUT_REQUIRED", "{task}");
    let seen = get(&other, &task).await;
    assert_eq!((state(&seen), &seen["status"]["message"]), (state(&task), &task["status"]["message"]));
    let parked = &seen["status"]["message"]["metadata"]["recif.dev/waiting"]["task"];
    assert_eq!(other.decide("ada", parked, reject("call_1", "too much")).await.0, 200);
    for replica in [&one, &other] {
        let done = get(replica, &task).await;
        assert_eq!(text(&done), "tool pay failed: rejected by ada: too much", "{done}");
        assert_eq!(ids(replica, "TASK_STATE_COMPLETED").await, [task["id"].clone()]);
    }
    assert_eq!(bank.payments(), 0);

    let second = say_again(&one, &task).await;
    approve_all(&other, &second).await;
    // The replica that ran it was not asked what became of the second task.
    let third = say_again(&other, &task).await;
    for replica in [&one, &other] {
        let shown = [get(replica, &task).await, get(replica, &second).await, get(replica, &third).await];
        let states = ["TASK_STATE_COMPLETED", "TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED"];
        assert_eq!(shown.each_ref().map(state), states, "{shown:?}");
        assert_eq!(text(&shown[1]), "paid 1");
    }
}
