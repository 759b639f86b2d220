//! `POST /v1/responses` over HTTP: conversations, tools, events and errors that the official clients do not show.

use async_trait::async_trait;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use serde_json::{Value, json};

use super::Runner;
use crate::models::{Chunk, Message, Model, ModelError, ModelErrorKind, ModelRequest, Usage, text_of};

/// Model that answers with all messages of its request, one letter for the role of each, and truncates or fails on demand.
struct Transcript;

#[async_trait]
impl Model for Transcript {
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let line = |message: &Message| match message {
            Message::System(text) => format!("s:{text}"),
            Message::User(parts) => format!("u:{}", text_of(parts)),
            Message::Assistant(_) => "a".into(),
            Message::Call(_) | Message::ToolResult { .. } => "t".into(),
        };
        let seen = request.messages.iter().map(|message| line(message)).collect::<Vec<_>>().join(" ");
        let asleep = || Err(ModelError::new(ModelErrorKind::Unavailable, "it is asleep"));
        if seen.ends_with("fail at once") {
            return stream::iter([asleep()]).boxed();
        }
        let mut chunks = vec![Ok(Chunk::Token(seen.clone())), Ok(Chunk::Token("!".into()))];
        if seen.ends_with("fail late") {
            chunks.push(asleep());
        }
        if seen.ends_with("long") {
            chunks.push(Ok(Chunk::Truncated));
        }
        chunks.push(Ok(Chunk::Usage(Usage::new(3, 2))));
        stream::iter(chunks).boxed()
    }
}

impl Runner {
    async fn respond_as(&self, user: &str, body: &Value) -> (u16, Value) {
        let request = self.client.post(self.url("/v1/responses")).header("x-recif-user", user).body(body.to_string());
        let response = request.send().await.unwrap();
        (response.status().as_u16(), serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
    }

    async fn respond(&self, body: &Value) -> (u16, Value) {
        self.respond_as("ann", body).await
    }

    /// Returns all events of a response.
    async fn response_events(&self, mut body: Value) -> Vec<Value> {
        body["stream"] = true.into();
        let response = self.client.post(self.url("/v1/responses")).body(body.to_string()).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let text = response.text().await.unwrap();
        let field = |event: &str, name: &str| {
            event.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned)).unwrap_or_default()
        };
        let events = text.split("\n\n").filter(|event| !event.is_empty()).map(|event| {
            let data: Value = serde_json::from_str(&field(event, "data: ")).unwrap();
            assert_eq!(data["type"], field(event, "event: "));
            data
        });
        events.collect()
    }
}

fn ask(text: &str) -> Value {
    json!({ "model": "tester", "input": text })
}

fn following(text: &str, response: &Value) -> Value {
    json!({ "model": "tester", "input": text, "previous_response_id": response["id"] })
}

fn text(response: &Value) -> &str {
    response["output"][0]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{response}"))
}

#[tokio::test]
async fn a_response_is_kept_and_the_next_one_goes_on_with_its_conversation() {
    let runner = Runner::with_model(Transcript).await;
    let mut body = ask("one");
    body["instructions"] = "be brief".into();
    body["metadata"] = json!({ "k": "v" });
    let (status, first) = runner.respond(&body).await;
    assert_eq!((status, text(&first)), (200, "s:be brief u:one!"), "{first}");
    assert_eq!(
        (&first["object"], &first["status"], &first["store"]),
        (&json!("response"), &json!("completed"), &json!(true))
    );
    assert_eq!((&first["instructions"], &first["metadata"]["k"]), (&json!("be brief"), &json!("v")));
    assert_eq!((&first["usage"]["input_tokens"], &first["usage"]["total_tokens"]), (&json!(3), &json!(5)));

    let (_, second) = runner.respond(&following("two", &first)).await;
    assert_eq!(text(&second), "u:one a u:two!", "instructions are for one response: {second}");
    assert_eq!(second["previous_response_id"], first["id"]);
    let (_, third) = runner.respond(&following("three", &second)).await;
    assert_eq!(text(&third), "u:one a u:two a u:three!");

    // The conversation is that of `/chat`, too.
    let id = &third["id"].as_str().unwrap()[5..37];
    let request = runner.client.post(runner.url("/chat")).header("x-recif-user", "ann");
    let chat = request.body(json!({ "message": "four", "conversation_id": id }).to_string()).send().await.unwrap();
    assert!(chat.text().await.unwrap().contains("u:three a u:four!"));
}

