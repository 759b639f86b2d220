//! What had an effect in a source has it here, each on objects of its own.

#![allow(clippy::unwrap_used)]

mod common;

use common::{agent, assert_reported, imported, lines, object, refusals, thing};
use serde_json::{Value, json};

const KRYPTON: &str = "krypton.ai/v1alpha1";
const KAGENT: &str = "kagent.dev/v1alpha2";
const RECIF: &str = "agents.recif.dev/v1";
const FIRST: &str = "kagent.dev/v1alpha1";

#[test]
fn a_field_has_one_line_and_the_heaviest_class() {
    let spec = json!({ "image": "own:1", "timeout": "2h", "serviceAccountName": "robot", "port": 8080 });
    let found = lines(&imported(&thing(KRYPTON, "Agent", "a", &spec)));
    let expected = [
        "change Agent n/a: runs as uid 1000, restricted; podTemplate.spec.securityContext if the image needs its own user",
        "change Agent n/a spec.port: in-cluster callers use port 8000 of the Service",
        "change Agent n/a spec.timeout: is now \"1h\"; is enforced here",
    ];
    for line in expected {
        assert!(found.contains(&line.to_owned()), "{line}: {found:#?}");
    }
    let text = agent("a", &json!({ "systemMessage": "x", "tools": [{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}] }));
    let found = lines(&imported(&text));
    let fields: Vec<_> = found.iter().filter_map(|line| line.split_once(':')?.0.rsplit(' ').next()).collect();
    let items = (0..11).map(|number| format!("spec.declarative.tools[{number}]"));
    assert_eq!(fields, ["spec.declarative.modelConfig".to_owned()].into_iter().chain(items).collect::<Vec<_>>());
    let default = "todo Agent n/a spec.declarative.modelConfig: is ModelConfig default-model-config, which kagent takes \
                   where none is named; ModelConfig n/default-model-config is not in the input";
    assert_eq!(found[0], default);
}

#[tokio::test]
async fn defaults_of_krypton_are_written_out() {
    let imported = imported(&thing(KRYPTON, "Agent", "a", &json!({ "image": "own:1" })));
    let spec = object(&imported, "Agent", "a")["spec"].clone();
    assert_eq!(spec["protocol"], "a2a");
    assert_eq!(spec["scaling"], json!({ "minReplicas": 1, "maxReplicas": 10, "concurrency": 8 }));
    assert_eq!(refusals(&imported).await, Vec::<String>::new());
}

#[test]
fn a_length_of_time_that_is_the_default_of_krypton_says_nothing() {
    for (timeout, startup) in [("1m0s", "0.5m"), ("60s", "30s"), ("60000ms", "30000ms")] {
        for protocol in ["a2a", "mcp"] {
            let spec = json!({ "image": "own:1", "protocol": protocol, "timeout": timeout, "startupTimeout": startup });
            let found = lines(&imported(&thing(KRYPTON, "Agent", "a", &spec)));
            assert!(!found.iter().any(|line| line.contains("imeout")), "{found:#?}");
        }
    }
}

#[tokio::test]
async fn a_model_of_krypton_keeps_its_time_to_start() {
    let source = json!({ "huggingface": "org/m", "file": "m.gguf" });
    let spec = json!({ "source": source, "runtime": "llama.cpp", "startupTimeout": "10m0s", "mode": "serverless" });
    let plain = imported(&thing(KRYPTON, "Model", "m", &spec));
    let probe = json!({ "httpGet": { "path": "/health", "port": 8080 }, "periodSeconds": 1, "failureThreshold": 600 });
    let container = object(&plain, "Deployment", "m")["spec"]["template"]["spec"]["containers"][0].clone();
    assert_eq!(container["startupProbe"], probe);
    let expected = [
        "change Model n/m: a plain Deployment, not managed by the operator",
        "skip Model n/m spec.mode: is no field of krypton.ai/v1alpha1 Model",
        "change Model n/m spec.startupTimeout: is a startupProbe now: a container that is later is started again",
    ];
    assert_eq!(lines(&plain), expected);
    assert_eq!(refusals(&plain).await, Vec::<String>::new());
    let other = thing(KRYPTON, "Model", "m", &json!({ "source": source, "runtime": "vllm" }));
    assert_reported(&other, &["loss Model n/m spec.runtime: is llama.cpp here, not \"vllm\""]);
}

