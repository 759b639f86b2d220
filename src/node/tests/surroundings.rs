//! Tests of the surroundings of a program: variables, files, tokens, names of Services, and a sidecar's port.

#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test may fail in a function beside it, too"
)]

mod common;

use common::{World, deployment, free_port, script, server, service};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// Not a test: the program that the node runs.
#[test]
#[ignore = "the node runs it as a program"]
fn program() {
    common::program();
}

fn config_map(name: &str, data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

#[tokio::test]
async fn a_program_sees_its_variables_and_its_files_where_they_are_mounted() {
    let world = World::new();
    world.apply(config_map("plain", json!({ "A": "1", "file.txt": "text of a file" }))).await;
    let mut object = deployment(
        "env",
        1,
        script(
            "echo \"seen $A $NAME $PORT $HOST $(cat $FOLDER/file.txt) $0 $(cat $1) $SECRET_OF_SHELL\"; exec sleep 1000",
        ),
    );
    let container = &mut object["spec"]["template"]["spec"]["containers"][0];
    container["args"] = json!(["--port=$(PORT)", "/files/file.txt"]);
    container["ports"] = json!([{ "containerPort": 8000 }]);
    container["envFrom"] = json!([{ "configMapRef": { "name": "plain" } }]);
    container["env"] = json!([
        { "name": "FOLDER", "value": "/files" },
        { "name": "NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.namespace" } } },
    ]);
    container["volumeMounts"] = json!([{ "name": "files", "mountPath": "/files" }]);
    object["spec"]["template"]["spec"]["volumes"] = json!([{ "name": "files", "configMap": { "name": "plain" } }]);
    world.apply(object).await;
    let (_, line) = world.written("seen ").await;
    let pods = world.rolled_out("env", 1).await;
    let port = pods[0].spec.as_ref().unwrap().containers[0].ports.as_ref().unwrap()[0].container_port;
    assert_eq!(line, format!("seen 1 default {port} 127.0.0.1 text of a file --port={port} text of a file "));
}

#[tokio::test]
async fn files_follow_their_objects_while_a_pod_runs() {
    let world = World::new();
    world.apply(config_map("live", json!({ "a": "one" }))).await;
    let mut object = deployment("reader", 1, script("while :; do cat $F/* | tr '\\n' ' '; echo; sleep 0.02; done"));
    let container = &mut object["spec"]["template"]["spec"]["containers"][0];
    container["env"] = json!([{ "name": "F", "value": "/live" }]);
    container["volumeMounts"] = json!([{ "name": "live", "mountPath": "/live" }]);
    object["spec"]["template"]["spec"]["volumes"] = json!([{ "name": "live", "configMap": { "name": "live" } }]);
    world.apply(object).await;
    world.written("one").await;
    let pod = world.rolled_out("reader", 1).await[0].name_any();
    world.apply(config_map("live", json!({ "b": "two" }))).await;
    world.written("two").await;
    let (_, line) = world.screen.lines.lock().unwrap().last().cloned().unwrap();
    assert!(!line.contains("one"), "{line}");
    assert_eq!(world.pods().await[0].name_any(), pod, "the same Pod");
}

