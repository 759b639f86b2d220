//! References of what is imported: to Secrets, to other objects, and to tools and prompts of one name.

#![allow(clippy::unwrap_used)]

mod common;

use common::{agent, assert_reported, imported, lines, object, refusals, thing};
use serde_json::{Value, json};

const KAGENT: &str = "kagent.dev/v1alpha2";
const FIRST: &str = "kagent.dev/v1alpha1";
const GENKIT: &str = "genkit.dev/v1alpha1";

/// Returns an object with another namespace than `n`.
fn moved(text: &str, namespace: &str) -> String {
    let mut object: Value = serde_json::from_str(text).unwrap();
    object["metadata"]["namespace"] = namespace.into();
    object.to_string()
}

fn lines_of(text: &str, object: &str) -> Vec<String> {
    lines(&imported(text)).into_iter().filter(|line| line.contains(object)).collect()
}

#[tokio::test]
async fn an_agent_that_is_asked_with_other_headers_is_another_tool() {
    let ask = |team: &str| json!({ "agent": { "name": "b" }, "headersFrom": [{ "name": "X-Team", "value": team }] });
    let text = [
        agent("a", &json!({ "tools": [ask("red"), ask("blue"), ask("red")] })),
        agent("b", &json!({ "systemMessage": "x" })),
    ]
    .join("\n---\n");
    let imported = imported(&text);
    assert_eq!(object(&imported, "Agent", "a")["spec"]["tools"], json!(["ask-b", "ask-b-2"]));
    assert_eq!(object(&imported, "Tool", "ask-b")["spec"]["name"], "ask_b");
    assert_eq!(object(&imported, "Tool", "ask-b-2")["spec"]["name"], "ask_b_2");
    assert_eq!(refusals(&imported).await, Vec::<String>::new());
}

#[test]
fn a_model_elsewhere_wants_its_secrets_copied() {
    let user = agent("a", &json!({ "modelConfig": "lab/m" }));
    let field = "Agent n/a spec.declarative.modelConfig";
    let spec = json!({ "model": "m", "apiKeySecret": "k", "tls": { "caCertSecretRef": "ca" } });
    let newer = moved(&thing(KAGENT, "ModelConfig", "m", &spec), "lab");
    let both = format!("todo {field}: copy Secret lab/k to n; copy Secret lab/ca to n");
    assert_eq!(lines_of(&[newer, user.clone()].join("\n---\n"), "Agent n/a"), [both]);
    let spec = json!({ "model": "m", "apiKeySecretRef": "vault/k" });
    let older = moved(&thing("kagent.dev/v1alpha1", "ModelConfig", "m", &spec), "lab");
    let text = [older, user.clone()].join("\n---\n");
    let once = format!("todo {field}: copy Secret vault/k to n");
    assert_eq!(lines_of(&text, "Agent n/a"), [once]);
    assert_reported(&text, &["todo ModelConfig lab/m spec.apiKeySecretRef: copy Secret vault/k to lab"]);
    let spec = json!({ "provider": "Ollama", "model": "m" });
    let free = moved(&thing(KAGENT, "ModelConfig", "m", &spec), "lab");
    let copied = format!("change {field}: ModelConfig lab/m is copied here, with its provider");
    assert_eq!(lines_of(&[free, user].join("\n---\n"), "Agent n/a"), [copied]);
}

