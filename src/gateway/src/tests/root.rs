//! Tests of the paths at the root: agents by the name of a model, the list of models, and the MCP server.

mod limits;

use serde_json::{Value, json};

use super::*;
use crate::auth::tests::gate;

const ALICE: &str = "Authorization: Bearer good-alice\r\n";
const CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
const SSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 70\r\n\
    Connection: close\r\n\r\n\
    data: {\"token\":\"echo: \"}\n\ndata: {\"token\":\"hi\"}\n\nevent: done\ndata: {}\n\n";

impl TestGateway {
    /// Adds an agent without Pods.
    fn agent(&self, namespace: &str, name: &str, object: Object) {
        self.shared.routes.object(RoutedKind::Agent, &Key::new(namespace, name), Some(Arc::new(object)));
    }

    /// Returns status and body of the answer to a request on a connection of its own.
    async fn ask(&self, method: &str, path: &str, fields: &str, body: &str) -> (u16, Value) {
        let mut client = self.send(request(method, path, fields, body).as_bytes()).await;
        let (head, body) = whole(&mut client).await;
        (head[9..12].parse().unwrap(), serde_json::from_str(&body).unwrap_or_default())
    }

    async fn rpc(&self, fields: &str, method: &str, params: Value) -> (u16, Value) {
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        self.ask("POST", "/mcp", fields, &message.to_string()).await
    }
}

fn request(method: &str, path: &str, fields: &str, body: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len())
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["id"].as_str().or(one["name"].as_str()).unwrap()).collect()
}