#[tokio::test]
async fn what_is_not_to_be_kept_is_not() {
    let runner = Runner::with_model(Transcript).await;
    let (_, first) = runner.respond(&ask("one")).await;
    let mut body = following("two", &first);
    body["store"] = false.into();
    let (_, second) = runner.respond(&body).await;
    assert_eq!((text(&second), &second["store"]), ("u:one a u:two!", &json!(false)));
    let (status, error) = runner.respond(&following("three", &second)).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("previous_response_id")), "{error}");
    let (_, third) = runner.respond(&following("three", &first)).await;
    assert_eq!(text(&third), "u:one a u:three!", "the one that was not kept is not between them");
}

#[tokio::test]
async fn only_the_last_response_of_the_callers_own_conversation_can_be_continued() {
    let runner = Runner::with_model(Transcript).await;
    let (_, first) = runner.respond(&ask("one")).await;
    runner.respond(&following("two", &first)).await;
    let (status, error) = runner.respond(&following("three", &first)).await;
    assert_eq!(status, 400);
    assert!(error["error"]["message"].as_str().unwrap().contains("has gone on after this response"), "{error}");
    let foreign = runner.respond_as("bob", &following("three", &first)).await;
    let unknown = format!("resp_{}", "0".repeat(48));
    let unknown = runner.respond(&following("x", &json!({ "id": unknown }))).await;
    let other = runner.respond(&following("x", &json!({ "id": "resp_x" }))).await;
    for (status, error) in [foreign, unknown, other] {
        assert_eq!((status, &error["error"]["code"]), (400, &json!("previous_response_not_found")), "{error}");
    }
}

#[tokio::test]
async fn a_gateways_name_of_the_agent_is_a_name_of_the_model() {
    let runner = Runner::with_model(Transcript).await;
    for (model, status) in [("shop/tester", 200), ("tester", 200), ("other/tester", 404), ("shop/other", 404)] {
        let (found, answer) = runner.respond(&json!({ "model": model, "input": "hi" })).await;
        assert_eq!(found, status, "{model}");
        let named = if status == 200 { &answer["model"] } else { &answer["error"]["code"] };
        assert_eq!(named, if status == 200 { model } else { "model_not_found" });
    }
}

#[tokio::test]
async fn a_tool_is_called_here_and_shown_as_an_item() {
    let runner = Runner::with_tools(json!([{ "name": "calculator", "type": "builtin" }])).await;
    let mut body = ask(r#"/tool calculator {"expression": "6*7"}"#);
    body["model"] = "agent".into();
    let (_, response) = runner.respond(&body).await;
    let (call, message) = (&response["output"][0], &response["output"][1]);
    assert_eq!(
        (&call["type"], &call["name"], &call["status"]),
        (&json!("mcp_call"), &json!("calculator"), &json!("completed"))
    );
    assert_eq!((&call["server_label"], &call["arguments"]), (&json!("agent"), &json!(r#"{"expression":"6*7"}"#)));
    assert_eq!(message["content"][0]["text"], "42", "{response}");
    assert_eq!(response["usage"]["estimated"], true, "the stub does not count: {response}");
    let kinds: Vec<_> = runner.response_events(body).await.into_iter().map(|event| event["type"].clone()).collect();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
        "response.mcp_call.completed",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(kinds, expected);
}

#[tokio::test]
async fn a_stream_ends_with_the_whole_response() {
    let runner = Runner::with_model(Transcript).await;
    let events = runner.response_events(ask("long")).await;
    assert!(events.iter().enumerate().all(|(number, event)| event["sequence_number"] == number), "{events:?}");
    let (first, last) = (&events[0], events.last().unwrap());
    assert_eq!((&first["response"]["status"], &first["response"]["output"]), (&json!("in_progress"), &json!([])));
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.incomplete"), &json!("incomplete")));
    assert_eq!(last["response"]["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!((text(&last["response"]), &first["response"]["id"]), ("u:long!", &last["response"]["id"]));
    assert_eq!(last["response"]["usage"]["total_tokens"], 5);
    let (status, next) = runner.respond_as("", &following("on", &last["response"])).await;
    assert_eq!((status, text(&next)), (200, "u:long a u:on!"));
}

#[tokio::test]
async fn a_model_that_fails_is_a_502_or_a_failed_response_and_leaves_no_turn() {
    let runner = Runner::with_model(Transcript).await;
    let (_, first) = runner.respond_as("", &ask("one")).await;
    for (text, stream) in [("fail at once", false), ("fail late", false), ("fail at once", true)] {
        let mut body = following(text, &first);
        body["stream"] = stream.into();
        let (status, error) = runner.respond_as("", &body).await;
        assert_eq!((status, &error["error"]["type"]), (502, &json!("server_error")), "{text}");
    }
    let events = runner.response_events(following("fail late", &first)).await;
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    assert!(last["response"]["error"]["message"].as_str().unwrap().contains("it is asleep"), "{last}");
    let (_, next) = runner.respond_as("", &following("two", &first)).await;
    assert_eq!(text(&next), "u:one a u:two!");
}
