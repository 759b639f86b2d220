//! Tests `CORAIL_TOOLS`, and the validation of Tools.

use serde_json::json;

use super::{agent, bare, config_with, tool, with_tools};
use crate::render::{ToolSlot, agent_config, tool_error};
use crds::tool::is_builtin;

#[test]
fn a_tool_is_rendered_without_what_it_does_not_have() {
    let weather = tool(
        "weather",
        json!({
            "name": "get_weather",
            "description": "Weather of a city",
            "endpoint": "https://weather.example/{city}",
            "method": "GET",
            "parameters": [
                { "name": "city", "type": "string", "description": "Name of the city", "required": true },
                { "name": "days", "type": "integer", "default": 3 },
            ],
            "timeout": 10,
        }),
    );
    let kubectl = json!({ "type": "cli", "binary": "kubectl", "allowedCommands": ["get"], "allowedFlags": [], "allowedEnv": ["KUBECONFIG"] });
    let kubectl = tool("kubectl", kubectl);
    let mcp = tool("search", json!({ "type": "mcp", "mcpEndpoint": "http://mcp/mcp" }));
    let expected = concat!(
        r#"[{"name":"get_weather","type":"http","description":"Weather of a city","#,
        r#""endpoint":"https://weather.example/{city}","method":"GET","parameters":["#,
        r#"{"name":"city","type":"string","description":"Name of the city","required":true},"#,
        r#"{"name":"days","type":"integer","required":false,"default":3}],"timeout":10},"#,
        r#"{"name":"kubectl","type":"cli","binary":"kubectl","allowedCommands":["get"],"allowedFlags":[],"#,
        r#""allowedEnv":["KUBECONFIG"],"timeout":30},"#,
        r#"{"name":"search","type":"mcp","mcpEndpoint":"http://mcp/mcp","timeout":30}]"#,
    );
    assert_eq!(config_with(&[weather, kubectl, mcp]).plain["CORAIL_TOOLS"], expected);
}

#[test]
fn the_headers_of_the_caller_that_calls_have_too_are_named() {
    let shop = tool("shop", json!({ "endpoint": "http://shop", "forwardHeaders": ["X-Tenant", "Authorization"] }));
    let expected = concat!(
        r#"[{"name":"shop","type":"http","endpoint":"http://shop","#,
        r#""forwardHeaders":["X-Tenant","Authorization"],"timeout":30}]"#,
    );
    assert_eq!(config_with(&[shop]).plain["CORAIL_TOOLS"], expected, "names alone are no secret");
}

#[test]
fn a_builtin_without_a_tool_is_its_name_and_type() {
    let off = tool("off", json!({ "endpoint": "http://off", "enabled": false }));
    let slots = [ToolSlot::Builtin("web-search"), ToolSlot::Object(&off), ToolSlot::Builtin("datetime")];
    let config = agent_config(&agent(json!({})), &with_tools(&slots), &bare()).unwrap();
    let expected = r#"[{"name":"web-search","type":"builtin"},{"name":"datetime","type":"builtin"}]"#;
    assert_eq!(config.plain["CORAIL_TOOLS"], expected);
}

#[test]
fn the_builtins_are_known_under_both_spellings() {
    for name in ["datetime", "calculator", "web_search", "web-search", "fetch_url", "fetch-url"] {
        assert!(is_builtin(name), "{name}");
    }
    for name in ["", "weather", "Datetime", "web search"] {
        assert!(!is_builtin(name), "{name}");
    }
}

const NO_ADDRESS: &str = "endpoint must be a URL that begins with http:// or https:// and names a host";
const OPEN: &str = "endpoint has a { that does not begin a {parameter}: close it, or write %7B";

