//! Rules of an import, each on objects of its own.

#![allow(clippy::unwrap_used)]

mod common;

use common::{agent, imported, lines, object, objects, options, refusals};
use import::{Class, ImportError, ImportOptions, SourceObject, import, named_objects};
use proptest::prelude::*;
use serde_json::{Value, json};

fn refused(text: &str) -> String {
    import(&objects(text), &options(None)).unwrap_err().to_string()
}

#[test]
fn what_is_wrong_with_the_input_is_named_with_its_place() {
    let agent = "apiVersion: kagent.dev/v1alpha2\nkind: Agent\nmetadata: {name: x, namespace: demo}\n";
    for (text, expected) in [
        ("a: 1".to_owned(), "a.yaml:1: an object without kind"),
        ("---\n- a".to_owned(), "a.yaml:2: an object without kind"),
        ("kind: Agent".to_owned(), "a.yaml:1: an object without apiVersion"),
        ("kind: Agent\napiVersion: v1".to_owned(), "a.yaml:1: an object without metadata.name"),
        (format!("{agent}---\n{agent}"), "Agent demo/x is there twice: a.yaml:1 and a.yaml:5"),
        (
            format!("{agent}---\n{}", agent.replace("v1alpha2", "v1alpha1")),
            "Agent demo/x is there twice: a.yaml:1 and a.yaml:5",
        ),
        (
            "apiVersion: v1\nkind: Secret\nmetadata: {name: x}".to_owned(),
            "nothing to import: no object of kagent.dev, genkit.dev, krypton.ai or agents.recif.dev",
        ),
    ] {
        assert_eq!(refused(&text), expected, "{text}");
    }
    let error = import(&objects(agent), &options(Some(import::Source::Krypton))).unwrap_err();
    assert_eq!(error, ImportError::Nothing("krypton.ai".to_owned()));
}

#[test]
fn objects_of_one_kind_and_name_get_numbers_and_references_follow() {
    let other = json!({
        "apiVersion": "krypton.ai/v1alpha1",
        "kind": "Agent",
        "metadata": { "name": "a.b", "namespace": "n" },
        "spec": { "image": "example.com/a:1" },
    });
    let text = [
        agent("a-b", &json!({ "systemMessage": "x" })),
        agent("a.b", &json!({ "systemMessage": "y" })),
        agent("boss", &json!({ "tools": [{ "agent": { "name": "a.b" } }] })),
        other.to_string(),
    ]
    .join("\n---\n");
    let imported = imported(&text);
    assert_eq!(object(&imported, "Agent", "a-b")["spec"]["systemPrompt"], "x");
    assert_eq!(object(&imported, "Agent", "a-b-2")["spec"]["systemPrompt"], "y");
    assert_eq!(object(&imported, "Agent", "a-b-3")["spec"]["image"], "example.com/a:1");
    assert_eq!(object(&imported, "Tool", "ask-a-b-2")["spec"]["agentRef"]["name"], "a-b-2");
    assert_eq!(object(&imported, "Agent", "boss")["spec"]["tools"], json!(["ask-a-b-2"]));
    assert!(lines(&imported).contains(&"change Agent n/a.b metadata.name: is now \"a-b-2\"".to_owned()));
}

