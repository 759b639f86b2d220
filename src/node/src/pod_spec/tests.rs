use serde_json::{Value, json};

use super::*;

fn programs() -> Programs {
    Programs { proxy: "/ours/recif-proxy".into(), runner: "/ours/recif-runner".into() }
}

fn deployment() -> Deployment {
    serde_json::from_value(json!({
        "metadata": { "name": "a", "namespace": "ns", "uid": "du" },
        "spec": { "selector": {}, "template": {
            "metadata": { "labels": { "app": "a" }, "annotations": { "x": "y" } },
            "spec": {
                "initContainers": [{
                    "name": "proxy", "image": "recif.local/proxy:dev", "restartPolicy": "Always",
                    "env": [
                        { "name": "RECIF_UPSTREAM_URL", "value": "http://127.0.0.1:8000" },
                        { "name": "RECIF_LAME_DUCK", "value": "5s" },
                        { "name": "RECIF_REQUIRE_IDENTITY", "value": "true" },
                    ],
                    "readinessProbe": { "httpGet": { "path": "/readyz", "port": "http" } },
                }],
                "containers": [
                    {
                        "name": "agent", "image": "corail:latest",
                        "ports": [{ "name": "agent", "containerPort": 8000 }, { "name": "http", "containerPort": 8888 }],
                        "env": [{ "name": "CORAIL_PORT", "value": "8000" }, { "name": "HOST", "value": "::" }],
                        "startupProbe": { "tcpSocket": { "port": 8000 } },
                        "livenessProbe": { "grpc": { "port": 8000 } },
                        "lifecycle": { "preStop": { "httpGet": { "path": "/_recif/drain", "port": 8888 } } },
                        "volumeMounts": [{ "name": "tmp", "mountPath": "/tmp" }, { "name": "c", "mountPath": "/genkit" }],
                    },
                    { "name": "other", "image": "x", "command": ["sh"], "ports": [{ "containerPort": 53, "protocol": "UDP" }] },
                ],
            },
        } },
    }))
    .unwrap()
}

fn made() -> Value {
    made_of(&deployment())
}

fn made_of(deployment: &Deployment) -> Value {
    let owner =
        DevAnnotations::of(Some(&[(DEV_COMMAND.to_owned(), "sh x".to_owned()), ("z".into(), "z".into())].into()));
    let ports = PortMap([(8000, 21000), (8888, 21001)].into());
    serde_json::to_value(pod(deployment, "hash", &owner, &ports, &programs())).unwrap()
}

#[test]
fn a_pod_is_the_deployments_own_and_names_its_template_and_ports() {
    let pod = made();
    let expected = json!({
        "generateName": "a-hash-", "namespace": "ns",
        "labels": { "app": "a", "pod-template-hash": "hash" },
        "annotations": { "x": "y", "recif.dev/dev-command": "sh x", "recif.dev/dev-ports": "8000=21000,8888=21001" },
        "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "a", "uid": "du", "controller": true,
            "blockOwnerDeletion": true }],
    });
    assert_eq!(pod["metadata"], expected);
    assert_eq!((&pod["spec"]["nodeName"], &pod["spec"]["hostNetwork"]), (&json!("recif-dev"), &json!(true)));
}

#[test]
fn every_port_becomes_the_one_that_was_found_for_it() {
    let spec = &made()["spec"];
    let (proxy, agent, other) = (&spec["initContainers"][0], &spec["containers"][0], &spec["containers"][1]);
    assert_eq!(proxy["ports"], json!([{ "name": "http", "containerPort": 21001, "hostPort": 21001 }]));
    assert_eq!(proxy["readinessProbe"]["httpGet"]["port"], "http", "by name it is found in the Pod");
    assert_eq!(agent["startupProbe"]["tcpSocket"]["port"], 21000);
    assert_eq!(agent["livenessProbe"]["grpc"]["port"], 21000);
    assert_eq!(agent["lifecycle"]["preStop"]["httpGet"]["port"], 21001);
    assert_eq!(other["ports"][0]["containerPort"], 53);
}

