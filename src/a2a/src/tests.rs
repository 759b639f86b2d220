//! Cards, requests and answers of both versions.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn choose(card: &Value, base: &str) -> Result<A2aInterface, String> {
    A2aInterface::choose(card.to_string().as_bytes(), base).map_err(|error| error.to_string())
}

fn interface(version: Version, path: &str, streams: bool) -> A2aInterface {
    A2aInterface { version, path: path.to_owned(), streams, asks_people: false }
}

/// Returns an interface as a card of 1.0 lists it.
fn listed(binding: &str, version: &str, url: &str) -> Value {
    json!({ "url": url, "protocolBinding": binding, "protocolVersion": version })
}

#[test]
fn the_newest_interface_in_json_rpc_is_chosen_and_of_its_url_only_the_path() {
    let new = |interfaces: &[Value]| json!({ "name": "a", "supportedInterfaces": interfaces });
    let old = json!({ "name": "a", "url": "http://localhost:8000/a2a", "protocolVersion": "0.3.0" });
    let mut other_main = old.clone();
    other_main["preferredTransport"] = json!("GRPC");
    other_main["additionalInterfaces"] = json!([{ "transport": "JSONRPC", "url": "https://elsewhere.example/rpc" }]);
    let mut both = old.clone();
    both["supportedInterfaces"] = json!([listed("JSONRPC", "1.0", "http://localhost:8000/v1")]);
    for (card, version, path) in [
        (new(&[listed("JSONRPC", "1.0", "http://localhost:8000")]), Version::V1, "/"),
        (new(&[listed("jsonrpc", "1.0.2", "http://a/x?key=secret#y")]), Version::V1, "/x"),
        (
            new(&[
                listed("GRPC", "1.0", "http://a/grpc"),
                listed("JSONRPC", "0.3", "http://a/old"),
                listed("JSONRPC", "1.0", "http://a/new"),
            ]),
            Version::V1,
            "/new",
        ),
        (new(&[listed("JSONRPC", "0.3", "http://a/../../b/%2e%2e/c")]), Version::V03, "/c"),
        (new(&[listed("JSONRPC", "1.0", "/rpc")]), Version::V1, "/rpc"),
        (new(&[listed("JSONRPC", "1.0", "//evil.example/rpc")]), Version::V1, "/rpc"),
        (old, Version::V03, "/a2a"),
        (json!({ "url": "http://a/" }), Version::V03, "/"),
        (new(&[listed("", "", "http://a/b")]), Version::V1, "/b"),
        (other_main, Version::V03, "/rpc"),
        (both, Version::V1, "/v1"),
    ] {
        assert_eq!(choose(&card, ""), Ok(interface(version, path, false)), "{card}");
    }
}

#[test]
fn a_path_is_below_the_address_that_is_known() {
    let card = |url: &str| json!({ "url": url, "capabilities": { "streaming": true } });
    for (url, base, path) in [
        ("http://localhost:8000/", "/v1/agents/ns/x", "/v1/agents/ns/x/"),
        ("http://localhost:8000/rpc", "/v1/agents/ns/x/", "/v1/agents/ns/x/rpc"),
        ("https://gw.example/v1/agents/ns/x/", "/v1/agents/ns/x", "/v1/agents/ns/x/"),
        ("https://gw.example/v1/agents/ns/x/rpc", "/v1/agents/ns/x", "/v1/agents/ns/x/rpc"),
        ("http://localhost:8000/v1/rpc", "/rpc", "/rpc/v1/rpc"),
        ("https://gw.example/v1/agents/ns/x2/rpc", "/v1/agents/ns/x", "/v1/agents/ns/x/v1/agents/ns/x2/rpc"),
        ("http://a/rpc", "/", "/rpc"),
    ] {
        assert_eq!(choose(&card(url), base), Ok(interface(Version::V03, path, true)), "{url} below {base}");
    }
}

#[test]
fn what_is_no_card_or_offers_nothing_says_so() {
    let none = "has no agent card: is it an A2A agent?";
    for body in ["", "<html>", "[]", "7", "null", r#"{"detail":"Not Found"}"#, r#"{"supportedInterfaces":{}}"#] {
        let error = A2aInterface::choose(body.as_bytes(), "").unwrap_err();
        assert_eq!((&error, error.to_string().as_str()), (&CardError::NoCard, none), "{body}");
    }
    let offers = |interfaces: Value| choose(&json!({ "supportedInterfaces": interfaces }), "").unwrap_err();
    let text = "has an agent card without an interface JSONRPC of version 1.0 or 0.3, it offers ";
    let others = json!([listed("GRPC", "1.0", "http://a"), listed("JSONRPC", "2.0", "http://a")]);
    assert_eq!(offers(others), format!("{text}GRPC 1.0, JSONRPC 2.0"));
    assert_eq!(offers(json!([listed("JSONRPC", "1.0", "ftp://a/b")])), format!("{text}JSONRPC 1.0"));
    let many = vec![listed(&"é".repeat(300), "1.0", "http://a"); 9];
    assert_eq!(offers(json!(many)), format!("{text}{}", "é".repeat(200)));
}

