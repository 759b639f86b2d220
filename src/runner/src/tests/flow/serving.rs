//! Routes, bodies and responses of one flow.

use reqwest::Method;
use serde_json::{Value, json};

use super::{CONFIG, ContractFolder};
use crate::mode::Mode;

const GREET: &str = "---
input:
  schema:
    name: string
    times?: integer
    mood?(enum): [good, bad]
    address?:
      city: string
  default:
    times: 1
---
{{role \"system\"}}be brief
{{role \"user\"}}<{{name}}> {{times}}";

fn greeter() -> ContractFolder {
    ContractFolder::flow(&[
        ("main", GREET),
        ("other", "I am the other"),
        ("asks.system", "{{role \"system\"}}be brief{{role \"user\"}}/prompt"),
    ])
}

#[test]
fn the_files_decide_the_mode() {
    let empty = ContractFolder::new();
    assert!(matches!(empty.mode(&[("CORAIL_PORT", "8001")]), Mode::Agent(config) if config.address.port() == 8001));
    let Mode::Flows(one) = greeter().mode(&[("RECIF_FLOW_NAME", "greeter")]) else { panic!("an agent") };
    assert_eq!((one.is_set, one.address.port(), one.name.as_deref()), (false, 8080, Some("greeter")));
    let both = greeter().with("manifest.json", "{}");
    let Mode::Flows(set) = both.mode(&[("PORT", "9000")]) else { panic!("an agent") };
    assert_eq!((set.is_set, set.address.port()), (true, 9000));
    let error = Mode::read(&*both.lookup(&[("PORT", "0")])).unwrap_err();
    assert_eq!(error.to_string(), r#"PORT="0" is refused: set it to a number from 1 to 65535"#);
}

#[tokio::test]
async fn every_route_has_its_status_and_every_error_its_text() {
    let contract = greeter();
    let runner = contract.serve(&[("RECIF_FLOW_NAME", "greeter")]).await;
    let big = json!({ "name": "x".repeat(2 << 20) }).to_string();
    let known = "unknown route; POST to one of: /, /asks.system, /greeter, /main, /other";
    for (method, path, body, status, text) in [
        ("POST", "/", r#"{"name": "Ada & Bob"}"#, 200, "echo: <Ada & Bob> 1"),
        ("POST", "/greeter", r#"{"name": "Ada", "times": 2}"#, 200, "echo: <Ada> 2"),
        ("POST", "/main", r#"{"name": "Ada"}"#, 200, "echo: <Ada> 1"),
        ("POST", "/other?x=1", "", 200, "echo: I am the other"),
        ("POST", "/asks.system", "{}", 200, "be brief"),
        ("POST", "/", "", 400, "`name` is required and missing"),
        ("POST", "/", "{}", 400, "`name` is required and missing"),
        ("POST", "/", "{", 400, "the body must be a JSON object with the prompt's variables: EOF while parsing"),
        (
            "POST",
            "/",
            "[1]",
            400,
            "the body must be a JSON object with the prompt's variables: it is JSON, but no object",
        ),
        ("POST", "/", "\u{1}", 400, "the body must be a JSON object with the prompt's variables: expected value"),
        ("POST", "/", r#"{"name": 3}"#, 400, "`name` must be of type string, not a number"),
        ("POST", "/", r#"{"name": "a", "times": 1.5}"#, 400, "`times` must be of type null or integer, not a number"),
        ("POST", "/", r#"{"name": "a", "mood": "odd"}"#, 400, "`mood` must be one of"),
        ("POST", "/", r#"{"name": "a", "address": {}}"#, 400, "`address.city` is required and missing"),
        ("POST", "/", r#"{"name": "a", "nme": "b"}"#, 400, "`nme` is not a variable of this prompt"),
        ("POST", "/", &big, 413, "the body is larger than 1 MiB"),
        ("GET", "/", "", 405, "GET is not allowed here; use POST"),
        ("PUT", "/main", "{}", 405, "PUT is not allowed here; use POST"),
        ("POST", "/nobody", "{}", 404, known),
        ("POST", "/main/other", "{}", 404, known),
        ("POST", "//main", "{}", 404, known),
        ("POST", "/chat", "{}", 404, known),
        ("POST", "/..%2fmain", "{}", 404, known),
        ("GET", "/healthz", "", 200, "ok"),
        ("GET", "/readyz", "", 200, "ok"),
        ("POST", "/metrics", "", 405, "POST is not allowed here"),
    ] {
        let request = runner.client.request(method.parse::<Method>().unwrap(), runner.url(path)).body(body.to_owned());
        let response = request.send().await.unwrap();
        let found = response.status().as_u16();
        let allow = response.headers().contains_key("allow");
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        let answer = response.text().await.unwrap();
        assert_eq!((found, allow), (status, status == 405), "{method} {path} {body:.60}: {answer}");
        if status == 200 && method == "POST" {
            assert_eq!((kind.as_str(), answer.as_str()), ("text/plain; charset=utf-8", text), "{path}");
        } else if status >= 400 {
            let error: Value = serde_json::from_str(&answer).unwrap();
            assert!(error["error"].as_str().unwrap().starts_with(text), "{method} {path} {body:.60}: {answer}");
        }
    }
    let (_, metrics) = runner.get("/metrics").await;
    for line in [
        r#"recif_runner_flow_requests_total{flow="greeter",code="200"} 5"#,
        r#"recif_runner_flow_requests_total{flow="greeter",code="400"} 10"#,
        r#"recif_runner_flow_requests_total{flow="greeter",code="405"} 2"#,
        r#"recif_runner_flow_requests_total{flow="greeter",code="413"} 1"#,
        r#"recif_runner_requests_total{code="404"} 5"#,
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
    assert!(!metrics.contains("nobody"), "{metrics}");
}

#[tokio::test]
async fn a_stream_is_tokens_and_then_done() {
    let contract = greeter();
    let runner = contract.serve(&[]).await;
    let request = runner.client.post(runner.url("/main")).header("accept", "text/event-stream");
    let response = request.body(r#"{"name": "Ada"}"#).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = response.text().await.unwrap();
    let expected = "data: {\"token\":\"echo: \"}\n\ndata: {\"token\":\"<Ada> \"}\n\ndata: {\"token\":\"1\"}\n\ndata: {\"models\":[\"stub/stub-echo\"],\"usage\":{";
    assert!(text.starts_with(expected) && text.ends_with("}}\nevent: done\n\n"), "{text}");
    let request = runner.client.post(runner.url("/main")).header("accept", "text/event-stream");
    assert_eq!(request.body("{}").send().await.unwrap().status(), 400);
}

#[tokio::test]
async fn a_prompt_may_include_another() {
    let contract = ContractFolder::flow(&[
        ("main", "{{> signature name=\"Ada\"}}"),
        ("signature", "---\ninput:\n  schema:\n    name: string\n---\nYours, {{name}}"),
    ]);
    let runner = contract.serve(&[]).await;
    assert_eq!(runner.post("/", "").await, (200, "echo: Yours, Ada".into()));
    assert_eq!(runner.post("/signature", r#"{"name": "Bob"}"#).await, (200, "echo: Yours, Bob".into()));
}

#[tokio::test]
async fn the_only_prompt_is_the_entry_unless_something_else_is_said() {
    let without = CONFIG.replace(",\n  \"entrypoint\": \"main\"", "");
    let contract = ContractFolder::new().with("config.json", &without).with("prompts/lonely.prompt", "hi");
    assert_eq!(contract.serve(&[]).await.post("/", "").await, (200, "echo: hi".into()));
    let contract = contract.with("prompts/second.prompt", "ho");
    let (status, why) = contract.serve(&[]).await.refused("/", "").await;
    assert_eq!(
        (status, why.as_str()),
        (503, "config.json: `entrypoint` is missing; name one of its prompts: lonely, second")
    );
}

#[tokio::test]
async fn an_answer_that_must_be_json_is_checked() {
    let contract = ContractFolder::flow(&[
        ("main", "---\noutput:\n  schema:\n    n(array): integer\nmaxTurns: 1\n---\n/tool say {\"say\": \"{{say}}\"}"),
        ("free", "---\noutput:\n  format: json\n---\n/tool say {\"say\": \"{{say}}\"}"),
    ])
    .with(
        "tools/say.json",
        &json!({
            "name": "say", "description": "says it", "inputSchema": {"type": "object", "properties": {"say": {"type": "string"}}},
            "implementation": {"cli": {"binary": "echo"}},
        })
        .to_string(),
    );
    let runner = contract.serve(&[]).await;
    let say = |text: &str| json!({ "say": text.replace('"', "\\\"") }).to_string();
    for (path, expected, status, answer) in [
        ("/", r#"{"n": [1]}"#, 200, r#"{"n": [1]}"#),
        ("/free", r#"[1]"#, 200, "[1]"),
        (
            "/",
            r#"{"n": [1, "x"]}"#,
            502,
            r#"{"error":"the model's answer does not fit the prompt's output: /n/1: \"x\" is not of type \"integer\""}"#,
        ),
        (
            "/",
            "{}",
            502,
            r#"{"error":"the model's answer does not fit the prompt's output: \"n\" is a required property"}"#,
        ),
    ] {
        let (found, text) = runner.post(path, say(expected)).await;
        assert_eq!((found, text.as_str()), (status, answer), "{expected}");
    }
    let response = runner.client.post(runner.url("/free")).body(say("{}")).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/json");
    let stream = runner.client.post(runner.url("/free")).header("accept", "text/event-stream").body(say("{}"));
    let stream = stream.send().await.unwrap().text().await.unwrap();
    // One request before the tool was called, and one after it.
    let models = r#"{"models":["stub/stub-echo","stub/stub-echo"],"usage":{"#;
    assert!(stream.starts_with(&format!("data: {{\"token\":\"{{}}\"}}\n\ndata: {models}")), "{stream}");
    assert!(stream.contains("\"calls\":2") && stream.ends_with("}}\nevent: done\n\n"), "{stream}");
}
