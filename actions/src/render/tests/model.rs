//! Tests the rendering of an agent's Model, its Prompt and the Secrets of its tools.

use std::collections::BTreeMap;

use crds::{ModelSpec, PluginConfigSpec, Tool};
use serde_json::{Value, json};

use super::{agent, bare, tool};
use crate::render::{
    AgentConfig, AgentParts, Credentials, FlowModel, RenderError, ToolSlot, agent_config, agent_workload_children,
};

fn model() -> ModelSpec {
    let config = json!({ "temperature": 0.5 });
    let spec = json!({ "provider": "p", "model": "gpt", "pluginConfigRef": { "name": "pc" }, "defaultConfig": config });
    serde_json::from_value(spec).unwrap()
}

fn plugin(more: Value) -> PluginConfigSpec {
    let mut spec = json!({ "type": "openai", "credentialsRef": { "name": "keys" } });
    super::merge(&mut spec, more);
    serde_json::from_value(spec).unwrap()
}

fn with(plugin: &PluginConfigSpec) -> AgentConfig {
    let model = model();
    let parts = AgentParts { model: Some((&model, plugin)), ..AgentParts::default() };
    agent_config(&agent(json!({ "modelRef": { "name": "m" } })), &parts, &bare()).unwrap()
}

/// Returns the container with this configuration.
fn container(spec: Value, config: &AgentConfig) -> Value {
    let agent = agent(spec);
    let images = super::images(&agent, "proxy".into());
    let [_, deployment] = agent_workload_children(&agent, config, images, Some(1)).unwrap();
    deployment.body["spec"]["template"]["spec"]["containers"][0].clone()
}

