//! Storage and rendering of discovered tools, and their update when the server changes them.

use super::*;

#[tokio::test(start_paused = true)]
async fn tools_are_discovered_kept_and_rendered_and_then_cost_nothing() {
    let sim = cluster();
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!((phase(&sim, &server_id()), phase(&sim, &agent_id("a"))), (json!("Available"), json!("Running")));
    assert_eq!(at(&sim, &server_id(), "/status/toolCount"), 2);
    assert_eq!(at(&sim, &server_id(), "/status/discoveredTools/0/name"), "add");
    assert_eq!(at(&sim, &server_id(), "/status/era"), "initialize");
    let owner = at(&sim, &definitions(), "/metadata/ownerReferences/0");
    assert_eq!((&owner["kind"], &owner["blockOwnerDeletion"]), (&json!("RemoteMCPServer"), &json!(false)));
    let tools = at(&sim, &id("ConfigMap", "a-config"), "/data/CORAIL_TOOLS");
    let expected = json!([{
        "name": "my-echo", "type": "mcp", "description": "Echoes", "mcpEndpoint": URL, "mcpTool": "echo",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}, "timeout": 30,
    }]);
    assert_eq!(serde_json::from_str::<Value>(tools.as_str().unwrap()).unwrap(), expected);
    sim.take_requests();
    Operator::start(&sim).run(60 * MINUTE).await;
    assert_eq!(sim.take_requests(), [], "a restart and sixty equal answers");
}

#[tokio::test(start_paused = true)]
async fn other_tools_are_told_in_place_and_move_only_their_users() {
    let sim = cluster();
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.take_requests();
    sim.serve(URL, lists_tools(&[("echo", "Echoes"), ("add", "Adds two numbers")]));
    operator.run(2 * MINUTE).await;
    assert_eq!(sim.take_writes(), ["Apply ConfigMap/everything.mcp-tools", "Status RemoteMCPServer/everything"]);
    sim.serve(URL, lists_tools(&[("echo", "Echoes a text"), ("add", "Adds two numbers")]));
    operator.run(2 * MINUTE).await;
    assert!(sim.take_writes().contains(&"Apply Deployment/a".to_owned()));
    let tools = at(&sim, &id("ConfigMap", "a-config"), "/data/CORAIL_TOOLS");
    assert!(tools.as_str().unwrap().contains("Echoes a text"));
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_keeps_its_tools_and_its_users() {
    let sim = cluster();
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.serve(URL, down());
    operator.run(2 * MINUTE).await;
    let stalled = ("True".into(), "ServerTimeout".into(), "the server did not answer within 30 s".into());
    assert_eq!(condition(&sim, &server_id(), "Stalled"), Some(stalled));
    assert_eq!(at(&sim, &server_id(), "/status/toolCount"), 2);
    let reachable = condition(&sim, &tool_id("echo"), "ServerReachable").unwrap();
    assert_eq!((reachable.0.as_str(), reachable.1.as_str()), ("False", "ServerTimeout"));
    assert_eq!((phase(&sim, &tool_id("echo")), phase(&sim, &agent_id("a"))), (json!("Available"), json!("Running")));
    sim.take_requests();
    operator.run(60 * MINUTE).await;
    assert_eq!(sim.take_requests(), [], "looking writes nothing");
    assert_eq!(at(&sim, &agent_id("a"), "/metadata/generation"), 1);

    sim.store().create(&agent_id("b"), agent(json!({"tools": ["add"]})));
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("b")), "Running", "what is known is enough for a new one");
    sim.serve(URL, lists_tools(&[("echo", "Echoes"), ("add", "Adds")]));
    operator.run(2 * MINUTE).await;
    assert_eq!(phase(&sim, &server_id()), "Available");
    assert_eq!(condition(&sim, &tool_id("echo"), "ServerReachable").unwrap().0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_in_error_while_its_server_does_not_have_it() {
    let sim = cluster();
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.serve(URL, lists_tools(&[("add", "Adds")]));
    operator.run(2 * MINUTE).await;
    assert_eq!((phase(&sim, &tool_id("echo")), phase(&sim, &tool_id("add"))), (json!("Error"), json!("Available")));
    assert_eq!(message(&sim, &tool_id("echo")), r#"remotemcpserver "everything" has no tool "echo": it has add"#);
    assert_eq!(phase(&sim, &agent_id("a")), "Resolving");
    sim.take_requests();
    operator.run(60 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
    sim.serve(URL, lists_tools(&[("echo", "Echoes"), ("add", "Adds")]));
    operator.run(2 * MINUTE).await;
    assert_eq!((phase(&sim, &tool_id("echo")), phase(&sim, &agent_id("a"))), (json!("Available"), json!("Running")));
}

#[tokio::test(start_paused = true)]
async fn a_tool_waits_for_a_server_that_is_not_there() {
    let sim = Sim::new();
    sim.store().create(&tool_id("echo"), served("echo"));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &tool_id("echo")), "Resolving");
    assert_eq!(message(&sim, &tool_id("echo")), r#"remotemcpserver "everything" not found"#);
    sim.serve(URL, lists_tools(&[("echo", "Echoes")]));
    sim.store().create(&server_id(), server(json!({})));
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &tool_id("echo")), "Available");
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_missing_is_waited_for_and_one_that_changes_is_used_at_once() {
    let sim = Sim::new();
    sim.serve(URL, lists_tools(&[("echo", "Echoes")]));
    let header = json!({"name": "Authorization", "valueFrom": {"type": "Secret", "name": "keys", "key": "token"}});
    sim.store().create(&server_id(), server(json!({"headersFrom": [header], "resync": "1h"})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(message(&sim, &server_id()), r#"secret "keys" not found"#);
    sim.store().create(&id("Secret", "keys"), secret(json!({"token": "MQ=="})));
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &server_id()), "Available");
    sim.serve(URL, lists_tools(&[("echo", "Echoes"), ("secret", "Only with the new token")]));
    sim.store().edit(&id("Secret", "keys"), |body| body["data"]["token"] = json!("Mg=="));
    operator.run(MINUTE).await;
    assert_eq!(at(&sim, &server_id(), "/status/toolCount"), 2, "long before its resync");
}

#[tokio::test(start_paused = true)]
async fn an_edit_asks_the_new_server() {
    let sim = cluster();
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.serve("http://other/", lists_tools(&[("echo", "Echoes")]));
    sim.store().edit(&server_id(), |body| body["spec"]["url"] = json!("http://other/"));
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &server_id()), "Available");
    let tools = at(&sim, &id("ConfigMap", "a-config"), "/data/CORAIL_TOOLS");
    assert!(tools.as_str().unwrap().contains(r#""mcpEndpoint":"http://other/""#), "{tools}");
    assert_eq!(phase(&sim, &tool_id("add")), "Error", "the new server has no such tool");
}

#[tokio::test(start_paused = true)]
async fn deleted_or_changed_definitions_come_back_and_foreign_ones_stay() {
    let sim = cluster();
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let kept = at(&sim, &definitions(), "/data");
    sim.store().delete(&definitions(), Cascade::Background);
    operator.run(MINUTE).await;
    assert_eq!(at(&sim, &definitions(), "/data"), kept);
    sim.store().edit_as(&definitions(), "/data/tools.json", Some(json!("[]")), "kubectl");
    operator.run(MINUTE).await;
    assert_eq!(at(&sim, &definitions(), "/data"), kept);

    let sim = Sim::new();
    sim.serve(URL, lists_tools(&[("echo", "Echoes")]));
    let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {"mine": "1"}});
    sim.store().create(&definitions(), foreign);
    sim.store().create(&server_id(), server(json!({})));
    let mut operator = Operator::start(&sim);
    operator.run(10 * MINUTE).await;
    assert_eq!(condition(&sim, &server_id(), "Ready").unwrap().1, "NameConflict");
    assert_eq!(at(&sim, &definitions(), "/data"), json!({"mine": "1"}));
    sim.store().delete(&definitions(), Cascade::Background);
    operator.run(10 * MINUTE).await;
    assert_eq!(phase(&sim, &server_id()), "Available");
}