#[tokio::test]
async fn an_agent_as_tool_keeps_its_headers() {
    let from = |type_: &str, name: &str| json!({ "type": type_, "name": name, "key": "k" });
    let headers = json!([
        { "name": "X-Plain", "value": "blue" },
        { "name": "X-Dollar", "value": "hunter$2" },
        { "name": "Authorization", "valueFrom": from("Secret", "keys") },
        { "name": "X-Text", "valueFrom": from("ConfigMap", "texts") },
        { "name": "X-Gone", "valueFrom": from("ConfigMap", "gone") },
    ]);
    let texts = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "texts", "namespace": "n" },
        "data": { "k": "read now" } });
    let text = [
        agent("boss", &json!({ "tools": [{ "agent": { "name": "helper" }, "headersFrom": headers }] })),
        texts.to_string(),
    ]
    .join("\n---\n");
    let imported = imported(&text);
    let tool = object(&imported, "Tool", "ask-helper");
    assert_eq!(tool["spec"]["headers"], json!({ "X-Plain": "blue", "X-Text": "read now" }));
    let secret = json!([{ "name": "Authorization", "secretKeyRef": { "name": "keys", "key": "k" } }]);
    assert_eq!(tool["spec"]["headersFrom"], secret);
    let lines = lines(&imported);
    let field = "loss Agent n/boss spec.declarative.tools[0].headersFrom";
    for expected in [
        format!("{field}[1]: header X-Dollar has a `$`, by which a Tool names a variable; put it into a Secret"),
        format!("{field}[4].valueFrom: header X-Gone is left out: no key k of ConfigMap n/gone is in the input"),
    ] {
        assert!(lines.contains(&expected), "{expected}: {lines:#?}");
    }
    assert!(!lines.join("\n").contains("hunter"), "{lines:#?}");
    assert_eq!(refusals(&imported).await, Vec::<String>::new());
}

#[test]
fn an_image_of_others_keeps_its_protocol() {
    let byo = json!({ "byo": { "deployment": { "image": "example.com/a:1" } } });
    let kagent = json!({ "apiVersion": "kagent.dev/v1alpha2", "kind": "Agent",
        "metadata": { "name": "own", "namespace": "n" }, "spec": byo });
    assert_eq!(object(&imported(&kagent.to_string()), "Agent", "own")["spec"]["protocol"], "a2a");
    for (protocol, expected) in [("a2a", json!("a2a")), ("http", json!("http")), ("carrier", Value::Null)] {
        let spec = json!({ "image": "example.com/a:1", "protocol": protocol });
        let krypton = json!({ "apiVersion": "krypton.ai/v1alpha1", "kind": "Agent",
            "metadata": { "name": "own", "namespace": "n" }, "spec": spec });
        let imported = imported(&krypton.to_string());
        assert_eq!(object(&imported, "Agent", "own")["spec"]["protocol"], expected, "{protocol}");
        let told = lines(&imported).contains(&"skip Agent n/own spec.protocol: is no protocol".to_owned());
        assert_eq!(told, expected.is_null(), "{protocol}");
    }
}

#[test]
fn what_passes_between_namespaces_and_from_the_caller_is_kept() {
    let lab = json!({ "name": "lab.bot", "namespace": "lab" });
    let mut asked: Value = serde_json::from_str(&agent("lab.bot", &json!({ "systemMessage": "x" }))).unwrap();
    asked["metadata"]["namespace"] = json!("lab");
    asked["spec"]["allowedNamespaces"] = json!({ "from": "Selector", "selector": { "matchLabels": { "a": "b" } } });
    let server = |headers: Value| json!({ "mcpServer": { "name": "docs", "allowedHeaders": headers } });
    let names = json!(["X-Tenant", "x-tenant", "Cookie", "Authorization"]);
    let boss = json!({ "tools": [{ "agent": lab }, server(names), server(json!([]))] });
    let imported = imported(&[agent("boss", &boss), asked.to_string()].join("\n---\n"));
    assert_eq!(object(&imported, "Agent", "lab-bot")["spec"]["allowedNamespaces"], asked["spec"]["allowedNamespaces"]);
    let ask = object(&imported, "Tool", "ask-lab-lab-bot");
    assert_eq!(ask["spec"]["agentRef"], json!({ "namespace": "lab", "name": "lab-bot" }));
    assert_eq!((&ask["metadata"]["namespace"], &ask["spec"]["name"]), (&json!("n"), &json!("ask_lab_lab_bot")));
    let servers = object(&imported, "Agent", "boss")["spec"]["toolServers"].clone();
    assert_eq!(servers[0]["forwardHeaders"], json!(["X-Tenant", "Authorization"]));
    assert_eq!(servers[1]["forwardHeaders"], Value::Null, "another entry, because its headers are others");
    let losses: Vec<_> = lines(&imported).into_iter().filter(|line| line.starts_with("loss")).collect();
    let field = "spec.declarative.tools[1].mcpServer.allowedHeaders";
    let refused = "header Cookie of the caller is not passed on";
    let signing_in = "callers sign in by X-Recif-Authorization, so that Authorization reaches the agent";
    assert_eq!(losses, [format!("loss Agent n/boss {field}: {refused}; {signing_in}")]);
}

