//! Tests of the settings `toolChoice` and `cache` at each provider.

use serde_json::{Value, json};

use super::{
    super::{Message, ModelErrorKind, ModelRequest},
    Provider, ScriptedReply, collect, weather,
};

/// Returns the body of a request with these settings and a tool.
async fn body(provider: &str, config: Value) -> Value {
    let server = Provider::new([ScriptedReply::status(400)]).await;
    let request = ModelRequest {
        system: Some("be brief".into()),
        messages: vec![
            Message::user("one").into(),
            Message::Assistant("two".into()).into(),
            Message::user("three").into(),
        ],
        tools: [weather()].into(),
        config: config.as_object().unwrap().clone().into(),
        ..ModelRequest::default()
    };
    // Only the request matters here.
    collect(server.model(provider).respond(request)).await.unwrap_err();
    server.only().body
}

#[tokio::test]
async fn each_choice_of_tools_is_that_of_the_provider() {
    let named = json!({"tool": "weather"});
    for (provider, place, none, required, tool) in [
        (
            "openai",
            "/tool_choice",
            json!("none"),
            json!("required"),
            json!({"type": "function", "function": {"name": "weather"}}),
        ),
        (
            "azure-openai",
            "/tool_choice",
            json!("none"),
            json!("required"),
            json!({"type": "function", "function": {"name": "weather"}}),
        ),
        (
            "anthropic",
            "/tool_choice",
            json!({"type": "none"}),
            json!({"type": "any"}),
            json!({"type": "tool", "name": "weather"}),
        ),
        (
            "gemini",
            "/toolConfig/functionCallingConfig",
            json!({"mode": "NONE"}),
            json!({"mode": "ANY"}),
            json!({"mode": "ANY", "allowedFunctionNames": ["weather"]}),
        ),
        ("bedrock", "/toolConfig/toolChoice", Value::Null, json!({"any": {}}), json!({"tool": {"name": "weather"}})),
        (
            "ollama",
            "/messages/4/content",
            json!("Do not call a tool."),
            json!("Call a tool before you answer."),
            json!("Call the tool `weather` before you answer."),
        ),
    ] {
        for (choice, expected) in
            [(json!("auto"), Value::Null), (json!("none"), none), (json!("required"), required), (named.clone(), tool)]
        {
            let body = body(provider, json!({"toolChoice": choice})).await;
            assert_eq!(body.pointer(place).cloned().unwrap_or_default(), expected, "{provider} {choice}");
            assert!(!body.to_string().contains("\"auto\""), "{provider}: it is the default");
        }
    }
    let without = body("bedrock", json!({"toolChoice": "none"})).await;
    assert_eq!(without["system"], json!([{"text": "be brief\n\nDo not call a tool."}]));
}

#[tokio::test]
async fn a_choice_in_the_form_of_the_provider_is_passed_on() {
    for (provider, own) in [
        ("openai", json!({"type": "function", "function": {"name": "weather"}})),
        ("anthropic", json!({"type": "any", "disable_parallel_tool_use": true})),
    ] {
        for name in ["toolChoice", "tool_choice"] {
            assert_eq!(body(provider, json!({ name: own })).await["tool_choice"], own, "{provider} {name}");
        }
    }
}

#[tokio::test]
async fn what_is_kept_ends_after_tools_system_and_the_last_user_entry() {
    for (setting, mark) in [("5m", json!({"type": "ephemeral"})), ("1h", json!({"type": "ephemeral", "ttl": "1h"}))] {
        let body = body("anthropic", json!({"cache": setting})).await;
        assert_eq!(body["system"], json!([{"type": "text", "text": "be brief", "cache_control": mark}]));
        assert_eq!(body["tools"][0]["cache_control"], mark);
        assert_eq!(body["messages"][2]["content"], json!([{"type": "text", "text": "three", "cache_control": mark}]));
        assert_eq!(body["messages"][0]["content"][0].get("cache_control"), None);
    }
    let body = body("bedrock", json!({"cache": "1h"})).await;
    let point = json!({"cachePoint": {"type": "default", "ttl": "1h"}});
    assert_eq!(body["system"], json!([{"text": "be brief"}, point]));
    assert_eq!(body["toolConfig"]["tools"][1], point);
    assert_eq!(body["messages"][2]["content"], json!([{"text": "three"}, point]));
    for provider in ["openai", "gemini", "ollama", "anthropic", "bedrock"] {
        let setting = if matches!(provider, "anthropic" | "bedrock") { "off" } else { "5m" };
        let body = self::body(provider, json!({"cache": setting})).await.to_string();
        assert!(!body.contains("cache"), "{provider}: {body}");
    }
}

#[tokio::test]
async fn settings_of_another_form_are_refused_before_anything_is_sent() {
    for provider in ["openai", "anthropic", "gemini", "ollama", "bedrock"] {
        for config in [json!({"toolChoice": "any"}), json!({"cache": "2h"})] {
            let server = Provider::new([ScriptedReply::status(500)]).await;
            let config = config.as_object().unwrap().clone().into();
            let messages = vec![Message::user("x").into()];
            let request = ModelRequest { messages, config, ..ModelRequest::default() };
            let error = collect(server.model(provider).respond(request)).await.unwrap_err();
            assert!(error.kind == ModelErrorKind::BadRequest && server.requests().is_empty(), "{provider}: {error}");
        }
    }
}
