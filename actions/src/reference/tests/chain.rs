//! Tests an Agent over a Prompt, a Tool and a Model, and the Secrets behind them, over the simulated cluster.

use std::time::Duration;

use serde_json::{Value, json};

use crate::fake::{
    Cascade, ObjectId, Operator, RequestFault, Sim, Store, agent, agent_id, id, object, run_with_restarts, secret,
    tool, tool_id,
};

const MINUTE: Duration = Duration::from_secs(60);
/// Kind and name of everything that the agent depends on, except the Tool.
const BEHIND: [(&str, &str); 5] =
    [("Secret", "keys"), ("Secret", "headers"), ("PluginConfig", "pc"), ("Model", "m"), ("Prompt", "p")];

/// Object that arrives, its creation, and what the agent waits for then.
type ChainStep = (&'static str, fn(&mut Store), &'static str);

fn body(kind: &str, name: &str) -> Value {
    match kind {
        "Secret" if name == "keys" => secret(json!({"KEY": "MQ==", "OTHER": "MQ=="})),
        "Secret" => secret(json!({"token": "MQ=="})),
        "PluginConfig" => {
            object(kind, json!({"type": "openai", "credentialsRef": {"name": "keys"}, "credentialKeys": ["KEY"]}))
        }
        "Model" => object(kind, json!({"provider": "openai", "model": "gpt", "pluginConfigRef": {"name": "pc"}})),
        _ => object(kind, json!({"content": "---\nmodel: x\n---\nBe brief."})),
    }
}

fn create_agent(store: &mut Store) {
    let spec = json!({"tools": ["weather"], "modelRef": {"name": "m"}, "promptRef": {"name": "p"}});
    store.create(&agent_id("a"), agent(spec));
}

fn create_tool(store: &mut Store) {
    let mut weather = tool("http://weather");
    weather["spec"]["headersFrom"] = json!([{"name": "Auth", "secretKeyRef": {"name": "headers", "key": "token"}}]);
    store.create(&tool_id("weather"), weather);
}

fn create_all(store: &mut Store) {
    create_agent(store);
    create_tool(store);
    for (kind, name) in BEHIND {
        store.create(&id(kind, name), body(kind, name));
    }
}

async fn running() -> (Sim, Operator) {
    let sim = Sim::new();
    create_all(&mut sim.store());
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("a")), "Running", "{}", message(&sim, &agent_id("a")));
    sim.take_requests();
    (sim, operator)
}

pub(super) fn phase(sim: &Sim, id: &ObjectId) -> String {
    sim.store().at(id, "/status/phase").as_str().unwrap_or_default().to_owned()
}

