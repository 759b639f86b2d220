//! Tests the files that Pods read during a rollout: new Pods read nothing of an older rendering, old Pods keep their own files as
//! long as they live.

use std::time::Duration;

use machine::ApiError;
use serde_json::{Value, json};

use crate::fake::{
    LoggedRequest, Operator, RequestFault, Sim, Store, agent, agent_id, child_id, id, object, tool, tool_id,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Creates an Agent with a prompt, a tool and a database, edits it, and returns the requests after the edit.
async fn edited(edit: fn(&mut Store)) -> (Sim, Vec<LoggedRequest>) {
    let sim = Sim::new();
    sim.store().create(&tool_id("weather"), tool("http://weather"));
    let spec = json!({"systemPrompt": "Be brief.", "tools": ["weather"], "databaseUrl": "postgresql://u:p@db/x"});
    sim.store().create(&agent_id("a"), agent(spec));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.take_requests();
    edit(&mut sim.store());
    operator.run(MINUTE).await;
    let requests = sim.take_requests();
    assert_eq!(sim.store().at(&agent_id("a"), "/status/phase"), json!("Running"));
    operator.run(20 * MINUTE).await;
    assert_eq!(sim.take_requests(), [], "afterwards");
    (sim, requests)
}

fn set(store: &mut Store, field: &str, value: Value) {
    store.edit(&agent_id("a"), |body| body["spec"][field] = value);
}

/// Returns the position of each of these requests.
fn order(requests: &[LoggedRequest], wanted: &[&str]) -> Vec<usize> {
    let at = |wanted: &&str| {
        let found: Vec<_> = (0..requests.len()).filter(|n| requests[*n].to_string() == *wanted).collect();
        assert_eq!(found.len(), 1, "{wanted} in {requests:?}");
        found[0]
    };
    wanted.iter().map(at).collect()
}

#[tokio::test(start_paused = true)]
async fn new_pods_find_no_key_that_is_no_longer_rendered() {
    type Edit = fn(&mut Store);
    let edits: [(Edit, &str); 4] = [
        (|store| set(store, "systemPrompt", Value::Null), "CORAIL_SYSTEM_PROMPT"),
        (|store| set(store, "tools", json!([])), "CORAIL_TOOLS"),
        (|store| store.edit(&tool_id("weather"), |body| body["spec"]["enabled"] = json!(false)), "CORAIL_TOOLS"),
        (|store| store.edit(&tool_id("weather"), |body| body["spec"]["headers"] = json!({"X-A": "b"})), "CORAIL_TOOLS"),
    ];
    for (edit, key) in edits {
        let (sim, requests) = edited(edit).await;
        let at = order(&requests, &["Apply ConfigMap/a-config", "Apply Deployment/a"]);
        assert!(at.is_sorted(), "{key}: {requests:?}");
        assert_eq!(requests[at[0]].body["data"][key], Value::Null);
        assert_eq!(sim.store().at(&child_id("ConfigMap"), &format!("/data/{key}")), Value::Null);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_moves_is_in_one_of_both_all_the_time() {
    let headers: fn(&mut Store) =
        |store| store.edit(&tool_id("weather"), |body| body["spec"]["headers"] = json!({"X-A": "b"}));
    let (sim, requests) = edited(headers).await;
    let wanted = ["Apply Secret/a-config", "Apply ConfigMap/a-config", "Apply Deployment/a"];
    assert!(order(&requests, &wanted).is_sorted(), "{requests:?}");

    let mut operator = Operator::start(&sim);
    sim.store().edit(&tool_id("weather"), |body| body["spec"]["headers"] = json!({}));
    operator.run(MINUTE).await;
    let wanted = ["Apply ConfigMap/a-config", "Apply Secret/a-config", "Apply Deployment/a"];
    assert!(order(&sim.take_requests(), &wanted).is_sorted());
    assert_eq!(sim.store().at(&child_id("Secret"), "/data/CORAIL_TOOLS"), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_no_longer_wanted_goes_after_the_rollout() {
    let (sim, requests) = edited(|store| set(store, "databaseUrl", Value::Null)).await;
    assert!(order(&requests, &["Apply Deployment/a", "Delete Secret/a-config"]).is_sorted(), "{requests:?}");
    assert_eq!(sim.store().get(&child_id("Secret")), None);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_no_status_names_goes_as_soon_as_it_is_seen() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    operator.lagging = vec!["Secret"];
    // The response to the apply is lost, the watch lags, and the next spec wants no Secret.
    sim.plan(|request, store| {
        if request.to_string() != "Apply Secret/a-config" {
            return RequestFault::No;
        }
        set(store, "databaseUrl", Value::Null);
        RequestFault::Lose(ApiError::Transient { message: "lost".into(), after: None })
    });
    set(&mut sim.store(), "databaseUrl", json!("postgresql://u:p@db/x"));
    operator.run(MINUTE).await;
    operator.lagging = Vec::new();
    assert!(sim.store().get(&child_id("Secret")).is_some());
    operator.run(MINUTE).await;
    assert_eq!(sim.store().at(&agent_id("a"), "/status/phase"), json!("Running"));
    assert_eq!(sim.store().get(&child_id("Secret")), None);
    assert_eq!(sim.take_writes().iter().filter(|write| write.starts_with("Delete")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_value_of_a_secret_is_read_for_a_rollout() {
    for edit in [(|store| set(store, "systemPrompt", json!("Be long."))) as fn(&mut Store), |store| {
        set(store, "systemPrompt", Value::Null)
    }] {
        let (_, requests) = edited(edit).await;
        assert!(!requests.iter().any(|request| request.to_string().starts_with("Look")), "{requests:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn old_files_stay_only_as_far_as_the_object_can_hold_them() {
    let sim = Sim::new();
    sim.store().create(&id("PluginConfig", "p"), object("PluginConfig", json!({"type": "stub"})));
    let spec = |prompts: Value| {
        let model = json!({"provider": "stub", "model": "echo", "pluginConfigRef": {"name": "p"}});
        json!({"prompts": prompts, "modelSpec": model})
    };
    let prompt = |name: &str, size: usize| json!({"prompt": {"name": name, "content": "x".repeat(size)}});
    sim.store().create(&id("Flow", "f"), object("Flow", spec(json!([prompt("large", 600 << 10), prompt("small", 9)]))));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.take_requests();

    sim.store().edit(&id("Flow", "f"), |body| body["spec"] = spec(json!([prompt("renamed", 600 << 10)])));
    operator.run(MINUTE).await;
    let requests = sim.take_requests();
    let applied = requests.iter().filter(|request| request.to_string() == "Apply ConfigMap/f-prompts");
    let keys: Vec<Vec<&String>> = applied.map(|it| it.body["data"].as_object().unwrap().keys().collect()).collect();
    assert_eq!(keys, [vec!["renamed.prompt", "small.prompt"], vec!["renamed.prompt"]]);
    assert_eq!(sim.store().at(&id("Flow", "f"), "/status/phase"), json!("Running"));
}
