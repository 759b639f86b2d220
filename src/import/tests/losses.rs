//! Losses that an import reports, each on objects of its own.

#![allow(clippy::unwrap_used)]

mod common;

use common::{agent, assert_reported, imported, lines, object, refusals, thing};
use serde_json::{Value, json};

#[test]
fn a_provider_that_nothing_runs_is_a_loss() {
    for provider in ["OpenAI", "AzureOpenAI", "Bedrock", "GeminiVertexAI", "AnthropicVertexAI"] {
        let spoken = thing("kagent.dev/v1alpha2", "ModelConfig", "m", &json!({ "provider": provider, "model": "m" }));
        assert!(!imported(&spoken).is_lossy(), "{provider}");
    }
    let agent = json!({ "name": "A", "framework": "adk", "modelType": "vertex-ai", "envSecrets": [] });
    let reported = lines(&imported(&thing("agents.recif.dev/v1", "Agent", "a", &agent)));
    assert!(!reported.iter().any(|line| line.contains("does not speak")), "{reported:#?}");
    let plugin = thing("genkit.dev/v1alpha1", "PluginConfig", "p", &json!({ "type": "mistralAI" }));
    assert_reported(&plugin, &["loss PluginConfig n/p spec.type: Récif's runtime does not speak mistralai yet"]);
}

#[test]
fn what_our_type_refuses_is_a_loss_and_what_it_does_not_know_is_reported() {
    let refused = json!({ "name": "A", "framework": "adk", "port": "many", "version": "1" });
    let expected = "loss Agent n/a: left out: it has a value that no Agent takes";
    assert_reported(&thing("agents.recif.dev/v1", "Agent", "a", &refused), &[expected]);
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
    let text_of = |header: &str| {
        let start = format!("todo Tool n/t spec.headers[{header}]: ");
        lines.iter().find_map(|line| line.strip_prefix(&start)?.split(" is not expanded").next().map(str::to_owned))
    };
    assert_eq!(text_of("X-Bearer").as_deref(), Some("$TOKEN_1"));
    assert_eq!(text_of("X-Braces").as_deref(), Some("$PASS"));
    for header in ["X-Key", "X-Lower", "X-More", "X-Open"] {
        assert_eq!(text_of(header).as_deref(), Some("a `$` in it"), "{header}");
    }
    assert_eq!(text_of("X-Plain"), None);
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
    assert_reported(&text, &expected.each_ref().map(String::as_str));
    assert_eq!(object(&imported(&text), "Agent", "a")["spec"]["env"], json!([{ "name": "FREE", "value": "x" }]));
}

#[test]
fn headers_and_certificates_of_a_server_elsewhere_are_reported() {
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
    assert_reported(&strict, &[&format!("{field}: {header}; {unusable}")]);
    let usual = server(json!({ "caCertSecretRef": "ca" }));
    let untrusted = "other namespaces do not get the certificates that lab/desk trusts";
    assert_reported(&usual, &[&format!("{field}: {header}; {untrusted}")]);
    let without = lines(&imported(&server(json!({ "caCertSecretRef": "ca", "disableVerify": true })))).join("\n");
    assert!(!without.contains("certificates"), "{without}");
}

