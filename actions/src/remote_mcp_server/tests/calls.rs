//! Rendering of a server's address and headers for the workloads that call its tools, and access from other namespaces.

use super::*;

#[tokio::test(start_paused = true)]
async fn another_namespace_uses_a_server_while_it_is_allowed_to() {
    let sim = Sim::new();
    sim.serve(URL, lists_tools(&[("echo", "Echoes")]));
    let elsewhere = ObjectId { namespace: "tools".to_owned(), ..server_id() };
    sim.store().create(&elsewhere, server(json!({})));
    let server = json!({"name": "everything", "namespace": "tools", "toolName": "echo"});
    let spec = json!({"name": "echo", "type": "mcp", "mcpServerRef": server});
    sim.store().create(&tool_id("echo"), object("Tool", spec));
    let namespace = ObjectId { kind: "Namespace", namespace: String::new(), name: "team".to_owned() };
    sim.store().create(&namespace, json!({"kind": "Namespace", "metadata": {"labels": {"team": "a"}}}));
    let mut operator = Operator::start(&sim);
    let mut phases = Vec::new();
    for allowed in [
        json!({"from": "Same"}),
        json!({"from": "All"}),
        json!({"from": "Selector", "selector": {"matchLabels": {"team": "b"}}}),
        json!({"from": "Selector", "selector": {"matchLabels": {"team": "a"}}}),
    ] {
        sim.store().edit(&elsewhere, |body| body["spec"]["allowedNamespaces"] = allowed);
        // The simulation enqueues only objects of one namespace: the operator's index across namespaces has its own tests.
        sim.store().edit(&tool_id("echo"), |body| body["metadata"]["labels"]["look"] = json!(phases.len().to_string()));
        operator.run(MINUTE).await;
        sim.store().edit(&tool_id("echo"), |body| body["metadata"]["labels"]["look"] = json!("again"));
        operator.run(MINUTE).await;
        phases.push(phase(&sim, &tool_id("echo")));
    }
    assert_eq!(phases, ["Resolving", "Available", "Resolving", "Available"]);
    sim.store().edit(&elsewhere, |body| body["spec"]["allowedNamespaces"] = json!({"from": "Same"}));
    operator.run(MINUTE).await;
    sim.store().edit(&tool_id("echo"), |body| body["metadata"]["labels"]["look"] = json!("last"));
    operator.run(MINUTE).await;
    let expected = r#"remotemcpserver "tools/everything" may not be used from namespace "team": let its spec.allowedNamespaces allow it"#;
    assert_eq!(message(&sim, &tool_id("echo")), expected);
}

#[tokio::test(start_paused = true)]
async fn a_servers_headers_reach_those_that_call_its_tools_and_read_nothing_of_theirs() {
    let sim = Sim::new();
    sim.serve(URL, lists_tools(&[("echo", "Echoes")]));
    let from = |type_: &str, name: &str| json!({"type": type_, "name": name, "key": "k"});
    let headers = json!([
        {"name": "Authorization", "valueFrom": from("Secret", "keys")},
        {"name": "X-Team", "valueFrom": from("ConfigMap", "team")},
        {"name": "X-Plain", "value": "as it is"},
        {"name": "X-Sly", "value": "$HOME$(PATH)"},
        {"name": "x-own", "value": "the server's"},
    ]);
    sim.store().create(&server_id(), server(json!({"headersFrom": headers, "protocol": "SSE"})));
    sim.store().create(&id("Secret", "keys"), secret(json!({"k": "MQ=="})));
    sim.store().create(&id("ConfigMap", "team"), json!({"apiVersion": "v1", "metadata": {}, "data": {"k": "blue"}}));
    let mut tool = served("echo");
    tool["spec"]["headers"] = json!({"X-Own": "the Tool's"});
    sim.store().create(&tool_id("echo"), tool);
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["echo"]})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    let tools = at(&sim, &id("Secret", "a-config"), "/data/CORAIL_TOOLS");
    let tools: k8s_openapi::ByteString = serde_json::from_value(tools).unwrap();
    let tools: Value = serde_json::from_slice(&tools.0).unwrap();
    assert_eq!((&tools[0]["mcpTransport"], &tools[0]["mcpEndpoint"]), (&json!("sse"), &json!(URL)));
    let expected = json!({
        "Authorization": "$TOOL_MY_ECHO_AUTHORIZATION", "X-Team": "$TOOL_MY_ECHO_X_TEAM", "X-Plain": "as it is",
        "X-Sly": "$TOOL_MY_ECHO_X_SLY", "X-Own": "the Tool's",
    });
    assert_eq!(tools[0]["headers"], expected);
    let env = at(&sim, &id("Deployment", "a"), "/spec/template/spec/containers/0/env");
    let variable = |name: &str| env.as_array().unwrap().iter().find(|it| it["name"] == name).cloned().unwrap();
    let key = |name: &str| json!({"name": name, "key": "k"});
    assert_eq!(variable("TOOL_MY_ECHO_AUTHORIZATION")["valueFrom"]["secretKeyRef"], key("keys"));
    assert_eq!(variable("TOOL_MY_ECHO_X_TEAM")["valueFrom"]["configMapKeyRef"], key("team"));
    assert_eq!(variable("TOOL_MY_ECHO_X_SLY")["value"], "$$HOME$$(PATH)", "names in it are no names");

    let template = "/spec/template/metadata/annotations";
    let before = at(&sim, &id("Deployment", "a"), template);
    sim.store().edit(&id("Secret", "keys"), |body| body["data"]["k"] = json!("Mg=="));
    operator.run(2 * MINUTE).await;
    assert_ne!(at(&sim, &id("Deployment", "a"), template), before, "Pods get the new value");
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    sim.take_requests();
    operator.run(60 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
}

