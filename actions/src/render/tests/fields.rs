//! Tests the fields of an Agent that others see of it, the key of its system prompt, and the probes of its container.

use crds::Flow;
use serde_json::{Value, json};

use super::{agent, bare, config, images, template};
use crate::render::{
    AgentParts, FLOW, FlowContract, FlowImages, FlowParts, PinnedProxy, agent_config, agent_workload_children,
    flow_workload_children,
};

fn card(spec: Value) -> Option<String> {
    config(spec, &bare()).unwrap().plain.remove("CORAIL_AGENT_CARD")
}

#[test]
fn the_card_holds_what_the_spec_sets_and_is_absent_without_it() {
    assert_eq!(card(json!({})), None);
    assert_eq!(card(json!({ "description": "", "card": { "skills": [] } })), None);
    assert_eq!(card(json!({ "description": "Sells." })).as_deref(), Some(r#"{"description":"Sells."}"#));
    let skills = json!([
        { "id": "find", "name": "Find", "description": "Finds.", "tags": ["a"], "inputModes": ["text/plain"] },
        { "id": "buy", "name": "Buy" },
    ]);
    let expected = concat!(
        r#"{"description":"Sells.","skills":[{"id":"find","name":"Find","description":"Finds.","tags":["a"],"#,
        r#""inputModes":["text/plain"]},{"id":"buy","name":"Buy"}]}"#,
    );
    assert_eq!(card(json!({ "description": "Sells.", "card": { "skills": skills } })).as_deref(), Some(expected));
}

#[test]
fn a_card_that_no_variable_holds_is_refused() {
    let skill = |n: usize| json!({ "id": n.to_string(), "name": "x", "description": "x".repeat(4096) });
    let skills: Vec<Value> = (0..32).map(skill).collect();
    let error = config(json!({ "card": { "skills": skills } }), &bare()).unwrap_err();
    assert_eq!(error.reason(), "InvalidSpec");
    assert!(error.to_string().starts_with("environment variable CORAIL_AGENT_CARD has "), "{error}");
}

#[test]
fn the_kubelet_makes_the_system_prompt_of_a_key() {
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        let source = json!({ kind: { "name": "prompts", "key": "seller" } });
        let spec = || json!({ "systemPrompt": "", "systemPromptFrom": source });
        let env = template(spec()).unwrap()["spec"]["containers"][0]["env"].take();
        let variable = json!({ "name": "CORAIL_SYSTEM_PROMPT", "valueFrom": source });
        assert!(env.as_array().unwrap().contains(&variable), "{env}");
        let config = config(spec(), &bare()).unwrap();
        assert!(!config.plain.contains_key("CORAIL_SYSTEM_PROMPT") && config.secret.is_empty());

        let mut taken = spec();
        taken["env"] = json!([{ "name": "CORAIL_SYSTEM_PROMPT", "value": "x" }]);
        let error = super::config(taken, &bare()).unwrap_err();
        assert_eq!(error.reason(), "InvalidSpec", "{error}");
    }
}

/// Returns the handlers of the startup, liveness and readiness probe.
fn handlers(container: &Value) -> [Value; 3] {
    ["startupProbe", "livenessProbe", "readinessProbe"].map(|probe| {
        let probe = &container[probe];
        assert!(probe["periodSeconds"].is_number(), "{probe}");
        let mut found = ["httpGet", "tcpSocket"].into_iter().filter(|handler| !probe[*handler].is_null());
        let handler = found.next().unwrap();
        assert_eq!(found.next(), None, "a probe has one handler");
        json!({ handler: probe[handler] })
    })
}

#[test]
fn the_probes_go_where_the_spec_says() {
    let get = |path: &str, port: Value| json!({ "httpGet": { "path": path, "port": port } });
    let tcp = |port: Value| json!({ "tcpSocket": { "port": port } });
    let healthz = || get("/healthz", json!("agent"));
    for (spec, expected) in [
        (json!({}), [healthz(), healthz(), healthz()]),
        (json!({ "readiness": {} }), [tcp(json!("agent")), tcp(json!("agent")), tcp(json!("agent"))]),
        (json!({ "readiness": { "port": 9090 } }), [tcp(json!(9090)), tcp(json!(9090)), tcp(json!(9090))]),
        (
            json!({ "readiness": { "path": "/up" } }),
            [get("/up", json!("agent")), tcp(json!("agent")), get("/up", json!("agent"))],
        ),
        (
            json!({ "readiness": { "path": "/up", "port": 9090 } }),
            [get("/up", json!(9090)), tcp(json!(9090)), get("/up", json!(9090))],
        ),
        (
            json!({ "port": 9090, "readiness": { "path": "/up", "port": 9090 } }),
            [get("/up", json!("agent")), tcp(json!("agent")), get("/up", json!("agent"))],
        ),
        (
            json!({ "proxy": { "enabled": false }, "readiness": { "path": "/up" } }),
            [get("/up", json!("http")), tcp(json!("http")), get("/up", json!("http"))],
        ),
    ] {
        assert_eq!(handlers(&template(spec.clone()).unwrap()["spec"]["containers"][0]), expected, "{spec}");
    }
}

#[test]
fn a_flow_has_the_same_probes() {
    let of = |more: Value| {
        let mut spec = json!({ "prompts": [{ "promptRef": { "name": "p" } }], "modelRef": { "name": "m" } });
        super::merge(&mut spec, more);
        let flow: Flow = serde_json::from_value(json!({ "metadata": { "name": "f" }, "spec": spec })).unwrap();
        let parts =
            FlowParts { name: "f".to_owned(), prompts: Vec::new(), tools: Vec::new(), model: None, left_out: None };
        let contract = FlowContract::of_flow(&parts, &Default::default()).unwrap();
        let images = FlowImages { runner: "r", proxy: "proxy".into() };
        let [_, deployment] =
            flow_workload_children(&flow, FLOW, &flow.spec.runtime, &contract, images, Some(1)).unwrap();
        handlers(&deployment.body["spec"]["template"]["spec"]["containers"][0])
    };
    let get = |path: &str| json!({ "httpGet": { "path": path, "port": "agent" } });
    let tcp = json!({ "tcpSocket": { "port": "agent" } });
    assert_eq!(of(json!({})), [get("/healthz"), get("/healthz"), get("/readyz")]);
    assert_eq!(of(json!({ "readiness": { "path": "/up" } })), [get("/up"), tcp, get("/up")]);
}

#[test]
fn the_sidecar_asks_the_same_and_leaves_to_the_kubelet_what_it_cannot_ask() {
    let asked = |readiness: Value| {
        let agent = agent(json!({ "readiness": readiness }));
        let config = agent_config(&agent, &AgentParts::default(), &bare()).unwrap();
        let proxy = PinnedProxy { image: "proxy", caller_keys: None, tells_ready: true, declares_port: true };
        let [_, deployment] = agent_workload_children(&agent, &config, images(&agent, proxy), Some(1)).unwrap();
        let env = deployment.body["spec"]["template"]["spec"]["initContainers"][0]["env"].clone();
        let asked = env.as_array().unwrap().iter().find(|variable| variable["name"] == "RECIF_READINESS");
        asked.map(|variable| variable["value"].as_str().unwrap().to_owned())
    };
    assert_eq!(asked(json!({ "path": "/up" })).as_deref(), Some("/up"));
    assert_eq!(asked(json!({})).as_deref(), Some("tcp"));
    assert_eq!(asked(json!({ "path": "/up", "port": 8000 })).as_deref(), Some("/up"));
    assert_eq!(asked(json!({ "path": "/up", "port": 9090 })), None, "the sidecar knows one port");
    assert_eq!(asked(json!({ "path": "/prêt" })), None, "the kubelet escapes it");
}