#[test]
fn a_model_has_the_fields_of_its_own_api() {
    let spec = json!({
        "provider": "Ollama",
        "model": "m",
        "apiKeySecret": "new",
        "apiKeySecretRef": "old",
        "modelInfo": { "vision": true },
    });
    for (version, secret, strange, info) in [
        (KAGENT, "new", &["apiKeySecretRef", "modelInfo"][..], Value::Null),
        ("kagent.dev/v1alpha1", "old", &["apiKeySecret"][..], json!({ "vision": true })),
    ] {
        let text = thing(version, "ModelConfig", "m", &spec);
        let imported = imported(&text);
        assert_eq!(object(&imported, "PluginConfig", "m")["spec"]["credentialsRef"]["name"], secret, "{version}");
        assert_eq!(object(&imported, "Model", "m")["spec"]["info"], info, "{version}");
        let line = |field: &&str| format!("skip ModelConfig n/m spec.{field}: is no field of {version} ModelConfig");
        let expected: Vec<_> = strange.iter().map(line).collect();
        assert_reported(&text, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn a_template_in_a_secret_has_one_line() {
    let from = json!({ "type": "Secret", "name": "gone", "key": "k" });
    let text = agent("a", &json!({ "modelConfig": "m", "systemMessageFrom": from, "promptTemplate": {} }));
    let field = "spec.declarative.systemMessageFrom";
    let line = format!(
        "loss Agent n/a {field}: {{{{…}}}} stays in the text: it is in a Secret; Secret n/gone is not in the input"
    );
    assert_eq!(lines_of(&text, field), [line]);
}

#[tokio::test]
async fn calls_that_kagent_asks_for_wait_for_a_person() {
    let server = |fields: Value| {
        let mut server = json!({ "kind": "RemoteMCPServer", "name": "r" });
        server.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({ "mcpServer": server })
    };
    let asks = |tools: &[Value], replicas: u32| {
        agent("a", &json!({ "modelConfig": "m", "tools": tools, "deployment": { "replicas": replicas } }))
    };
    let field = "Agent n/a spec.declarative.tools[0].mcpServer.requireApproval";
    let is_approval = "is approval now: a call waits 1h, then it is refused; approval.timeout may be up to 168h";
    let some = asks(&[server(json!({ "toolNames": ["c", "d"], "requireApproval": ["c", "x", "c"] }))], 1);
    let made = imported(&some);
    let entry = json!({
        "kind": "RemoteMCPServer",
        "name": "r",
        "include": ["c", "d"],
        "approval": { "tools": ["c"], "when": "Always" },
    });
    assert_eq!(object(&made, "Agent", "a")["spec"]["toolServers"], json!([entry]));
    assert_eq!(refusals(&made).await, Vec::<String>::new());
    assert_eq!(lines_of(&some, field), [format!("change {field}: x is not in toolNames; {is_approval}")]);
    let replicas = "todo Agent n/a spec.declarative.deployment.replicas: a tool asks a person, and several Pods wait for \
                    the answer in a database alone: set storage to postgresql, or replicas to 1";
    assert_eq!(lines_of(&some, "replicas"), Vec::<String>::new());
    let joined = asks(&[server(json!({ "requireApproval": ["c"] })), server(json!({ "toolNames": ["d"] }))], 2);
    let approval = json!({ "tools": ["c"], "when": "Always" });
    let servers = json!([{ "kind": "RemoteMCPServer", "name": "r", "approval": approval }]);
    assert_eq!(object(&imported(&joined), "Agent", "a")["spec"]["toolServers"], servers);
    assert_reported(&joined, &[&format!("change {field}: {is_approval}"), replicas]);
}

#[tokio::test]
async fn no_call_that_kagent_asks_for_is_made_unasked_however_many_there_are() {
    let names: Vec<_> = (0..65).map(|number| format!("t{number}")).collect();
    let servers = |fields: Value| {
        let mut server = json!({ "kind": "RemoteMCPServer", "name": "r", "requireApproval": names });
        server.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let imported = imported(&agent("a", &json!({ "modelConfig": "m", "tools": [{ "mcpServer": server }] })));
        (object(&imported, "Agent", "a")["spec"]["toolServers"].clone(), imported)
    };
    let (all, imported) = servers(json!({}));
    assert_eq!(all, json!([{ "kind": "RemoteMCPServer", "name": "r", "approval": { "when": "Always" } }]));
    let line = "change Agent n/a spec.declarative.tools: more than 64 tools of r need approval: all of them ask";
    assert!(lines(&imported).contains(&line.to_owned()), "{:#?}", lines(&imported));
    let (named, imported) = servers(json!({ "toolNames": names }));
    for entry in named.as_array().unwrap() {
        assert_eq!(entry["approval"]["tools"], entry["include"]);
    }
    assert_eq!(named.as_array().unwrap().len(), 2);
    assert_eq!(refusals(&imported).await, Vec::<String>::new());
}

#[test]
fn an_agent_in_a_sandbox_is_an_agent_and_a_schedule_is_lost() {
    let own = json!({ "systemMessage": "x", "modelConfig": "m" });
    let text = [
        agent("a", &json!({ "modelConfig": "m", "tools": [{ "agent": { "kind": "SandboxAgent", "name": "box" } }] })),
        agent("box", &own),
        thing(KAGENT, "SandboxAgent", "box", &json!({ "declarative": own })),
        thing(KAGENT, "SandboxAgent", "empty", &json!({ "type": "Declarative" })),
        thing(KAGENT, "ScheduledRun", "nightly", &json!({ "schedule": "@daily", "prompt": "x" })),
    ]
    .join("\n---\n");
    let made = imported(&text);
    assert_eq!(object(&made, "Agent", "box-2")["spec"]["systemPrompt"], "x", "both are agents of ours");
    assert_eq!(object(&made, "Tool", "ask-box-2")["spec"]["agentRef"], json!({ "name": "box-2" }));
    let losses: Vec<_> = lines(&made).into_iter().filter(|line| line.starts_with("loss")).collect();
    let expected = [
        "loss SandboxAgent n/box: runs in no sandbox of its own",
        "loss ScheduledRun n/nightly: no schedules: let a CronJob send the prompt to the agent",
    ];
    assert_eq!(losses, expected);
}

#[test]
fn what_refers_to_an_object_that_is_left_out_says_so() {
    let flow = json!({
        "prompts": [{ "promptRef": { "name": "blank" } }, { "name": "blank" }],
        "tools": [{ "name": "empty" }],
        "modelRef": { "name": "half" },
    });
    let text = [
        thing(GENKIT, "Prompt", "blank", &json!({ "content": " " })),
        thing(GENKIT, "Tool", "empty", &json!({ "implementation": {} })),
        thing(GENKIT, "Model", "half", &json!({ "provider": "x" })),
        thing(GENKIT, "Flow", "f", &flow),
        agent("asks", &json!({ "tools": [{ "agent": { "name": "neither" } }] })),
        thing(KAGENT, "Agent", "neither", &json!({ "type": "BYO" })),
    ]
    .join("\n---\n");
    let left_out = "is left out: create it, or take the reference out";
    let expected = [
        format!("todo Flow n/f spec.modelRef: Model n/half {left_out}"),
        format!("todo Flow n/f spec.prompts[0].promptRef: Prompt n/blank {left_out}"),
        "skip Flow n/f spec.prompts[1]: genkit-operator refuses it too: it has no name or no text".to_owned(),
        format!("todo Flow n/f spec.tools[0]: Tool n/empty {left_out}"),
    ];
    assert_eq!(lines_of(&text, "Flow n/f"), expected);
    assert_reported(
        &text,
        &[&format!("todo Agent n/asks spec.declarative.tools[0].agent: Agent n/neither {left_out}")],
    );
}

#[test]
fn a_flow_set_whose_only_flow_is_refused_says_why_once() {
    let flow = json!({
        "name": "f",
        "prompts": [{ "prompt": { "name": "p", "content": "x" } }],
        "modelSpec": { "provider": "x" },
    });
    let refuses = "genkit-operator refuses it too";
    let expected = [
        format!("skip FlowSet n/s: {refuses}: it has no flow that answers"),
        format!(
            "skip FlowSet n/s spec.flows[0].modelSpec: {refuses}: a model needs provider, model and pluginConfigRef"
        ),
    ];
    assert_eq!(lines(&imported(&thing(GENKIT, "FlowSet", "s", &json!({ "flows": [flow] })))), expected);
}

#[test]
fn prompts_of_one_name_get_numbers() {
    let prompt = |name: &str| json!({ "prompt": { "name": name, "content": "x" } });
    let spec = json!({ "prompts": [prompt("_a"), prompt("a")] });
    let text = thing(GENKIT, "Flow", "f", &spec);
    let prompts = object(&imported(&text), "Flow", "f")["spec"]["prompts"].clone();
    let names = ["a", "a-2"].map(|name| json!({ "prompt": { "name": name, "content": "x" } }));
    assert_eq!(prompts, json!(names));
    assert_reported(
        &text,
        &[
            "change Flow n/f spec.prompts[0].prompt.name: is now \"a\"",
            "change Flow n/f spec.prompts[1].prompt.name: is now \"a-2\"",
        ],
    );
}

#[test]
fn a_provider_has_one_region_and_each_key_once() {
    let extra = json!({ "location": "eu", "projectId": "p" });
    let spec = json!({ "type": "vertexai", "region": "us", "extraConfig": extra, "credentialKeys": ["A", "B", "A"] });
    let text = thing(GENKIT, "PluginConfig", "p", &spec);
    let ours = object(&imported(&text), "PluginConfig", "p")["spec"].clone();
    assert_eq!((&ours["region"], &ours["credentialKeys"]), (&json!("us"), &json!(["A", "B"])));
    assert_eq!(ours["extraConfig"], json!({ "projectId": "p" }));
    assert_reported(&text, &["change PluginConfig n/p spec.extraConfig.location: is left out: \"us\" goes first"]);
}

#[tokio::test]
async fn a_key_of_a_secret_that_is_no_header_is_a_loss() {
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "n" },
        "stringData": { "X-Key": "hunter2", "Host": "hunter2" } });
    let http = json!({ "url": "http://h/x", "headersSecretRef": { "name": "s" } });
    let tool = thing(GENKIT, "Tool", "t", &json!({ "implementation": { "http": http } }));
    let text = [secret.to_string(), tool].join("\n---\n");
    let imported = imported(&text);
    let kept = json!([{ "name": "X-Key", "secretKeyRef": { "name": "s", "key": "X-Key" } }]);
    assert_eq!(object(&imported, "Tool", "t")["spec"]["headersFrom"], kept);
    assert_reported(&text, &["loss Tool n/t spec.implementation.http.headersSecretRef[Host]: is set by the protocol"]);
    assert_eq!(refusals(&imported).await, Vec::<String>::new());
}