#[tokio::test(start_paused = true)]
async fn secrets_of_a_servers_namespace_are_looked_for_in_no_other() {
    let sim = Sim::new();
    sim.serve(URL, lists_tools(&[("echo", "Echoes")]));
    let elsewhere = |kind: &'static str, name: &str| ObjectId { namespace: "tools".to_owned(), ..id(kind, name) };
    let header = json!({"name": "Authorization", "valueFrom": {"type": "Secret", "name": "keys", "key": "k"}});
    let spec = json!({"headersFrom": [header, {"name": "X-Plain", "value": "v"}], "allowedNamespaces": {"from": "All"},
               "tls": {"caSecretRef": {"name": "keys", "key": "k"}}});
    sim.store().create(&elsewhere("RemoteMCPServer", "everything"), server(spec));
    sim.store().create(&elsewhere("Secret", "keys"), secret(json!({"k": "MQ=="})));
    // A Secret of the same name that is not for that server.
    sim.store().create(&id("Secret", "keys"), secret(json!({"k": "Mg=="})));
    let server = json!({"name": "everything", "namespace": "tools", "toolName": "echo"});
    sim.store()
        .create(&tool_id("echo"), object("Tool", json!({"name": "echo", "type": "mcp", "mcpServerRef": server})));
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["echo"]})));
    let mut operator = Operator::start(&sim);
    for look in 0..3 {
        // The simulation enqueues only objects of one namespace.
        operator.run(MINUTE).await;
        sim.store().edit(&tool_id("echo"), |body| body["metadata"]["labels"]["look"] = json!(look.to_string()));
    }
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    let tools = at(&sim, &id("Secret", "a-config"), "/data/CORAIL_TOOLS");
    let tools: k8s_openapi::ByteString = serde_json::from_value(tools).unwrap();
    let tools: Value = serde_json::from_slice(&tools.0).unwrap();
    assert_eq!((&tools[0]["headers"], &tools[0]["mcpTls"]), (&json!({"X-Plain": "v"}), &Value::Null));
    let env = at(&sim, &id("Deployment", "a"), "/spec/template/spec/containers/0/env");
    assert!(!env.to_string().contains("TOOL_ECHO"), "{env}");
}

#[tokio::test(start_paused = true)]
async fn a_servers_authorities_reach_those_that_call_its_tools() {
    let sim = Sim::new();
    sim.serve(URL, lists_tools(&[("echo", "Echoes")]));
    sim.store().create(&server_id(), server(json!({"tls": {"caSecretRef": {"name": "ca"}}})));
    sim.store().create(&id("Secret", "ca"), secret(json!({"ca.crt": "MQ=="})));
    sim.store().create(&tool_id("echo"), served("echo"));
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["echo"]})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    let tools = |sim: &Sim| -> Value {
        let tools = at(sim, &id("ConfigMap", "a-config"), "/data/CORAIL_TOOLS");
        serde_json::from_str(tools.as_str().unwrap()).unwrap()
    };
    assert_eq!(tools(&sim)[0]["mcpTls"], json!({"ca": "$TOOL_MY_ECHO_TLS_CA"}));
    let env = at(&sim, &id("Deployment", "a"), "/spec/template/spec/containers/0/env");
    let variable = env.as_array().unwrap().iter().find(|it| it["name"] == "TOOL_MY_ECHO_TLS_CA").unwrap();
    assert_eq!(variable["valueFrom"]["secretKeyRef"], json!({"name": "ca", "key": "ca.crt"}));

    let template = "/spec/template/metadata/annotations";
    let before = at(&sim, &id("Deployment", "a"), template);
    sim.store().edit(&id("Secret", "ca"), |body| body["data"]["ca.crt"] = json!("Mg=="));
    operator.run(2 * MINUTE).await;
    assert_ne!(at(&sim, &id("Deployment", "a"), template), before, "Pods get the new certificates");
    sim.store().edit(&server_id(), |body| body["spec"]["tls"] = json!({"insecureSkipVerify": true}));
    operator.run(2 * MINUTE).await;
    assert_eq!(tools(&sim)[0]["mcpTls"], json!({"insecureSkipVerify": true}));
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    sim.take_requests();
    operator.run(60 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
}