/// A port is looked at by the container whose program listens on it: one that cannot start because of its port gets another.
#[test]
fn the_sidecars_port_is_its_own_whichever_container_declares_it() {
    let mut older = serde_json::to_value(deployment()).unwrap();
    let spec = &mut older["spec"]["template"]["spec"];
    let port = spec["containers"][0]["ports"].as_array_mut().unwrap().pop().unwrap();
    spec["initContainers"][0]["ports"] = json!([port]);
    let older: Deployment = serde_json::from_value(older).unwrap();
    assert_eq!(made()["spec"], made_of(&older)["spec"]);
    let ports = |deployment: &Deployment| {
        let template = &deployment.spec.as_ref().unwrap().template;
        let owner = DevAnnotations::of(Some(&[(DEV_COMMAND.to_owned(), "sh x".to_owned())].into()));
        declared_ports(template, &owner, &programs())
    };
    assert_eq!(ports(&older), ports(&deployment()));
    assert_eq!(ports(&older), [(8000, false), (8888, true)].into());
}

#[test]
fn programs_are_told_where_they_listen() {
    let spec = &made()["spec"];
    let env = |container: &Value| -> Vec<String> {
        let variables = container["env"].as_array().unwrap().iter();
        variables
            .map(|variable| format!("{}={}", variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap()))
            .collect()
    };
    let proxy = [
        "RECIF_LISTEN_ADDR=127.0.0.1:21001",
        "RECIF_ADDRESS=127.0.0.1",
        "RECIF_LOCAL=true",
        "RECIF_UPSTREAM_URL=http://127.0.0.1:21000",
        "RECIF_LAME_DUCK=200ms",
    ];
    assert_eq!(env(&spec["initContainers"][0]), proxy);
    let agent = [
        "PORT=21000",
        "RECIF_ADDRESS=127.0.0.1",
        "RECIF_LOCAL=true",
        "RECIF_SIDECAR_PORT=21001",
        "RECIF_CONTRACT_ROOT=/genkit",
        "TMPDIR=/tmp",
        "CORAIL_PORT=21000",
        "HOST=::",
    ];
    assert_eq!(env(&spec["containers"][0]), agent);
    assert_eq!(env(&spec["containers"][1]), ["PORT=53", "CORAIL_PORT=53", "HOST=127.0.0.1"]);
}

#[test]
fn the_bridge_listens_on_loopback_and_its_servers_arguments_stay() {
    let mut container: Container = serde_json::from_value(json!({
        "name": "mcpserver", "command": ["/recif/recif-proxy"],
        "args": ["mcp-bridge", "--port", "3000", "--path", "/mcp", "--", "serve", "--port", "3000"],
    }))
    .unwrap();
    move_bridge(&mut container, &PortMap([(3000, 21000)].into()));
    let expected = "mcp-bridge --address 127.0.0.1 --port 21000 --path /mcp -- serve --port 3000";
    assert_eq!(container.args.unwrap().join(" "), expected);
}

#[test]
fn another_template_or_command_is_another_hash() {
    let template = deployment().spec.unwrap().template;
    let hash = template_hash(&template, &DevAnnotations::default());
    assert_eq!(hash.len(), HASH_LENGTH);
    assert_eq!(template_hash(&template.clone(), &DevAnnotations::of(Some(&BTreeMap::new()))), hash);
    let owner = DevAnnotations::of(Some(&[(DEV_FOLDER.to_owned(), "/x".to_owned())].into()));
    assert_ne!(template_hash(&template, &owner), hash);
    let mut other = template;
    other.metadata.as_mut().unwrap().annotations = None;
    assert_ne!(template_hash(&other, &DevAnnotations::default()), hash);
}

#[test]
fn declared_ports_are_those_over_tcp() {
    let template = deployment().spec.unwrap().template;
    let command = DevAnnotations::of(Some(&[(DEV_COMMAND.to_owned(), "sh".to_owned())].into()));
    for (owner, is_ours) in [(DevAnnotations::default(), true), (command, false)] {
        assert_eq!(declared_ports(&template, &owner, &programs()), [(8000, is_ours), (8888, true)].into());
    }
}
