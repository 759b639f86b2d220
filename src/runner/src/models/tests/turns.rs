//! A whole turn: the model calls two tools, gets their results and answers.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Provider, ScriptedReply, anthropic, gemini, hello, ollama, openai};
use crate::{metrics::RunnerMetrics, tools::Toolbox, turn::TurnLoop, usage::UsageAccount};

/// Returns the messages of the turn's second request that follow the user's message.
async fn second_request(provider: &str, calls: &str, good: &str, messages: &str) -> Vec<Value> {
    let server = Provider::new([ScriptedReply::ok(calls), ScriptedReply::ok(good)]).await;
    let model = server.model(provider);
    let tools = Toolbox::new(Vec::new(), Arc::new(|_: &str| None), RunnerMetrics::default());
    let turn = TurnLoop { model: &*model, tools: &tools, events: None, may_wait: false };
    let message = turn.run(&mut hello(), &mut 5).await.unwrap();
    assert!(message.text.ends_with("Hello thére"), "{provider}: {}", message.text);
    let asked = server.requests();
    assert_eq!(asked.len(), 2);
    let mut messages = asked[1].body[messages].as_array().unwrap().clone();
    assert_eq!(
        messages[..1],
        asked[0].body["messages"].as_array().or(asked[0].body["contents"].as_array()).unwrap()[..]
    );
    messages.remove(0);
    messages
}

#[tokio::test]
async fn openai_gets_its_calls_and_results_back() {
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    assert_eq!(
        second_request("openai", openai::CALLS, openai::GOOD, "messages").await,
        [
            json!({"role": "assistant", "tool_calls": [
                call("call_a", "weather", r#"{"city":"Bern"}"#),
                call("call_b", "time", "{}"),
            ]}),
            json!({"role": "tool", "tool_call_id": "call_a", "content": "Error: unknown tool `weather`; known tools: none"}),
            json!({"role": "tool", "tool_call_id": "call_b", "content": "Error: unknown tool `time`; known tools: none"}),
        ]
    );
}

#[tokio::test]
async fn anthropic_gets_its_thoughts_calls_and_results_back() {
    let result = |id: &str, name: &str| {
        json!({
            "type": "tool_result", "tool_use_id": id, "content": format!("unknown tool `{name}`; known tools: none"), "is_error": true,
        })
    };
    let [thought, redacted] = &anthropic::thoughts()[..] else { panic!() };
    assert_eq!(
        second_request("anthropic", anthropic::CALLS, anthropic::GOOD, "messages").await,
        [
            json!({"role": "assistant", "content": [
                thought,
                redacted,
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bern"}},
                {"type": "tool_use", "id": "toolu_2", "name": "time", "input": {}},
            ]}),
            json!({"role": "user", "content": [result("toolu_1", "weather"), result("toolu_2", "time")]}),
        ]
    );
}

#[tokio::test]
async fn gemini_gets_its_calls_signature_and_results_back() {
    let found = second_request("gemini", gemini::CALLS, gemini::GOOD, "contents").await;
    let id = &found[0]["parts"][0]["functionCall"]["id"];
    assert_eq!(id.as_str().unwrap().len(), 21);
    let result = |id: &Value, name: &str| {
        let response = json!({"error": format!("unknown tool `{name}`; known tools: none")});
        json!({"functionResponse": {"id": id, "name": name, "response": response}})
    };
    assert_eq!(
        found,
        [
            json!({"role": "model", "parts": [
                {"functionCall": {"id": id, "name": "weather", "args": {"city": "Bern"}}, "thoughtSignature": "c2ln"},
                {"functionCall": {"id": "given", "name": "time", "args": {}}},
            ]}),
            json!({"role": "user", "parts": [result(id, "weather"), result(&json!("given"), "time")]}),
        ]
    );
}

#[tokio::test]
async fn ollama_gets_its_calls_and_results_back() {
    assert_eq!(
        second_request("ollama", ollama::CALLS, ollama::GOOD, "messages").await,
        [
            json!({"role": "assistant", "content": "", "tool_calls": [
                {"function": {"name": "weather", "arguments": {"city": "Bern"}}},
                {"function": {"name": "time", "arguments": {}}},
            ]}),
            json!({"role": "tool", "tool_name": "weather", "content": "Error: unknown tool `weather`; known tools: none"}),
            json!({"role": "tool", "tool_name": "time", "content": "Error: unknown tool `time`; known tools: none"}),
        ]
    );
}

#[tokio::test]
async fn a_title_is_asked_for_and_a_failing_model_is_not_waited_for() {
    let server = Provider::new([ScriptedReply::ok(openai::GOOD), ScriptedReply::status(401)]).await;
    let model = server.model("openai");
    assert_eq!(model.title("where is Bern?\nI forgot", None, UsageAccount::default()).await, "Hello thére");
    assert_eq!(model.title("where is Bern?\nI forgot", None, UsageAccount::default()).await, "where is Bern?");
    let asked = server.requests();
    assert_eq!(asked[0].body["messages"][1], json!({"role": "user", "content": "where is Bern?\nI forgot"}));
    assert!(asked[0].body["messages"][0]["content"].as_str().unwrap().starts_with("Write a title"));
}

#[tokio::test]
async fn an_unread_answer_ends_its_request() {
    let server = Provider::new([ScriptedReply::ok(openai::GOOD).ending(super::ReplyEnd::Silent)]).await;
    let mut watched = server.silent.clone();
    let mut answer = server.model("openai").respond(hello());
    futures::StreamExt::next(&mut answer).await.unwrap().unwrap();
    assert_eq!(*watched.borrow_and_update(), 1);
    drop(answer);
    tokio::time::timeout(std::time::Duration::from_secs(30), watched.wait_for(|open| *open == 0))
        .await
        .unwrap()
        .unwrap();
}
