//! Tests what keeps an Agent of Récif's own image from being deployed although each reference can be used: credentials that its
//! model lacks, and settings that cannot be read. A fallback without credentials does not.

use serde_json::{Value, json};

use super::{
    running::MINUTE,
    scenarios::{message, phase},
};
use crate::fake::{ObjectId, Operator, Sim, agent, agent_id, child_id, id, object, secret, settings, tool, tool_id};

/// Creates a Model with a PluginConfig of the same name.
fn provide(sim: &Sim, name: &str, plugin: &Value, more: Value) {
    sim.store().create(&id("PluginConfig", name), object("PluginConfig", plugin.clone()));
    let mut model = json!({"provider": "p", "model": name, "pluginConfigRef": {"name": name}});
    model.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    sim.store().create(&id("Model", name), object("Model", model));
}

/// Creates the agent `a` with Récif's image and the Model `first`, and runs the operator for a minute.
async fn deployed(sim: &Sim, more: Value) -> Operator {
    let mut spec = json!({"image": settings().runner_image, "modelRef": {"name": "first"}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    sim.store().create(&agent_id("a"), agent(spec));
    let mut operator = Operator::start(sim);
    operator.run(MINUTE).await;
    operator
}

/// Checks that the agent waits and says this; that it runs, where that is empty.
fn is_judged(sim: &Sim, expected: &str, case: &str) {
    if expected.is_empty() {
        assert_eq!(phase(sim), "Running", "{case}: {}", message(sim));
    } else {
        assert_eq!((phase(sim), message(sim)), ("Resolving".into(), expected.into()), "{case}");
    }
}

/// Returns the message of the condition on what is left out; empty without it.
fn understood(sim: &Sim, of: &ObjectId) -> String {
    let conditions = sim.store().at(of, "/status/conditions");
    let found = conditions.as_array().and_then(|all| all.iter().find(|found| found["type"] == "ConfigUnderstood"));
    let Some(found) = found else { return String::new() };
    assert_eq!((&found["status"], &found["reason"]), (&json!("False"), &json!("MissingDependency")));
    found["message"].as_str().unwrap().to_owned()
}

/// Reports whether the agent's container gets fallbacks.
fn has_fallbacks(sim: &Sim) -> bool {
    let is_set = |kind| sim.store().at(&child_id(kind), "/data/CORAIL_MODEL_FALLBACKS").is_string();
    is_set("ConfigMap") || is_set("Secret")
}

#[tokio::test(start_paused = true)]
async fn a_fallback_of_a_cloud_without_credentials_is_left_out_and_named() {
    let aws = "AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    let azure = "AZURE_OPENAI_API_KEY, or AZURE_OPENAI_AD_TOKEN, or AZURE_TENANT_ID and AZURE_CLIENT_ID and AZURE_CLIENT_SECRET";
    let bedrock = |more: Value| {
        let mut plugin = json!({"type": "bedrock", "region": "eu-central-1"});
        plugin.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        plugin
    };
    let stub = json!({"type": "stub"});
    let cases = [
        (stub.clone(), bedrock(json!({})), format!("PluginConfig other names no Secret with {aws}")),
        (
            stub.clone(),
            bedrock(json!({"credentialsRef": {"name": "keys"}})),
            format!("Secret keys has no key {aws} (PluginConfig other)"),
        ),
        (
            stub.clone(),
            json!({"type": "azure-openai", "extraConfig": {"endpoint": "https://a.openai.azure.com"}}),
            format!("PluginConfig other names no Secret with {azure}"),
        ),
        (
            stub.clone(),
            json!({"type": "vertexai"}),
            "PluginConfig other names no Secret with GOOGLE_APPLICATION_CREDENTIALS".to_owned(),
        ),
        (
            stub.clone(),
            bedrock(json!({"credentialsRef": {"name": "keys"}, "credentialKeys": ["OTHER"]})),
            String::new(),
        ),
        (stub.clone(), bedrock(json!({"headersFrom": [{"name": "X-Key", "value": "k"}]})), String::new()),
        // It has the address of the first model, and so its identity.
        (bedrock(json!({})), bedrock(json!({})), String::new()),
        (
            bedrock(json!({})),
            bedrock(json!({"region": "us-east-1"})),
            format!("PluginConfig other names no Secret with {aws}"),
        ),
    ];
    for (first, other, lacks) in cases {
        let case = format!("{first} {other}");
        let sim = Sim::new();
        sim.store().create(&id("Secret", "keys"), secret(json!({"OTHER": "aw=="})));
        provide(&sim, "other", &other, json!({}));
        provide(&sim, "first", &first, json!({"fallbackRefs": [{"name": "other"}]}));
        let mut operator = deployed(&sim, json!({})).await;
        is_judged(&sim, "", &case);
        let type_ = other["type"].as_str().unwrap();
        let alone = "a fallback does not get the Pod's own identity";
        let sentence = format!("fallback {type_}/other is left out, {lacks}: {alone}");
        let expected = if lacks.is_empty() { String::new() } else { sentence };
        assert_eq!((understood(&sim, &agent_id("a")), has_fallbacks(&sim)), (expected, lacks.is_empty()), "{case}");
        if lacks.starts_with("Secret keys") {
            for key in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
                sim.store().edit(&id("Secret", "keys"), |body| body["data"][key] = json!("aw=="));
            }
            operator.run(MINUTE).await;
            is_judged(&sim, "", "with the keys");
            assert_eq!((understood(&sim, &agent_id("a")), has_fallbacks(&sim)), (String::new(), true));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_flow_goes_without_that_fallback_unless_its_image_is_its_own() {
    let sim = Sim::new();
    provide(&sim, "other", &json!({"type": "bedrock", "region": "eu-central-1"}), json!({}));
    provide(&sim, "first", &json!({"type": "stub"}), json!({"fallbackRefs": [{"name": "other"}]}));
    let flow = json!({"prompts": [{"prompt": {"name": "p", "content": "hi"}}], "modelRef": {"name": "first"}});
    let with = |more: Value| {
        let mut spec = flow.clone();
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    sim.store().create(&id("Flow", "f"), object("Flow", flow.clone()));
    sim.store().create(&id("Flow", "g"), object("Flow", with(json!({"image": "r/mine:1"}))));
    let flows = json!([with(json!({"name": "x"})), with(json!({"name": "y"}))]);
    sim.store().create(&id("FlowSet", "s"), object("FlowSet", json!({"flows": flows})));
    Operator::start(&sim).run(MINUTE).await;
    let sentence = "fallback bedrock/other is left out, PluginConfig other names no Secret with AWS_BEARER_TOKEN_BEDROCK, or \
                    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: a fallback does not get the Pod's own identity";
    for (of, expected) in [(id("Flow", "f"), sentence), (id("FlowSet", "s"), sentence), (id("Flow", "g"), "")] {
        assert_eq!(sim.store().at(&of, "/status/phase"), "Running", "{of:?}");
        assert_eq!(understood(&sim, &of), expected, "{of:?}");
    }
    for (flow, is_rendered) in [("f", false), ("g", true)] {
        let config = sim.store().at(&id("ConfigMap", &format!("{flow}-config")), "/data/config.json");
        assert_eq!(config.as_str().unwrap().contains("bedrock"), is_rendered, "{config}");
    }
}

#[tokio::test(start_paused = true)]
async fn credentials_for_a_gateway_are_declared() {
    let words = |type_: &str, key: &str| {
        format!(
            "PluginConfig first: only declared credentials go to a base URL that is none of {type_}: name {key} of its Secret in \
             credentialKeys, or set headersFrom or passthrough"
        )
    };
    let google = "GOOGLE_APPLICATION_CREDENTIALS";
    let vertex = |url: &str, more: Value| {
        let extra = json!({"baseUrl": url, "projectId": "p"});
        let mut plugin = json!({"type": "vertexai", "extraConfig": extra, "credentialsRef": {"name": "keys"}});
        plugin.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        plugin
    };
    let azure = json!({
        "type": "azure-openai", "extraConfig": {"endpoint": "https://gateway.example"}, "credentialsRef": {"name": "keys"},
    });
    let away = "https://gateway.example";
    for (plugin, key, expected) in [
        (vertex(away, json!({})), google, words("vertexai", google)),
        (vertex(away, json!({"credentialKeys": [google]})), google, String::new()),
        (vertex(away, json!({"credentialKeys": ["key.json"]})), "key.json", String::new()),
        (vertex(away, json!({"headersFrom": [{"name": "X-Key", "value": "k"}]})), google, String::new()),
        (vertex(away, json!({"passthrough": true})), google, String::new()),
        (vertex("https://eu-aiplatform.googleapis.com", json!({})), google, String::new()),
        (vertex("http://localhost:8080", json!({})), google, String::new()),
        (azure.clone(), "AZURE_CLIENT_SECRET", words("azure-openai", "AZURE_CLIENT_SECRET")),
        (azure, "AZURE_OPENAI_API_KEY", String::new()),
    ] {
        let sim = Sim::new();
        sim.store().create(&id("Secret", "keys"), secret(json!({key: "aw=="})));
        provide(&sim, "first", &plugin, json!({}));
        deployed(&sim, json!({})).await;
        is_judged(&sim, &expected, &plugin.to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn a_choice_of_tools_that_fails_each_request_is_told() {
    let stub = json!({"type": "stub"});
    let form = "in defaultConfig, `toolChoice` is auto, none, required, or {\"tool\": \"its name\"}";
    let absent =
        "in defaultConfig, `toolChoice` names the tool \"wether\", which is not there: add it, or name another";
    let tools = json!({"tools": ["weather", "datetime"]});
    for (choice, of_fallback, more, expected) in [
        (json!("any"), json!("auto"), json!({}), format!("Model first: {form}")),
        (json!("auto"), json!(["any"]), json!({}), format!("Model other: {form}")),
        (json!({"tool": "wether"}), json!("auto"), tools.clone(), format!("Model first: {absent}")),
        (json!("none"), json!({"tool": "wether"}), tools.clone(), format!("Model other: {absent}")),
        (json!({"tool": "weather"}), json!({"tool": "datetime"}), tools, String::new()),
        // Without tools the choice means nothing.
        (json!({"tool": "wether"}), json!({"type": "any"}), json!({}), String::new()),
    ] {
        let sim = Sim::new();
        sim.store().create(&tool_id("weather"), tool("http://weather"));
        provide(&sim, "other", &stub, json!({"defaultConfig": {"toolChoice": of_fallback}}));
        let fallbacks = json!([{"name": "other"}]);
        provide(&sim, "first", &stub, json!({"fallbackRefs": fallbacks, "defaultConfig": {"toolChoice": choice}}));
        let mut operator = deployed(&sim, more).await;
        is_judged(&sim, &expected, &format!("{choice} {of_fallback}"));
        for name in ["first", "other"] {
            sim.store().edit(&id("Model", name), |body| body["spec"]["defaultConfig"]["toolChoice"] = json!("auto"));
        }
        operator.run(MINUTE).await;
        assert_eq!(phase(&sim), "Running", "{choice}: {}", message(&sim));
    }
}