#[test]
fn a_field_that_nobody_knows_is_reported_and_case_counts() {
    let text = agent("a", &json!({ "systemmessage": "x", "systemMessage": 5, "tools": [{ "agent": {}, "more": 1 }] }));
    let lines = lines(&imported(&text));
    for expected in [
        "skip Agent n/a spec.declarative.systemMessage: is no text",
        "skip Agent n/a spec.declarative.systemmessage: is no field of kagent.dev/v1alpha2 Agent",
        "skip Agent n/a spec.declarative.tools[0].more: is no field of kagent.dev/v1alpha2 Agent",
    ] {
        assert!(lines.contains(&expected.to_owned()), "{expected}: {lines:#?}");
    }
}

#[test]
fn the_last_line_counts() {
    let text = agent("a", &json!({ "executeCodeBlocks": true, "modelConfig": "m" }));
    let imported = imported(&text);
    assert_eq!(imported.summary, "kagent: 1 object in, 1 out; 1 loss, 1 todo");
    assert!(imported.is_lossy());
    assert_eq!(imported.lines.iter().filter(|line| line.class == Class::Loss).count(), 1);
}

#[test]
fn in_a_cluster_secrets_exist_and_workloads_have_a_deployment() {
    let text = agent(
        "a",
        &json!({
            "modelConfig": "m",
            "systemMessageFrom": { "type": "ConfigMap", "name": "texts", "key": "k" },
            "tools": [{ "mcpServer": { "kind": "Service", "name": "prices" } }],
            "deployment": { "env": [{ "name": "K", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }] },
        }),
    );
    let live = ImportOptions { live: true, ..options(None) };
    let mut found = objects(&text);
    let named = named_objects(&found, &live).unwrap();
    let named: Vec<_> = named.iter().map(|it| format!("{}/{}/{}", it.kind, it.namespace, it.name)).collect();
    assert_eq!(named, ["ConfigMap/n/texts", "Service/n/prices"], "never a Secret");
    for (kind, name, more) in [
        ("ConfigMap", "texts", json!({ "data": { "k": "x" } })),
        ("Service", "prices", json!({ "spec": { "ports": [{ "port": 80 }] } })),
    ] {
        let mut value = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "namespace": "n" } });
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        found.push(SourceObject { value, at: "the cluster".to_owned(), is_context: true });
    }
    let imported = import(&found, &live).unwrap();
    let kinds: Vec<_> = imported.objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["RemoteMCPServer", "Agent"], "what is only read is not printed");
    let lines = lines(&imported);
    assert!(!lines.iter().any(|line| line.contains("Secret")), "{lines:#?}");
    let expected = "todo Agent n/a: its Deployment and Service of this name are there: delete kagent.dev's object \
                    first, or ours stays in NameConflict";
    assert!(lines.contains(&expected.to_owned()), "{lines:#?}");
}

#[test]
fn an_object_keeps_no_trace_of_what_applied_it() {
    let text = r#"
apiVersion: genkit.dev/v1alpha1
kind: Prompt
metadata:
  name: p
  uid: u
  resourceVersion: "1"
  finalizers: [x]
  ownerReferences: [{kind: X}]
  labels: {app.kubernetes.io/managed-by: Helm, argocd.argoproj.io/instance: x, team: a}
  annotations: {kubectl.kubernetes.io/last-applied-configuration: x, meta.helm.sh/release-name: x}
spec: {content: x}
status: {}
"#;
    let prompt = object(&imported(text), "Prompt", "p");
    assert_eq!(prompt["metadata"], json!({ "name": "p", "labels": { "team": "a" } }));
}

