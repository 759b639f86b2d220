//! Files that are saved: what they change, and what stays as it was.

use std::fs;

use serde_json::Value;

use super::{
    harness::{Dev, folder, save, until_gone},
    samples::{PROGRAM, RUN_PROGRAM, agent, custom},
};

#[tokio::test]
async fn a_saved_file_is_applied_and_what_no_file_names_is_deleted() {
    let folder = folder("reload");
    save(folder.join("a.yaml"), agent("one")).unwrap();
    let tool =
        "apiVersion: agents.recif.dev/v1\nkind: Tool\nmetadata: {name: t}\nspec: {name: datetime, type: builtin}\n";
    save(folder.join("t.yaml"), tool).unwrap();
    let mut dev = Dev::start(&folder, &["."]).await;
    dev.ready().await;
    let before = dev.children();

    // As an editor does it: another file in its place.
    save(folder.join("a.yaml~"), agent("two")).unwrap();
    fs::rename(folder.join("a.yaml~"), folder.join("a.yaml")).unwrap();
    let saved = dev.event("saved").await;
    assert_eq!((&saved["files"][0], &saved["changed"][0]), (&"a.yaml".into(), &"agent/a".into()), "{saved}");
    assert_eq!(dev.phase("agent/a", "Running").await, "replaced");
    until_gone(&before).await;
    assert_eq!(dev.chat("a", "hello").await.0, 200);

    fs::remove_file(folder.join("t.yaml")).unwrap();
    let saved = dev.event("saved").await;
    assert_eq!((&saved["deleted"][0], &saved["changed"]), (&"tool/t".into(), &Value::Array(Vec::new())), "{saved}");
    let (_, objects, _) = dev.recif(&["get", "tools"]).await;
    assert!(!objects.contains("datetime"), "{objects}");
    dev.signal("-TERM").await;
    assert_eq!(dev.end().await, 0);
}

#[tokio::test]
async fn a_mistake_is_told_with_its_place_and_the_rest_goes_on() {
    let folder = folder("mistakes");
    save(folder.join("a.yaml"), agent("one")).unwrap();
    let mut dev = Dev::start(&folder, &["a.yaml"]).await;
    dev.ready().await;
    let children = dev.children();
    for (wrong, place, words) in [
        (agent("one") + "   x: 1\n", "a.yaml:10:", "; agent/a stays as it was"),
        (
            agent("one").replace("replicas: 1", "replicas: 11"),
            "a.yaml:9:13: ",
            "agent/a is refused: spec.replicas in body should be less than or equal to 10",
        ),
        (agent("one") + "  color: red\n", "a.yaml:10:3: ", "agent/a is refused: unknown field \"spec.color\""),
        (
            agent("one").replace("replicas: 1", "replicas: x"),
            "a.yaml:9:13: agent/a is refused: spec.replicas: ",
            "expected numeric (int or float), got string",
        ),
        (agent("one").replace("framework: corail", "framework: other"), "a.yaml:7:14: ", "agent/a is refused: "),
    ] {
        save(folder.join("a.yaml"), &wrong).unwrap();
        let said = dev.problem(place).await;
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(dev.children(), children, "it runs as before");
    assert_eq!(dev.chat("a", "hello").await.0, 200);
}

#[tokio::test]
async fn secrets_are_made_of_the_file_of_variables() {
    let folder = folder("variables");
    let config = "apiVersion: agents.recif.dev/v1\nkind: PluginConfig\nmetadata: {name: p}\nspec:\n  type: openai\n  credentialsRef: {name: openai}\n  credentialKeys: [OPENAI_API_KEY]\n";
    save(folder.join("p.yaml"), config).unwrap();
    let mut dev = Dev::start(&folder, &["p.yaml"]).await;
    let why = dev.phase("pluginconfig/p", "Resolving").await;
    assert!(why.contains("openai") && why.ends_with("Put OPENAI_API_KEY=… into .env."), "{why}");
    assert_eq!(dev.event("ready").await["except"][0], "pluginconfig/p");
    save(folder.join(".env"), "# mine\nOPENAI_API_KEY=x\nOTHER=y\n").unwrap();
    let made = dev.event("secret").await;
    assert_eq!((&made["object"], &made["keys"]), (&"secret/openai".into(), &serde_json::json!(["OPENAI_API_KEY"])));
    dev.phase("pluginconfig/p", "Available").await;
}

#[tokio::test]
async fn only_the_users_of_a_prompt_that_is_edited_are_replaced() {
    let folder = folder("prompt");
    let prompt = |text: &str| {
        format!("apiVersion: agents.recif.dev/v1\nkind: Prompt\nmetadata: {{name: p}}\nspec: {{content: {text}}}\n")
    };
    save(folder.join("p.yaml"), prompt("one")).unwrap();
    save(folder.join("a.yaml"), agent("x").replace("systemPrompt: x", "promptRef: {name: p}")).unwrap();
    save(folder.join("b.yaml"), agent("x").replace("name: a", "name: b")).unwrap();
    let mut dev = Dev::start(&folder, &["."]).await;
    dev.ready().await;
    let (user, other) = (dev.processes_of("a"), dev.processes_of("b"));
    assert_eq!((user.len(), other.len()), (2, 2), "a sidecar and a runner of each");
    save(folder.join("p.yaml"), prompt("two")).unwrap();
    assert_eq!(dev.event("saved").await["changed"], serde_json::json!(["prompt/p"]));
    assert_eq!(dev.phase("agent/a", "Running").await, "replaced");
    until_gone(&user).await;
    assert_eq!(dev.processes_of("b"), other, "the same processes");
    let (code, answer) = dev.chat("a", "/prompt").await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((code, &answer["reply"]), (200, &"two".into()));
}

#[tokio::test]
async fn a_prompt_with_urls_of_services_arrives_unchanged() {
    let folder = folder("urls");
    let text = "Ask http://a:8000/chat, or http://a.default.svc.cluster.local:8000 and a.default:8000.";
    save(folder.join("a.yaml"), agent(&format!("\"{text}\""))).unwrap();
    let mut dev = Dev::start(&folder, &["a.yaml"]).await;
    dev.ready().await;
    let (code, answer) = dev.chat("a", "/prompt").await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((code, &answer["reply"]), (200, &text.into()));
}

#[tokio::test]
async fn a_program_starts_anew_when_its_code_is_saved() {
    let folder = folder("code");
    save(folder.join("agent.py"), PROGRAM).unwrap();
    let watched = "annotations:\n    recif.dev/dev-watch: \"*.py\"";
    save(folder.join("x.yaml"), custom("x", RUN_PROGRAM, "").replace("annotations:", watched)).unwrap();
    let mut dev = Dev::start(&folder, &["x.yaml"]).await;
    dev.ready().await;
    let before = dev.processes_of("x");
    save(folder.join("agent.py"), PROGRAM.replace("os.environ.get(\"TEXT\", \"\")", "\"new code\"")).unwrap();
    let saved = dev.event("saved").await;
    assert_eq!((&saved["files"][0], &saved["restarted"][0]), (&"agent.py".into(), &"agent/x".into()), "{saved}");
    assert_eq!(dev.phase("agent/x", "Running").await, "replaced");
    until_gone(&before).await;
    assert_eq!(dev.chat("x", "hello").await, (200, "new code".to_owned()));
}
