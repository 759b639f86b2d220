//! Turns that wait several times.

use axum::{
    Router,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::approval::{Bank, approve};

/// Answers in OpenAI's form: until there are two results with a call of `pay` that has always the same id, and then with text.
async fn answer(body: String) -> Response {
    let body: Value = serde_json::from_str(&body).unwrap();
    let results = body["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "tool").count();
    let delta = if body["tools"].is_null() || results == 2 {
        json!({ "content": "done" })
    } else {
        let function = json!({ "name": "pay", "arguments": json!({ "euros": results + 1 }).to_string() });
        json!({ "tool_calls": [{ "index": 0, "id": "call_0", "function": function }] })
    };
    let text = json!({ "choices": [{ "delta": delta, "finish_reason": "stop" }] });
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 10, "completion_tokens": 5 } });
    let events = format!("data: {text}\n\ndata: {usage}\n\ndata: [DONE]\n\n");
    ([(CONTENT_TYPE, "text/event-stream")], events).into_response()
}

/// Starts that model, and returns the variables of an agent that has it.
pub(super) async fn model() -> [(&'static str, String); 3] {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let routes = Router::new().route("/v1/chat/completions", post(answer));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    [("CORAIL_MODEL_TYPE", "openai".into()), ("CORAIL_MODEL_ID", "gpt".into()), ("CORAIL_MODEL_BASE_URL", url)]
}

/// Returns the id of the only call that waits.
fn call_id(waits: &Value) -> &str {
    waits["approval"]["tools"][0]["id"].as_str().unwrap()
}

#[tokio::test]
async fn a_decision_that_comes_late_or_again_approves_no_further_call() {
    let bank = Bank::open().await;
    let runner = bank.agent_with(&model().await).await;
    let (status, first) = runner.chat_as("ada", "pay twice").await;
    assert_eq!((status, call_id(&first)), (202, "call_0"), "{first}");
    let (status, second) = runner.decide("ada", &first["task"], approve("call_0")).await;
    assert_eq!((status, bank.payments()), (202, 1), "{second}");
    let key = bank.last_key();
    assert_eq!(second["approval"]["tools"][0]["args"], json!({ "euros": 2 }));
    assert_ne!(second["task"], first["task"]);
    assert_ne!(call_id(&second), "call_0");
    for (task, expected) in [(&first["task"], 404), (&second["task"], 400)] {
        let (status, late) = runner.decide("ada", task, approve("call_0")).await;
        assert_eq!((status, bank.payments()), (expected, 1), "{late}");
    }
    let (status, last) = runner.decide("ada", &second["task"], approve(call_id(&second))).await;
    assert_eq!((status, &last["reply"], bank.payments()), (200, &json!("done"), 2), "{last}");
    assert_ne!(bank.last_key(), key, "each payment has a key of its own");
}