/// Returns the choice of namespace `n` by its name.
fn admits_n() -> Value {
    let entry = json!({ "key": "kubernetes.io/metadata.name", "operator": "In", "values": ["n"] });
    json!({ "from": "Selector", "selector": { "matchExpressions": [entry] } })
}

#[test]
fn a_server_of_another_namespace_that_kagent_refuses_is_not_opened() {
    let tool = |kind: &str, name: &str| json!({ "mcpServer": { "kind": kind, "name": name, "namespace": "lab" } });
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": "prices", "namespace": "lab" },
        "spec": { "ports": [{ "port": 7000 }] },
    });
    let older = json!({ "mcpServer": { "toolServer": "lab/clock" } });
    let clock = json!({ "config": { "stdio": { "command": "npx" } } });
    let text = [
        agent("a", &json!({ "tools": [tool("MCPServer", "files"), tool("Service", "prices"), older] })),
        moved(&agent("b", &json!({ "tools": [tool("Service", "prices")] })), "lab"),
        moved(&thing(FIRST, "MCPServer", "files", &json!({ "deployment": { "cmd": "npx" } })), "lab"),
        moved(&thing(FIRST, "ToolServer", "clock", &clock), "lab"),
        service.to_string(),
    ]
    .join("\n---\n");
    let imported = imported(&text);
    assert_eq!(object(&imported, "Agent", "a")["spec"]["toolServers"], Value::Null);
    for (kind, name) in [("MCPServer", "files"), ("MCPServer", "clock"), ("RemoteMCPServer", "prices")] {
        let made = object(&imported, kind, name);
        assert_eq!((&made["metadata"]["namespace"], &made["spec"]["allowedNamespaces"]), (&json!("lab"), &Value::Null));
    }
    let shown = ["MCPServer lab/files", "Service lab/prices", "ToolServer lab/clock"];
    let line = |(at, shown): (usize, &str)| {
        format!(
            "loss Agent n/a spec.declarative.tools[{at}].mcpServer: {shown} is used in its own namespace only; its tools \
             are left out"
        )
    };
    let expected: Vec<_> = shown.into_iter().enumerate().map(line).collect();
    assert_eq!(lines_of(&text, "Agent n/a spec.declarative.tools"), expected);
}

