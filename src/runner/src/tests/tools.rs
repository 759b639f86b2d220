//! Tool calls of a model, against a real server and real programs.

use std::{convert::Infallible, future::pending, net::SocketAddr};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Redirect},
    routing::any,
};
use futures::stream;
use serde_json::{Value, json};
use testing::{
    certificates::{certificate, serve_tls},
    mcp_server::ReferenceServer,
};
use tokio::net::TcpListener;

use super::Runner;

/// Starts a server that echoes requests, never responds, never ends, fails, or redirects.
async fn endpoint() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let elsewhere = format!("http://localhost:{}/echo", address.port());
    let upgraded = format!("https://127.0.0.1:{}/echo", address.port() + 1);
    let sidecar = "http://127.0.0.1:8888/".to_owned();
    let echo = |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| async move {
        let header = |name| headers.get(name).map_or("-", |value| value.to_str().unwrap_or("?")).to_owned();
        format!("{method} {uri} {} {} {}", header("content-type"), header("x-key"), String::from_utf8_lossy(&body))
    };
    let endless = || async { Body::from_stream(stream::repeat(Ok::<_, Infallible>(Bytes::from(vec![b'a'; 65536])))) };
    let routes = Router::new()
        .route("/slow", any(pending::<()>))
        .route("/endless", any(endless))
        .route("/fail", any(|| async { (StatusCode::IM_A_TEAPOT, "short and stout").into_response() }))
        .route(
            "/agent/chat",
            any(|body: Bytes| async move {
                json!({"reply": format!("you said {}", String::from_utf8_lossy(&body)), "conversation_id": "x"})
                    .to_string()
            }),
        )
        .route("/endless/chat", any(endless))
        .route("/mute/chat", any(|| async { "no JSON" }))
        .route("/json", any(|| async { r#"{"n": "x"}"# }))
        .route("/near", any(|| async { Redirect::temporary("/echo") }))
        .route("/far", any(move || async move { Redirect::temporary(&elsewhere) }))
        .route("/port", any(move || async move { Redirect::temporary(&upgraded) }))
        .route("/sidecar", any(move || async move { Redirect::temporary(&sidecar) }))
        .fallback(echo);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}

async fn runner() -> Runner {
    let at = endpoint().await;
    let http = |name: &str, method: &str, path: &str, parameters: Value| {
        json!({"name": name, "type": "http", "method": method, "endpoint": format!("http://{at}{path}"),
               "headers": {"x-key": "k ${PATH} $"}, "parameters": parameters, "timeout": 30})
    };
    let one = json!([{"name": "id", "type": "string"}, {"name": "n", "type": "integer", "default": 7}]);
    Runner::with_tools(json!([
        http("get", "GET", "/echo/{id}", one.clone()),
        http("delete", "delete", "/echo", one.clone()),
        http("post", "POST", "/echo/{id}", one.clone()),
        http("put", "PUT", "/echo", one.clone()),
        http("patch", "PATCH", "/echo", one),
        http("slow", "GET", "/slow", json!([])),
        http("endless", "GET", "/endless", json!([])),
        http("fail", "GET", "/fail", json!([])),
        http("near", "GET", "/near", json!([])),
        http("far", "GET", "/far", json!([])),
        http("sidecar", "GET", "/sidecar", json!([])),
        http("port", "GET", "/port", json!([])),
        {"name": "unset", "type": "http", "endpoint": format!("http://{at}/"), "headers": {"x-key": "$SURELY_NOT_SET"}},
        {"name": "leak", "type": "http", "endpoint": format!("http://{at}/"), "headers": {"x-key": "$CORAIL_DATABASE_URL"}},
        {"name": "metadata", "type": "http", "endpoint": "http://169.254.169.254/latest/meta-data/"},
        {"name": "closed", "type": "http", "endpoint": "http://127.0.0.1:1/"},
        {"name": "echo", "type": "cli", "binary": "echo", "description": "prints", "allowedCommands": ["-n", "hi"]},
        {"name": "sh", "type": "cli", "binary": "sh"},
        {"name": "none", "type": "cli", "binary": "/surely/not/there"},
        {"name": "remote", "type": "mcp", "mcpEndpoint": "http://127.0.0.1:1/"},
        {"name": "flow", "type": "flow", "endpoint": format!("http://{at}/echo"), "inputSchema": {"properties": {
            "tags": {"type": "array", "items": {"type": "string"}}, "n": {"type": "integer", "default": 7}}}},
        {"name": "hangs", "type": "flow", "endpoint": format!("http://{at}/slow")},
        {"name": "huge", "type": "flow", "endpoint": format!("http://{at}/endless")},
        {"name": "agent", "type": "agent", "endpoint": format!("http://{at}/agent/")},
        {"name": "mute", "type": "agent", "endpoint": format!("http://{at}/mute")},
        {"name": "drowning", "type": "agent", "endpoint": format!("http://{at}/endless")},
        {"name": "odd", "type": "http", "endpoint": format!("http://{at}/json"),
         "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        {"name": "text", "type": "http", "endpoint": format!("http://{at}/echo"), "outputSchema": {}},
        {"name": "calculator", "type": "builtin"},
        {"name": "datetime", "type": "builtin"},
        {"name": "fetch_url", "type": "builtin"},
        {"name": "web-search", "type": "builtin"},
    ]))
    .await
}

#[tokio::test]
async fn what_a_call_of_a_tool_answers() {
    let runner = runner().await;
    let path = std::env::var("PATH").unwrap();
    for (call, answer) in [
        (r#"get {"id": "a b/c"}"#, format!("GET /echo/a%20b%2Fc?n=7 - k {path} $ ")),
        (r#"delete {"id": "a&b"}"#, format!("DELETE /echo?id=a%26b&n=7 - k {path} $ ")),
        (r#"post {"id": "x", "n": 1}"#, format!(r#"POST /echo/x application/json k {path} $ {{"n":1}}"#)),
        (r#"put {"id": "x"}"#, format!(r#"PUT /echo application/json k {path} $ {{"id":"x","n":7}}"#)),
        ("patch {}", format!(r#"PATCH /echo application/json k {path} $ {{"n":7}}"#)),
        ("near", format!("GET /echo - k {path} $ ")),
        (r#"echo {"args": ["-n", "$HOME *"]}"#, "$HOME *".into()),
        (r#"echo {"args": "hi 'two  words'"}"#, "hi two  words\n".into()),
        (r#"calculator {"expression": "2 * (3 + 4)"}"#, "14".into()),
        (r#"flow {"tags": ["a"]}"#, r#"POST /echo application/json - {"n":7,"tags":["a"]}"#.into()),
        (r#"agent {"message": "hi"}"#, r#"you said {"may_wait":false,"message":"hi"}"#.into()),
        (
            "odd",
            r#"{"n": "x"}
[this answer does not fit the tool's output schema: /n: "x" is not of type "integer"]"#
                .into(),
        ),
        ("text", "GET /echo - - \n[this answer does not fit the tool's output schema: it is not JSON]".into()),
    ] {
        assert_eq!(runner.say(format!("/tool {call}")).await, answer, "{call}");
    }
    assert!(runner.say("/tool datetime").await.ends_with('Z'));
    assert_eq!(runner.say("/prompt").await, "be brief");
    assert!(runner.say("/tools").await.contains("\necho: prints\n"));
}

#[tokio::test]
async fn a_tool_that_fails_tells_the_model_and_not_the_user() {
    let runner = runner().await;
    for (call, error) in [
        ("nothing", "unknown tool `nothing`"),
        ("get {}", "wrong arguments: `id` is part of the URL and must be given"),
        (r#"get {"id": ".."}"#, "wrong arguments: an argument may not turn a part of the URL's path into `.` or `..`"),
        (r#"get {"id": 1, "x": 2}"#, "wrong arguments: `id` must be a string; `x` is not a parameter"),
        ("fail", "HTTP 418 I'm a teapot: short and stout"),
        ("far", "HTTP 307 Temporary Redirect to http://localhost:"),
        ("port", "HTTP 307 Temporary Redirect to https://127.0.0.1:"),
        ("sidecar", "HTTP 307 Temporary Redirect to http://127.0.0.1:8888/"),
        ("unset", "header x-key refers to the environment variable SURELY_NOT_SET, which is not set"),
        ("closed", "error sending request: client error (Connect): tcp connect error"),
        (r#"echo {"args": ["rm"]}"#, "refused: the first argument must be one of: -n, hi"),
        ("echo", "wrong arguments: `args` is missing"),
        (r#"sh {"args": ["-c", "echo out; echo bad >&2; exit 3"]}"#, "exit status: 3: bad"),
        ("none", "wrong arguments: `args` is missing"),
        (r#"none {"args": []}"#, "run /surely/not/there: No such file or directory"),
        ("remote", "the MCP server at 127.0.0.1:1 cannot be used"),
        (r#"flow {"tags": ["a", 1]}"#, r#"wrong arguments: /tags/1: 1 is not of type "string""#),
        (r#"agent {"question": "hi"}"#, "wrong arguments: `message` is missing; `question` is not a parameter"),
        (r#"mute {"message": "hi"}"#, "the agent did not answer with JSON that has a `reply`"),
        (r#"drowning {"message": "hi"}"#, "the agent did not answer"),
        (r#"calculator {"expression": "1/0"}"#, "wrong arguments: the result is not a number"),
        (r#"fetch_url {"url": "nonsense"}"#, "wrong arguments: `url`: relative URL without a base"),
        (r#"fetch_url {"url": "file:///etc/passwd"}"#, "refused: only http and https URLs"),
        (r#"fetch_url {"url": "http://127.0.0.1:8888/x"}"#, "refused: port 8888 on loopback"),
        (r#"fetch_url {"url": "http://127.0.0.1:1/x"}"#, "refused: its address 127.0.0.1 is loopback"),
        (
            r#"fetch_url {"url": "http://localhost:1/x"}"#,
            "error sending request: client error (Connect): dns error: error resolving DNS: its",
        ),
        (
            r#"fetch_url {"url": "http://169.254.169.254/latest/"}"#,
            "refused: its address 169.254.169.254 is in 169.254.0.0/16",
        ),
        (
            r#"fetch_url {"url": "http://10.96.0.1/"}"#,
            "refused: its address 10.96.0.1 is in 10.0.0.0/8, which is private",
        ),
        ("leak", "header x-key refers to the environment variable CORAIL_DATABASE_URL, which is not this tool's"),
        ("metadata", "refused: its address 169.254.169.254 is in 169.254.0.0/16"),
        (r#"web-search {"query": "x"}"#, "unknown tool `web-search`; known tools: get, "),
    ] {
        let name = call.split(' ').next().unwrap();
        let reply = runner.say(format!("/tool {call}")).await;
        assert!(reply.starts_with(&format!("tool {name} failed: {error}")), "{call}: {reply}");
    }
    let (_, metrics) = runner.get("/metrics").await;
    for (type_, count) in [("http", 11), ("cli", 5), ("builtin", 8), ("agent", 3), ("flow", 1), ("unknown", 2)] {
        let line = format!("recif_runner_tool_calls_total{{type=\"{type_}\",outcome=\"error\"}} {count}");
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn an_answer_without_end_is_cut_at_one_mebibyte() {
    let runner = runner().await;
    for call in ["endless", "huge", r#"sh {"args": ["-c", "yes aaa"]}"#, r#"sh {"args": ["-c", "yes >&2 & exec yes"]}"#]
    {
        let reply = runner.say(format!("/tool {call}")).await;
        assert!(reply.ends_with("\n[truncated after 1 MiB]"), "{call}");
        assert!(((1 << 20)..(1 << 20) + 100).contains(&reply.len()), "{call}: {}", reply.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_does_not_answer_in_time_is_given_up() {
    let runner = runner().await;
    for call in ["slow", "hangs", r#"sh {"args": ["-c", "exec tail -f /dev/null"]}"#] {
        let reply = runner.say(format!("/tool {call}")).await;
        assert!(reply.ends_with(" failed: no answer within 30 s"), "{call}: {reply}");
    }
    let (_, metrics) = runner.get("/metrics").await;
    for type_ in ["http", "flow", "cli"] {
        let line = format!("recif_runner_tool_calls_total{{type=\"{type_}\",outcome=\"timeout\"}} 1");
        assert!(metrics.contains(&line), "{metrics}");
    }
}

#[tokio::test]
async fn a_program_sees_of_the_environment_what_its_tool_names() {
    let known =
        ["PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"];
    let own = std::env::vars().map(|(name, _)| name).find(|name| !known.contains(&name.as_str()));
    let own = own.expect("a test has variables of its own");
    let runner = Runner::with_tools(json!([
        {"name": "env", "type": "cli", "binary": "env"},
        {"name": "more", "type": "cli", "binary": "env", "allowedEnv": [own, "SURELY_NOT_SET"]},
    ]))
    .await;
    let names = async |tool: &str| {
        let message = runner.say(format!(r#"/tool {tool} {{"args": ["PROBE=1"]}}"#)).await;
        message.lines().map(|line| line.split('=').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let plain = names("env").await;
    assert!(plain.contains(&"PROBE".into()) && plain.contains(&"PATH".into()), "{plain:?}");
    assert!(plain.iter().all(|name| name == "PROBE" || known.contains(&name.as_str())), "{plain:?}");
    let more = names("more").await;
    assert!(more.contains(&own) && more.len() == plain.len() + 1, "{more:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_an_mcp_server_is_called_and_its_failure_told() {
    let server = ReferenceServer::start(0);
    let runner = Runner::with_tools(json!([
        {"name": "echo", "type": "mcp", "mcpEndpoint": server.url().as_str()},
        {"name": "again", "type": "mcp", "mcpEndpoint": server.url().as_str(), "mcpTool": "echo"},
        {"name": "get-sum", "type": "mcp", "mcpEndpoint": server.url().as_str(),
         "inputSchema": {"properties": {"a": {"type": "number"}, "b": {"type": "number", "default": 2}}}},
        {"name": "elsewhere", "type": "mcp", "mcpEndpoint": format!("http://{}/far", endpoint().await)},
        {"name": "own", "type": "mcp", "mcpEndpoint": "http://127.0.0.1:8888/mcp"},
    ]))
    .await;
    for (call, answer) in [
        (r#"echo {"message": "hi"}"#, "Echo: hi"),
        (r#"again {"message": "under another name"}"#, "Echo: under another name"),
        (r#"get-sum {"a": 1}"#, "The sum of 1 and 2 is 3."),
        (r#"get-sum {"a": "x"}"#, r#"tool get-sum failed: wrong arguments: /a: "x" is not of type "number""#),
        ("echo {}", "tool echo failed: "),
        ("elsewhere {}", "tool elsewhere failed: the MCP server at 127.0.0.1"),
        ("own {}", "tool own failed: refused: port 8888 on loopback"),
    ] {
        let reply = runner.say(format!("/tool {call}")).await;
        assert!(reply.starts_with(answer), "{call}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_mcp_server_behind_tls_is_judged_as_its_tool_says() {
    let server = ReferenceServer::start(0);
    let port = serve_tls(server.url().authority().to_owned()).await;
    let text = |name: &str| String::from_utf8(certificate(name)).unwrap();
    let tool = |name: &str, tls: Value| {
        let url = format!("https://localhost:{port}/mcp");
        json!({"name": name, "type": "mcp", "mcpTool": "echo", "mcpEndpoint": url, "mcpTls": tls})
    };
    let runner = Runner::with_tools(json!([
        tool("system", json!({})),
        tool("other", json!({"ca": text("two")})),
        tool("own", json!({"ca": text("one")})),
        tool("only", json!({"ca": text("one"), "systemCAs": false})),
        tool("wrong", json!({"ca": text("two"), "systemCAs": false})),
        tool("anyone", json!({"insecureSkipVerify": true})),
        tool("none", json!({"ca": "no certificate"})),
        tool("unset", json!({"ca": "$SURELY_NOT_SET"})),
    ]))
    .await;
    // Two rounds, the second in reverse order: the trust of one tool's connection must not be reused for another tool.
    let names = ["system", "other", "own", "only", "wrong", "anyone", "none", "unset"];
    for name in names.iter().chain(names.iter().rev()) {
        let reply = runner.say(format!(r#"/tool {name} {{"message": "hi"}}"#)).await;
        match *name {
            "own" | "only" | "anyone" => assert_eq!(reply, "Echo: hi", "{name}"),
            "none" => assert!(reply.contains("it holds no certificate in PEM form"), "{reply}"),
            "unset" => assert!(reply.contains("SURELY_NOT_SET, which is not set"), "{reply}"),
            _ => assert!(reply.contains("certificate"), "{name}: {reply}"),
        }
    }
}
