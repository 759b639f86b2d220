//! Tests the egress list of an agent (`RECIF_EGRESS`) by tool calls against real servers on loopback.

use std::net::SocketAddr;

use axum::{Router, response::Redirect, routing::get};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::Runner;
use crate::config::RunnerConfig;

/// Starts a server that answers `/page`, and redirects `/near` there.
async fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = Router::new()
        .route("/page", get(|| async { "a page" }))
        .route("/near", get(|| async { Redirect::temporary("/page") }));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}

/// Starts an agent with these tools and this list, whose entries are `listed` by the spec or its `own`.
async fn runner(tools: Value, listed: &[String], own: &[String]) -> Runner {
    let list = json!({"listed": listed, "own": own});
    Runner::with(&[("CORAIL_TOOLS", tools.to_string()), ("RECIF_EGRESS", list.to_string())]).await
}

fn http(name: &str, endpoint: String) -> Value {
    json!({"name": name, "type": "http", "endpoint": endpoint})
}

#[tokio::test]
async fn a_tool_reaches_only_the_hosts_of_the_list() {
    let (known, other) = (server().await, server().await);
    let tools = json!([
        http("page", format!("http://{known}/page")),
        http("near", format!("http://{known}/near")),
        http("other", format!("http://{other}/page")),
        http("name", format!("http://localhost:{}/page", known.port())),
        http("metadata", "http://169.254.169.254/latest/meta-data/".into()),
        {"name": "mcp", "type": "mcp", "mcpEndpoint": format!("http://{other}/mcp")},
        {"name": "flow", "type": "flow", "endpoint": format!("http://{other}/page"), "inputSchema": {"properties": {}}},
        {"name": "agent", "type": "agent", "endpoint": format!("http://{other}/")},
    ]);
    let runner = runner(tools, &["169.254.0.0/16:80".into()], &[known.to_string()]).await;
    let refused = |host: String| format!("refused: host {host} is not in the egress list of this agent");
    for (call, answer) in [
        ("page", "a page".to_owned()),
        ("near", "a page".to_owned()),
        ("other", format!("tool other failed: {}", refused(other.to_string()))),
        ("name", format!("tool name failed: {}", refused(format!("localhost:{}", known.port())))),
        ("mcp", format!("tool mcp failed: {}", refused(other.to_string()))),
        ("flow", format!("tool flow failed: {}", refused(other.to_string()))),
        (r#"agent {"message": "hi"}"#, format!("tool agent failed: {}", refused(other.to_string()))),
        ("metadata", "tool metadata failed: refused: its address 169.254.169.254 is in 169.254.0.0/16".to_owned()),
    ] {
        let reply = runner.say(format!("/tool {call}")).await;
        assert!(reply.starts_with(&answer), "{call}: {reply}");
    }
}

#[tokio::test]
async fn a_url_of_the_model_is_refused_by_its_name_and_by_its_address() {
    let at = server().await;
    let tools = json!([{"name": "fetch_url", "type": "builtin"}]);
    let listed = [format!("localhost:{}", at.port()), "10.0.0.0/8:80".into(), "*.example.com".into()];
    let runner = runner(tools, &listed, &[]).await;
    let at_localhost = format!("http://localhost:{}/page", at.port());
    for (url, words) in [
        ("https://example.org/", "refused: host example.org is not in the egress list of this agent"),
        ("http://api.example.com/", "refused: host api.example.com:80 is not in the egress list of this agent"),
        ("http://192.168.0.1/", "refused: its address 192.168.0.1 is in 192.168.0.0/16, which is private"),
        // The name is listed, and leads to an address that no list opens.
        (at_localhost.as_str(), "is loopback: only a Tool whose own URL says so connects there"),
    ] {
        let reply = runner.say(format!(r#"/tool fetch_url {{"url": "{url}"}}"#)).await;
        assert!(reply.starts_with("tool fetch_url failed: ") && reply.contains(words), "{url}: {reply}");
    }
}

#[tokio::test]
async fn an_empty_list_admits_nothing_and_one_that_cannot_be_read_keeps_the_agent_from_starting() {
    let at = server().await;
    let runner = runner(json!([http("page", format!("http://{at}/page"))]), &[], &[]).await;
    let reply = runner.say("/tool page".to_owned()).await;
    assert_eq!(reply, format!("tool page failed: refused: host {at} is not in the egress list of this agent"));
    for wrong in ["api.example.com", r#"{"listed": ["https://x"]}"#] {
        let read = RunnerConfig::read(&move |name: &str| (name == "RECIF_EGRESS").then(|| wrong.to_owned()));
        let error = read.unwrap_err().to_string();
        assert!(error.starts_with("RECIF_EGRESS=") && error.contains("set it to a JSON object"), "{error}");
    }
}