#[tokio::test]
async fn a_program_of_the_first_api_admits_the_namespaces_that_use_it() {
    let config = |command: &str| json!({ "config": { "stdio": { "command": command } } });
    let tool = |name: &str| json!({ "mcpServer": { "toolServer": name } });
    let text = [
        thing(FIRST, "Agent", "a", &json!({ "tools": [tool("lab/clock"), tool("lab/odd"), tool("lab/gone")] })),
        moved(&thing(FIRST, "Agent", "b", &json!({ "tools": [tool("clock")] })), "lab"),
        moved(&thing(FIRST, "ToolServer", "clock", &config("npx")), "lab"),
        moved(&thing(FIRST, "ToolServer", "odd", &config("/bin/odd")), "lab"),
        moved(&thing(FIRST, "ToolServer", "alone", &config("npx")), "lab"),
    ]
    .join("\n---\n");
    let imported = imported(&text);
    assert_eq!(object(&imported, "MCPServer", "clock")["spec"]["allowedNamespaces"], admits_n());
    assert_eq!(object(&imported, "MCPServer", "alone")["spec"]["allowedNamespaces"], Value::Null);
    let made = object(&imported, "RemoteMCPServer", "lab-clock");
    let spec = json!({ "url": "http://clock.lab.svc:3000/mcp" });
    assert_eq!((&made["metadata"]["namespace"], &made["spec"]), (&json!("n"), &spec));
    let entries = |name: &str| object(&imported, "Agent", name)["spec"]["toolServers"].clone();
    assert_eq!(entries("a")[0], json!({ "kind": "RemoteMCPServer", "name": "lab-clock" }));
    assert_eq!(entries("b"), json!([{ "kind": "MCPServer", "name": "clock" }]));
    assert_reported(
        &text,
        &[
            "change Agent n/a spec.tools[0].mcpServer: ToolServer lab/clock is used by RemoteMCPServer lab-clock, whose url is \
             its Service",
            "loss Agent n/a spec.tools[1].mcpServer: ToolServer lab/odd is used in its own namespace only; its tools are left \
             out",
            "change ToolServer lab/clock spec.allowedNamespaces: admits n, whose agents use it: ours are for their own \
             namespace unless they say so",
        ],
    );
    assert_eq!(refusals(&imported).await, Vec::<String>::new());
}