#[tokio::test]
async fn a_token_is_known_to_the_api_server_while_its_pod_is_there() {
    let world = World::new();
    let mut object = deployment("account", 1, script("echo token $(cat $F/token); exec sleep 1000"));
    let spec = &mut object["spec"]["template"]["spec"];
    spec["serviceAccountName"] = json!("robot");
    spec["containers"][0]["env"] = json!([{ "name": "F", "value": "/token" }]);
    spec["containers"][0]["volumeMounts"] = json!([{ "name": "t", "mountPath": "/token" }]);
    spec["volumes"] =
        json!([{ "name": "t", "projected": { "sources": [{ "serviceAccountToken": { "path": "token" } }] } }]);
    world.apply(object).await;
    let (_, line) = world.written("token ").await;
    let token = line.strip_prefix("token ").unwrap();
    assert_eq!(token.len(), 64);
    assert_eq!(world.tokens.account(token).as_deref(), Some("system:serviceaccount:default:robot"));
    let scale = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    let api = world.api::<k8s_openapi::api::apps::v1::Deployment>();
    api.patch("account", &PatchParams::default(), &scale).await.unwrap();
    world.until("no Pod is left", <[Pod]>::is_empty).await;
    while world.tokens.account(token).is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn urls_of_services_lead_to_relays_and_texts_stay() {
    let world = World::new();
    world.apply(service("weather", 8000)).await;
    let mut rendered = config_map(
        "rendered",
        json!({
            "config.json": "{\"url\": \"http://weather:8000/x\"}",
            "tools.json": "[{\"mcpEndpoint\": \"http://weather:8000/mcp\"}]",
        }),
    );
    rendered["metadata"]["labels"] = json!({ "app.kubernetes.io/managed-by": "recif-operator" });
    world.apply(rendered).await;
    world.apply(config_map("own", json!({ "config.json": "{\"url\": \"http://weather:8000/x\"}" }))).await;
    let variables = ["PLAIN", "PROMPT", "GONE", "CORAIL_TOOLS"];
    let show = variables.map(|name| format!("echo \"{name} ${name}\"")).join("; ");
    let text = format!(
        "{show}; echo \"RENDERED $(cat $R/config.json)\"; echo \"TOOLS $(cat $R/tools.json)\"; echo \"OWN $(cat $O/config.json)\"; echo \"ARG $0\"; exec sleep 1000"
    );
    let mut object = deployment("user", 1, script(&text));
    let spec = &mut object["spec"]["template"]["spec"];
    spec["containers"][0]["args"] = json!(["--url=http://weather.default.svc:8000/mcp"]);
    spec["containers"][0]["env"] = json!([
        { "name": "PLAIN", "value": "http://weather.default.svc.cluster.local:8000/a" },
        { "name": "PROMPT", "value": "Ask http://weather:8000 for the weather" },
        { "name": "GONE", "value": "postgres://u:secret@db.default.svc:5432/x" },
        { "name": "CORAIL_TOOLS", "value": "[{\"endpoint\": \"http://weather:8000/{city}\", \"description\": \"see http://weather:8000\"}]" },
        { "name": "R", "value": "/r" }, { "name": "O", "value": "/o" },
    ]);
    spec["containers"][0]["volumeMounts"] =
        json!([{ "name": "r", "mountPath": "/r" }, { "name": "o", "mountPath": "/o" }]);
    spec["volumes"] =
        json!([{ "name": "r", "configMap": { "name": "rendered" } }, { "name": "o", "configMap": { "name": "own" } }]);
    world.apply(object).await;
    world.written("ARG ").await;
    let relay = world.names.replace("http://weather:8000", "default").unwrap();
    let lines: Vec<String> = world.screen.lines.lock().unwrap().iter().map(|(_, line)| line.clone()).collect();
    let expected = [
        format!("PLAIN {relay}/a"),
        "PROMPT Ask http://weather:8000 for the weather".to_owned(),
        "GONE postgres://u:secret@db.default.svc:5432/x".to_owned(),
        format!("CORAIL_TOOLS [{{\"endpoint\": \"{relay}/{{city}}\", \"description\": \"see http://weather:8000\"}}]"),
        format!("RENDERED {{\"url\": \"{relay}/x\"}}"),
        format!("TOOLS [{{\"mcpEndpoint\": \"{relay}/mcp\"}}]"),
        "OWN {\"url\": \"http://weather:8000/x\"}".to_owned(),
        format!("ARG --url={relay}/mcp"),
    ];
    assert_eq!(lines, expected);
    assert_eq!(world.noted("nothing serves").await.1, "nothing serves db.default.svc:5432");
    let uid = world.pods().await[0].uid().unwrap();
    let names = std::fs::read_to_string(world.folder.join("pods").join(uid).join("names")).unwrap();
    let to = relay.strip_prefix("http://").unwrap();
    assert!(names.contains(&format!("c PLAIN: weather.default.svc.cluster.local:8000 -> {to}\n")), "{names}");
    assert!(names.contains("config.json") && !names.contains("secret"), "{names}");
}

#[tokio::test]
async fn the_service_of_a_pod_with_a_sidecar_leads_to_the_sidecar() {
    let world = World::new();
    let mut object = deployment(
        "behind",
        1,
        json!({ "command": ["bash", "-c", "exec sleep 1000"], "ports": [{ "name": "agent", "containerPort": 8000 }] }),
    );
    let mut sidecar = server("serve", 8888, &[("TEXT", "from the sidecar")]);
    sidecar["name"] = json!("proxy");
    sidecar["image"] = json!("x");
    sidecar["restartPolicy"] = json!("Always");
    object["spec"]["template"]["spec"]["initContainers"] = json!([sidecar]);
    world.apply(service("behind", free_port())).await;
    world.apply(object).await;
    let pods = world.rolled_out("behind", 1).await;
    let spec = pods[0].spec.as_ref().unwrap();
    let port = spec.init_containers.as_ref().unwrap()[0].ports.as_ref().unwrap()[0].container_port;
    let slices =
        world.api::<k8s_openapi::api::discovery::v1::EndpointSlice>().list(&ListParams::default()).await.unwrap();
    assert_eq!(slices.items[0].ports.as_ref().unwrap()[0].port, Some(port));
    assert_eq!(common::ask(&format!("127.0.0.1:{port}")).await.unwrap(), "from the sidecar");
}