/// Any value, with the names of fields that the sources have.
fn any_value() -> impl Strategy<Value = Value> {
    const KEYS: [&str; 44] = [
        "a2aConfig",
        "agent",
        "apiKeySecret",
        "args",
        "byo",
        "cmd",
        "config",
        "content",
        "declarative",
        "definition",
        "deployment",
        "description",
        "env",
        "envFrom",
        "flows",
        "headersFrom",
        "http",
        "httpTransport",
        "image",
        "implementation",
        "key",
        "labels",
        "mcpServer",
        "maxReplicas",
        "minReplicas",
        "model",
        "modelConfig",
        "name",
        "openAI",
        "podTemplate",
        "port",
        "prompt",
        "promptTemplate",
        "prompts",
        "protocol",
        "provider",
        "replicas",
        "source",
        "stdio",
        "systemMessage",
        "tools",
        "type",
        "url",
        "valueFrom",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[ -~é]{0,12}".prop_map(Value::from),
        Just(json!("OpenAI")),
        Just(json!("mcp")),
        Just(json!("{{range .ToolNames}}{{include \"a/b\"}}{{end")),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(KEYS.to_vec()), inner), 0..6)
                .prop_map(|fields| fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Value>()),
        ]
    })
}

proptest! {
    #[test]
    fn no_input_panics_and_the_same_input_gives_the_same_bytes(specs in prop::collection::vec((0..16_usize, any_value()), 1..4)) {
        const KINDS: [(&str, &str); 16] = [
            ("kagent.dev/v1alpha2", "Agent"),
            ("kagent.dev/v1alpha1", "Agent"),
            ("kagent.dev/v1alpha2", "ModelConfig"),
            ("kagent.dev/v1alpha2", "ModelProviderConfig"),
            ("kagent.dev/v1alpha2", "RemoteMCPServer"),
            ("kagent.dev/v1alpha1", "MCPServer"),
            ("kagent.dev/v1alpha1", "ToolServer"),
            ("genkit.dev/v1alpha1", "PluginConfig"),
            ("genkit.dev/v1alpha1", "Model"),
            ("genkit.dev/v1alpha1", "Tool"),
            ("genkit.dev/v1alpha1", "Flow"),
            ("genkit.dev/v1alpha1", "FlowSet"),
            ("krypton.ai/v1alpha1", "Agent"),
            ("krypton.ai/v1alpha1", "Model"),
            ("agents.recif.dev/v1", "Agent"),
            ("agents.recif.dev/v1", "Tool"),
        ];
        let objects: Vec<_> = specs.into_iter().enumerate().map(|(index, (kind, spec))| {
            let (api_version, kind) = KINDS[kind];
            let metadata = json!({ "name": format!("x{index}"), "namespace": "n" });
            let value = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec });
            SourceObject { value, at: format!("a.yaml:{index}"), is_context: false }
        }).collect();
        let first = import(&objects, &options(None)).unwrap();
        prop_assert_eq!(import(&objects, &options(None)).unwrap(), first);
    }
}

#[tokio::test]
async fn names_and_numbers_at_the_limits_are_taken() {
    let long = "n".repeat(70);
    let tools: Vec<_> = (0..70).map(|number| format!("tool{number}")).collect();
    let text = [
        agent(
            &long,
            &json!({
                "description": "d".repeat(5000),
                "systemMessage": "x",
                "deployment": { "replicas": 99, "env": [{ "name": "A", "value": "1" }, { "name": "A", "value": "2" }] },
                "tools": [{ "mcpServer": { "kind": "RemoteMCPServer", "name": "r", "toolNames": tools } }],
                "a2aConfig": { "skills": [{ "name": "A" }, { "name": "A" }] },
            }),
        ),
        agent("1st", &json!({ "systemMessage": "s".repeat(140_000) })),
    ]
    .join("\n---\n");
    let imported = imported(&text);
    assert_eq!(refusals(&imported).await, Vec::<String>::new());
    assert_eq!(imported.objects.len(), 2);
    let lines = lines(&imported);
    let told = "spec.declarative.deployment.replicas: at most 10 Pods without load; scaling adds those up to 99, for 8 requests each";
    assert!(lines.iter().any(|line| line.ends_with(told)), "{lines:#?}");
}
