//! Rules of an import, each on objects of its own.

#![allow(clippy::unwrap_used)]

mod common;

use common::{imported, lines, object, objects, options, refusals};
use import::{Class, ImportError, ImportOptions, SourceObject, import, named_objects};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Returns an Agent of kagent with these fields of `declarative`.
fn agent(name: &str, declarative: &Value) -> String {
    json!({
        "apiVersion": "kagent.dev/v1alpha2",
        "kind": "Agent",
        "metadata": { "name": name, "namespace": "n" },
        "spec": { "declarative": declarative },
    })
    .to_string()
}

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

#[test]
fn a_field_that_nobody_knows_is_told_and_case_counts() {
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
    assert!(
        lines.iter().any(|line| line.ends_with("spec.declarative.deployment.replicas: at most 10 Pods")),
        "{lines:#?}"
    );
}

/// Returns an object of this kind and spec, in namespace `n`.
fn thing(api_version: &str, kind: &str, name: &str, spec: &Value) -> String {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": { "name": name, "namespace": "n" },
        "spec": spec,
    })
    .to_string()
}

fn assert_told(text: &str, expected: &[&str]) {
    let lines = lines(&imported(text));
    for line in expected {
        assert!(lines.contains(&(*line).to_owned()), "{line}: {lines:#?}");
    }
}

#[test]
fn a_provider_that_nothing_runs_is_a_loss() {
    for (provider, type_) in [
        ("AzureOpenAI", "azure-openai"),
        ("Bedrock", "bedrock"),
        ("GeminiVertexAI", "gemini-vertex"),
        ("AnthropicVertexAI", "anthropic-vertex"),
    ] {
        let config = json!({ "provider": provider, "model": "m" });
        let expected = format!("loss ModelConfig n/m spec.provider: Récif's runtime does not speak {type_} yet");
        assert_told(&thing("kagent.dev/v1alpha2", "ModelConfig", "m", &config), &[&expected]);
    }
    let openai = thing("kagent.dev/v1alpha2", "ModelConfig", "m", &json!({ "provider": "OpenAI", "model": "m" }));
    assert!(!imported(&openai).is_lossy());
    let agent = json!({ "name": "A", "framework": "adk", "modelType": "vertex-ai", "envSecrets": [] });
    let expected = "loss Agent n/a spec.modelType: Récif's runtime does not speak gemini-vertex yet";
    assert_told(&thing("agents.recif.dev/v1", "Agent", "a", &agent), &[expected]);
    let plugin = thing("genkit.dev/v1alpha1", "PluginConfig", "p", &json!({ "type": "vertexAI" }));
    assert_told(&plugin, &["loss PluginConfig n/p spec.type: Récif's runtime does not speak vertexai yet"]);
}

#[test]
fn what_our_type_refuses_is_a_loss_and_what_it_does_not_know_is_told() {
    let refused = json!({ "name": "A", "framework": "adk", "port": "many", "version": "1" });
    let expected = "loss Agent n/a: left out: it has a value that no Agent takes";
    assert_told(&thing("agents.recif.dev/v1", "Agent", "a", &refused), &[expected]);
    let agent = json!({
        "name": "A",
        "framework": "adk",
        "version": "1",
        "mood": "calm",
        "card": { "skills": [{ "id": "s", "name": "S", "level": 3 }] },
        "tools": [],
        "description": "",
    });
    let imported = imported(&thing("agents.recif.dev/v1", "Agent", "a", &agent));
    let lines = lines(&imported);
    let mut unknown: Vec<_> = lines.iter().filter(|line| line.contains("is no field of")).cloned().collect();
    unknown.sort();
    let expected = ["spec.card.skills[0].level", "spec.mood"];
    let line = |field: &str| format!("skip Agent n/a {field}: is no field of agents.recif.dev/v1 Agent");
    assert_eq!(unknown, expected.map(line));
}

#[test]
fn a_header_is_named_only_if_it_is_a_variable() {
    let headers = json!({
        "X-Bearer": "Bearer $TOKEN_1",
        "X-Braces": "Basic ${PASS}",
        "X-Key": "hun$hunter2",
        "X-Lower": "$hunter2",
        "X-More": "$HUNTER hunter2",
        "X-Open": "${HUNTER",
        "X-Plain": "text",
    });
    let tool = json!({ "name": "t", "type": "http", "endpoint": "http://x", "secretRef": "s", "headers": headers });
    let lines = lines(&imported(&thing("agents.recif.dev/v1", "Tool", "t", &tool)));
    let told = |header: &str| {
        let start = format!("todo Tool n/t spec.headers[{header}]: ");
        lines.iter().find_map(|line| line.strip_prefix(&start)?.split(" is not expanded").next().map(str::to_owned))
    };
    assert_eq!(told("X-Bearer").as_deref(), Some("$TOKEN_1"));
    assert_eq!(told("X-Braces").as_deref(), Some("$PASS"));
    for header in ["X-Key", "X-Lower", "X-More", "X-Open"] {
        assert_eq!(told(header).as_deref(), Some("a `$` in it"), "{header}");
    }
    assert_eq!(told("X-Plain"), None);
    assert!(!lines.join("\n").to_lowercase().contains("hunter"), "{lines:#?}");
}

