//! Tests flows from `kubectl apply` to a response, and the responses to malformed requests.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{
    kinds::{AGENT, CONFIG_MAP, FLOW, FLOW_SET, MODEL, PLUGIN_CONFIG, PROMPT, SECRET},
    manifests::{agent, flow, flow_set, http_tool, model, object, plugin_config, prompt, secret, tool},
    namespace::{Namespace, REPORT_TIMEOUT},
    object::{ObjectExt as _, phases},
    scenario::{Scenario, columns, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    the_phases_of_a_flow_are_seen_in_order,
    a_flow_needs_no_object_but_its_provider,
    a_flow_answers_on_every_route_it_has,
    a_caller_who_asks_wrongly_is_told_so,
    a_prompt_calls_the_tools_of_its_flow,
    an_agent_calls_a_flow_and_another_agent,
    an_agent_takes_its_model_and_prompt_from_objects,
    secrets_of_a_flow_are_in_no_config_map,
    the_columns_of_flows_are_the_documented_ones,
);

/// Creates the stub as provider, the model `echo` on it, and a prompt that repeats its input.
pub(super) async fn provide_stub(ns: &Namespace) -> Result<()> {
    for reference in [plugin_config("stub", json!({})), model("echo", "stub"), prompt("say", "{{text}}")] {
        ns.provide(&reference).await?;
    }
    Ok(())
}

async fn the_phases_of_a_flow_are_seen_in_order(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    let recorder = ns.record(FLOW, "steps").await?;
    let running = ns.start(&flow("steps", &["say"], json!({}))).await?;
    let seen = recorder.up_to(&running).await?;
    let phases = phases(&seen);
    ensure!(phases == ["Pending", "Resolving", "Rendering", "Deploying", "Running"], "seen: {phases:?}");
    let endpoint = running.text("/status/endpoint");
    let expected = format!("http://steps.{}.svc.cluster.local:8080", ns.name);
    ensure!(endpoint == expected, "endpoint {endpoint}");
    let available = running.condition("Available");
    ensure!(available.is_true() && available.reason == "DeploymentReady", "Available: {available:?}");
    ensure!(running.condition("ReferencesResolved").is_true(), "{}", running.describe());
    ns.await_response("steps", "/", json!({"text": "hi"}), "echo: hi").await
}

async fn a_flow_needs_no_object_but_its_provider(ns: Namespace) -> Result<()> {
    ns.provide(&plugin_config("stub", json!({}))).await?;
    let spec = json!({
        "prompts": [{"prompt": {"name": "inline", "content": "Say {{word}}."}}],
        "modelSpec": {"provider": "stub", "model": "echo", "pluginConfigRef": {"name": "stub"}},
    });
    ns.start(&object(FLOW, "alone", spec)).await?;
    ns.await_response("alone", "/", json!({"word": "yes"}), "echo: Say yes.").await
}

async fn a_flow_answers_on_every_route_it_has(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    let first = "---\ninput: { default: { name: world } }\n---\nHello {{name}}. {{>second}}";
    ns.provide(&prompt("first", first)).await?;
    ns.provide(&prompt("second", "{{#if name}}Bye {{name}}.{{/if}}")).await?;
    ns.start(&flow("routes", &["first", "second"], json!({}))).await?;
    for (path, variables, expected) in [
        ("/", json!({"name": "Ada <&>"}), "echo: Hello Ada <&>. Bye Ada <&>."),
        ("/", json!({}), "echo: Hello world. Bye world."),
        ("/routes", json!({"name": "Bo"}), "echo: Hello Bo. Bye Bo."),
        ("/first", json!({"name": "Cy"}), "echo: Hello Cy. Bye Cy."),
        ("/second", json!({"name": "Di"}), "echo: Bye Di."),
    ] {
        ns.await_response("routes", path, variables, expected).await?;
    }
    Ok(())
}

async fn a_caller_who_asks_wrongly_is_told_so(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    let strict = "---\ninput:\n  schema:\n    count: integer\n---\n{{count}}";
    ns.provide(&prompt("strict", strict)).await?;
    ns.start(&flow("strict", &["strict"], json!({}))).await?;
    ns.await_response("strict", "/", json!({"count": 3}), "echo: 3").await?;
    for (path, variables, status, says) in [
        ("/", json!({}), 400, "count"),
        ("/", json!({"count": "three"}), 400, "count"),
        ("/", json!(["no", "object"]), 400, "object"),
        ("/elsewhere", json!({"count": 3}), 404, "/strict"),
    ] {
        let answer = ns.post("strict", path, variables.clone()).await?;
        let reported = answer.status == status && answer.text.contains(says);
        ensure!(reported, "{path} {variables}: {status} with {says:?} is expected, got {answer:?}");
    }
    let answer = ns.get_path("strict", "/").await?;
    ensure!(answer.status == 405, "GET is answered {answer:?}");
    let answer = ns.post("strict", "/", json!({"count": 3, "text": "x".repeat(2 << 20)})).await?;
    ensure!(answer.status == 413, "a body of 2 MiB is answered with status {}", answer.status);
    ns.await_response("strict", "/", json!({"count": 4}), "echo: 4").await
}