/// Returns an object of kagent's first API in a namespace.
fn first(kind: &str, namespace: &str, name: &str, spec: &Value) -> String {
    let metadata = json!({ "name": name, "namespace": namespace });
    json!({ "apiVersion": FIRST, "kind": kind, "metadata": metadata, "spec": spec }).to_string()
}

#[tokio::test]
async fn objects_of_the_first_api_admit_the_namespaces_that_use_them() {
    let config = json!({ "streamableHttp": { "url": "http://x.y:1/mcp" } });
    let tools = json!([{ "agent": { "ref": "lab/bot" } }, { "mcpServer": { "toolServer": "lab/docs" } }]);
    let text = [
        first("Agent", "shop", "boss", &json!({ "systemMessage": "x", "tools": tools })),
        first("Agent", "lab", "bot", &json!({ "systemMessage": "x" })),
        first("Agent", "lab", "alone", &json!({ "systemMessage": "x", "tools": [{ "agent": { "ref": "bot" } }] })),
        first("ToolServer", "lab", "docs", &json!({ "config": config })),
    ]
    .join("\n---\n");
    let imported = imported(&text);
    let entry = json!({ "key": "kubernetes.io/metadata.name", "operator": "In", "values": ["shop"] });
    let expected = json!({ "from": "Selector", "selector": { "matchExpressions": [entry] } });
    for (kind, name) in [("Agent", "bot"), ("RemoteMCPServer", "docs")] {
        assert_eq!(object(&imported, kind, name)["spec"]["allowedNamespaces"], expected, "{kind}");
    }
    assert_eq!(object(&imported, "Agent", "alone")["spec"]["allowedNamespaces"], Value::Null);
    let why = "spec.allowedNamespaces: admits shop, whose agents use it: ours are for their own namespace unless they \
               say so";
    assert_reported(&text, &[&format!("change Agent lab/bot {why}"), &format!("change ToolServer lab/docs {why}")]);
    assert_eq!(refusals(&imported).await, Vec::<String>::new());
}

#[test]
fn an_agent_with_both_forms_goes_by_its_type() {
    let spec = |type_: &str| {
        let byo = json!({ "deployment": { "image": "own:1" } });
        json!({ "type": type_, "declarative": { "systemMessage": "Hi" }, "byo": byo })
    };
    for (type_, image, ignored) in
        [("BYO", json!("own:1"), "spec.declarative"), ("Declarative", Value::Null, "spec.byo")]
    {
        let text = thing(KAGENT, "Agent", "a", &spec(type_));
        assert_eq!(object(&imported(&text), "Agent", "a")["spec"]["image"], image, "{type_}");
        assert_reported(&text, &[&format!("skip Agent n/a {ignored}: is not read with type {type_}")]);
    }
}

#[test]
fn what_kagent_leaves_out_of_a_request_is_unset() {
    let openai = json!({ "baseUrl": "http://h", "temperature": "", "maxTokens": 0, "topP": "0.5" });
    let imported = imported(&thing(KAGENT, "ModelConfig", "m", &json!({ "model": "m", "openAI": openai })));
    assert_eq!(object(&imported, "Model", "m")["spec"]["defaultConfig"], json!({ "topP": 0.5 }));
    assert_eq!(lines(&imported), Vec::<String>::new());
}

