//! Turns that wait and need something of their callers.

use serde_json::{Value, json};

use super::approval::{Bank, answer, approve};

#[tokio::test]
async fn a_decision_without_a_header_that_the_first_request_had_decides_nothing() {
    let bank = Bank::open().await;
    let mut tools = bank.tools();
    for tool in tools.as_array_mut().unwrap() {
        tool["forwardHeaders"] = json!(["X-Tenant", "X-Absent"]);
    }
    let runner = bank.agent_with(&[("CORAIL_TOOLS", tools.to_string())]).await;
    let chat = runner.client.post(runner.url("/chat")).header("x-recif-user", "ada").header("x-tenant", "blue");
    let (status, waits) = answer(chat.body(json!({ "message": "/tool pay {}" }).to_string())).await;
    assert_eq!(status, 202, "{waits}");
    let (status, refused) = runner.decide("ada", &waits["task"], approve("call_1")).await;
    let expected = "send X-Tenant as with the first request: tools of this turn need it";
    assert_eq!((status, &refused["error"], bank.payments()), (400, &json!(expected), 0));
    let path = runner.url(&format!("/approvals/{}", waits["task"].as_str().unwrap()));
    let whole = runner.client.post(&path).header("x-recif-user", "ada").header("x-tenant", "blue");
    let (status, paid) = answer(whole.body(json!({ "approvals": approve("call_1") }).to_string())).await;
    assert_eq!((status, &paid["reply"]), (200, &json!("paid 1")), "{paid}");
    assert_eq!(bank.last_header("x-tenant").as_deref(), Some("blue"));

    let (_, without): (_, Value) = runner.chat_as("ada", "/tool pay {}").await;
    let (status, paid) = runner.decide("ada", &without["task"], approve("call_1")).await;
    assert_eq!((status, &paid["reply"]), (200, &json!("paid 2")), "the first request had none: {paid}");
}

#[tokio::test]
async fn a_call_of_a_user_with_too_many_parked_turns_is_refused_and_the_model_is_told() {
    let bank = Bank::open().await;
    let runner = bank.agent(None).await;
    for number in 0..100 {
        assert_eq!(runner.chat_as("ada", "/tool pay {}").await.0, 202, "{number}");
    }
    let (status, answer) = runner.chat_as("ada", "/tool pay {}").await;
    assert_eq!((status, bank.payments()), (200, 0), "{answer}");
    let told = "it cannot wait: too many wait already";
    assert!(answer["reply"].as_str().unwrap().contains(told), "{answer}");
    assert_eq!(runner.chat_as("bob", "/tool pay {}").await.0, 202);
}
