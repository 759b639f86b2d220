//! Lifecycle of a FlowSet in the simulated cluster.

use std::time::Duration;

use serde_json::{Value, json};

use crate::fake::{Operator, RequestFault, Sim, Store, id, object, run_with_restarts};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns a flow that answers with the prompt of that name.
fn entry(name: &str, prompt: &str) -> Value {
    json!({ "name": name, "prompts": [{ "promptRef": { "name": prompt } }], "modelRef": { "name": "m" } })
}

fn set(flows: &[Value]) -> Value {
    object("FlowSet", json!({ "flows": flows }))
}

/// Creates the prompts `hello` and `bye`, and the model `m`.
fn needs(store: &mut Store) {
    store.create(&id("PluginConfig", "p"), object("PluginConfig", json!({ "type": "stub" })));
    let model = json!({ "provider": "stub", "model": "echo", "pluginConfigRef": { "name": "p" } });
    store.create(&id("Model", "m"), object("Model", model));
    prompt(store, "hello");
    prompt(store, "bye");
}

fn prompt(store: &mut Store, name: &str) {
    store.create(&id("Prompt", name), object("Prompt", json!({ "content": format!("say {name}") })));
}

/// Starts a cluster with the set `s` of these flows and runs it for a minute.
async fn with(flows: &[Value]) -> (Sim, Operator) {
    let sim = Sim::new();
    sim.store().create(&id("FlowSet", "s"), set(flows));
    needs(&mut sim.store());
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    (sim, operator)
}

fn status(sim: &Sim, pointer: &str) -> Value {
    sim.store().at(&id("FlowSet", "s"), &format!("/status{pointer}"))
}

/// Returns status, reason and message of the Ready condition.
fn ready(sim: &Sim) -> (String, String, String) {
    message(sim, "Ready")
}

