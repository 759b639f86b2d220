//! Agents and flows that have the tools of a server by one line, `toolServers`.

use super::*;

/// Returns the tools that are rendered for an Agent.
fn tools(sim: &Sim, agent: &str) -> Vec<Value> {
    let name = format!("{agent}-config");
    let mut text = at(sim, &id("ConfigMap", &name), "/data/CORAIL_TOOLS");
    if text.is_null() {
        let secret: k8s_openapi::ByteString =
            serde_json::from_value(at(sim, &id("Secret", &name), "/data/CORAIL_TOOLS")).unwrap();
        text = json!(String::from_utf8(secret.0).unwrap());
    }
    serde_json::from_str(text.as_str().unwrap()).unwrap()
}

fn names(sim: &Sim, agent: &str) -> Vec<String> {
    tools(sim, agent).iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Returns an Agent with these entries.
fn user(entries: Value) -> Value {
    agent(json!({"toolServers": entries}))
}

fn cluster_of(tools: &[(&str, &str)]) -> Sim {
    let sim = Sim::new();
    sim.serve(URL, lists_tools(tools));
    sim.store().create(&server_id(), server(json!({})));
    sim
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_the_server_gains_appears_without_an_edit_and_only_its_users_move() {
    let sim = cluster_of(&[("echo", "Echoes"), ("add", "Adds")]);
    sim.store().create(&agent_id("a"), user(json!([{"name": "everything"}])));
    sim.store().create(&agent_id("b"), user(json!([{"name": "everything", "include": ["ec*"], "prefix": "my_"}])));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!((phase(&sim, &agent_id("a")), phase(&sim, &agent_id("b"))), (json!("Running"), json!("Running")));
    assert_eq!((names(&sim, "a"), names(&sim, "b")), (vec!["add".into(), "echo".into()], vec!["my_echo".into()]));
    let expected = json!({
        "name": "my_echo", "type": "mcp", "description": "Echoes", "mcpEndpoint": URL, "mcpTool": "echo",
        "mcpServer": "everything",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}, "timeout": 30,
    });
    assert_eq!(tools(&sim, "b"), [expected]);
    assert_eq!(condition(&sim, &agent_id("a"), "ToolsResolved"), Some(("True".into(), "Resolved".into(), "".into())));
    sim.take_requests();
    operator.run(60 * MINUTE).await;
    assert_eq!(sim.take_requests(), [], "equal answers");

    sim.serve(URL, lists_tools(&[("echo", "Echoes"), ("add", "Adds"), ("sub", "Subtracts")]));
    operator.run(2 * MINUTE).await;
    let writes = sim.take_writes();
    assert!(writes.contains(&"Apply Deployment/a".to_owned()), "{writes:?}");
    assert!(!writes.iter().any(|write| write.contains("/b")), "it chose nothing that changed: {writes:?}");
    assert_eq!(
        (names(&sim, "a"), phase(&sim, &agent_id("a"))),
        (vec!["add".into(), "echo".into(), "sub".into()], json!("Running"))
    );
    assert_eq!(at(&sim, &agent_id("a"), "/metadata/generation"), 1);

    sim.serve(URL, lists_tools(&[("echo", "Echoes")]));
    operator.run(2 * MINUTE).await;
    assert_eq!(
        (names(&sim, "a"), phase(&sim, &agent_id("a"))),
        (vec!["echo".into()], json!("Running")),
        "they are gone"
    );
    sim.serve(URL, down());
    operator.run(2 * MINUTE).await;
    sim.take_requests();
    sim.store().create(&agent_id("c"), user(json!([{"name": "everything"}])));
    operator.run(MINUTE).await;
    assert_eq!((names(&sim, "c"), phase(&sim, &agent_id("c"))), (vec!["echo".into()], json!("Running")), "it is down");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_chosen_is_waited_for_and_named() {
    let sim = cluster_of(&[("echo", "Echoes"), ("add", "Adds")]);
    let cases = [
        (json!({"name": "nowhere"}), r#"remotemcpserver "nowhere" not found"#),
        (json!({"kind": "MCPServer", "name": "k8s"}), r#"mcpserver "k8s" not found"#),
        (
            json!({"name": "everything", "include": ["nothing_*"]}),
            r#"no tool of remotemcpserver "everything" is in include"#,
        ),
        (
            json!({"name": "everything", "exclude": ["*"]}),
            r#"every tool of remotemcpserver "everything" is in exclude"#,
        ),
        (
            json!({"name": "everything", "include": ["echo", "sub"]}),
            r#"remotemcpserver "everything" has no tool "sub": it has add, echo"#,
        ),
        (
            json!({"name": "everything", "headersFrom": [{"name": "X-A", "valueFrom": {"type": "Secret", "name": "keys", "key": "k"}}]}),
            r#"secret "keys" not found"#,
        ),
    ];
    for (number, (entry, _)) in cases.iter().enumerate() {
        sim.store().create(&agent_id(&format!("a{number}")), user(json!([entry])));
    }
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    for (number, (_, expected)) in cases.iter().enumerate() {
        let id = agent_id(&format!("a{number}"));
        assert_eq!((phase(&sim, &id), message(&sim, &id)), (json!("Resolving"), (*expected).to_owned()));
    }
    sim.serve(URL, lists_tools(&[("echo", "Echoes"), ("sub", "Subtracts"), ("nothing_x", "Does nothing")]));
    operator.run(2 * MINUTE).await;
    assert_eq!([2, 4].map(|number| phase(&sim, &agent_id(&format!("a{number}")))), ["Running", "Running"]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_and_a_tool_too_many_are_left_out_and_named_while_the_agent_runs() {
    let sim = cluster_of(&[("echo", "Echoes"), ("add", "Adds"), ("datetime", "Tells the time")]);
    sim.store()
        .create(&tool_id("talk"), object("Tool", json!({"name": "echo", "type": "http", "endpoint": "http://h/"})));
    let spec = json!({
        "tools": ["talk", "datetime"],
        "toolServers": [{"name": "everything"}, {"name": "everything", "include": ["add"]}],
    });
    sim.store().create(&agent_id("a"), agent(spec));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(
        (names(&sim, "a"), phase(&sim, &agent_id("a"))),
        (vec!["echo".into(), "datetime".into(), "add".into()], json!("Running"))
    );
    let sentence = |tool: &str, first: &str| {
        format!(r#"tool "{tool}" of remotemcpserver "everything" is left out, {first} has the name: set prefix"#)
    };
    let expected = [
        sentence("datetime", "the builtin datetime"),
        sentence("echo", "Tool/talk"),
        sentence("add", r#"remotemcpserver "everything""#),
    ];
    let expected = ("False".into(), "NameConflict".into(), expected.join("; "));
    assert_eq!(condition(&sim, &agent_id("a"), "ToolsResolved"), Some(expected));
    assert_eq!(condition(&sim, &agent_id("a"), "Ready").unwrap().0, "True");

    let many: Vec<String> = (0..130).map(|number| format!("tool{number:03}")).collect();
    let listed: Vec<_> = many.iter().map(|name| (name.as_str(), "")).collect();
    sim.serve(URL, lists_tools(&listed));
    sim.store().edit(&agent_id("a"), |body| body["spec"]["toolServers"] = json!([{"name": "everything"}]));
    operator.run(3 * MINUTE).await;
    assert_eq!((names(&sim, "a").len(), phase(&sim, &agent_id("a"))), (128, json!("Running")));
    let (status, reason, message) = condition(&sim, &agent_id("a"), "ToolsResolved").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "TooManyTools"));
    let first =
        r#"tool "tool126" of remotemcpserver "everything" is left out, there are 128 tools already: narrow include"#;
    assert!(message.starts_with(first), "{message}");

    sim.store().edit(&agent_id("a"), |body| drop(body["spec"].as_object_mut().unwrap().remove("toolServers")));
    operator.run(MINUTE).await;
    assert_eq!(condition(&sim, &agent_id("a"), "ToolsResolved"), None);
}

#[tokio::test(start_paused = true)]
async fn a_tool_whose_definition_is_not_kept_is_left_out_and_named() {
    let (big, names) = ("x".repeat(19 * 1024), (0..60).map(|number| format!("t{number:02}")).collect::<Vec<_>>());
    let mut listed: Vec<_> = names.iter().map(|name| (name.as_str(), big.as_str())).collect();
    listed.push(("u", "Is small"));
    let sim = cluster_of(&listed);
    sim.store().create(&agent_id("a"), user(json!([{"name": "everything", "include": ["t59*", "u*"]}])));
    sim.store().create(&agent_id("b"), user(json!([{"name": "everything", "include": ["t59*"]}])));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!((phase(&sim, &agent_id("a")), phase(&sim, &agent_id("b"))), (json!("Running"), json!("Resolving")));
    let sentence = r#"tool "t59" of remotemcpserver "everything" is left out, the server's definitions are too large: let it list fewer"#;
    let expected = ("False".into(), "TooManyTools".into(), sentence.into());
    assert_eq!(condition(&sim, &agent_id("a"), "ToolsResolved"), Some(expected));
    let none = r#"remotemcpserver "everything" has too many definitions: that of "t59" is left out"#;
    assert_eq!(message(&sim, &agent_id("b")), none, "no tool is left");
}

#[tokio::test(start_paused = true)]
async fn the_headers_of_a_server_are_variables_once_and_an_entry_replaces_them() {
    let sim = Sim::new();
    sim.serve(URL, lists_tools(&[("echo", "Echoes"), ("add", "Adds")]));
    let from = |name: &str| json!({"type": "Secret", "name": name, "key": "k"});
    let header = |name: &str, secret: &str| json!({"name": name, "valueFrom": from(secret)});
    let headers = json!([header("Authorization", "keys"), {"name": "X-Team", "value": "blue"}]);
    sim.store().create(
        &server_id(),
        server(json!({"headersFrom": headers, "tls": {"caSecretRef": {"name": "ca"}, "systemCAs": false}})),
    );
    for (name, key) in [("keys", "k"), ("mine", "k"), ("ca", "ca.crt")] {
        sim.store().create(&id("Secret", name), secret(json!({ key: "MQ==" })));
    }
    let own = json!([header("authorization", "mine"), {"name": "X-Sly", "value": "$HOME"}]);
    let mine = json!({"name": "everything", "prefix": "my_", "headersFrom": own, "forwardHeaders": ["X-Tenant"]});
    let entries = json!([{"name": "everything"}, mine]);
    sim.store().create(&agent_id("a"), user(entries));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    let rendered = tools(&sim, "a");
    assert_eq!(names(&sim, "a"), ["add", "echo", "my_add", "my_echo"]);
    assert_eq!(rendered[0]["headers"], json!({"Authorization": "$MCP_EVERYTHING_AUTHORIZATION", "X-Team": "blue"}));
    assert_eq!((&rendered[0]["headers"], &rendered[2]["headers"]), (&rendered[1]["headers"], &rendered[3]["headers"]));
    assert_eq!((&rendered[0]["forwardHeaders"], &rendered[3]["forwardHeaders"]), (&Value::Null, &json!(["X-Tenant"])));
    assert_eq!(rendered[0]["mcpTls"], json!({"ca": "$MCP_EVERYTHING_TLS_CA", "systemCAs": false}));
    let env = at(&sim, &id("Deployment", "a"), "/spec/template/spec/containers/0/env");
    let variable = |name: &Value| {
        let name = name.as_str().unwrap().trim_start_matches('$');
        env.as_array().unwrap().iter().find(|it| it["name"] == name).cloned().unwrap_or_else(|| panic!("{name}: {env}"))
    };
    let secret_of = |name: &Value| variable(name)["valueFrom"]["secretKeyRef"]["name"].clone();
    assert_eq!(secret_of(&rendered[0]["headers"]["Authorization"]), "keys");
    assert_eq!(secret_of(&rendered[2]["headers"]["authorization"]), "mine");
    assert_eq!(variable(&rendered[2]["headers"]["X-Sly"])["value"], "$$HOME", "names in it are no names");
    let ours = env.as_array().unwrap().iter().filter(|it| it["name"].as_str().unwrap().starts_with("MCP_"));
    assert_eq!(ours.count(), 5, "one for each value of an entry and not for each tool: {env}");

    let template = "/spec/template/metadata/annotations";
    let before = at(&sim, &id("Deployment", "a"), template);
    sim.store().edit(&id("Secret", "mine"), |body| body["data"]["k"] = json!("Mg=="));
    operator.run(2 * MINUTE).await;
    assert_ne!(at(&sim, &id("Deployment", "a"), template), before, "Pods get the new value");
    sim.take_requests();
    operator.run(60 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
}

#[tokio::test(start_paused = true)]
async fn tools_that_are_too_many_for_a_variable_are_a_file() {
    let long = "x".repeat(2000);
    let many: Vec<String> = (0..60).map(|number| format!("tool{number:03}")).collect();
    let listed: Vec<_> = many.iter().map(|name| (name.as_str(), long.as_str())).collect();
    let sim = cluster_of(&listed);
    sim.store().create(&agent_id("a"), user(json!([{"name": "everything"}])));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    let config = at(&sim, &id("ConfigMap", "a-config"), "/data");
    assert_eq!((&config["CORAIL_TOOLS_FILE"], &config["CORAIL_TOOLS"]), (&json!("/recif/tools.json"), &Value::Null));
    let file = at(&sim, &id("ConfigMap", "a-tools"), "/data/tools.json");
    let tools: Value = serde_json::from_str(file.as_str().unwrap()).unwrap();
    assert_eq!(tools.as_array().unwrap().len(), 60);
    let pod = at(&sim, &id("Deployment", "a"), "/spec/template/spec");
    let volume = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "recif-tools").unwrap();
    let items = json!([{"key": "tools.json", "path": "tools.json"}]);
    assert_eq!(volume["configMap"], json!({"name": "a-tools", "items": items}));
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["name"] == "recif-tools").unwrap();
    assert_eq!((&mount["mountPath"], &mount["readOnly"]), (&json!("/recif"), &json!(true)));

    let template = "/spec/template/metadata/annotations";
    let before = at(&sim, &id("Deployment", "a"), template);
    let changed: Vec<_> =
        listed.iter().map(|(name, text)| (*name, if *name == "tool007" { "Spies" } else { *text })).collect();
    sim.serve(URL, lists_tools(&changed));
    operator.run(2 * MINUTE).await;
    assert_ne!(at(&sim, &id("Deployment", "a"), template), before, "Pods read it once");

    let header = json!([{"name": "Authorization", "valueFrom": {"type": "Secret", "name": "keys", "key": "k"}}]);
    sim.store().create(&id("Secret", "keys"), secret(json!({"k": "MQ=="})));
    sim.store().edit(&agent_id("a"), |body| body["spec"]["toolServers"][0]["headersFrom"] = header);
    operator.run(2 * MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    assert!(at(&sim, &id("Secret", "a-tools"), "/data/tools.json").is_string());
    assert_eq!(at(&sim, &id("ConfigMap", "a-tools"), "/data"), Value::Null, "it is removed after the rollout");

    sim.serve(URL, lists_tools(&[("echo", "Echoes")]));
    operator.run(3 * MINUTE).await;
    assert_eq!((phase(&sim, &agent_id("a")), names(&sim, "a")), (json!("Running"), vec!["echo".into()]));
    assert_eq!(at(&sim, &id("Secret", "a-tools"), "/data"), Value::Null);
}

/// Creates the provider, the model and the prompt of a flow.
pub(super) fn flow_needs(sim: &Sim) -> Value {
    sim.store().create(&id("PluginConfig", "p"), object("PluginConfig", json!({"type": "stub"})));
    let model = json!({"provider": "stub", "model": "echo", "pluginConfigRef": {"name": "p"}});
    sim.store().create(&id("Model", "m"), object("Model", model));
    json!({"prompts": [{"prompt": {"name": "main", "content": "hi"}}], "modelRef": {"name": "m"}})
}

#[tokio::test(start_paused = true)]
async fn a_flow_has_a_file_for_each_tool_of_a_server() {
    let sim = cluster_of(&[("fs/read", "Reads"), ("fs.read", "Reads too"), ("add", "Adds")]);
    let mut spec = flow_needs(&sim);
    spec["toolServers"] = json!([{"name": "everything", "prefix": "x-"}]);
    sim.store().create(&id("Flow", "f"), object("Flow", spec));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &id("Flow", "f")), "Running");
    let files = at(&sim, &id("ConfigMap", "f-tools"), "/data");
    assert_eq!(
        files.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["everything_add.json", "everything_fs_read.json"]
    );
    let file: Value = serde_json::from_str(files["everything_fs_read.json"].as_str().unwrap()).unwrap();
    assert_eq!(file["name"], "x-fs_read");
    let expected = json!({"mcp": {"url": URL, "tool": "fs.read", "server": "everything"}});
    assert_eq!(file["implementation"], expected, "the first by name");
    let (status, reason, message) = condition(&sim, &id("Flow", "f"), "ToolsResolved").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NameConflict"));
    assert!(message.starts_with(r#"tool "fs/read" of remotemcpserver "everything" is left out"#), "{message}");
    sim.serve(URL, lists_tools(&[("add", "Adds"), ("new", "Is new")]));
    operator.run(3 * MINUTE).await;
    assert_eq!(phase(&sim, &id("Flow", "f")), "Running");
    let files = at(&sim, &id("ConfigMap", "f-tools"), "/data");
    assert_eq!(files.as_object().unwrap().keys().collect::<Vec<_>>(), ["everything_add.json", "everything_new.json"]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_of_a_server_does_not_take_the_file_of_a_builtin() {
    let sim = Sim::new();
    sim.serve(URL, lists_tools(&[("search", "Searches")]));
    sim.store().create(&id("RemoteMCPServer", "web"), server(json!({})));
    let mut spec = flow_needs(&sim);
    spec["tools"] = json!([{"name": "web_search"}]);
    spec["toolServers"] = json!([{"name": "web"}]);
    sim.store().create(&id("Flow", "f"), object("Flow", spec));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &id("Flow", "f")), "Running");
    let files = at(&sim, &id("ConfigMap", "f-tools"), "/data");
    let named: Vec<_> = files.as_object().unwrap().iter().collect();
    let name = |text: &Value| serde_json::from_str::<Value>(text.as_str().unwrap()).unwrap()["name"].clone();
    let [(builtin, one), (of_server, other)] = named[..] else { panic!("{named:?}") };
    assert_eq!((builtin.as_str(), name(one)), ("web_search.json", json!("web_search")));
    assert!(of_server.starts_with("web_search_"), "{of_server}");
    assert_eq!(name(other), "search");
}

#[tokio::test(start_paused = true)]
async fn each_flow_of_a_set_has_its_own_choice_and_headers() {
    let sim = cluster_of(&[("echo", "Echoes"), ("add", "Adds")]);
    let needs = flow_needs(&sim);
    let header =
        |secret: &str| json!([{"name": "Authorization", "valueFrom": {"type": "Secret", "name": secret, "key": "k"}}]);
    let flow = |name: &str, tool: &str, secret: &str| {
        let mut flow = needs.clone();
        flow["name"] = json!(name);
        flow["toolServers"] = json!([{"name": "everything", "include": [tool], "headersFrom": header(secret)}]);
        flow
    };
    for name in ["one", "two"] {
        sim.store().create(&id("Secret", name), secret(json!({"k": "MQ=="})));
    }
    let flows = [flow("a", "echo", "one"), flow("b", "add", "two")];
    sim.store().create(&id("FlowSet", "s"), object("FlowSet", json!({"flows": flows})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &id("FlowSet", "s")), "Running");
    let file = |flow: &str, tool: &str| -> Value {
        let data = at(&sim, &id("Secret", &format!("s-{flow}-tools")), "/data");
        let text: k8s_openapi::ByteString =
            serde_json::from_value(data[format!("everything_{tool}.json")].clone()).unwrap();
        serde_json::from_slice(&text.0).unwrap()
    };
    let variable = |flow: &str, tool: &str| {
        let header = file(flow, tool)["implementation"]["mcp"]["headers"]["Authorization"].clone();
        header.as_str().unwrap().trim_start_matches('$').to_owned()
    };
    let (of_a, of_b) = (variable("a", "echo"), variable("b", "add"));
    assert_eq!(of_a, "MCP_EVERYTHING_AUTHORIZATION");
    assert!(of_b.starts_with("MCP_EVERYTHING_AUTHORIZATION_") && of_b.len() == of_a.len() + 9, "{of_b}");
    let env = at(&sim, &id("Deployment", "s"), "/spec/template/spec/containers/0/env");
    let secret_of = |name: &str| {
        let found = env.as_array().unwrap().iter().find(|it| it["name"] == name).unwrap();
        found["valueFrom"]["secretKeyRef"]["name"].clone()
    };
    assert_eq!((secret_of(&of_a), secret_of(&of_b)), (json!("one"), json!("two")));
    sim.take_requests();
    for listed in [[("echo", "Echoes"), ("add", "Adds numbers")], [("echo", "Echoes a text"), ("add", "Adds numbers")]]
    {
        sim.serve(URL, lists_tools(&listed));
        operator.run(3 * MINUTE).await;
        let writes = sim.take_writes();
        assert!(writes.contains(&"Apply Deployment/s".to_owned()), "{listed:?}: {writes:?}");
    }
    sim.serve(URL, lists_tools(&[("echo", "Echoes a text"), ("add", "Adds numbers"), ("other", "Is not chosen")]));
    operator.run(3 * MINUTE).await;
    let writes = sim.take_writes();
    assert!(!writes.iter().any(|write| write.contains("/s")), "{writes:?}");
    assert_eq!(phase(&sim, &id("FlowSet", "s")), "Running");
}

#[tokio::test(start_paused = true)]
async fn an_entry_says_for_which_tools_of_the_server_a_person_is_asked() {
    let sim = cluster_of(&[("delete", "Deletes"), ("echo", "Echoes")]);
    let approval = json!({"when": "OnWrite", "tools": ["del*"]});
    let mut asking = user(json!([{"name": "everything", "prefix": "my_", "approval": approval}]));
    asking["spec"]["image"] = crate::fake::settings().runner_image.into();
    sim.store().create(&agent_id("a"), asking);
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let waits = json!({"when": "OnWrite", "by": "Caller", "timeout": 3600});
    let found: Vec<Value> = tools(&sim, "a").iter().map(|tool| tool["approval"].clone()).collect();
    assert_eq!((names(&sim, "a"), found), (vec!["my_delete".into(), "my_echo".into()], vec![waits, Value::Null]));
    sim.store().edit(&agent_id("a"), |body| body["spec"]["replicas"] = json!(2));
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("a")), "Failed", "turns that wait in memory are in one Pod");
}