async fn a_prompt_calls_the_tools_of_its_flow(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.provide(&tool("calculator", json!({}))).await?;
    ns.start(&flow("counts", &["say"], json!({"tools": [{"name": "calculator"}]}))).await?;
    let call = json!({"text": "/tool calculator {\"expression\": \"6*7\"}"});
    let answer = ns.post("counts", "/", call).await?;
    ensure!(answer.status == 200 && answer.text.contains("42"), "{answer:?}");
    Ok(())
}

async fn an_agent_calls_a_flow_and_another_agent(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.start(&flow("speaker", &["say"], json!({}))).await?;
    ns.start(&agent("other", json!({}))).await?;
    let parameters = json!([{"name": "text", "required": true}]);
    let by_flow = json!({"type": "flow", "flowRef": {"name": "speaker"}, "parameters": parameters});
    ns.provide(&tool("speak", by_flow)).await?;
    ns.provide(&tool("ask", json!({"type": "agent", "agentRef": {"name": "other"}}))).await?;
    ns.start(&agent("caller", json!({"tools": ["speak", "ask"]}))).await?;
    for (call, expected) in [
        (r#"/tool speak {"text": "from afar"}"#, "echo: from afar"),
        (r#"/tool ask {"message": "are you there?"}"#, "echo: are you there?"),
    ] {
        let reply = ns.chat("caller", call).await?;
        ensure!(reply.contains(expected), "to {call} it replied {reply:?}");
    }
    Ok(())
}

async fn an_agent_takes_its_model_and_prompt_from_objects(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.provide(&prompt("role", "You are brief.")).await?;
    let fields = json!({"modelRef": {"name": "echo"}, "promptRef": {"name": "role"}});
    let before = ns.start(&agent("told", fields)).await?;
    let message = ns.chat("told", "/prompt").await?;
    ensure!(message == "You are brief.", "its prompt is {message:?}");

    ns.edit(PROMPT, "role", json!({"spec": {"content": "You are wordy."}})).await?;
    ns.await_reconfigured(AGENT, &before).await?;
    ns.await_reply("told", "/prompt", |prompt| prompt == "You are wordy.").await
}

async fn secrets_of_a_flow_are_in_no_config_map(ns: Namespace) -> Result<()> {
    ns.apply(&secret("keys", json!({"KEY": "hunter2-key"}))).await?;
    ns.apply(&secret("token", json!({"token": "hunter2-token"}))).await?;
    let keyed = json!({"credentialsRef": {"name": "keys"}, "credentialKeys": ["KEY"]});
    ns.provide(&plugin_config("stub", keyed)).await?;
    ns.provide(&model("echo", "stub")).await?;
    ns.provide(&prompt("say", "{{text}}")).await?;
    ns.provide(&http_tool("inline")).await?;
    let referred = json!({
        "type": "http", "endpoint": "http://weather.example/now",
        "headersFrom": [{"name": "Authorization", "secretKeyRef": {"name": "token", "key": "token"}}],
    });
    ns.provide(&tool("referred", referred)).await?;
    let tools = json!({"tools": [{"name": "inline"}, {"name": "referred"}]});
    let running = ns.start(&flow("careful", &["say"], tools)).await?;
    ns.await_response("careful", "/", json!({"text": "hi"}), "echo: hi").await?;

    for config_map in ns.list(CONFIG_MAP).await? {
        ensure!(!config_map.data.to_string().contains("hunter2"), "a secret is in {}", config_map.describe());
    }
    ensure!(!running.data.to_string().contains("hunter2"), "a secret is in the status");
    let ours = ns.get(SECRET, "careful-tools").await?;
    ensure!(!ours.text("/data/inline.json").is_empty(), "the tool with headers is not in the Secret");
    let config = ns.get(CONFIG_MAP, "careful-config").await?;
    let config: Value = serde_json::from_str(config.text("/data/config.json")).context("read config.json")?;
    ensure!(config["plugin"]["type"] == "stub" && config["defaultModel"]["model"] == "echo", "config.json: {config}");
    Ok(())
}

async fn the_columns_of_flows_are_the_documented_ones(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.apply(&flow("one", &["say"], json!({"replicas": 0}))).await?;
    ns.apply(&flow_set("set", &[("one", &["say"])], json!({"replicas": 0}))).await?;
    for (kind, name) in [(FLOW, "one"), (FLOW_SET, "set")] {
        ns.until(kind, name, REPORT_TIMEOUT, "has a phase", |it| !it.phase().is_empty()).await?;
    }
    for (kind, expected) in [
        (FLOW, &["Name", "Phase", "Available", "Ready", "Age"][..]),
        (FLOW_SET, &["Name", "Phase", "Ready", "ReadyFlows", "Total", "Available", "Age"]),
        (MODEL, &["Name", "Provider", "Model", "Phase", "Age"]),
        (PLUGIN_CONFIG, &["Name", "Type", "Phase", "Age"]),
        (PROMPT, &["Name", "Description", "Phase", "Age"]),
    ] {
        columns(&ns, kind, expected).await?;
    }
    Ok(())
}
