//! Discoveries at servers that are slow, endless, elsewhere or no MCP servers: each failure is described within the deadline.

use super::*;

#[tokio::test]
async fn more_tools_than_are_taken_are_said() {
    let (question, _) = start_older(20, 500).await;
    let answer = ask(&question).await.unwrap();
    assert_eq!((answer.tools.len(), answer.has_more), (1000, true));
    let (question, _) = start_older(2, 500).await;
    let answer = ask(&question).await.unwrap();
    assert_eq!((answer.tools.len(), answer.has_more), (1000, false));
}

#[tokio::test]
async fn a_server_that_rejects_credentials_is_reported_without_them() {
    let (mut question, _) = start_older(1, 1).await;
    question.headers =
        HashMap::from([(HeaderName::from_static("authorization"), HeaderValue::from_static("Bearer hunter2"))]);
    let failed = ask(&question).await.unwrap_err();
    assert_eq!(failed.reason, "ServerRefused");
    assert!(failed.message.contains("401") && failed.message.contains("headersFrom"), "{failed:?}");
    assert!(!format!("{failed:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_server_that_is_none_is_told_by_what_it_does() {
    let base = odd().await;
    for (path, reason, words) in [
        ("html", "InvalidServerAnswer", "neither JSON nor a stream of events"),
        ("json", "InvalidServerAnswer", "not a JSON-RPC message"),
        ("nested", "InvalidServerAnswer", "not a JSON-RPC message"),
        ("endless", "InvalidServerAnswer", "it sent more than 2 MiB"),
        ("endless-events", "InvalidServerAnswer", "it sent more than 2 MiB"),
        ("elsewhere", "ServerRefused", "redirects to another place"),
        ("circle", "ServerRefused", "redirects to another place"),
        ("host", "ServerRefused", "does not take the host of spec.url in the Host header"),
        ("not-there", "ServerRefused", "HTTP 404 Not Found: see whether spec.url has the right path"),
        ("down", "ServerUnreachable", "HTTP 503"),
    ] {
        let failed = failure(&format!("{base}/{path}")).await;
        assert_eq!(failed.reason, reason, "{path}: {failed:?}");
        assert!(failed.message.contains(words), "{path}: {failed:?}");
    }
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let failed = failure(&format!("http://{closed}/?key=SECRET")).await;
    assert_eq!(failed.reason, "ServerUnreachable");
    assert!(failed.message.contains("refused") && !failed.message.contains("SECRET"), "{failed:?}");
}

#[tokio::test]
async fn a_schema_that_is_nested_deeply_is_taken_as_it_is() {
    let mut schema = json!({"type": "string"});
    for _ in 0..50 {
        schema = json!({"type": "object", "properties": {"a": schema}});
    }
    let answer = |State(schema): State<Value>, body: Bytes| async move {
        let request: Value = serde_json::from_slice(&body).unwrap_or_default();
        let result = match request["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "n", "version": "1"},
            }),
            Some("tools/list") => json!({"tools": [{"name": "t", "inputSchema": schema}]}),
            Some("server/discover") => return StatusCode::BAD_REQUEST.into_response(),
            _ => return StatusCode::ACCEPTED.into_response(),
        };
        json_answer(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
    };
    let url = serve(Router::new().route("/mcp", any(answer)).with_state(schema.clone())).await + "/mcp";
    assert_eq!(ask(&question(&url)).await.unwrap().tools[0].input_schema, schema);
}

#[tokio::test]
async fn one_deadline_is_around_all_of_it() {
    let base = odd().await;
    for path in ["hangs", "drips"] {
        let timeout = Duration::from_secs(1);
        let question =
            DiscoveryRequest { timeout, deadline: Instant::now() + timeout, ..question(&format!("{base}/{path}")) };
        let failed = ask(&question).await.unwrap_err();
        assert_eq!(failed.reason, "ServerTimeout", "{path}: {failed:?}");
        assert_eq!(failed.message, "it did not list its tools within 1 s (spec.timeout)");
    }
}

#[tokio::test]
async fn a_name_is_judged_by_the_address_that_it_has_when_it_is_connected_to() {
    let (question, asked) = start_older(1, 1).await;
    let url = question.url.as_str().replace("127.0.0.1", "localhost");
    let question = DiscoveryRequest { url: Url::parse(&url).unwrap(), ..question };
    let denying = reach(&["127.0.0.0/8", "::1/128"]);
    denying.check_url(&question.url).unwrap();
    let failed = ask_by(denying.client(&Trust::System).unwrap(), &question).await.unwrap_err();
    assert_eq!(failed.reason, "AddressDenied", "{failed:?}");
    assert!(failed.message.contains("which --mcp-deny-cidr of the operator denies"), "{failed:?}");
    assert!(asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn credentials_do_not_leave_with_a_redirect() {
    let (other, asked) = start_older(1, 1).await;
    let place = other.url.to_string();
    let redirect = move |_: Method| {
        let place = place.clone();
        async move { (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, place)]).into_response() }
    };
    let url = serve(Router::new().route("/mcp", any(redirect))).await + "/mcp";
    let question = DiscoveryRequest { url: Url::parse(&url).unwrap(), ..other };
    assert_eq!(ask(&question).await.unwrap_err().reason, "ServerRefused");
    assert!(asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn nothing_that_a_server_says_in_an_error_is_repeated() {
    const SECRET: &str = "sk-hunter2";
    // Method that the server refuses, and form of the refusal: JSON-RPC, a status, or no answer at all.
    for (at, how) in [
        ("initialize", "rpc"),
        ("tools/list", "rpc"),
        ("tools/list", "status"),
        ("initialize", "status"),
        ("initialize", "type"),
        ("initialize", "other"),
        ("tools/list", "other"),
        ("tools/list", "text"),
    ] {
        let answer = move |method: Method, body: Bytes| async move {
            let request: Value = serde_json::from_slice(&body).unwrap_or_default();
            let name = request["method"].as_str().unwrap_or_default();
            if name == at {
                let error = json!({"code": -32042, "message": SECRET, "data": SECRET});
                let refusal = json!({"jsonrpc": "2.0", "id": request["id"], "error": error});
                return match how {
                    "rpc" => json_answer(refusal),
                    "status" => (StatusCode::BAD_REQUEST, json_answer(refusal)).into_response(),
                    "type" => ([(header::CONTENT_TYPE, SECRET)], SECRET).into_response(),
                    "text" => ([(header::CONTENT_TYPE, "application/json")], SECRET).into_response(),
                    _ => json_answer(json!({"jsonrpc": "2.0", "id": request["id"], "result": {SECRET: SECRET}})),
                };
            }
            let result = match name {
                "initialize" => json!({
                    "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "n", "version": "1"},
                }),
                "server/discover" => return (StatusCode::BAD_REQUEST, SECRET).into_response(),
                _ if method == Method::GET => return StatusCode::METHOD_NOT_ALLOWED.into_response(),
                _ => return StatusCode::ACCEPTED.into_response(),
            };
            json_answer(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
        };
        let url = serve(Router::new().route("/mcp", any(answer))).await + "/mcp";
        for era in [None, Some(Era::Initialize), Some(Era::Discover)] {
            let failed = ask(&DiscoveryRequest { era, ..question(&url) }).await.unwrap_err();
            assert!(!format!("{failed:?}").contains("hunter2"), "{at} {how}: {failed:?}");
            if how == "rpc" && era.is_none() {
                assert!(failed.message.contains("JSON-RPC error -32042"), "{at} {era:?}: {failed:?}");
            }
        }
    }
}

#[tokio::test]
async fn tools_that_come_in_time_are_reported_without_an_answer_to_the_listen_request() {
    let answer = |body: Bytes| async move {
        let request: Value = serde_json::from_slice(&body).unwrap_or_default();
        if request["method"] == "subscriptions/listen" {
            pending::<()>().await;
        }
        one_tool(&request)
    };
    let url = serve(Router::new().route("/mcp", any(answer))).await + "/mcp";
    let client = reach(DENIED_RANGES).client(&Trust::System).unwrap();
    // Shorter than the time-out of a subscription.
    let end = Instant::now() + Duration::from_millis(1900);
    let question = DiscoveryRequest { era: Some(Era::Discover), deadline: end, ..question(&url) };
    let answer = ask_by(client, &question).await.unwrap();
    assert_eq!(answer.tools.len(), 1);
    assert!(answer.changes.is_none());
}
