//! Tests of responses about many objects: lists and the graph.

use http::Method;
use serde_json::{Value, json};

use super::{Api, bytes, stage};

#[tokio::test]
async fn lists_are_selected_sorted_and_paged() {
    let api = Api::new(&stage());
    for (path, expected) in [
        ("/v1/fleet", "two flow files ask docs one"),
        ("/v1/fleet?kind=Agent&kind=Tool&sort=name", "ask one two"),
        ("/v1/fleet?namespace=b", "one"),
        ("/v1/fleet?namespace=", "two flow files ask docs one"),
        ("/v1/fleet?phase=Failed&phase=Error", "two ask"),
        ("/v1/fleet?phase=none", "files docs"),
        ("/v1/fleet?q=ASK", "ask"),
        ("/v1/fleet?q=nothing", ""),
        ("/v1/agents", "two one"),
        ("/v1/agents?order=desc", "one two"),
        ("/v1/agents?limit=1", "two"),
        ("/api/v1/agents", "two one"),
        ("/v1/prompts", ""),
        ("/v1/toolservers", "files docs"),
    ] {
        assert_eq!(api.names(path).await, expected, "{path}");
    }
    let (_, first) = api.get("/v1/fleet?limit=4").await;
    let place = first["continue"].as_str().unwrap();
    assert_eq!(api.names(&format!("/v1/fleet?continue={place}")).await, "docs one");
    assert_eq!((&first["total"], &first["counts"]["Agent"]), (&json!(6), &json!({ "Failed": 1, "Running": 1 })));
    let (_, servers) = api.get("/v1/toolservers").await;
    let facts = ["toolCount", "url", "protocol", "phase"].map(|field| servers["items"][1][field].clone());
    assert_eq!(facts, [json!(1), json!("http://h/mcp"), json!("SSE"), json!(null)]);
}

#[tokio::test]
async fn what_is_known_is_not_sent_again_and_what_is_sent_is_small() {
    let mut stage = stage();
    let api = Api::new(&stage);
    for path in ["/v1/fleet", "/v1/agents/a/two", "/v1/graph", "/v1/toolservers"] {
        let first = api.send(Method::GET, path, &[]).await;
        let tag = first.headers()["etag"].to_str().unwrap().to_owned();
        assert_eq!(api.send(Method::GET, path, &[("if-none-match", &tag)]).await.status(), 304, "{path}");
        stage.agent("a", "two", "Pending");
        let changed = api.send(Method::GET, path, &[("if-none-match", &tag)]).await.status();
        assert_eq!(changed, if path == "/v1/toolservers" { 304 } else { 200 }, "{path}");
        stage.agent("a", "two", "Failed");
    }
    let head = api.send(Method::HEAD, "/v1/fleet", &[]).await;
    assert!(head.status() == 200 && bytes(head).await.is_empty());
    for coding in ["gzip", "br"] {
        let small = api.send(Method::GET, "/v1/fleet", &[("accept-encoding", coding)]).await;
        assert_eq!(small.headers()["content-encoding"], coding);
        assert!(small.headers().get_all("vary").iter().any(|vary| vary.to_str().unwrap().contains("accept-encoding")));
        assert!(bytes(small).await.len() < bytes(api.send(Method::GET, "/v1/fleet", &[]).await).await.len() / 2);
    }
    let yaml = bytes(api.send(Method::GET, "/v1/me", &[("accept", "application/yaml")]).await).await;
    assert_eq!(yaml, "auth: none\nuser: null\n");
}

#[tokio::test]
async fn references_are_drawn_and_broken_ones_marked() {
    let api = Api::new(&stage());
    let (_, graph) = api.get("/v1/graph?namespace=a").await;
    assert_eq!(
        graph["edges"],
        json!([
            { "from": "Flow/a/flow", "to": "Tool/a/ask", "broken": true },
            { "from": "Tool/a/ask", "to": "Flow/a/gone", "broken": true },
        ])
    );
    let missing: Vec<_> = graph["nodes"].as_array().unwrap().iter().filter(|node| node["missing"] == true).collect();
    let gone = json!({ "kind": "Flow", "namespace": "a", "name": "gone", "phase": null, "ready": "Unknown",
        "missing": true });
    assert_eq!(missing, [&gone]);
    let two = graph["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "two").unwrap();
    assert_eq!((&two["phase"], &two["ready"]), (&json!("Failed"), &json!("False")));
}

#[tokio::test]
async fn an_object_says_what_it_refers_to_and_what_refers_to_it() {
    let mut fleet = stage();
    let provider = json!({ "type": "openai", "credentialsRef": { "name": "keys" } });
    fleet.put("PluginConfig", "a", "openai", provider, json!({ "phase": "Available" }));
    let api = Api::new(&fleet);
    let around = async |path: &str| {
        let (status, graph) = api.get(path).await;
        assert_eq!(status, 200, "{graph}");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let nodes: Vec<_> = graph["nodes"].as_array().unwrap().iter().map(|node| text(&node["name"])).collect();
        let edges = graph["edges"].as_array().unwrap().iter();
        let edges: Vec<_> = edges.map(|edge| format!("{} {}", text(&edge["from"]), text(&edge["to"]))).collect();
        (nodes.join(" "), edges.join(", "))
    };
    let (nodes, edges) = around("/v1/tools/a/ask/references").await;
    assert_eq!(nodes, "ask gone flow");
    assert_eq!(edges, "Tool/a/ask Flow/a/gone, Flow/a/flow Tool/a/ask");
    assert_eq!(around("/v1/agents/a/two/references").await, ("two".to_owned(), String::new()));
    let (nodes, edges) = around("/v1/pluginconfigs/a/openai/references").await;
    assert_eq!((nodes.as_str(), edges.as_str()), ("openai keys", "PluginConfig/a/openai Secret/a/keys"));
    assert_eq!(api.get("/v1/flows/a/gone/references").await.0, 404);
}