#[test]
fn a_model_brings_its_provider_its_settings_and_its_credentials() {
    let extra = json!({ "serverAddress": "http://llm/v1" });
    let plugin = plugin(json!({ "credentialKeys": ["OPENAI_API_KEY"], "region": "eu", "extraConfig": extra }));
    let config = with(&plugin);
    for (name, value) in [
        ("CORAIL_MODEL_TYPE", "openai"),
        ("CORAIL_MODEL_ID", "gpt"),
        ("CORAIL_MODEL_CONFIG", r#"{"temperature":0.5}"#),
        ("CORAIL_MODEL_BASE_URL", "http://llm/v1"),
        ("CORAIL_MODEL_REGION", "eu"),
        ("CORAIL_MODEL_CREDENTIAL_KEYS", r#"["OPENAI_API_KEY"]"#),
    ] {
        assert_eq!(config.plain[name], value);
    }
    assert_eq!(config.secret, BTreeMap::new(), "credentials are in no object of ours");
    let container = container(json!({}), &config);
    let from = json!({ "secretKeyRef": { "name": "keys", "key": "OPENAI_API_KEY" } });
    assert_eq!(container["env"][1], json!({ "name": "OPENAI_API_KEY", "valueFrom": from }));
    assert_eq!(container["envFrom"], json!([{ "configMapRef": { "name": "my-agent-config" } }]));
}

#[test]
fn settings_of_its_protocol_reach_the_agent() {
    let extra = json!({ "endpoint": "http://llm", "apiVersion": "2024-10-21", "other": 1 });
    let config = with(&plugin(json!({ "type": "azure-openai", "extraConfig": extra })));
    assert_eq!(config.plain["CORAIL_MODEL_EXTRA_CONFIG"], r#"{"apiVersion":"2024-10-21"}"#);
    assert!(!with(&plugin(json!({}))).plain.contains_key("CORAIL_MODEL_EXTRA_CONFIG"));
    let (model, plugin) = (model(), plugin(json!({ "type": "vertexai", "extraConfig": { "location": "eu" } })));
    let parts = AgentParts { model: Some((&model, &plugin)), is_own_image: true, ..AgentParts::default() };
    let config = agent_config(&agent(json!({ "modelRef": { "name": "m" } })), &parts, &bare()).unwrap();
    for name in ["CORAIL_MODEL_EXTRA_CONFIG", "CORAIL_MODEL_REGION"] {
        assert!(!config.plain.contains_key(name), "{name}: an image of the user's own keeps its variables");
    }
}

#[test]
fn without_keys_the_whole_secret_is_the_environment() {
    let config = with(&plugin(json!({})));
    let sources = json!([{ "secretRef": { "name": "keys" } }, { "configMapRef": { "name": "my-agent-config" } }]);
    assert_eq!(container(json!({}), &config)["envFrom"], sources);
    assert!(!config.plain.contains_key("CORAIL_MODEL_CREDENTIAL_KEYS"));
}

#[test]
fn an_address_with_a_user_in_it_goes_to_the_secret() {
    let config = with(&plugin(json!({ "extraConfig": { "baseUrl": "http://u:p@llm" } })));
    assert_eq!(config.secret["CORAIL_MODEL_BASE_URL"], "http://u:p@llm");
    assert!(!config.plain.contains_key("CORAIL_MODEL_BASE_URL"));
}

/// Returns a fallback of another PluginConfig, with two keys in its Secret.
fn fallback(more: Value) -> FlowModel {
    let values = [("ANTHROPIC_API_KEY", "1"), ("NOTES", "2")];
    let credentials = Credentials {
        secret: "other-keys".into(),
        values: values.map(|(key, digest)| (key.to_owned(), digest.to_owned())).into(),
    };
    let mut spec = json!({ "type": "anthropic", "credentialsRef": { "name": "other-keys" } });
    super::merge(&mut spec, more);
    FlowModel {
        model: serde_json::from_value(
            json!({ "provider": "a", "model": "claude", "pluginConfigRef": { "name": "other.one" } }),
        )
        .unwrap(),
        plugin: serde_json::from_value(spec).unwrap(),
        credentials: Some(credentials),
        header_values: BTreeMap::new(),
        fallbacks: Vec::new(),
    }
}

#[test]
fn headers_certificates_passthrough_and_timeout_are_variables_without_a_secret_value() {
    let config = with(&plugin(json!({
        "headersFrom": [
            { "name": "X-Team", "value": "a" },
            { "name": "X-Price", "value": "$5" },
            { "name": "X-Key", "valueFrom": { "type": "Secret", "name": "s", "key": "k" } },
        ],
        "tls": { "caSecretRef": { "name": "ca" }, "systemCAs": false },
        "passthrough": true, "timeout": "1m30s",
    })));
    let headers = r#"{"X-Key":"$MODEL_PC__X_KEY","X-Price":"$MODEL_PC__X_PRICE","X-Team":"a"}"#;
    assert_eq!(config.secret["CORAIL_MODEL_HEADERS"], headers, "a value may be a credential");
    for (name, value) in [
        ("CORAIL_MODEL_TLS", r#"{"ca":"$MODEL_PC__TLS_CA","systemCAs":false}"#),
        ("CORAIL_MODEL_PASSTHROUGH", "true"),
        ("CORAIL_MODEL_TIMEOUT", "90"),
    ] {
        assert_eq!(config.plain[name], value);
    }
    let from = |name: &str, key: &str| json!({ "secretKeyRef": { "name": name, "key": key } });
    for (name, source) in [("MODEL_PC__X_KEY", from("s", "k")), ("MODEL_PC__TLS_CA", from("ca", "ca.crt"))] {
        assert_eq!(config.referred[name], json!({ "name": name, "valueFrom": source }));
    }
    assert_eq!(config.referred["MODEL_PC__X_PRICE"], json!({ "name": "MODEL_PC__X_PRICE", "value": "$$5" }));
}

#[test]
fn headers_without_a_literal_value_are_in_the_config_map() {
    let key = json!({ "name": "X-Key", "valueFrom": { "type": "Secret", "name": "s", "key": "k" } });
    let config = with(&plugin(json!({ "headersFrom": [key] })));
    assert_eq!(config.plain["CORAIL_MODEL_HEADERS"], r#"{"X-Key":"$MODEL_PC__X_KEY"}"#);
    assert_eq!(config.secret, BTreeMap::new());
}

#[test]
fn a_fallback_is_an_element_with_credentials_of_its_own() {
    let (model, plugin) = (model(), plugin(json!({})));
    let render = |fallbacks: &[FlowModel]| {
        let parts = AgentParts { model: Some((&model, &plugin)), fallbacks, ..AgentParts::default() };
        agent_config(&agent(json!({ "modelRef": { "name": "m" } })), &parts, &bare()).unwrap()
    };
    let config = render(&[fallback(json!({ "passthrough": true, "timeout": "5s" }))]);
    let expected = concat!(
        r#"[{"model":{"provider":"a","model":"claude"},"plugin":{"type":"anthropic","timeout":5},"#,
        r#""credentials":{"ANTHROPIC_API_KEY":"$MODEL_OTHER_ONE_70882867__ANTHROPIC_API_KEY"}}]"#,
    );
    assert_eq!(config.plain["CORAIL_MODEL_FALLBACKS"], expected, "the caller's key is for the first model's server");
    let from = json!({ "secretKeyRef": { "name": "other-keys", "key": "ANTHROPIC_API_KEY" } });
    let variable = json!({ "name": "MODEL_OTHER_ONE_70882867__ANTHROPIC_API_KEY", "valueFrom": from });
    assert_eq!(config.referred["MODEL_OTHER_ONE_70882867__ANTHROPIC_API_KEY"], variable);
    let secret = render(&[fallback(json!({ "extraConfig": { "baseUrl": "http://u:p@llm" } }))]);
    assert!(secret.secret.contains_key("CORAIL_MODEL_FALLBACKS"), "its address may hold a password");
    let secret = render(&[fallback(json!({ "headersFrom": [{ "name": "X-Team", "value": "a" }] }))]);
    assert!(secret.secret.contains_key("CORAIL_MODEL_FALLBACKS"), "its header may be a credential");
    assert_eq!(render(&[]).plain.get("CORAIL_MODEL_FALLBACKS"), None);
}

#[test]
fn a_prompt_is_the_system_prompt() {
    let parts = |prompt| AgentParts { prompt: Some(prompt), ..AgentParts::default() };
    let config = |prompt| agent_config(&agent(json!({})), &parts(prompt), &bare()).unwrap().plain;
    assert_eq!(config("Be brief.")["CORAIL_SYSTEM_PROMPT"], "Be brief.");
    assert!(!config("").contains_key("CORAIL_SYSTEM_PROMPT"), "an empty one would override the runtime's own");
}

fn secret_header(secret: &str) -> Value {
    json!({ "headersFrom": [{ "name": "X-Api-Key", "secretKeyRef": { "name": secret, "key": "k" } }] })
}

#[test]
fn the_value_of_a_secret_header_is_a_variable_and_not_in_the_tools() {
    let weather = tool("weather-api", secret_header("s"));
    let parts = AgentParts { tools: vec![ToolSlot::Object(&weather)], ..AgentParts::default() };
    let config = agent_config(&agent(json!({})), &parts, &bare()).unwrap();
    let tools: Value = serde_json::from_str(&config.secret["CORAIL_TOOLS"]).unwrap();
    assert_eq!(tools[0]["headers"], json!({ "X-Api-Key": "$TOOL_WEATHER_API_X_API_KEY" }));
    let from = json!({ "secretKeyRef": { "name": "s", "key": "k" } });
    let variable = json!({ "name": "TOOL_WEATHER_API_X_API_KEY", "valueFrom": from });
    assert_eq!(container(json!({}), &config)["env"][1], variable);

    let mine = json!({ "env": [{ "name": "TOOL_WEATHER_API_X_API_KEY", "value": "x" }] });
    assert_eq!(agent_config(&agent(mine), &parts, &bare()).unwrap_err().reason(), "InvalidSpec");
}

#[test]
fn two_secrets_in_one_variable_are_refused() {
    let (one, other) = (tool("a-b", secret_header("s")), tool("a_b", secret_header("t")));
    let both =
        |other| AgentParts { tools: vec![ToolSlot::Object(&one), ToolSlot::Object(other)], ..AgentParts::default() };
    let error = agent_config(&agent(json!({})), &both(&other), &bare()).unwrap_err();
    assert_eq!(error, RenderError::DuplicateVariable("TOOL_A_B_X_API_KEY".to_owned()));
    assert!(agent_config(&agent(json!({})), &both(&one), &bare()).is_ok(), "the same value twice is one");
}

#[test]
fn a_tool_that_calls_has_the_address_and_schemas_are_verbatim() {
    let schema = json!({ "type": "object", "properties": { "q": { "type": "string" } } });
    let ask =
        tool("ask", json!({ "type": "agent", "agentRef": { "name": "b" }, "inputSchema": schema, "outputSchema": {} }));
    let parts =
        AgentParts { tools: vec![ToolSlot::Caller(&ask, "http://b.default.svc:8000")], ..AgentParts::default() };
    let config = agent_config(&agent(json!({})), &parts, &bare()).unwrap();
    let expected = concat!(
        r#"[{"name":"ask","type":"agent","endpoint":"http://b.default.svc:8000","#,
        r#""inputSchema":{"properties":{"q":{"type":"string"}},"type":"object"},"outputSchema":{},"timeout":30}]"#,
    );
    assert_eq!(config.plain["CORAIL_TOOLS"], expected);
}

#[test]
fn an_agent_is_asked_in_its_protocol_and_one_at_a_url_in_a2a() {
    let ask = |spec: Value| {
        let mut all = json!({ "type": "agent" });
        super::merge(&mut all, spec);
        tool("ask", all)
    };
    let rendered = |tool: &Tool, address: Option<&str>| {
        let slot = address.map_or(ToolSlot::Object(tool), |address| ToolSlot::Caller(tool, address));
        let parts = AgentParts { tools: vec![slot], ..AgentParts::default() };
        let config = agent_config(&agent(json!({})), &parts, &bare()).unwrap();
        config.plain.get("CORAIL_TOOLS").or(config.secret.get("CORAIL_TOOLS")).unwrap().clone()
    };
    let mut inside = ask(json!({ "agentRef": { "name": "b" } }));
    let chat = r#"[{"name":"ask","type":"agent","endpoint":"http://b","timeout":30}]"#;
    assert_eq!(rendered(&inside, Some("http://b")), chat);
    inside.spec.call.a2a = true;
    let a2a = r#"[{"name":"ask","type":"agent","endpoint":"http://b","agentProtocol":"a2a","timeout":30}]"#;
    assert_eq!(rendered(&inside, Some("http://b")), a2a);
    let anywhere = ask(json!({ "endpoint": "https://a/b", "headers": { "X-Team": "blue" } }));
    let expected = concat!(
        r#"[{"name":"ask","type":"agent","endpoint":"https://a/b","agentProtocol":"a2a","#,
        r#""headers":{"X-Team":"blue"},"timeout":30}]"#,
    );
    assert_eq!(rendered(&anywhere, None), expected);
}

#[test]
fn the_namespace_is_told_unless_the_user_tells_it() {
    let config = agent_config(&agent(json!({})), &AgentParts::default(), &bare()).unwrap();
    let from = json!({ "fieldRef": { "fieldPath": "metadata.namespace" } });
    assert_eq!(container(json!({}), &config)["env"], json!([{ "name": "RECIF_NAMESPACE", "valueFrom": from }]));
    let mine = json!([{ "name": "RECIF_NAMESPACE", "value": "x" }]);
    assert_eq!(container(json!({ "env": mine }), &config)["env"], mine);
}