#[test]
fn a_tool_without_what_its_type_needs_is_an_error_in_the_documented_words() {
    for (spec, message) in [
        (json!({ "type": "http" }), Some("HTTP tool requires an endpoint")),
        (json!({ "type": "http", "endpoint": "" }), Some("HTTP tool requires an endpoint")),
        (json!({ "type": "http", "endpoint": "http://a" }), None),
        (json!({ "type": "cli" }), Some("CLI tool requires a binary")),
        (json!({ "type": "cli", "binary": "ls" }), None),
        (json!({ "type": "mcp" }), Some("MCP tool requires an mcpEndpoint or an mcpServerRef")),
        (json!({ "type": "mcp", "mcpEndpoint": "http://a" }), None),
        (json!({ "type": "builtin" }), None),
        (json!({ "type": "flow" }), Some("flow tool requires a flowRef")),
        (json!({ "type": "flow", "flowRef": { "name": "f" } }), None),
        (json!({ "type": "agent" }), Some("agent tool requires an agentRef or an endpoint")),
        (json!({ "type": "agent", "endpoint": "" }), Some("agent tool requires an agentRef or an endpoint")),
        (json!({ "type": "agent", "endpoint": "https://a/{b}" }), None),
        (json!({ "type": "agent", "endpoint": "agents.example.com" }), Some(NO_ADDRESS)),
        (json!({ "type": "telepathy" }), Some("unknown tool type: telepathy")),
        (
            json!({ "type": "builtin", "parameters": [{ "name": "p" }, { "name": "q", "type": "colour" }] }),
            Some("parameter q has the unknown type: colour"),
        ),
        (
            json!({ "endpoint": "http://a", "headers": { "x-key": "1" },
                "headersFrom": [{ "name": "X-Key", "secretKeyRef": { "name": "s", "key": "k" } }] }),
            Some("header X-Key is in headers and in headersFrom: keep one"),
        ),
        (json!({ "type": "http", "endpoint": "weather.example/now" }), Some(NO_ADDRESS)),
        (json!({ "type": "http", "endpoint": "ftp://weather.example" }), Some(NO_ADDRESS)),
        (json!({ "type": "http", "endpoint": "https:///now" }), Some(NO_ADDRESS)),
        (json!({ "type": "http", "endpoint": "HTTPS://a/{b}?c={d}", "method": "post" }), None),
        (
            json!({ "type": "http", "endpoint": "http://{a}/b" }),
            Some("endpoint has a {parameter} in its host: only the path and the query may have one"),
        ),
        (json!({ "type": "http", "endpoint": "http://a/{b" }), Some(OPEN)),
        (json!({ "type": "http", "endpoint": "http://a/{}" }), Some(OPEN)),
        (
            json!({ "type": "http", "endpoint": "http://a", "method": "FETCH" }),
            Some("method \"FETCH\" is none of GET, POST, PUT, PATCH, DELETE"),
        ),
        (
            json!({ "type": "http", "endpoint": "http://a", "headers": { "x key": "1" } }),
            Some("\"x key\" is not the name of a header: use letters, digits and -"),
        ),
        (
            json!({ "type": "mcp", "mcpEndpoint": "mcp:8080" }),
            Some("mcpEndpoint must be a URL that begins with http:// or https:// and names a host"),
        ),
        (json!({ "parameters": [{ "name": "n", "type": "integer", "default": "3" }], "type": "builtin" }), None),
        (
            json!({ "parameters": [{ "name": "n", "type": "integer", "default": "many" }], "type": "builtin" }),
            Some("the default of parameter n is not of its type integer"),
        ),
        (json!({ "type": "builtin", "name": "a b" }), Some("tool name \"a b\" must match ^[a-zA-Z0-9_-]{1,64}$")),
        (json!({ "type": "builtin", "name": "" }), Some("tool name \"\" must match ^[a-zA-Z0-9_-]{1,64}$")),
        (json!({ "type": "builtin", "name": "x".repeat(64) }), None),
        (json!({ "type": "agent", "agentRef": { "name": "a" }, "forwardHeaders": ["X-A", "X-Recif-User"] }), None),
        (
            json!({ "type": "builtin", "forwardHeaders": ["X-A"] }),
            Some("a tool of type builtin has no headers: leave out forwardHeaders"),
        ),
        (
            json!({ "type": "http", "endpoint": "http://a", "forwardHeaders": ["x a"] }),
            Some("\"x a\" is not the name of a header: leave it out of forwardHeaders"),
        ),
        (
            json!({ "type": "http", "endpoint": "http://a", "forwardHeaders": ["X-A", "X-Recif-Caller"] }),
            Some("header X-Recif-Caller is not passed on: leave it out of forwardHeaders"),
        ),
    ] {
        assert_eq!(tool_error(&tool("t", spec.clone()).spec).as_deref(), message, "{spec}");
    }
    assert!(tool_error(&tool("t", json!({ "type": "builtin", "name": "x".repeat(65) })).spec).is_some());
}

#[test]
fn a_header_refers_to_no_variable_that_is_set_for_others() {
    let own = json!([{ "name": "X-Own", "secretKeyRef": { "name": "s", "key": "k" } }]);
    let with = |value: &str| {
        let headers = json!({ "X-A": value });
        tool("t", json!({ "type": "http", "endpoint": "http://e", "headers": headers, "headersFrom": own }))
    };
    for value in
        ["Bearer $KEY", "${KEY}", "$TOOL_T_X_OWN", "a $ b", "$5", "$$", "MY$corail_x", "${not a name}", "CORAIL_X"]
    {
        assert_eq!(tool_error(&with(value).spec), None, "{value}");
    }
    for (value, name) in [
        ("$CORAIL_DATABASE_URL", "CORAIL_DATABASE_URL"),
        ("x${RECIF_NAME}y", "RECIF_NAME"),
        ("$KEY $OTEL_EXPORTER", "OTEL_EXPORTER"),
        ("$MODEL_OPENAI_X_KEY", "MODEL_OPENAI_X_KEY"),
        ("$MCP_DOCS_KEY", "MCP_DOCS_KEY"),
        ("$TOOL_OTHER_AUTHORIZATION", "TOOL_OTHER_AUTHORIZATION"),
    ] {
        let error = tool_error(&with(value).spec).unwrap();
        assert!(error.starts_with("header X-A ") && error.contains(&format!("${name},")), "{error}");
    }
}