#[test]
fn a_request_has_the_names_of_its_version() {
    let first = OutgoingMessage { id: "m", text: "hi", context: None, task: None };
    let next = OutgoingMessage { context: Some("c"), task: Some("t"), ..first };
    let request =
        |method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let new = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] });
    assert_eq!(send_message(Version::V1, &first), request("SendMessage", json!({ "message": new })));
    let mut continued = new;
    continued["contextId"] = json!("c");
    continued["taskId"] = json!("t");
    let streamed = request("SendStreamingMessage", json!({ "message": continued }));
    assert_eq!(stream_message(Version::V1, &next), streamed);

    let parts = json!([{ "kind": "text", "text": "hi" }]);
    let mut old = json!({ "kind": "message", "messageId": "m", "role": "user", "parts": parts });
    assert_eq!(stream_message(Version::V03, &first), request("message/stream", json!({ "message": old })));
    old["contextId"] = json!("c");
    old["taskId"] = json!("t");
    let params = json!({ "message": old, "configuration": { "blocking": true } });
    assert_eq!(send_message(Version::V03, &next), request("message/send", params));

    let of_task = json!({ "id": "t", "historyLength": 0 });
    assert_eq!(get_task(Version::V1, "t"), request("GetTask", of_task.clone()));
    assert_eq!(get_task(Version::V03, "t"), request("tasks/get", of_task));
    assert_eq!(cancel_task(Version::V1, "t"), request("CancelTask", json!({ "id": "t" })));
    assert_eq!(cancel_task(Version::V03, "t"), request("tasks/cancel", json!({ "id": "t" })));
    assert_eq!([Version::V1, Version::V03].map(Version::header), [Some("1.0"), None]);
    let extensions = [Version::V1, Version::V03].map(Version::extensions_header);
    assert_eq!(extensions, ["a2a-extensions", "x-a2a-extensions"]);
}

fn response(result: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "result": result }).to_string()
}

/// Reads one response.
fn read(result: &Value) -> A2aTurn {
    let mut turn = A2aTurn::default();
    turn.read(&response(result)).unwrap();
    turn
}

/// Reads the events of a stream, and returns the pieces of its text.
fn stream(events: &[Value]) -> (A2aTurn, Vec<String>) {
    let mut turn = A2aTurn::default();
    let pieces = events.iter().map(|event| turn.read(&response(event)).unwrap()).collect();
    (turn, pieces)
}

fn says(text: &str) -> Value {
    json!({ "messageId": "s", "role": "ROLE_AGENT", "parts": [{ "text": text }] })
}

#[test]
fn a_message_is_an_answer_by_itself() {
    let mut new = json!({ "message": says("hi") });
    new["message"]["contextId"] = json!("c");
    let parts = json!([{ "kind": "text", "text": "hi" }]);
    let old = json!({ "kind": "message", "messageId": "r", "role": "agent", "contextId": "c", "parts": parts });
    for result in [new, old] {
        let turn = read(&result);
        assert_eq!((turn.text().as_str(), turn.context(), turn.task()), ("hi", Some("c"), None), "{result}");
        assert_eq!((turn.state(), turn.is_working(), turn.failure()), (Some(TaskState::Completed), false, None));
    }
}

#[test]
fn a_task_tells_its_text_by_its_artifacts_else_by_its_status() {
    let task = |state: &str, artifacts: Value, said: &str| {
        let status = json!({ "state": state, "message": says(said) });
        json!({ "id": "t", "contextId": "c", "status": status, "artifacts": artifacts })
    };
    let two = json!([
        { "artifactId": "a", "parts": [{ "text": "one " }, { "text": "two" }] },
        { "artifactId": "b", "parts": [{ "data": { "n": 1 } }, { "url": "http://a/file" }] },
    ]);
    let none = json!([]);
    for (state, artifacts, said, text, failure) in [
        ("TASK_STATE_COMPLETED", &two, "done", "one two\n{\"n\":1}", None),
        ("completed", &none, "done", "done", None),
        ("TASK_STATE_COMPLETED", &none, "", "", None),
        ("input-required", &two, "Which city?", "one two\n{\"n\":1}\nWhich city?", None),
        ("TASK_STATE_INPUT_REQUIRED", &none, "Which city?", "Which city?", None),
        ("TASK_STATE_FAILED", &two, "no seat", "one two\n{\"n\":1}", Some("the agent failed: no seat")),
        ("failed", &none, "", "", Some("the agent failed")),
        ("rejected", &none, "not mine", "not mine", Some("the agent rejected the task: not mine")),
        ("TASK_STATE_AUTH_REQUIRED", &none, "", "", Some("the agent requires credentials")),
        ("canceled", &none, "", "", Some("the agent cancelled the task")),
    ] {
        let task = task(state, artifacts.clone(), said);
        let mut of_kind = task.clone();
        of_kind["kind"] = json!("task");
        for result in [json!({ "task": task }), of_kind, task] {
            let turn = read(&result);
            assert_eq!((turn.text().as_str(), turn.failure().as_deref()), (text, failure), "{result}");
            assert_eq!((turn.task(), turn.context(), turn.is_working()), (Some("t"), Some("c"), false), "{result}");
        }
    }
    for state in ["submitted", "TASK_STATE_WORKING", "unknown", "TASK_STATE_OF_A_LATER_VERSION", ""] {
        assert!(read(&json!({ "task": task(state, none.clone(), "") })).is_working(), "{state}");
    }
}