#[test]
fn variables_that_the_operator_sets_are_a_loss() {
    let names = ["CORAIL_MODEL_BASE_URL", "CORAIL_AGENT_CARD", "OLLAMA_BASE_URL", "MY_KEY"];
    let env: Vec<_> = names.into_iter().chain(["FREE"]).map(|name| json!({ "name": name, "value": "x" })).collect();
    let model = json!({ "provider": "OpenAI", "model": "m", "apiKeySecret": "s", "apiKeySecretKey": "MY_KEY" });
    let text = [
        thing("kagent.dev/v1alpha2", "ModelConfig", "m", &model),
        agent("a", &json!({ "modelConfig": "m", "deployment": { "env": env } })),
    ]
    .join("\n---\n");
    let expected = names
        .map(|name| format!("loss Agent n/a spec.declarative.deployment.env[{name}]: the operator sets this variable"));
    assert_told(&text, &expected.each_ref().map(String::as_str));
    assert_eq!(object(&imported(&text), "Agent", "a")["spec"]["env"], json!([{ "name": "FREE", "value": "x" }]));
}

#[test]
fn headers_and_certificates_of_a_server_elsewhere_are_told() {
    let server = |tls: Value| {
        let from = json!({ "type": "ConfigMap", "name": "c", "key": "k" });
        let spec = json!({
            "url": "http://desk:80/mcp",
            "headersFrom": [{ "name": "X-Team", "valueFrom": from }, { "name": "X-Plain", "value": "x" }],
            "tls": tls,
        });
        let server = json!({
            "apiVersion": "kagent.dev/v1alpha2",
            "kind": "RemoteMCPServer",
            "metadata": { "name": "desk", "namespace": "lab" },
            "spec": spec,
        });
        let tool = json!({ "mcpServer": { "kind": "RemoteMCPServer", "name": "desk", "namespace": "lab" } });
        format!("{server}\n---\n{}", agent("a", &json!({ "tools": [tool] })))
    };
    let field = "loss Agent n/a spec.declarative.tools[0].mcpServer";
    let unusable = "lab/desk cannot be used here: it trusts only certificates that other namespaces do not get";
    let header = "other namespaces do not get header X-Team of lab/desk; put it into a Secret here and \
                  toolServers[0].headersFrom";
    let strict = server(json!({ "caCertSecretRef": "ca", "disableSystemCAs": true }));
    assert_told(&strict, &[&format!("{field}: {unusable}"), &format!("{field}: {header}")]);
    let usual = server(json!({ "caCertSecretRef": "ca" }));
    assert_told(&usual, &[&format!("{field}: other namespaces do not get the certificates that lab/desk trusts")]);
    let without = lines(&imported(&server(json!({ "caCertSecretRef": "ca", "disableVerify": true })))).join("\n");
    assert!(!without.contains("certificates"), "{without}");
}

#[tokio::test]
async fn what_is_longer_than_ours_take_is_cut_and_told() {
    let many: Vec<_> = (0..40).map(|number| format!("t{number}")).collect();
    let skill = json!({
        "id": "i".repeat(200),
        "name": "n".repeat(300),
        "description": "d".repeat(5000),
        "tags": many,
        "examples": ["e".repeat(5000)],
        "inputModes": ["m".repeat(200)],
    });
    let headers: Value = (0..40).map(|number| (format!("X-{number}"), json!("x"))).collect();
    let model = json!({ "provider": "OpenAI", "model": "m", "defaultHeaders": headers });
    let flows: Vec<_> = (0..70)
        .map(|number| json!({ "name": format!("f{number}"), "prompts": [{ "prompt": { "name": "p", "content": "x" } }] }))
        .collect();
    let text = [
        agent("a", &json!({ "a2aConfig": { "skills": [skill] } })),
        thing("kagent.dev/v1alpha2", "ModelConfig", "m", &model),
        thing("genkit.dev/v1alpha1", "FlowSet", "f", &json!({ "flows": flows })),
    ]
    .join("\n---\n");
    let text = [
        text,
        thing(
            "kagent.dev/v1alpha2",
            "ModelConfig",
            "twice",
            &json!({
                "model": "m",
                "defaultHeaders": { "OpenAI-Organization": "one" },
                "openAI": { "organization": "two" },
            }),
        ),
        thing(
            "genkit.dev/v1alpha1",
            "Flow",
            "many-tools",
            &json!({
                "prompts": [{ "prompt": { "name": "p", "content": "x" } }],
                "tools": (0..70).map(|number| json!({ "name": format!("t{number}") })).collect::<Value>(),
            }),
        ),
    ]
    .join("\n---\n");
    let card = "loss Agent n/a spec.declarative.a2aConfig.skills[0]";
    assert_told(
        &text,
        &[
            &format!("{card}.id: is cut after 128 characters"),
            &format!("{card}.name: is cut after 256 characters"),
            &format!("{card}.description: is cut after 4096 characters"),
            &format!("{card}.tags: at most 32 entries; the others are left out"),
            &format!("{card}.examples: is cut after 4096 characters"),
            &format!("{card}.inputModes: is cut after 128 characters"),
            "loss ModelConfig n/m spec.defaultHeaders: at most 32 headers; the others are left out",
            "skip ModelConfig n/twice spec.openAI.organization: has the name of a header before it",
            "loss Flow n/many-tools spec.tools: at most 64 tools; the others are left out",
            "loss FlowSet n/f spec.flows: at most 64 flows; the others are left out",
        ],
    );
    assert_eq!(refusals(&imported(&text)).await, Vec::<String>::new());
}