#[tokio::test]
async fn the_agent_that_the_body_names_gets_it_as_it_is() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let filler = "x".repeat(200_000);
    let before = format!(r#"{{"messages": [{{"model": "other/b", "content": "{filler}"}}], "model": "ns\/a"}}"#);
    for (path, body) in [
        ("/v1/chat/completions", r#"{"model": "ns/a", "messages": []}"#),
        ("/v1/responses?x=1", r#"{"input": "hi", "model": "ns/a"}"#),
        ("/v1/responses", &before),
    ] {
        let mut client = gateway.send(request("POST", path, "Connection: close\r\n", body).as_bytes()).await;
        let (mut io, head) = pod.next().await;
        assert!(head.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{head}");
        assert_eq!(field(&head, "X-Forwarded-Prefix"), Some("/v1/agents/ns/a"));
        assert_eq!(read_exactly(&mut io, body.len()).await, body);
        io.write_all(CLOSE).await.unwrap();
        assert_eq!(whole(&mut client).await.1, "ok");
    }
    let metrics = gateway.shared.metrics.encode().unwrap();
    let line = "recif_gateway_requests_total{kind=\"Agent\",namespace=\"ns\",name=\"a\",code=\"200\"} 3";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn a_body_in_chunks_is_looked_at_as_it_arrives_and_a_client_that_waits_is_told_to_send() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let head = "POST /v1/responses HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n";
    let mut client = gateway.send(head.as_bytes()).await;
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 100 Continue\r\n"));
    for piece in ["7\r\n{\"model\r\n", "3\r\n\":\"\r\n", "5\r\nns/a\"\r\n"] {
        assert!(!pod.has_connections());
        client.write_all(piece.as_bytes()).await.unwrap();
    }
    let (mut io, head) = pod.next().await;
    assert_eq!(field(&head, "Transfer-Encoding"), Some("chunked"));
    client.write_all(b"1\r\n}\r\n0\r\n\r\n").await.unwrap();
    let body = "7\r\n{\"model\r\n3\r\n\":\"\r\n5\r\nns/a\"\r\n1\r\n}\r\n0\r\n\r\n";
    assert_eq!(read_exactly(&mut io, body.len()).await, body);
    io.write_all(CLOSE).await.unwrap();
    assert_eq!(whole(&mut client).await.1, "ok");
}

#[tokio::test]
async fn what_names_no_agent_is_refused_in_the_form_of_openai() {
    let gateway = TestGateway::start(&[], &[]).await;
    let long = format!(r#"{{"x": "{}", "model": "ns/a"}}"#, "y".repeat(1 << 20));
    for (body, status, code, text) in [
        (r#"{"model": "ns/b"}"#, 404, "model_not_found", "unknown model `ns/b`: there is no such agent"),
        (r#"{"model": "gpt-5"}"#, 404, "model_not_found", "name an agent as `namespace/name`"),
        (r#"{"model": "ns/a/x"}"#, 404, "model_not_found", "unknown model `ns/a/x`"),
        (r#"{"model": 1}"#, 400, "bad-request", "`model` must name an agent"),
        (r#"{"messages": []}"#, 400, "bad-request", "`model` must name an agent"),
        ("[]", 400, "bad-request", "must be a JSON object"),
        ("", 400, "bad-request", "must be a JSON object"),
        (&long, 413, "bad-request", "in the first 1 MiB of the body"),
    ] {
        let (found, answer) = gateway.ask("POST", "/v1/chat/completions", "", body).await;
        assert_eq!((found, &answer["error"]["code"]), (status, &json!(code)), "{answer}");
        assert_eq!(answer["error"]["type"], "invalid_request_error");
        assert!(answer["error"]["message"].as_str().unwrap().contains(text), "{answer}");
    }
    for (method, path) in [("GET", "/v1/responses"), ("POST", "/v1/models"), ("GET", "/mcp"), ("DELETE", "/mcp")] {
        let (status, answer) = gateway.ask(method, path, "", "").await;
        assert_eq!((status, answer["error"]["message"].is_string()), (405, true), "{method} {path}: {answer}");
    }
    for method in ["GET", "DELETE"] {
        let (status, answer) = gateway.ask(method, "/v1/responses/resp_1", "", "").await;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 404 && message.contains("previous_response_id"), "{method}: {status} {answer}");
    }
    let (status, answer) = gateway.ask("GET", "/v1/nothing", "", "").await;
    assert_eq!((status, &answer["reason"]), (404, &json!("unknown")));
}

#[tokio::test]
async fn rights_are_those_of_the_agents_own_path() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::with_auth(gate().1, &[], &[pod.address]).await;
    gateway.agent("ns", "b", object());
    let ask = async |fields: &str, agent: &str| {
        gateway.ask("POST", "/v1/responses", fields, &json!({"model": agent}).to_string()).await
    };
    assert_eq!(ask("", "ns/a").await.0, 401);
    assert_eq!(ask("Authorization: Bearer bad\r\n", "ns/a").await.0, 401);
    assert_eq!(ask("Authorization: Bearer good-bob\r\n", "ns/a").await.0, 403);
    let (status, denied) = ask(ALICE, "ns/b").await;
    assert_eq!((status, &denied["error"]["code"]), (403, &json!("forbidden")), "{denied}");
    assert_eq!(ask(ALICE, "ns/nothing").await.0, 403, "who has no right does not learn what there is");
    let body = r#"{"model": "ns/a"}"#;
    let _client = gateway.send(request("POST", "/v1/responses", ALICE, body).as_bytes()).await;
    let (_io, head) = pod.next().await;
    assert_eq!((field(&head, "X-Recif-User"), field(&head, "Authorization")), (Some("alice"), None));
}

#[tokio::test]
async fn a_caller_sees_the_agents_that_it_may_call() {
    let gateway = TestGateway::with_auth(gate().1, &[], &[]).await;
    let open = Object { anonymous_paths: Box::new(["/*".into()]), ..object() };
    gateway.agent("ns", "b", object());
    let other = crate::Listing { speaks_otherwise: true, ..Default::default() };
    gateway.agent("other", "a2a", Object { listing: other, ..open.clone() });
    gateway.agent("other", "open", open);
    for (fields, expected) in [
        (ALICE, vec!["ns/a", "other/open"]),
        ("Authorization: Bearer good-bob\r\n", vec!["other/open"]),
        ("Authorization: Bearer bad\r\n", vec!["other/open"]),
        ("", vec!["other/open"]),
    ] {
        let (status, list) = gateway.ask("GET", "/v1/models", fields, "").await;
        assert_eq!((status, names(&list["data"])), (200, expected), "{fields}");
        assert_eq!((&list["object"], &list["data"][0]["object"]), (&json!("list"), &json!("model")));
    }
    gateway.shared.routes.object(RoutedKind::Agent, &Key::new("other", "open"), None);
    assert_eq!(gateway.ask("GET", "/v1/models", "Authorization: Bearer bad\r\n", "").await.0, 401);
    assert_eq!(gateway.ask("GET", "/v1/models", "", "").await.0, 401);
    assert_eq!(gateway.ask("GET", "/v1/models", "Authorization: Bearer good-bob\r\n", "").await.1["data"], json!([]));

    for (path, fields, status) in [
        ("/v1/models/ns%2Fa", ALICE, 200),
        ("/v1/models/ns%2Fb", ALICE, 404),
        ("/v1/models/ns%2Fnothing", ALICE, 404),
        ("/v1/models/other%2Fa2a", ALICE, 404),
        ("/v1/models/gpt", ALICE, 404),
        ("/v1/models/ns%2Fa", "", 401),
    ] {
        let (found, answer) = gateway.ask("GET", path, fields, "").await;
        assert_eq!((found, answer["id"] == "ns/a"), (status, status == 200), "{path}: {answer}");
    }

    let all = TestGateway::start(&[], &[]).await;
    all.agent("ns", "b", object());
    assert_eq!(names(&all.ask("GET", "/v1/models", "", "").await.1["data"]), ["ns/a", "ns/b"]);
}

#[tokio::test]
async fn the_tools_of_the_mcp_server_are_the_callers_agents() {
    let gateway = TestGateway::with_auth(gate().1, &[], &[]).await;
    gateway.agent("ns", "b", object());
    let (status, answer) = gateway.rpc("", "initialize", json!({"protocolVersion": "2025-06-18"})).await;
    assert_eq!((status, &answer["id"], &answer["result"]["protocolVersion"]), (200, &json!(7), &json!("2025-06-18")));
    let (status, answer) = gateway.rpc("", "tools/list", json!({})).await;
    assert_eq!((status, &answer["error"]["code"]), (401, &json!(-32000)), "{answer}");
    let (_, answer) = gateway.rpc(ALICE, "tools/list", json!({})).await;
    let [tool] = answer["result"]["tools"].as_array().unwrap().as_slice() else { panic!("{answer}") };
    assert_eq!((&tool["name"], &tool["inputSchema"]["required"]), (&json!("ns_a"), &json!(["message"])));
    assert!(tool["description"].as_str().unwrap().contains("the agent a of namespace ns"), "{tool}");
    for (name, fields) in [("ns_b", ALICE), ("ns_nothing", ALICE), ("ns", ALICE), ("../x_y", ALICE)] {
        let (_, answer) = gateway.rpc(fields, "tools/call", json!({"name": name, "arguments": {"message": "x"}})).await;
        assert_eq!(answer["error"]["code"], -32602, "{name}: {answer}");
    }
    let call = json!({"name": "ns_a", "arguments": {"message": "x"}});
    assert_eq!(gateway.rpc("", "tools/call", call).await.0, 401);
    for (method, params, code) in [
        ("resources/list", json!({}), -32601),
        ("tools/list", json!({"cursor": "x"}), -32602),
        ("tools/call", json!({"name": "ns_a"}), -32602),
    ] {
        assert_eq!(gateway.rpc(ALICE, method, params).await.1["error"]["code"], code, "{method}");
    }
    for (body, status) in [("{", 400), ("[]", 400), (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, 202)]
    {
        assert_eq!(gateway.ask("POST", "/mcp", "", body).await.0, status, "{body}");
    }
}

#[tokio::test]
async fn a_call_of_a_tool_is_a_message_to_its_agent() {
    let mut pod = TestPod::start().await;
    let gateway = TestGateway::with_auth(gate().1, &[], &[pod.address]).await;
    let message = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call",
        "params": {"name": "ns_a", "arguments": {"message": "hi"}}});
    let traced = format!("{ALICE}traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n");
    let request = request("POST", "/mcp", &traced, &message.to_string());
    let mut client = gateway.send(request.as_bytes()).await;
    // The connection is kept: nothing of the first message is left on it.
    for (answer, text, is_error) in [
        (SSE, "echo: hi", false),
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\nConnection: close\r\n\r\n{\"reply\":\"so\"}"[..], "so", false),
        (
            b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 18\r\nConnection: close\r\n\r\n{\"error\":\"asleep\"}",
            "asleep",
            true,
        ),
        (
            b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 18\r\nConnection: close\r\n\r\n{\"error\":\"no key\"}",
            "no key",
            true,
        ),
        (
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "the agent answered with HTTP status 404",
            true,
        ),
    ] {
        let (mut io, head) = pod.next().await;
        assert!(head.starts_with("POST /chat HTTP/1.1\r\n"), "{head}");
        assert_eq!((field(&head, "X-Recif-User"), field(&head, "Authorization")), (Some("alice"), None));
        assert!(field(&head, "traceparent").unwrap().contains("4bf92f3577b34da6a3ce929d0e0e4736"), "{head}");
        assert_eq!(read_exactly(&mut io, 33).await, r#"{"may_wait":false,"message":"hi"}"#);
        io.write_all(answer).await.unwrap();
        drop(io);
        let (head, body) = whole(&mut client).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert_eq!((&body["id"], &body["result"]["isError"]), (&json!("c"), &json!(is_error)), "{body}");
        assert_eq!(body["result"]["content"], json!([{"type": "text", "text": text}]));
        client.write_all(request.as_bytes()).await.unwrap();
    }
    let (_io, _) = pod.next().await;
    drop(client);
    gateway.until_in_flight(0).await;
}

#[tokio::test]
async fn the_official_client_calls_an_agent_as_a_tool() {
    use ::mcp::{McpError, ServerEndpoint, Sessions};

    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = ::mcp::build_client("test", |builder| builder.no_proxy()).unwrap();
    let url = url::Url::parse(&format!("http://{}/mcp", gateway.address)).unwrap();
    let server = ServerEndpoint::at(&url);
    let arguments = json!({"message": "hi"}).as_object().unwrap().clone();
    let sessions = Sessions::default();
    let call = sessions.call_tool(&client, &server, "ns_a", arguments.clone(), SOON, None);
    let answer = async {
        let (mut io, head) = pod.next().await;
        assert!(head.starts_with("POST /chat HTTP/1.1\r\n"), "{head}");
        read_exactly(&mut io, 16).await;
        io.write_all(SSE).await.unwrap();
    };
    assert_eq!(tokio::join!(call, answer).0, Ok("echo: hi".into()));
    let unknown = sessions.call_tool(&client, &server, "ns_b", arguments, SOON, None).await;
    assert!(matches!(unknown, Err(McpError::Refused { code: -32602, .. })), "{unknown:?}");
}

#[tokio::test]
async fn a_list_goes_on_where_its_cursor_says() {
    let gateway = TestGateway::start(&[], &[]).await;
    for number in 0..150 {
        gateway.agent("many", &format!("a{number:03}"), object());
    }
    let (_, first) = gateway.rpc("", "tools/list", json!({})).await;
    let cursor = first["result"]["nextCursor"].clone();
    assert_eq!((names(&first["result"]["tools"]).len(), &cursor), (100, &json!("many/a099")));
    let (_, rest) = gateway.rpc("", "tools/list", json!({"cursor": cursor})).await;
    let rest_names = names(&rest["result"]["tools"]);
    assert_eq!((rest_names.len(), rest_names[0], rest_names[50]), (51, "many_a100", "ns_a"));
    assert!(rest["result"].get("nextCursor").is_none());
}

#[tokio::test]
async fn both_versions_of_http_reach_the_root() {
    use http_body_util::{BodyExt as _, Full};

    let mut pod = TestPod::start().await;
    let gateway = TestGateway::start(&[], &[pod.address]).await;
    let mut client = super::h2::client(gateway.client().await).await;
    let body = Full::new(bytes::Bytes::from(r#"{"input": "hi", "model": "ns/a"}"#)).boxed();
    let asked = http::Request::post("http://h/v1/responses").body(body).unwrap();
    let answer = tokio::spawn(client.send_request(asked));
    let (mut io, head) = pod.next().await;
    assert!(head.starts_with("POST /v1/responses HTTP/1.1\r\n"), "{head}");
    io.write_all(CLOSE).await.unwrap();
    let answer = timeout(SOON, answer).await.unwrap().unwrap().unwrap();
    assert_eq!((answer.status().as_u16(), answer.into_body().collect().await.unwrap().to_bytes()), (200, "ok".into()));
    let listed = client.send_request(super::h2::get("/v1/models")).await.unwrap();
    let listed = listed.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(names(&serde_json::from_slice::<Value>(&listed).unwrap()["data"]), ["ns/a"]);
}