#[test]
fn the_pieces_of_a_stream_are_the_text() {
    let status = |state: &str, said: &str| {
        let mut status = json!({ "state": state });
        if !said.is_empty() {
            status["message"] = says(said);
        }
        json!({ "statusUpdate": { "taskId": "t", "contextId": "c", "status": status } })
    };
    let artifact = |id: &str, text: &str, append: bool| {
        let artifact = json!({ "artifactId": id, "parts": [{ "text": text }] });
        json!({ "artifactUpdate": { "taskId": "t", "contextId": "c", "artifact": artifact, "append": append } })
    };
    let begun = json!({ "task": { "id": "t", "contextId": "c", "status": { "state": "TASK_STATE_SUBMITTED" } } });
    let done = status("TASK_STATE_COMPLETED", "");
    for (events, pieces, text) in [
        (
            vec![begun, artifact("a", "one", false), artifact("a", " two", true), done],
            vec!["", "one", " two", ""],
            "one two",
        ),
        // The whole at the end, as some frameworks send it.
        (
            vec![artifact("a", "one", false), artifact("a", "one two", false), artifact("a", "one two", false)],
            vec!["one", " two", ""],
            "one two",
        ),
        (vec![artifact("a", "one", false), artifact("b", "two", false)], vec!["one", "\ntwo"], "one\ntwo"),
        (vec![artifact("a", "one", false), artifact("a", "two", false)], vec!["one", "\ntwo"], "two"),
        // What a working task says is not its answer.
        (vec![status("TASK_STATE_WORKING", "thinking"), status("TASK_STATE_COMPLETED", "42")], vec!["", "42"], "42"),
        (
            vec![artifact("a", "one", false), status("TASK_STATE_INPUT_REQUIRED", "two?")],
            vec!["one", "\ntwo?"],
            "one\ntwo?",
        ),
        (vec![json!({ "message": says("hi") })], vec!["hi"], "hi"),
    ] {
        let (turn, found) = stream(&events);
        assert_eq!((found.join("|"), turn.text().as_str()), (pieces.join("|"), text), "{events:?}");
    }
}

#[test]
fn a_stream_that_is_cut_goes_on_with_the_task() {
    let part = json!({ "kind": "text", "text": "one" });
    let (mut turn, pieces) = stream(&[
        json!({ "kind": "task", "id": "t", "contextId": "c", "status": { "state": "submitted" } }),
        json!({ "kind": "artifact-update", "taskId": "t", "contextId": "c", "append": true,
            "artifact": { "artifactId": "a", "parts": [part] } }),
        json!({ "kind": "status-update", "taskId": "t", "contextId": "c", "final": false,
            "status": { "state": "working" } }),
    ]);
    assert_eq!((pieces.concat().as_str(), turn.is_working(), turn.task()), ("one", true, Some("t")));
    let parts = json!([{ "kind": "text", "text": "one" }, { "kind": "text", "text": " two" }]);
    let whole = json!({ "kind": "task", "id": "t", "contextId": "c", "status": { "state": "completed" },
        "artifacts": [{ "artifactId": "a", "parts": parts }] });
    assert_eq!(turn.read(&response(&whole)).as_deref(), Ok(" two"));
    assert_eq!((turn.text().as_str(), turn.is_working()), ("one two", false));
}