#[tokio::test(start_paused = true)]
async fn it_ends_the_same_wherever_the_operator_dies() {
    let calm = cluster();
    run_with_restarts(&calm, 5 * MINUTE).await;
    for nth in 0.. {
        let sim = cluster();
        let mut died = false;
        sim.plan(move |request, _| {
            let dies = !died && request.is_write() && request.nth_write == nth;
            died |= dies;
            if dies { crate::fake::RequestFault::DieUnanswered } else { crate::fake::RequestFault::No }
        });
        run_with_restarts(&sim, 5 * MINUTE).await;
        for id in [server_id(), tool_id("echo"), agent_id("a")] {
            assert_eq!(phase(&sim, &id), phase(&calm, &id), "{id} after write {nth}");
        }
        assert_eq!(at(&sim, &definitions(), "/data"), at(&calm, &definitions(), "/data"));
        if nth > 12 {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_made_again_under_its_name_is_asked_anew() {
    let sim = cluster();
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.serve(URL, lists_tools(&[("echo", "Another"), ("add", "Adds")]));
    sim.store().delete(&server_id(), Cascade::Background);
    sim.store().create(&server_id(), server(json!({})));
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &server_id()), "Available");
    assert_eq!(at(&sim, &server_id(), "/status/discoveredTools/1/description"), "Another");
    let uid = at(&sim, &server_id(), "/metadata/uid");
    assert_eq!(at(&sim, &definitions(), "/metadata/ownerReferences/0/uid"), uid);
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_in_other_words_is_told_in_those() {
    let sim = cluster();
    let mut operator = Operator::start(&sim);
    for words in ["it answers HTTP 500", "it answers HTTP 401: give it credentials"] {
        sim.serve(URL, Err(DiscoveryError { reason: "ServerRefused", message: words.into() }));
        operator.run(3 * MINUTE).await;
        assert_eq!((phase(&sim, &server_id()), message(&sim, &server_id())), (json!("Error"), words.to_owned()));
    }
}