#[test]
fn what_a_pod_needs_and_is_not_there_is_reported() {
    let secret = json!({ "secretKeyRef": { "name": "gone", "key": "k" } });
    let side = json!({ "name": "side", "image": "x", "env": [{ "name": "A", "valueFrom": secret }] });
    let deployment = json!({
        "serviceAccountName": "robot",
        "volumes": [
            { "name": "v", "secret": { "secretName": "gone" } },
            { "name": "w", "configMap": { "name": "texts" } },
            { "name": "x", "configMap": { "name": "perhaps", "optional": true } },
        ],
        "extraContainers": [side],
    });
    let part = "todo Agent n/a spec.declarative.deployment";
    assert_reported(
        &agent("a", &json!({ "deployment": deployment })),
        &[
            &format!("{part}.serviceAccountName: ServiceAccount n/robot is not in the input"),
            &format!("{part}.volumes[0]: Secret n/gone is not in the input"),
            &format!("{part}.volumes[1]: ConfigMap n/texts is not in the input"),
            &format!("{part}.extraContainers[0].env[0]: Secret n/gone is not in the input"),
        ],
    );
    let found = lines(&imported(&agent("a", &json!({ "deployment": deployment }))));
    assert!(!found.iter().any(|line| line.contains("perhaps")), "{found:#?}");
    for (kind, mut spec) in [("Agent", json!({ "image": "own:1" })), ("Model", json!({}))] {
        spec["serviceAccountName"] = json!("robot");
        spec["source"] = json!({ "huggingface": "org/m", "file": "m.gguf" });
        let start = format!("todo {kind} n/a spec.serviceAccountName: ServiceAccount n/robot is not in the input");
        let found = lines(&imported(&thing(KRYPTON, kind, "a", &spec)));
        assert!(found.iter().any(|line| line.starts_with(&start)), "{kind}: {found:#?}");
    }
}

#[tokio::test]
async fn upstream_defaults_and_limits_are_kept() {
    let spec = json!({
        "name": "A",
        "framework": "adk",
        "image": "corail:latest",
        "envSecrets": [],
        "evalSampleRate": 0,
        "replicas": 12,
        "env": [{ "name": "K", "valueFrom": { "secretKeyRef": { "name": "gone", "key": "k" } } }],
    });
    let tool = json!({ "name": "t", "type": "http", "endpoint": "http://x", "secretRef": "s", "timeout": 0 });
    let text = [thing(RECIF, "Agent", "a", &spec), thing(RECIF, "Tool", "t", &tool)].join("\n---\n");
    let imported = imported(&text);
    let ours = object(&imported, "Agent", "a")["spec"].clone();
    assert_eq!(ours["envFrom"], json!([{ "secretRef": { "name": "agent-env", "optional": true } }]));
    assert_eq!((&ours["replicas"], &ours["strategy"]), (&Value::Null, &json!("agent-react")));
    assert_eq!(ours["scaling"], json!({ "minReplicas": 10, "maxReplicas": 12 }));
    assert_eq!(ours["env"].as_array().unwrap().len(), 1, "no rate of 0");
    assert_eq!(object(&imported, "Tool", "t")["spec"]["timeout"], Value::Null);
    assert_reported(
        &text,
        &[
            "change Agent n/a: runs as uid 1000, restricted; podTemplate.spec.securityContext if the image needs its own user",
            "loss Agent n/a spec.replicas: at most 10 Pods without load; scaling adds those up to 12, for 8 requests each",
            "todo Agent n/a spec.env[0]: Secret n/gone is not in the input",
            "change Tool n/t spec.timeout: is the default now, 30 seconds",
        ],
    );
    assert_eq!(refusals(&imported).await, Vec::<String>::new());
}

#[test]
fn corail_is_told_by_the_last_part_of_an_image() {
    for (image, expected) in [
        ("corail", json!("agent-react")),
        ("ghcr.io/x/corail@sha256:abc", json!("agent-react")),
        ("host:5000/corail:1", json!("agent-react")),
        ("ghcr.io/corail/other:1", Value::Null),
        ("ghcr.io/x/corail-fork:1", Value::Null),
    ] {
        let spec = json!({ "name": "A", "framework": "adk", "image": image, "version": "1" });
        let imported = imported(&thing(RECIF, "Agent", "a", &spec));
        assert_eq!(object(&imported, "Agent", "a")["spec"]["strategy"], expected, "{image}");
    }
}