#[test]
fn what_is_no_answer_says_so_and_leaves_what_is_known() {
    let mut turn = A2aTurn::default();
    let malformed = |what: &str| -> Result<String, String> { Err(format!("the answer is not one of A2A: {what}")) };
    for (body, error) in [
        ("", malformed("it is not JSON")),
        (r#"{"jsonrpc":"2.0","id":1,"resu"#, malformed("it is not JSON")),
        ("[]", malformed("it has neither a result nor an error")),
        ("{}", malformed("it has neither a result nor an error")),
        (r#"{"result":"done"}"#, malformed("it has neither a result nor an error")),
        (r#"{"result":{}}"#, malformed("its result is neither a task nor a message")),
        (r#"{"result":{"kind":"poem"}}"#, malformed("its result is neither a task nor a message")),
        (r#"{"error":{"code":-32601,"message":"no such method"}}"#, Err("no such method (error -32601)".to_owned())),
        (r#"{"error":"no"}"#, Err("the agent refuses the request (error 0)".to_owned())),
    ] {
        assert_eq!(turn.read(body).map_err(|error| error.to_string()), error, "{body}");
        assert_eq!(turn, A2aTurn::default(), "{body}");
    }
    assert!(turn.is_working());
    // Parts and ids of other types count as absent.
    let status = json!({ "state": 1, "message": "x" });
    let odd = json!({ "id": "t", "contextId": 7, "status": status, "artifacts": [1, { "parts": "y" }] });
    let turn = read(&odd);
    assert_eq!((turn.text().as_str(), turn.context(), turn.is_working()), ("", None, true));
}

/// Returns any JSON of a few levels whose words are those of the protocol.
fn any_json() -> impl Strategy<Value = Value> {
    let words =
        "(kind|task|message|status|state|artifact|artifacts|parts|text|data|result|error|id|completed|url|name)";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        words.prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((words, inner), 0..6).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_card_and_no_answer_panics(json in any_json(), base in "/?[a-z]{0,3}/?[a-z]{0,3}") {
        let _ = A2aInterface::choose(json.to_string().as_bytes(), &base);
        let mut turn = A2aTurn::default();
        let _ = turn.read(&json.to_string());
        let _ = turn.read(&response(&json));
    }
}

#[test]
fn a_task_that_waits_for_a_person_names_the_task_that_is_decided_on() {
    let status = |state: &str| {
        let said = json!({ "parts": [{ "text": "pay?" }], "metadata": { WAITING: { "task": "t.1" } } });
        let status = json!({ "state": state, "message": said });
        json!({ "result": { "task": { "id": "t", "contextId": "c", "status": status } } }).to_string()
    };
    let mut turn = A2aTurn::default();
    assert_eq!(turn.read(&status("TASK_STATE_INPUT_REQUIRED")).as_deref(), Ok("pay?"), "no text has the task");
    assert_eq!(turn.decision_task(), Some("t.1"));
    turn.read(&status("TASK_STATE_WORKING")).unwrap();
    assert_eq!(turn.decision_task(), None);
}

#[test]
fn a_card_tells_whether_its_agent_asks_people() {
    let card = |extensions: Value| json!({ "url": "http://a/", "capabilities": { "extensions": extensions } });
    for (extensions, expected) in [
        (json!([{ "uri": "https://a.example/x" }, { "uri": HITL_EXTENSION, "required": false }]), true),
        (json!([{ "uri": "https://kagent.dev/extensions/hitl/v2" }]), false),
        (json!([HITL_EXTENSION]), false),
        (json!(HITL_EXTENSION), false),
        (json!([]), false),
    ] {
        assert_eq!(choose(&card(extensions.clone()), "").unwrap().asks_people, expected, "{extensions}");
    }
}

#[test]
fn the_calls_that_a_person_is_asked_to_approve_are_those_of_the_agent_that_makes_them() {
    let asked = |state: &str, request: Value| {
        let said = json!({ "parts": [{ "text": "pay?" }], "metadata": { HITL_EXTENSION: request } });
        let status = json!({ "state": state, "message": said });
        let turn = read(&json!({ "id": "t", "contextId": "c", "status": status }));
        let calls = turn.requested_calls().iter();
        calls.map(|call| format!("{} {}", call.name, call.args)).collect::<Vec<_>>()
    };
    let tool = |name: &str| json!({ "id": "1", "call_id": "1", "name": name, "args": { "euros": 5 } });
    let own = json!({ "type": APPROVAL_REQUEST, "hint": "pay?", "tools": [tool("pay"), { "id": "2" }] });
    let mut nested = own.clone();
    nested["nested"] = json!({ "subagent_name": "bank", "tools": [tool("transfer")] });
    let question = json!({ "type": "ask_user_request", "id": "1", "questions": [], "tools": [tool("pay")] });
    for (state, request, expected) in [
        ("input-required", own.clone(), vec![r#"pay {"euros":5}"#]),
        ("TASK_STATE_INPUT_REQUIRED", nested, vec![r#"transfer {"euros":5}"#]),
        ("input-required", question, vec![]),
        ("input-required", json!("pay"), vec![]),
        ("working", own, vec![]),
    ] {
        assert_eq!(asked(state, request.clone()), expected, "{state} {request}");
    }
}