#[test]
fn a_url_that_leads_to_another_namespace_is_reported() {
    let files = thing(FIRST, "MCPServer", "files", &json!({ "deployment": { "image": "files:1" } }));
    let text = |url: &str| {
        let server = thing(KAGENT, "RemoteMCPServer", "s", &json!({ "url": url }));
        [server, moved(&files, "lab")].join("\n---\n")
    };
    for (url, found) in [
        ("http://docs.lab.svc:80/mcp", Some(("", "lab"))),
        ("https://pod.docs.lab.svc.cluster.local/mcp", Some(("", "lab"))),
        ("docs.lab/mcp", Some(("", "lab"))),
        ("http://docs.team:8084/mcp", Some(("if team is a namespace: ", "team"))),
        ("https://docs.team:8084/mcp", None),
        ("http://docs.team/mcp", None),
        ("http://docs.example.com:8084/mcp", None),
        ("http://docs.n.svc:80/mcp", None),
        ("http://docs:80/mcp", None),
        ("ftp://docs.lab.svc:80/mcp", None),
        ("http://files.lab:3000/mcp", None),
    ] {
        let line = found.map(|(condition, namespace)| {
            format!(
                "todo RemoteMCPServer n/s spec.url: {condition}Service {namespace}/docs is not asked from namespace n: put \
                 the server into namespace {namespace}, with allowedNamespaces for n"
            )
        });
        assert_eq!(lines_of(&text(url), "spec.url"), line.into_iter().collect::<Vec<_>>(), "{url}");
    }
    let older = json!({ "config": { "sse": { "url": "http://files.lab:3000/mcp" } } });
    let older = [thing(FIRST, "ToolServer", "s", &older), moved(&files, "lab")].join("\n---\n");
    for text in [text("http://files.lab:3000/mcp"), older] {
        let admitted = object(&imported(&text), "MCPServer", "files");
        assert_eq!(admitted["spec"]["allowedNamespaces"], admits_n());
        assert_reported(
            &text,
            &[
                "change MCPServer lab/files spec.allowedNamespaces: admits n, whose servers lead to it: ours are for their own \
               namespace unless they say so",
            ],
        );
    }
}

#[test]
fn what_is_printed_as_it_is_has_no_owner() {
    let owner = json!([{ "apiVersion": KAGENT, "kind": "Agent", "name": "a", "uid": "1" }]);
    let metadata = json!({
        "name": "a",
        "namespace": "n",
        "labels": { "app": "a" },
        "ownerReferences": owner,
        "finalizers": ["recif.dev/cleanup"],
        "uid": "2",
    });
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata });
    let spec = json!({ "name": "t", "type": "builtin" });
    let tool = json!({ "apiVersion": "agents.recif.dev/v1", "kind": "Tool", "metadata": metadata, "spec": spec });
    let made = imported(&[account.to_string(), tool.to_string()].join("\n---\n"));
    for kind in ["ServiceAccount", "Tool"] {
        let kept = json!({ "name": "a", "namespace": "n", "labels": { "app": "a" } });
        assert_eq!(object(&made, kind, "a")["metadata"], kept, "{kind}");
    }
}
