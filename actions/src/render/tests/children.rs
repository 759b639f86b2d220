//! Tests the children as they are applied.

use serde_json::{Value, json};

use super::{PROXY_IMAGE, agent, bare, images, settings, template, tool, with_tools};
use crate::{
    ports::{ChildKind, ChildManifest},
    render::{
        AGENT_LABEL, AGENT_PORT, RenderSettings, ToolSlot, agent_config, agent_config_children,
        agent_workload_children, endpoint, selector_text,
    },
};

fn children(
    spec: Value,
    tools: &[ToolSlot<'_>],
    settings: &RenderSettings,
    replicas: Option<i32>,
) -> Vec<ChildManifest> {
    let agent = agent(spec);
    let config = agent_config(&agent, &with_tools(tools), settings).unwrap();
    let mut children = agent_config_children(&agent, &config);
    children.extend(agent_workload_children(&agent, &config, images(&agent, PROXY_IMAGE.into()), replicas).unwrap());
    children
}

fn bodies(children: Vec<ChildManifest>) -> Vec<Value> {
    children.into_iter().map(|child| child.body).collect()
}

#[test]
fn a_minimal_agent() {
    insta::assert_yaml_snapshot!(bodies(children(json!({}), &[], &bare(), Some(1))));
}

#[test]
fn the_documented_agent() {
    let weather = tool(
        "weather-api",
        json!({
            "description": "Weather of a city",
            "endpoint": "https://weather.example/{city}",
            "method": "GET",
            "headers": { "Authorization": "Bearer $KEY" },
            "parameters": [{ "name": "city", "description": "Name of the city", "required": true }],
        }),
    );
    let spec = json!({
        "strategy": "agent-react",
        "channel": "rest",
        "modelType": "ollama",
        "modelId": "qwen3.5:4b",
        "backgroundModel": "ollama:qwen3.5:0.8b",
        "systemPrompt": "You are helpful.\nBe brief.",
        "storage": "postgresql",
        "tools": ["weather-api", "datetime"],
        "knowledgeBases": ["docs"],
        "image": "registry.example/corail:1.2",
        "replicas": 2,
        "port": 9000,
        "env": [{ "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "keys", "key": "weather" } } }],
        "envFrom": [{ "secretRef": { "name": "more", "optional": true } }],
        "resources": { "requests": { "cpu": "100m", "memory": "256Mi" }, "limits": { "memory": "1Gi" } },
        "imagePullSecrets": [{ "name": "b" }, { "name": "a" }, { "name": "b" }],
        "serviceAccountName": "robot",
    });
    let slots = [ToolSlot::Object(&weather), ToolSlot::Builtin("datetime")];
    insta::assert_yaml_snapshot!(bodies(children(spec, &slots, &settings(), Some(2))));
}

#[test]
fn they_come_in_the_order_in_which_they_are_applied_each_under_its_own_name() {
    let children = children(json!({ "databaseUrl": "postgres://u:p@db/r" }), &[], &bare(), None);
    let named: Vec<_> = children.iter().map(|child| child.child.to_string()).collect();
    assert_eq!(
        named,
        [
            "ServiceAccount/my-agent",
            "ConfigMap/my-agent-config",
            "Secret/my-agent-config",
            "Service/my-agent",
            "Deployment/my-agent"
        ]
    );
    for ChildManifest { child, body } in &children {
        assert_eq!(body["apiVersion"], child.kind.api_version());
        assert_eq!(body["kind"], child.kind.as_str());
        assert_eq!(body["metadata"]["name"], child.name);
        assert_eq!(body["metadata"]["namespace"], child.namespace);
    }
}

#[test]
fn replicas_are_left_to_others_when_not_given() {
    for (replicas, expected) in [(None, Value::Null), (Some(0), json!(0)), (Some(3), json!(3))] {
        let deployment = children(json!({ "replicas": 7 }), &[], &bare(), replicas).pop().unwrap();
        assert_eq!(deployment.child.kind, ChildKind::Deployment);
        assert_eq!(deployment.body["spec"].get("replicas").cloned().unwrap_or_default(), expected);
    }
}

#[test]
fn an_image_without_a_registry_is_never_pulled() {
    for (image, policy) in [("corail:latest", "Never"), ("a/b", "IfNotPresent"), ("r.example:5000/a", "IfNotPresent")] {
        let template = template(json!({ "image": image })).unwrap();
        assert_eq!(template["spec"]["containers"][0]["imagePullPolicy"], policy, "{image}");
    }
}

#[test]
fn the_pull_policy_of_the_spec_is_that_of_its_container_alone() {
    for (image, policy) in [("corail:latest", "IfNotPresent"), ("corail:latest", "Always"), ("a/b", "Never")] {
        let template = template(json!({ "image": image, "imagePullPolicy": policy })).unwrap();
        assert_eq!(template["spec"]["containers"][0]["imagePullPolicy"], policy, "{image}");
        assert_eq!(template["spec"]["initContainers"][0]["imagePullPolicy"], "IfNotPresent", "of the sidecar");
    }
}

#[test]
fn the_startup_probe_ends_before_the_deployment_gives_up() {
    let children = children(json!({}), &[], &bare(), Some(1));
    let spec = &children.last().unwrap().body["spec"];
    let probe = &spec["template"]["spec"]["containers"][0]["startupProbe"];
    let number = |value: &Value| value.as_i64().unwrap();
    let patience = number(&probe["periodSeconds"]) * number(&probe["failureThreshold"]);
    assert!((300..number(&spec["progressDeadlineSeconds"])).contains(&patience), "{patience} s");
}

#[test]
fn the_same_arguments_give_the_same_bytes() {
    let spec = || json!({ "podTemplate": { "spec": { "nodeSelector": { "b": "1", "a": "2" } } } });
    let bytes = || bodies(children(spec(), &[], &settings(), None)).iter().map(Value::to_string).collect::<String>();
    assert_eq!(bytes(), bytes());
}

#[test]
fn status_says_where_the_agent_and_its_pods_are() {
    let agent = agent(json!({ "port": 9000 }));
    assert_eq!(endpoint(&agent, AGENT_PORT, &bare()), "http://my-agent.default.svc.cluster.local:8000");
    let selector = selector_text(AGENT_LABEL, "my-agent");
    assert_eq!(selector, "app.kubernetes.io/name=my-agent,recif.dev/agent=my-agent");
}