pub(super) fn message(sim: &Sim, id: &ObjectId) -> String {
    let conditions = sim.store().at(id, "/status/conditions");
    let ready =
        conditions.as_array().and_then(|list| list.iter().find(|found| found["type"] == json!("Ready")).cloned());
    ready.map(|ready| ready["message"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
}

fn templates(sim: &Sim) -> Value {
    sim.store().at(&id("Deployment", "a"), "/spec/template")
}

#[tokio::test(start_paused = true)]
async fn everything_that_is_missing_is_named_until_it_comes_one_after_the_other() {
    let sim = Sim::new();
    create_agent(&mut sim.store());
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(
        message(&sim, &agent_id("a")),
        "prompt \"p\" not found; tool \"weather\" not found; model \"m\" not found"
    );
    let steps: [ChainStep; 5] = [
        ("Prompt", |store| create(store, "Prompt", "p"), "tool \"weather\" not found; model \"m\" not found"),
        ("Tool", create_tool, "secret \"headers\" not found (referenced by tool \"weather\"); model \"m\" not found"),
        (
            "Model",
            |store| create(store, "Model", "m"),
            "secret \"headers\" not found (referenced by tool \"weather\"); pluginconfig \"pc\" not found (referenced by model \"m\")",
        ),
        (
            "PluginConfig",
            |store| create(store, "PluginConfig", "pc"),
            "secret \"headers\" not found (referenced by tool \"weather\"); secret \"keys\" not found (referenced by pluginconfig \"pc\")",
        ),
        (
            "Secret",
            |store| create(store, "Secret", "headers"),
            "secret \"keys\" not found (referenced by pluginconfig \"pc\")",
        ),
    ];
    for (what, come, expected) in steps {
        come(&mut sim.store());
        operator.run(MINUTE).await;
        assert_eq!(message(&sim, &agent_id("a")), expected, "after the {what}");
    }
    assert_eq!(message(&sim, &id("PluginConfig", "pc")), "secret \"keys\" not found");
    assert_eq!(message(&sim, &id("Model", "m")), "secret \"keys\" not found (referenced by pluginconfig \"pc\")");
    sim.store().create(&id("Secret", "keys"), secret(json!({"OTHER": "MQ=="})));
    operator.run(MINUTE).await;
    let expected = "secret \"keys\" has no key \"KEY\"";
    assert_eq!(message(&sim, &id("PluginConfig", "pc")), expected);
    assert_eq!(message(&sim, &agent_id("a")), format!("{expected} (referenced by pluginconfig \"pc\")"));
    sim.store().edit(&id("Secret", "keys"), |body| body["data"]["KEY"] = json!("MQ=="));
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
}

fn create(store: &mut Store, kind: &'static str, name: &str) {
    store.create(&id(kind, name), body(kind, name));
}

#[tokio::test(start_paused = true)]
async fn what_is_rendered_of_them_reaches_the_pods_and_no_credential_an_object_of_ours() {
    let (sim, _) = running().await;
    let data = sim.store().at(&id("ConfigMap", "a-config"), "/data");
    assert_eq!((&data["CORAIL_MODEL_TYPE"], &data["CORAIL_MODEL_ID"]), (&json!("openai"), &json!("gpt")));
    assert_eq!(data["CORAIL_SYSTEM_PROMPT"], "Be brief.");
    let env = templates(&sim)["spec"]["containers"][0]["env"].to_string();
    for name in ["\"KEY\"", "\"TOOL_WEATHER_AUTH\""] {
        assert!(env.contains(name), "{env}");
    }
    let prompt = sim.store().at(&id("Prompt", "p"), "/status");
    assert_eq!(prompt["frontmatter"], json!({"model": "x"}));
    let hash = crds::digest::sha256_hex(b"---\nmodel: x\n---\nBe brief.");
    assert_eq!(prompt["contentHash"], json!(hash));
}

#[tokio::test(start_paused = true)]
async fn a_rotated_secret_rolls_its_users_once_and_moves_nothing_else() {
    for (name, key) in [("keys", "KEY"), ("headers", "token")] {
        let (sim, mut operator) = running().await;
        let before = templates(&sim);
        sim.store().edit(&id("Secret", name), |body| body["data"][key] = json!("Mg=="));
        operator.run(10 * MINUTE).await;
        assert_ne!(templates(&sim), before, "{name}");
        let writes = sim.take_writes();
        let applies = writes.iter().filter(|write| *write == "Apply Deployment/a").count();
        assert_eq!(applies, 1, "{name}: {writes:?}");
        let others = writes.iter().filter(|write| !write.ends_with("/a")).collect::<Vec<_>>();
        assert!(others.is_empty(), "{name}: {others:?}");
        assert_eq!(phase(&sim, &agent_id("a")), "Running");
    }
}

#[tokio::test(start_paused = true)]
async fn unread_parts_of_a_secret_or_prompt_write_nothing_to_its_users() {
    let (sim, mut operator) = running().await;
    sim.store().edit(&id("Secret", "keys"), |body| body["data"]["OTHER"] = json!("Mg=="));
    operator.run(10 * MINUTE).await;
    assert_eq!(sim.take_writes(), Vec::<String>::new());
    sim.store().edit(&id("Prompt", "p"), |body| body["spec"]["description"] = json!("x"));
    operator.run(10 * MINUTE).await;
    assert_eq!(sim.take_writes(), ["Status Prompt/p"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_is_broken_names_the_line_until_it_is_mended() {
    let (sim, mut operator) = running().await;
    let edit = |content: &str| {
        sim.store().edit(&id("Prompt", "p"), |body| body["spec"]["content"] = json!(content));
    };
    edit("---\nmodel: x\n");
    operator.run(MINUTE).await;
    let expected = "content, line 1: the frontmatter that begins here does not end: add a line `---` after it";
    assert_eq!((phase(&sim, &id("Prompt", "p")), message(&sim, &id("Prompt", "p"))), ("Error".into(), expected.into()));
    assert_eq!(message(&sim, &agent_id("a")), format!("prompt \"p\" is in phase Error: {expected}"));
    edit(" \n ");
    operator.run(MINUTE).await;
    assert_eq!(message(&sim, &id("Prompt", "p")), "content is blank: write the text for the model");
    edit("Be long.");
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, &agent_id("a")), "Running");
    let data = sim.store().at(&id("ConfigMap", "a-config"), "/data/CORAIL_SYSTEM_PROMPT");
    assert_eq!(data, json!("Be long."));
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_goes_is_named_and_the_pods_keep_running() {
    let (sim, mut operator) = running().await;
    let before = templates(&sim);
    sim.store().delete(&id("Secret", "keys"), Cascade::Background);
    operator.run(MINUTE).await;
    assert_eq!(message(&sim, &agent_id("a")), "secret \"keys\" not found (referenced by pluginconfig \"pc\")");
    assert_eq!((phase(&sim, &agent_id("a")), templates(&sim)), ("Resolving".into(), before.clone()));
    create(&mut sim.store(), "Secret", "keys");
    operator.run(MINUTE).await;
    assert_eq!(
        (phase(&sim, &agent_id("a")), templates(&sim)),
        ("Running".into(), before),
        "nothing changed in the end"
    );
}

#[tokio::test(start_paused = true)]
async fn agents_that_call_each_other_name_the_circle_until_it_is_opened() {
    let sim = Sim::new();
    let calls = |agent: &str| object("Tool", json!({"name": "t", "type": "agent", "agentRef": {"name": agent}}));
    {
        let mut store = sim.store();
        for (name, tools) in [("a", "ask-b"), ("b", "ask-a")] {
            store.create(&agent_id(name), agent(json!({"tools": [tools]})));
        }
        store.create(&tool_id("ask-a"), calls("a"));
        store.create(&tool_id("ask-b"), calls("b"));
    }
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let circle = ["Agent/a", "Tool/ask-b", "Agent/b", "Tool/ask-a"];
    for (at, member) in [agent_id("a"), tool_id("ask-b"), agent_id("b"), tool_id("ask-a")].iter().enumerate() {
        let names: Vec<_> = (0..=4).map(|step| circle[(at + step) % 4]).collect();
        assert_eq!(message(&sim, member), format!("cycle: {}", names.join(" → ")));
        let reason = sim.store().at(member, "/status/conditions/0/reason");
        assert_eq!(reason, json!("ReferenceCycle"), "{member}");
    }
    sim.store().edit(&agent_id("b"), |body| body["spec"]["tools"] = json!([]));
    operator.run(MINUTE).await;
    for id in [agent_id("a"), agent_id("b")] {
        assert_eq!(phase(&sim, &id), "Running", "{}", message(&sim, &id));
    }
    let tools = sim.store().at(&id("ConfigMap", "a-config"), "/data/CORAIL_TOOLS");
    assert!(tools.to_string().contains("http://b.team.svc.cluster.local:8000"), "{tools}");
}

/// Creates everything, and then changes everything that the Agent depends on.
fn happens(store: &mut Store) {
    create_all(store);
    store.edit(&id("Model", "m"), |body| body["spec"]["model"] = json!("gpt-2"));
    store.edit(&id("Secret", "keys"), |body| body["data"]["KEY"] = json!("Mg=="));
}

#[tokio::test(start_paused = true)]
async fn dying_at_any_write_changes_nothing_in_the_end() {
    let outcome = async |at: Option<(usize, RequestFault)>| {
        let sim = Sim::new();
        happens(&mut sim.store());
        if let Some((at, fault)) = at {
            sim.plan(
                move |request, _| {
                    if request.is_write() && request.nth_write == at { fault.clone() } else { RequestFault::No }
                },
            );
        }
        run_with_restarts(&sim, 2 * MINUTE).await;
        sim
    };
    let reference = outcome(None).await;
    assert_eq!(phase(&reference, &agent_id("a")), "Running");
    for (n, write) in reference.take_writes().into_iter().enumerate() {
        for fault in [RequestFault::DieBefore, RequestFault::DieUnanswered, RequestFault::DieAfter] {
            let sim = outcome(Some((n, fault.clone()))).await;
            assert_eq!(sim.store().end_state(), reference.store().end_state(), "{fault:?} at write {n} ({write})");
        }
    }
}