#[tokio::test]
async fn what_is_longer_than_ours_take_is_cut_and_reported() {
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
    assert_reported(
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

#[test]
fn what_becomes_nothing_is_named_where_it_is_used() {
    let program = json!({ "command": "python", "envFrom": [
        { "name": "K", "valueFrom": { "type": "Secret", "valueRef": "absent", "key": "k" } },
    ] });
    let server =
        thing("kagent.dev/v1alpha1", "ToolServer", "py", &json!({ "config": { "type": "stdio", "stdio": program } }));
    let model = thing("kagent.dev/v1alpha1", "ModelConfig", "m", &json!({ "provider": "Else", "model": "m" }));
    let tool = json!({ "type": "McpServer", "mcpServer": { "toolServer": "py", "toolNames": ["add"] } });
    let spec = json!({ "systemMessage": "Hi", "modelConfig": "m", "tools": [tool] });
    let agent = thing("kagent.dev/v1alpha1", "Agent", "a", &spec);
    let found = lines(&imported(&[server, model, agent].join("\n---\n")));
    let expected = [
        "skip ModelConfig n/m: kagent has no provider \"Else\"",
        "loss ToolServer n/py: no image, and the command has no default one",
        "todo Agent n/a spec.modelConfig: ModelConfig n/m is left out: set modelRef to a Model that is there",
        "todo Agent n/a spec.tools[0].mcpServer: ToolServer n/py is left out: create it, or take it out of toolServers",
    ];
    assert_eq!(found, expected, "and nothing of what it would need");
}

#[test]
fn a_header_that_is_refused_needs_no_secret() {
    let from = json!({ "type": "Secret", "name": "absent", "key": "k" });
    let headers = json!([{ "name": "Mcp-Session-Id", "valueFrom": from }]);
    let server = json!({ "url": "http://h/mcp", "headersFrom": headers });
    let found = lines(&imported(&thing("kagent.dev/v1alpha2", "RemoteMCPServer", "s", &server)));
    assert_eq!(found, ["loss RemoteMCPServer n/s spec.headersFrom[0]: is set by the protocol"]);
}

#[test]
fn the_domains_of_a_sandbox_are_egress() {
    let spec = |domains: &[&str]| {
        let sandbox = json!({ "network": { "allowedDomains": domains } });
        let spec = json!({ "type": "BYO", "byo": { "deployment": { "image": "own:1" } }, "sandbox": sandbox });
        thing("kagent.dev/v1alpha2", "Agent", "a", &spec)
    };
    let text = spec(&["api.example.com", "*.example.org", "https://x", "api.example.com"]);
    let field = "Agent n/a spec.sandbox.network.allowedDomains";
    let loss = format!("loss {field}: \"https://x\" is no host of egress");
    let now = "is egress now: for the whole agent, its model and tools added, at port 443 where none is given";
    assert_reported(&text, &[&format!("{loss}; {now}")]);
    let found = object(&imported(&text), "Agent", "a");
    assert_eq!(found["spec"]["egress"], json!(["api.example.com", "*.example.org"]));
    assert_reported(&spec(&[]), &["loss Agent n/a spec.sandbox: no network sandbox"]);
}

#[test]
fn a_model_of_a_newer_kagent_keeps_its_settings() {
    const KAGENT: &str = "kagent.dev/v1alpha2";
    let own = json!({ "thinking": { "type": "enabled", "budget_tokens": 16000 } });
    let bedrock = json!({
        "region": "eu-central-1",
        "additionalModelRequestFields": own,
        "promptCaching": true,
        "cacheTTL": "1h",
    });
    let spec = json!({ "provider": "Bedrock", "model": "m", "bedrock": bedrock });
    let made = imported(&thing(KAGENT, "ModelConfig", "m", &spec));
    let config = json!({ "additionalModelRequestFields": own, "cache": "1h" });
    assert_eq!(object(&made, "Model", "m")["spec"]["defaultConfig"], config);
    assert_eq!(lines(&made), Vec::<String>::new());
    let bedrock = json!({ "region": "eu-central-1", "additionalModelRequestFields": ["top_k"] });
    let spec = json!({ "provider": "Bedrock", "model": "m", "bedrock": bedrock });
    let refused = "skip ModelConfig n/m spec.bedrock.additionalModelRequestFields: is no object";
    assert_reported(&thing(KAGENT, "ModelConfig", "m", &spec), &[refused]);

    let foundry = json!({ "endpointFrom": { "name": "azure", "key": "url" }, "deployment": "blue" });
    let spec = json!({ "provider": "Foundry", "model": "gpt", "foundry": foundry });
    let model = thing(KAGENT, "ModelConfig", "m", &spec);
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "azure", "namespace": "n" },
        "data": { "url": "https://x.example.com\n" } });
    let both = [map.to_string(), model.clone()].join("\n---\n");
    let made = imported(&both);
    let plugin = json!({
        "type": "azure-openai",
        "extraConfig": { "baseUrl": "https://x.example.com", "apiVersion": "2024-10-21" },
    });
    assert_eq!(object(&made, "PluginConfig", "m")["spec"], plugin);
    assert_eq!(object(&made, "Model", "m")["spec"]["model"], "blue");
    let field = "ModelConfig n/m spec.foundry.endpointFrom";
    let fixed = format!("change {field}: is fixed text now; edits of ConfigMap n/azure no longer reach it");
    assert_reported(&both, &[&fixed]);
    let absent = format!("todo {field}: no key url of ConfigMap n/azure is in the input: set extraConfig.baseUrl");
    assert_reported(&model, &[&absent]);
}

#[test]
fn the_key_of_an_account_is_sent_to_no_model() {
    const KAGENT: &str = "kagent.dev/v1alpha2";
    let account = json!({ "audience": "https://x.example.com" });
    let exchange = json!({ "type": "GDCHServiceAccount", "gdchServiceAccount": account });
    let spec = json!({
        "provider": "OpenAI",
        "model": "m",
        "apiKeySecret": "account",
        "apiKeySecretKey": "json",
        "openAI": { "baseUrl": "https://x.example.com/v1", "tokenExchange": exchange },
    });
    let text = thing(KAGENT, "ModelConfig", "m", &spec);
    assert_eq!(object(&imported(&text), "PluginConfig", "m")["spec"]["credentialsRef"], Value::Null);
    let lost = "tokens are not fetched by exchange; put one into a Secret and credentialsRef";
    assert_reported(&text, &[&format!("loss ModelConfig n/m spec.openAI.tokenExchange: {lost}")]);
    let spec = json!({ "provider": "SAPAICore", "model": "m" });
    let lost = "loss ModelConfig n/m: left out: Récif's runtime does not speak the protocol of SAP AI Core";
    assert_reported(&thing(KAGENT, "ModelConfig", "m", &spec), &[lost]);
}
