//! Lifecycle of a Flow in the simulated cluster.

use std::time::Duration;

use crds::Agent;
use serde_json::{Value, json};

use crate::{
    fake::{Operator, Sim, Store, agent, id, object, secret, settings},
    kind::ControlledKind,
    render::RenderSettings,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns a Flow with the prompt `prompt`, the model `m` and the fields of `more` in its spec.
fn flow(prompt: &str, more: Value) -> Value {
    let mut spec = json!({ "prompts": [{ "promptRef": { "name": prompt } }], "modelRef": { "name": "m" } });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object("Flow", spec)
}

/// Creates the objects that the flows refer to: prompts `hello` and `bye`, model `m`, its PluginConfig and Secret.
fn needs(store: &mut Store) {
    store.create(&id("Secret", "keys"), secret(json!({ "KEY": "b25l", "OTHER": "b25l" })));
    let plugin = json!({ "type": "openai", "credentialsRef": { "name": "keys" }, "credentialKeys": ["KEY"] });
    store.create(&id("PluginConfig", "p"), object("PluginConfig", plugin));
    let model = json!({ "provider": "openai", "model": "big", "pluginConfigRef": { "name": "p" } });
    store.create(&id("Model", "m"), object("Model", model));
    for name in ["hello", "bye"] {
        store.create(&id("Prompt", name), object("Prompt", json!({ "content": format!("say {name}") })));
    }
}

/// Starts a cluster in which the flow `f` runs.
async fn running() -> (Sim, Operator) {
    let sim = Sim::new();
    needs(&mut sim.store());
    sim.store().create(&id("Flow", "f"), flow("hello", json!({})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, "f"), "Running");
    sim.take_requests();
    (sim, operator)
}

fn status(sim: &Sim, name: &str, pointer: &str) -> Value {
    sim.store().at(&id("Flow", name), &format!("/status{pointer}"))
}

fn phase(sim: &Sim, name: &str) -> String {
    status(sim, name, "/phase").as_str().unwrap_or_default().to_owned()
}

fn template(sim: &Sim, name: &str, pointer: &str) -> Value {
    sim.store().at(&id("Deployment", name), &format!("/spec/template{pointer}"))
}

/// Returns the image of the container that answers.
fn image(sim: &Sim) -> Value {
    template(sim, "f", "/spec/containers/0/image")
}

/// Returns the image of the sidecar.
fn proxy(sim: &Sim, name: &str) -> Value {
    template(sim, name, "/spec/initContainers/0/image")
}

fn hash(sim: &Sim, name: &str) -> Value {
    template(sim, name, "/metadata/annotations/recif.dev~1content-hash")
}

/// Starts an operator of a later version.
fn upgraded(sim: &Sim) -> Operator {
    let [runner_image, proxy_image] = ["runner", "proxy"].map(|name| format!("recif.local/{name}:2"));
    let settings = RenderSettings { runner_image, proxy_image, ..settings() };
    Operator::with(sim, Agent::registry().unwrap(), settings)
}

#[tokio::test(start_paused = true)]
async fn a_flow_applied_together_with_all_it_needs_runs() {
    let sim = Sim::new();
    sim.store().create(&id("Flow", "f"), flow("hello", json!({ "port": 9000 })));
    needs(&mut sim.store());
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!(phase(&sim, "f"), "Running");
    assert_eq!(status(&sim, "f", "/endpoint"), "http://f.team.svc.cluster.local:9000");
    assert_eq!(status(&sim, "f", "/images"), json!({ "flow": "recif.local/runner:1", "proxy": "recif.local/proxy:1" }));
    assert_eq!(status(&sim, "f", "/contentHash"), hash(&sim, "f"));
    let data = |kind, name| sim.store().at(&id(kind, name), "/data");
    assert_eq!(data("ConfigMap", "f-prompts"), json!({ "hello.prompt": "say hello" }));
    assert!(data("ConfigMap", "f-config")["config.json"].as_str().unwrap().contains("\"model\": \"big\""));
    let from = template(&sim, "f", "/spec/containers/0/envFrom");
    assert_eq!(from, json!([{ "secretRef": { "name": "keys" } }]));
    sim.take_requests();
    Operator::start(&sim).run(20 * MINUTE).await;
    assert_eq!(sim.take_requests(), [], "a restart");
}

#[tokio::test(start_paused = true)]
async fn everything_that_is_missing_is_named_at_once() {
    let sim = Sim::new();
    sim.store().create(&id("Flow", "f"), flow("p", json!({ "tools": [{ "name": "t" }] })));
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!(phase(&sim, "f"), "Resolving");
    let conditions = status(&sim, "f", "/conditions");
    let ready = conditions.as_array().unwrap().iter().find(|found| found["type"] == "Ready").unwrap().clone();
    assert_eq!(ready["reason"], "MissingDependency");
    assert_eq!(ready["message"], r#"prompt "p" not found; tool "t" not found; model "m" not found"#);
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_a_prompt_rolls_exactly_the_flow_that_uses_it() {
    let (sim, mut operator) = running().await;
    sim.store().create(&id("Flow", "g"), flow("bye", json!({})));
    operator.run(MINUTE).await;
    let before = (hash(&sim, "f"), hash(&sim, "g"));
    sim.take_requests();
    sim.store().edit(&id("Prompt", "bye"), |body| body["spec"]["content"] = json!("say farewell"));
    operator.run(MINUTE).await;
    assert_eq!(hash(&sim, "f"), before.0);
    assert_ne!(hash(&sim, "g"), before.1);
    assert_eq!(sim.store().at(&id("ConfigMap", "g-prompts"), "/data/bye.prompt"), "say farewell");
    let writes = sim.take_writes();
    assert!(writes.iter().all(|write| !write.contains("/f")), "{writes:?}");
    let applied: Vec<_> = writes.iter().filter(|write| write.starts_with("Apply")).collect();
    assert_eq!(applied, ["Apply ConfigMap/g-prompts", "Apply Deployment/g"]);
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_is_rotated_rolls_the_pods_once_and_another_key_never() {
    let (sim, mut operator) = running().await;
    let before = hash(&sim, "f");
    sim.store().edit(&id("Secret", "keys"), |body| body["data"]["KEY"] = json!("dHdv"));
    operator.run(5 * MINUTE).await;
    assert_ne!(hash(&sim, "f"), before);
    assert_eq!(phase(&sim, "f"), "Running");
    let rolled = sim.take_writes().into_iter().filter(|write| write == "Apply Deployment/f").count();
    assert_eq!(rolled, 1);
    sim.store().edit(&id("Secret", "keys"), |body| body["data"]["OTHER"] = json!("dHdv"));
    operator.run(5 * MINUTE).await;
    assert_eq!(sim.take_writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_in_the_config_map_until_it_has_headers() {
    let (sim, mut operator) = running().await;
    let tool = json!({ "name": "shop", "type": "http", "endpoint": "http://shop" });
    sim.store().create(&id("Tool", "shop"), object("Tool", tool));
    sim.store().edit(&id("Flow", "f"), |body| body["spec"]["tools"] = json!([{ "name": "shop" }]));
    operator.run(MINUTE).await;
    let data = |kind| sim.store().at(&id(kind, "f-tools"), "/data/shop.json");
    assert!(data("ConfigMap").is_string() && data("Secret").is_null());
    sim.store().edit(&id("Tool", "shop"), |body| body["spec"]["headers"] = json!({ "Authorization": "Bearer x" }));
    operator.run(MINUTE).await;
    assert!(data("ConfigMap").is_null() && data("Secret").is_string());
    sim.store().edit(&id("Tool", "shop"), |body| drop(body["spec"].as_object_mut().unwrap().remove("headers")));
    operator.run(MINUTE).await;
    assert!(data("ConfigMap").is_string());
    assert_eq!(sim.store().get(&id("Secret", "f-tools")), None, "it is removed when nothing needs it");
}

#[tokio::test(start_paused = true)]
async fn a_new_operator_restarts_nothing_and_an_edit_brings_its_image() {
    let (sim, _) = running().await;
    let mut operator = upgraded(&sim);
    operator.run(20 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
    assert_eq!((image(&sim), proxy(&sim, "f")), (json!("recif.local/runner:1"), json!("recif.local/proxy:1")));
    sim.store().edit_as(&id("Deployment", "f"), "/spec/progressDeadlineSeconds", Some(json!(5)), "kubectl");
    operator.run(MINUTE).await;
    assert_eq!(
        (image(&sim), proxy(&sim, "f")),
        (json!("recif.local/runner:1"), json!("recif.local/proxy:1")),
        "a repair is no reason"
    );
    sim.store().edit(&id("Prompt", "hello"), |body| body["spec"]["content"] = json!("say hi"));
    operator.run(MINUTE).await;
    assert_eq!((image(&sim), proxy(&sim, "f")), (json!("recif.local/runner:2"), json!("recif.local/proxy:2")));
    let pinned = json!({ "flow": "recif.local/runner:2", "proxy": "recif.local/proxy:2" });
    assert_eq!(status(&sim, "f", "/images"), pinned);
    sim.store().edit(&id("Flow", "f"), |body| body["spec"]["image"] = json!("mine:3"));
    operator.run(MINUTE).await;
    let pinned = json!({ "proxy": "recif.local/proxy:2" });
    assert_eq!((image(&sim), status(&sim, "f", "/images")), (json!("mine:3"), pinned));
    sim.store().edit(&id("Flow", "f"), |body| body["spec"]["proxy"] = json!({ "enabled": false }));
    operator.run(MINUTE).await;
    assert_eq!((proxy(&sim, "f"), status(&sim, "f", "/images")), (Value::Null, Value::Null));
}

#[tokio::test(start_paused = true)]
async fn a_rollout_replaces_the_pods_once_and_renews_the_image() {
    let (sim, mut before) = running().await;
    sim.store().create(&id("Agent", "a"), agent(json!({})));
    before.run(MINUTE).await;
    drop(before);
    let mut operator = upgraded(&sim);
    operator.run(MINUTE).await;
    assert_eq!(proxy(&sim, "a"), "recif.local/proxy:1");
    sim.take_requests();
    for kind in ["Flow", "Agent"] {
        let name = if kind == "Flow" { "f" } else { "a" };
        sim.store().edit(&id(kind, name), |body| {
            body["metadata"]["annotations"] = json!({ crds::ROLLOUT_AT: "2026-01-01T00:00:00Z" });
        });
    }
    operator.run(5 * MINUTE).await;
    for name in ["f", "a"] {
        let at = template(&sim, name, "/metadata/annotations/recif.dev~1rollout-at");
        assert_eq!(at, "2026-01-01T00:00:00Z");
    }
    assert_eq!(image(&sim), "recif.local/runner:2");
    assert_eq!((proxy(&sim, "f"), proxy(&sim, "a")), (json!("recif.local/proxy:2"), json!("recif.local/proxy:2")));
    let applied: Vec<_> = sim.take_writes().into_iter().filter(|write| write.starts_with("Apply")).collect();
    assert_eq!(applied.len(), 2, "only the Deployments: {applied:?}");
    operator.run(20 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_cannot_be_one_fails_until_it_is_mended() {
    let (sim, mut operator) = running().await;
    let prompts = json!([{ "promptRef": { "name": "hello" } }, { "prompt": { "name": "hello", "content": "x" } }]);
    sim.store().edit(&id("Flow", "f"), |body| body["spec"]["prompts"] = prompts);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, "f"), "Failed");
    assert_eq!(status(&sim, "f", "/failure/reason"), "InvalidSpec");
    let large = format!("say {}", "x".repeat(1024 * 1024));
    sim.store().edit(&id("Prompt", "hello"), |body| body["spec"]["content"] = json!(large));
    sim.store().edit(&id("Flow", "f"), |body| body["spec"]["prompts"] = json!([{ "promptRef": { "name": "hello" } }]));
    operator.run(MINUTE).await;
    assert_eq!((phase(&sim, "f"), status(&sim, "f", "/failure/during")), ("Failed".into(), json!("Rendering")));
    sim.store().edit(&id("Prompt", "hello"), |body| body["spec"]["content"] = json!("short"));
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim, "f"), "Running");
}

#[tokio::test(start_paused = true)]
async fn the_children_of_another_kind_of_the_same_name_are_left_alone() {
    let (sim, mut operator) = running().await;
    sim.store().create(&id("Agent", "f"), agent(json!({})));
    operator.run(MINUTE).await;
    let phase = sim.store().at(&id("Agent", "f"), "/status/phase");
    assert_eq!(
        (phase, sim.store().at(&id("Agent", "f"), "/status/failure/reason")),
        ("Failed".into(), "NameConflict".into())
    );
    assert!(hash(&sim, "f").is_string());
}

#[tokio::test(start_paused = true)]
async fn a_prompt_in_place_is_judged_like_a_prompt() {
    let sim = Sim::new();
    needs(&mut sim.store());
    for (name, content, expected) in [
        ("torn", "---\na: [\n---\nHi", "prompt \"own\", line 3: the frontmatter is not YAML: "),
        ("blank", " \n ", "prompt \"own\" is blank: write the text for the model"),
    ] {
        let prompts = json!([{ "prompt": { "name": "own", "content": content } }]);
        sim.store().create(&id("Flow", name), flow("hello", json!({ "prompts": prompts })));
        Operator::start(&sim).run(MINUTE).await;
        assert_eq!(phase(&sim, name), "Failed", "{name}");
        let conditions = status(&sim, name, "/conditions");
        let ready = conditions.as_array().unwrap().iter().find(|found| found["type"] == "Ready").unwrap().clone();
        assert_eq!(ready["reason"], "InvalidSpec", "{name}");
        assert!(ready["message"].as_str().unwrap().starts_with(expected), "{name}: {ready}");
    }
}

/// Returns the message of the flow's Ready condition.
fn message(sim: &Sim) -> String {
    let conditions = status(sim, "f", "/conditions");
    let ready = conditions.as_array().unwrap().iter().find(|found| found["type"] == "Ready").unwrap().clone();
    ready["message"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_flow_whose_model_has_no_key_waits_and_names_the_secret_and_the_key() {
    let env = json!([{ "name": "OPENAI_API_KEY", "value": "k" }]);
    let cases: [(&str, Value, Value); 8] = [
        ("Secret keys has no key OPENAI_API_KEY (PluginConfig p)", json!({ "type": "openai" }), json!({})),
        (
            "Secret keys has no key GEMINI_API_KEY or GOOGLE_API_KEY or GOOGLE_GENAI_API_KEY (PluginConfig p)",
            json!({ "type": "google" }),
            json!({}),
        ),
        ("", json!({ "type": "openai" }), json!({ "env": env })),
        ("", json!({ "type": "openai", "extraConfig": { "baseUrl": "http://local" } }), json!({})),
        ("", json!({ "type": "openai", "credentialKeys": ["KEY"] }), json!({})),
        ("", json!({ "type": "openai" }), json!({ "image": "registry/theirs:1" })),
        (
            "",
            json!({ "type": "openai" }),
            json!({ "podTemplate": { "spec": { "containers": [{ "name": "flow", "envFrom": [] }] } } }),
        ),
        ("", json!({ "type": "ollama" }), json!({})),
    ];
    for (expected, plugin, more) in cases {
        let sim = Sim::new();
        needs(&mut sim.store());
        let text = format!("{plugin} {more}");
        sim.store().edit(&id("PluginConfig", "p"), |body| {
            body["spec"]["credentialKeys"] = json!([]);
            body["spec"].as_object_mut().unwrap().extend(plugin.as_object().unwrap().clone());
        });
        sim.store().create(&id("Flow", "f"), flow("hello", more));
        let mut operator = Operator::start(&sim);
        operator.run(MINUTE).await;
        if expected.is_empty() {
            assert_eq!(phase(&sim, "f"), "Running", "{text}: {}", message(&sim));
            continue;
        }
        assert_eq!((phase(&sim, "f"), message(&sim)), ("Resolving".into(), expected.into()), "{text}");
        let key = expected.split(' ').nth(5).unwrap();
        sim.store().edit(&id("Secret", "keys"), |body| body["data"][key] = json!("b25l"));
        operator.run(MINUTE).await;
        assert_eq!(phase(&sim, "f"), "Running", "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_runs_without_a_key_is_judged_when_it_is_resolved_anew() {
    let (sim, _) = running().await;
    let older = |body: &mut Value| body["spec"]["image"] = json!("recif.local/runner:1");
    sim.store().edit(&id("PluginConfig", "p"), |body| body["spec"]["credentialKeys"] = json!([]));
    sim.store().edit(&id("Flow", "f"), |body| body["spec"]["image"] = json!("registry/theirs:1"));
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!(phase(&sim, "f"), "Running");
    // This operator takes the flow for one that an older build has let run: its image is that of the runner.
    let settings = RenderSettings { runner_image: "registry/theirs:1".to_owned(), ..settings() };
    sim.take_requests();
    Operator::with(&sim, Agent::registry().unwrap(), settings).run(20 * MINUTE).await;
    assert_eq!((sim.take_writes(), phase(&sim, "f")), (Vec::new(), "Running".into()));
    sim.store().edit(&id("Flow", "f"), older);
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!(phase(&sim, "f"), "Resolving");
}

#[tokio::test(start_paused = true)]
async fn what_the_runner_refuses_is_refused_with_its_line_before_a_pod_is_made() {
    for (content, expected) in [
        ("Hello\n{{upper name}}", "prompt \"hello\", line 2: unknown helper `upper`"),
        (
            "---\ninput:\n  schema: {a: text}\n---\n{{a}}",
            "prompt \"hello\", line 2: `input.schema.a` has the unknown type",
        ),
        ("Hello\n\n{{> bye}}", "prompt \"hello\", line 3: unknown partial `bye`"),
        ("{{^name}}none{{/name}}", "prompt \"hello\", line 1: this is not Handlebars"),
    ] {
        let sim = Sim::new();
        needs(&mut sim.store());
        sim.store().edit(&id("Prompt", "hello"), |body| body["spec"]["content"] = json!(content));
        sim.store().create(&id("Flow", "f"), flow("hello", json!({})));
        sim.store().create(&id("Flow", "theirs"), flow("hello", json!({ "image": "registry/theirs:1" })));
        let mut operator = Operator::start(&sim);
        operator.run(MINUTE).await;
        assert_eq!(
            sim.store().at(&id("Prompt", "hello"), "/status/phase"),
            "Available",
            "other readers may take {content:?}"
        );
        assert_eq!(phase(&sim, "theirs"), "Running", "{content}");
        assert_eq!(
            (phase(&sim, "f"), status(&sim, "f", "/failure/reason")),
            ("Failed".into(), json!("InvalidSpec")),
            "{content}"
        );
        assert!(message(&sim).starts_with(expected), "{content:?}: {}", message(&sim));
        assert_eq!(sim.store().get(&id("Deployment", "f")), None, "{content}");
        sim.take_requests();
        operator.run(20 * MINUTE).await;
        assert_eq!(sim.take_writes(), Vec::<String>::new(), "it waits in silence");
        sim.store().edit(&id("Prompt", "hello"), |body| body["spec"]["content"] = json!("Hello {{name}}"));
        operator.run(MINUTE).await;
        assert_eq!(phase(&sim, "f"), "Running", "{content}");
    }
}

#[tokio::test(start_paused = true)]
async fn texts_that_fit_into_no_object_are_refused_before_they_are_parsed() {
    let sim = Sim::new();
    needs(&mut sim.store());
    let large = format!("{{{{upper name}}}}{}", "x".repeat(1024 * 1024));
    sim.store().edit(&id("Prompt", "hello"), |body| body["spec"]["content"] = json!(large));
    sim.store().create(&id("Flow", "f"), flow("hello", json!({})));
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!((phase(&sim, "f"), status(&sim, "f", "/failure/reason")), ("Failed".into(), json!("InvalidSpec")));
    assert!(message(&sim).contains("Kubernetes takes 1048576"), "{}", message(&sim));
}