/// Returns status, reason and message of a condition.
fn message(sim: &Sim, condition: &str) -> (String, String, String) {
    let conditions = status(sim, "/conditions");
    let found = conditions.as_array().unwrap().iter().find(|found| found["type"] == condition).unwrap();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

fn is_degraded(sim: &Sim, why: &str) {
    assert_eq!(status(sim, "/phase"), "Running");
    assert_eq!(ready(sim), ("False".into(), "Degraded".into(), why.into()));
}

fn is_whole(sim: &Sim, flows: i32) {
    assert_eq!(status(sim, "/phase"), "Running");
    assert_eq!(ready(sim), ("True".into(), "Running".into(), String::new()));
    assert_eq!((status(sim, "/readyFlows"), status(sim, "/totalFlows")), (json!(flows), json!(flows)));
}

/// Returns the names of the flows in the manifest that the Pods read.
fn served(sim: &Sim) -> Vec<String> {
    let manifest = sim.store().at(&id("ConfigMap", "s-manifest"), "/data/manifest.json");
    let manifest: Value = serde_json::from_str(manifest.as_str().unwrap()).unwrap();
    manifest["flows"].as_array().unwrap().iter().map(|flow| flow["name"].as_str().unwrap().to_owned()).collect()
}

fn config_maps(sim: &Sim, flow: &str) -> usize {
    let names = ["prompts", "tools", "config"].map(|suffix| format!("s-{flow}-{suffix}"));
    names.iter().filter(|name| sim.store().get(&id("ConfigMap", name)).is_some()).count()
}

#[tokio::test(start_paused = true)]
async fn a_set_applied_together_with_all_it_needs_runs_and_rolls_once() {
    let (sim, _) = with(&[entry("a", "hello"), entry("b", "bye")]).await;
    is_whole(&sim, 2);
    assert_eq!(served(&sim), ["a", "b"]);
    assert_eq!(status(&sim, "/images"), json!({ "flowset": "recif.local/runner:1", "proxy": "recif.local/proxy:1" }));
    let writes = sim.take_writes();
    assert_eq!(writes.iter().filter(|write| *write == "Apply Deployment/s").count(), 1, "{writes:?}");
    Operator::start(&sim).run(20 * MINUTE).await;
    assert_eq!(sim.take_requests(), [], "a restart");
}

#[tokio::test(start_paused = true)]
async fn an_edit_writes_only_the_files_of_its_flow() {
    let (sim, mut operator) = with(&[entry("a", "hello"), entry("b", "bye")]).await;
    sim.take_requests();
    sim.store().edit(&id("Prompt", "bye"), |body| body["spec"]["content"] = json!("say farewell"));
    operator.run(MINUTE).await;
    let applied: Vec<_> = sim.take_writes().into_iter().filter(|write| write.starts_with("Apply")).collect();
    assert_eq!(applied, ["Apply ConfigMap/s-b-prompts", "Apply Deployment/s"]);
    is_whole(&sim, 2);
}

#[tokio::test(start_paused = true)]
async fn a_broken_flow_degrades_only_itself_until_it_is_mended() {
    let (sim, mut operator) = with(&[entry("a", "hello"), entry("b", "later")]).await;
    is_degraded(&sim, r#"flow "b": prompt "later" not found"#);
    assert_eq!(served(&sim), ["a"]);
    assert_eq!((status(&sim, "/readyFlows"), status(&sim, "/totalFlows")), (json!(1), json!(2)));
    let broken = json!({ "name": "b", "ready": false, "phase": "Resolving", "message": "prompt \"later\" not found" });
    assert_eq!(status(&sim, "/flows"), json!([{ "name": "a", "ready": true, "phase": "Running" }, broken]));
    sim.take_requests();
    operator.run(20 * MINUTE).await;
    assert_eq!(sim.take_writes(), Vec::<String>::new(), "it waits in silence");

    prompt(&mut sim.store(), "later");
    operator.run(MINUTE).await;
    is_whole(&sim, 2);
    assert_eq!(served(&sim), ["a", "b"]);

    sim.store().delete(&id("Prompt", "later"), crate::fake::Cascade::Background);
    operator.run(MINUTE).await;
    is_degraded(&sim, r#"flow "b": prompt "later" not found"#);
    assert_eq!((served(&sim), config_maps(&sim, "a"), config_maps(&sim, "b")), (vec!["a".to_owned()], 3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_set_without_a_flow_that_is_in_order_waits() {
    let (sim, mut operator) = with(&[entry("a", "x"), entry("b", "y")]).await;
    assert_eq!(status(&sim, "/phase"), "Resolving");
    let all = r#"flow "a": prompt "x" not found; flow "b": prompt "y" not found"#;
    assert_eq!(ready(&sim), ("False".into(), "MissingDependency".into(), all.into()));
    assert_eq!(sim.store().get(&id("Deployment", "s")), None);
    prompt(&mut sim.store(), "y");
    operator.run(MINUTE).await;
    is_degraded(&sim, r#"flow "a": prompt "x" not found"#);
    sim.store().delete(&id("Prompt", "y"), crate::fake::Cascade::Background);
    operator.run(MINUTE).await;
    assert_eq!(status(&sim, "/phase"), "Resolving");
    assert_eq!(served(&sim), ["b"], "the Pods keep the last good configuration");
}

#[tokio::test(start_paused = true)]
async fn the_files_of_a_flow_that_is_gone_go_after_the_rollout() {
    let (sim, mut operator) = with(&[entry("a", "hello"), entry("b", "bye")]).await;
    sim.take_requests();
    sim.store().edit(&id("FlowSet", "s"), |body| body["spec"]["flows"] = json!([entry("a", "hello")]));
    operator.run(MINUTE).await;
    is_whole(&sim, 1);
    assert_eq!((config_maps(&sim, "a"), config_maps(&sim, "b")), (3, 0));
    let writes = sim.take_writes();
    let at = |what: &str| writes.iter().position(|write| write.starts_with(what)).unwrap_or(usize::MAX);
    assert!(at("Apply Deployment/s") < at("Delete ConfigMap/s-b-"), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_is_waited_for_but_not_for_ever() {
    let sim = Sim::new();
    needs(&mut sim.store());
    let slow = json!({ "prompts": [{ "promptRef": { "name": "later" } }], "modelRef": { "name": "m" } });
    sim.store().create(&id("Flow", "slow"), object("Flow", slow));
    let tool = json!({ "name": "slow", "type": "flow", "flowRef": { "name": "slow" } });
    sim.store().create(&id("Tool", "slow"), object("Tool", tool));
    let mut calls = entry("b", "bye");
    calls["tools"] = json!([{ "name": "slow" }]);
    sim.store().create(&id("FlowSet", "s"), set(&[entry("a", "hello"), calls]));
    let mut operator = Operator::start(&sim);
    operator.run(Duration::from_secs(28)).await;
    assert_eq!(status(&sim, "/phase"), "Resolving");
    let why = r#"flow "b": flow "slow" is Resolving, not available (referenced by tool "slow")"#;
    let unmet = ("False".to_owned(), "MissingDependency".to_owned(), why.to_owned());
    assert_eq!((message(&sim, "Ready"), message(&sim, "ReferencesResolved")), (unmet.clone(), unmet));
    operator.run(Duration::from_secs(5)).await;
    assert_ne!(status(&sim, "/phase"), "Resolving");
    operator.run(MINUTE).await;
    assert_eq!((served(&sim), ready(&sim).1), (vec!["a".to_owned()], "Degraded".to_owned()));
    prompt(&mut sim.store(), "later");
    operator.run(2 * MINUTE).await;
    is_whole(&sim, 2);
}

#[tokio::test(start_paused = true)]
async fn a_flow_whose_tools_cannot_be_told_apart_degrades_only_itself() {
    let (sim, mut operator) = with(&[entry("a", "hello"), entry("b", "bye")]).await;
    for name in ["x", "y"] {
        let tool = json!({ "name": "same", "type": "http", "endpoint": "http://x" });
        sim.store().create(&id("Tool", name), object("Tool", tool));
    }
    sim.store().edit(&id("FlowSet", "s"), |body| {
        body["spec"]["flows"][1]["tools"] = json!([{ "name": "x" }, { "name": "y" }]);
    });
    operator.run(MINUTE).await;
    let why = r#"flow "b": tools "x" and "y" both have the name "same" for the model: rename one in its spec.name"#;
    is_degraded(&sim, why);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_in_place_that_cannot_be_read_degrades_only_its_flow() {
    let mut torn = entry("torn", "hello");
    torn["prompts"] = json!([{ "prompt": { "name": "own", "content": "---\na: 1\nHi" } }]);
    let (sim, _operator) = with(&[entry("fine", "hello"), torn]).await;
    let problem = "the frontmatter that begins here does not end: add a line `---` after it";
    is_degraded(&sim, &format!("flow \"torn\": prompt \"own\", line 1: {problem}"));
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_the_runner_refuses_degrades_only_its_flow_until_it_is_mended() {
    let (sim, mut operator) = with(&[entry("fine", "hello"), entry("torn", "bye")]).await;
    is_whole(&sim, 2);
    let content = |text: &str| sim.store().edit(&id("Prompt", "bye"), |body| body["spec"]["content"] = json!(text));
    content("Hello\n{{name upper}}");
    operator.run(MINUTE).await;
    assert_eq!(sim.store().at(&id("Prompt", "bye"), "/status/phase"), "Available");
    let (_, reason, why) = ready(&sim);
    assert_eq!((reason.as_str(), served(&sim)), ("Degraded", vec!["fine".to_owned()]));
    assert!(why.starts_with("flow \"torn\": prompt \"bye\", line 2: unknown helper `name`"), "{why}");
    sim.take_requests();
    Operator::start(&sim).run(20 * MINUTE).await;
    assert_eq!(sim.take_writes(), Vec::<String>::new(), "it waits in silence");
    content("Hello {{name}}");
    operator.run(MINUTE).await;
    is_whole(&sim, 2);

    sim.store().edit(&id("FlowSet", "s"), |body| body["spec"]["image"] = json!("registry/theirs:1"));
    content("Hello {{upper name}}");
    operator.run(MINUTE).await;
    is_whole(&sim, 2);
}

#[tokio::test(start_paused = true)]
async fn names_that_run_together_are_a_conflict_and_nothing_is_lost() {
    let sim = Sim::new();
    needs(&mut sim.store());
    sim.store().create(&id("FlowSet", "a"), set(&[entry("b-c", "hello")]));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.store().create(&id("FlowSet", "a-b"), set(&[entry("c", "bye")]));
    operator.run(MINUTE).await;
    let at = |name, pointer| sim.store().at(&id("FlowSet", name), pointer);
    assert_eq!((at("a", "/status/phase"), at("a-b", "/status/phase")), (json!("Running"), json!("Failed")));
    assert_eq!(at("a-b", "/status/failure/reason"), "NameConflict");
    assert_eq!(sim.store().at(&id("ConfigMap", "a-b-c-prompts"), "/data"), json!({ "hello.prompt": "say hello" }));
    sim.store().delete(&id("FlowSet", "a"), crate::fake::Cascade::Background);
    operator.run(10 * MINUTE).await;
    assert_eq!(sim.store().at(&id("FlowSet", "a-b"), "/status/phase"), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_stopped_starts_again() {
    let (sim, mut operator) = with(&[entry("a", "hello"), entry("b", "later")]).await;
    let scale =
        |replicas: i32| sim.store().edit(&id("FlowSet", "s"), |body| body["spec"]["replicas"] = json!(replicas));
    scale(0);
    operator.run(MINUTE).await;
    assert_eq!(status(&sim, "/phase"), "Terminated");
    assert_eq!(status(&sim, "/readyFlows"), 0);
    prompt(&mut sim.store(), "later");
    operator.run(MINUTE).await;
    scale(1);
    operator.run(MINUTE).await;
    is_whole(&sim, 2);
}

/// Name of an edit of the store, and the edit.
type StoreEdit = (&'static str, fn(&mut Store));

/// Edits that are made to a running set, one per run.
const HAPPENS: [StoreEdit; 4] = [
    ("a flow breaks", |store| store.delete(&id("Prompt", "bye"), crate::fake::Cascade::Background)),
    ("a prompt changes", |store| store.edit(&id("Prompt", "hello"), |body| body["spec"]["content"] = json!("say hi"))),
    ("a flow goes and another comes", |store| {
        store.edit(&id("FlowSet", "s"), |body| body["spec"]["flows"] = json!([entry("a", "hello"), entry("c", "bye")]));
    }),
    ("files are lost", |store| {
        for name in ["s-a-prompts", "s-b-config", "s-manifest"] {
            store.delete(&id("ConfigMap", name), crate::fake::Cascade::Background);
        }
    }),
];

#[tokio::test(start_paused = true)]
async fn dying_at_any_write_changes_nothing_in_the_end() {
    let (stage, _) = with(&[entry("a", "hello"), entry("b", "bye")]).await;
    for (name, happens) in HAPPENS {
        let outcome =
            async |at: Option<(usize, RequestFault)>| {
                let sim = stage.fork();
                happens(&mut sim.store());
                if let Some((at, fault)) = at {
                    sim.plan(move |request, _| {
                        if request.is_write() && request.nth_write == at { fault.clone() } else { RequestFault::No }
                    });
                }
                run_with_restarts(&sim, 2 * MINUTE).await;
                sim
            };
        let reference = outcome(None).await;
        for (n, write) in reference.take_writes().into_iter().enumerate() {
            for fault in [RequestFault::DieBefore, RequestFault::DieUnanswered, RequestFault::DieAfter] {
                let message = format!("{name}: {fault:?} at write {n} ({write})");
                let sim = outcome(Some((n, fault))).await;
                assert_eq!(reference.store().end_state(), sim.store().end_state(), "{message}");
                sim.take_requests();
                Operator::start(&sim).run(10 * MINUTE).await;
                assert_eq!(sim.take_writes(), Vec::<String>::new(), "{message}: written although all is well");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_whole_secret_is_declared_for_the_flows_of_a_set() {
    let sim = Sim::new();
    needs(&mut sim.store());
    sim.store().create(&id("Secret", "keys"), crate::fake::secret(json!({ "GOOGLE_APPLICATION_CREDENTIALS": "b25l" })));
    let extra = json!({ "baseUrl": "https://gateway.example", "projectId": "p" });
    let plugin = json!({ "type": "vertexai", "extraConfig": extra, "credentialsRef": { "name": "keys" } });
    sim.store().create(&id("PluginConfig", "gateway"), object("PluginConfig", plugin));
    let model = json!({ "provider": "google", "model": "big", "pluginConfigRef": { "name": "gateway" } });
    sim.store().create(&id("Model", "m2"), object("Model", model));
    let mut away = entry("away", "bye");
    away["modelRef"]["name"] = json!("m2");
    sim.store().create(&id("FlowSet", "s"), set(&[entry("near", "hello"), away]));
    Operator::start(&sim).run(MINUTE).await;
    is_whole(&sim, 2);
}

#[tokio::test(start_paused = true)]
async fn a_flow_whose_model_has_no_key_is_left_out_until_it_has_one() {
    let sim = Sim::new();
    needs(&mut sim.store());
    sim.store().create(&id("Secret", "keys"), crate::fake::secret(json!({ "OTHER": "b25l" })));
    let plugin = json!({ "type": "openai", "credentialsRef": { "name": "keys" } });
    sim.store().create(&id("PluginConfig", "oai"), object("PluginConfig", plugin));
    let model = json!({ "provider": "openai", "model": "big", "pluginConfigRef": { "name": "oai" } });
    sim.store().create(&id("Model", "big"), object("Model", model));
    let mut dear = entry("dear", "bye");
    dear["modelRef"]["name"] = json!("big");
    sim.store().create(&id("FlowSet", "s"), set(&[entry("cheap", "hello"), dear]));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    is_degraded(&sim, "flow \"dear\": Secret keys has no key OPENAI_API_KEY (PluginConfig oai)");
    assert_eq!(served(&sim), ["cheap"]);
    sim.take_requests();
    Operator::start(&sim).run(20 * MINUTE).await;
    assert_eq!(sim.take_writes(), Vec::<String>::new());
    sim.store().edit(&id("Secret", "keys"), |body| body["data"]["OPENAI_API_KEY"] = json!("b25l"));
    operator.run(MINUTE).await;
    is_whole(&sim, 2);
    assert_eq!(served(&sim), ["cheap", "dear"]);
    sim.store()
        .edit(&id("Secret", "keys"), |body| drop(body["data"].as_object_mut().unwrap().remove("OPENAI_API_KEY")));
    operator.run(MINUTE).await;
    assert_eq!(served(&sim), ["cheap"], "one that loses its key");
}