#[tokio::test(start_paused = true)]
async fn a_service_of_another_namespace_is_asked_only_where_its_server_allows_it() {
    let sim = Sim::new();
    let team = ObjectId { kind: "Namespace", namespace: String::new(), name: server_id().namespace };
    sim.store().create(&team, json!({"kind": "Namespace", "metadata": {"labels": {"team": "a"}}}));
    let files = ObjectId { namespace: "tools".to_owned(), ..id("MCPServer", "files") };
    let spec = json!({"transportType": "http", "deployment": {"image": "i"}});
    sim.store().create(&files, object("MCPServer", spec));
    let urls =
        ["files.tools.svc", "files.tools", "files-0.files.tools.svc.cluster.local", "FILES.tools.svc.cluster.local."];
    let others = [
        "secrets.tools.svc",
        "files.tools.svc.example.com",
        "mcp.example",
        "files%2Etools%2Esvc",
        "files.tools\u{3002}svc",
        "10-1-2-3.tools.pod.cluster.local",
    ];
    for (at, host) in urls.iter().chain(&others).enumerate() {
        let url = format!("http://{host}:3000/mcp");
        sim.serve(&url, lists_tools(&[("echo", "Echoes")]));
        let remote = id(
            "RemoteMCPServer",
            ["s0", "s1", "s2", "s3", "other", "outside", "internet", "encoded", "wide", "pod"][at],
        );
        sim.store().create(&remote, object("RemoteMCPServer", json!({"url": url})));
    }
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let is = |name: &'static str| phase(&sim, &id("RemoteMCPServer", name));
    assert_eq!(["s0", "s1", "s2", "s3", "other"].map(is), [(); 5].map(|()| json!("Error")));
    assert_eq!(["encoded", "wide", "pod"].map(is), [(); 3].map(|()| json!("Error")), "as a client reads it");
    assert_eq!(["outside", "internet"].map(is), [(); 2].map(|()| json!("Available")));
    let denied = condition(&sim, &id("RemoteMCPServer", "s0"), "Ready").unwrap();
    assert_eq!(denied.1, "AddressDenied");
    assert!(denied.2.contains("an MCPServer that is not for this namespace"), "{}", denied.2);
    assert!(message(&sim, &id("RemoteMCPServer", "other")).contains("which is not an MCPServer"));

    let selector = json!({"from": "Selector", "selector": {"matchLabels": {"team": "a"}}});
    sim.store().edit(&files, |body| body["spec"]["allowedNamespaces"] = selector.clone());
    operator.run(3 * MINUTE).await;
    assert_eq!(["s0", "s1", "s2", "s3"].map(is), [(); 4].map(|()| json!("Available")));
    assert_eq!(is("other"), "Error");
    sim.store().edit(&files, |body| body["spec"]["allowedNamespaces"] = json!({"from": "Same"}));
    operator.run(3 * MINUTE).await;
    assert_eq!(is("s0"), "Error");
}

#[tokio::test(start_paused = true)]
async fn what_a_tool_says_itself_counts_more_than_what_its_server_says() {
    let sim = cluster();
    let schema = json!({"type": "object", "properties": {"text": {"type": "string", "maxLength": 9}}});
    sim.store().edit(&tool_id("echo"), |body| {
        body["spec"]["description"] = json!("Mine");
        body["spec"]["inputSchema"] = schema.clone();
    });
    Operator::start(&sim).run(MINUTE).await;
    let tools = at(&sim, &id("ConfigMap", "a-config"), "/data/CORAIL_TOOLS");
    let tools: Value = serde_json::from_str(tools.as_str().unwrap()).unwrap();
    assert_eq!((&tools[0]["description"], &tools[0]["inputSchema"]), (&json!("Mine"), &schema));
}
