//! Sets of flows: a broken flow does not affect the others.

use serde_json::{Value, json};

use super::ContractFolder;

#[tokio::test]
async fn a_broken_flow_says_why_and_the_others_serve() {
    let contract =
        ContractFolder::set(&[("good", "hi {{name}}"), ("bad", "one\n{{#if x}}"), ("gone", "x"), ("chat", "x")]);
    std::fs::remove_dir_all(contract.0.join("flows/gone")).unwrap();
    let runner = contract.serve(&[]).await;
    assert_eq!(runner.post("/good", r#"{"name": "Ada"}"#).await, (200, "echo: hi Ada".into()));
    assert_eq!(runner.post("/good/main", "").await, (200, "echo: hi ".into()));

    let (status, ready) = runner.get("/readyz").await;
    let ready: Value = serde_json::from_str(&ready).unwrap();
    assert_eq!((status, &ready["status"], &ready["flows"]["good"]), (200, &json!("degraded"), &json!("ok")));
    for (name, problem) in [
        ("bad", "flows/bad/prompts/main.prompt:2: "),
        ("gone", "flows/gone/config.json: file not found"),
        ("chat", "manifest.json:5: `chat` is a route of the runtime's own"),
    ] {
        let why = ready["flows"][name].as_str().unwrap();
        assert!(why.starts_with(problem), "{why}");
        for path in [format!("/{name}"), format!("/{name}/main")] {
            assert_eq!(runner.refused(&path, "{}").await, (503, why.to_owned()), "{path}");
        }
    }
    for path in ["/", "/main", "/good/other"] {
        let (status, text) = runner.refused(path, "{}").await;
        assert_eq!(
            (status, text.as_str()),
            (404, "unknown route; POST to one of: /bad, /chat, /gone, /good, /good/main")
        );
    }
    let (_, metrics) = runner.get("/metrics").await;
    for line in [
        r#"recif_runner_flow_requests_total{flow="good",code="200"} 2"#,
        r#"recif_runner_flow_requests_total{flow="bad",code="503"} 2"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn a_set_is_ready_when_all_are_and_not_when_none_is() {
    let runner = ContractFolder::set(&[("a", "x"), ("b", "x")]).serve(&[]).await;
    let (status, ready) = runner.get("/readyz").await;
    assert_eq!(
        (status, serde_json::from_str(&ready).unwrap()),
        (200, json!({"status": "ok", "flows": {"a": "ok", "b": "ok"}}))
    );

    let runner = ContractFolder::set(&[("a", "{{#if}}"), ("b", "{{/if}}")]).serve(&[]).await;
    let (status, ready) = runner.get("/readyz").await;
    let ready: Value = serde_json::from_str(&ready).unwrap();
    assert_eq!((status, &ready["error"]), (503, &json!("no flow of the set can be served")));
    assert!(ready["flows"]["b"].as_str().unwrap().starts_with("flows/b/prompts/main.prompt:1: "), "{ready}");
}

#[tokio::test]
async fn a_manifest_that_cannot_be_read_is_said_everywhere() {
    let contract = ContractFolder::new().with("manifest.json", "{\n\"flows\": [\n}");
    let runner = contract.serve(&[]).await;
    let (status, ready) = runner.get("/readyz").await;
    assert!(status == 503 && ready.contains("manifest.json:3: "), "{ready}");
    assert_eq!(runner.refused("/x", "").await.0, 503);
}

#[tokio::test]
async fn two_flows_of_one_name_are_both_refused() {
    let entry = |name: &str, folder: &str| {
        format!("{{\"name\": \"{name}\", \"entrypoint\": \"main\", \"dir\": \"flows/{folder}\"}}")
    };
    let manifest = format!("{{\"flows\": [\n{},\n{},\n{}\n]}}", entry("a", "a"), entry("a", "b"), entry("c", "b"));
    let contract = ContractFolder::set(&[("a", "hi"), ("b", "ho")]).with("manifest.json", &manifest);
    let runner = contract.serve(&[]).await;
    let why =
        "manifest.json:2: several flows are named `a` (lines 2 and 3); none of them is served until they are renamed";
    assert_eq!(runner.refused("/a", "").await, (503, why.into()));
    assert_eq!(runner.post("/c", "").await, (200, "echo: ho".into()));
}

#[tokio::test]
async fn each_flow_has_its_own_credentials() {
    let config = |key: &str| {
        super::CONFIG.replace(
            "\"entrypoint\"",
            &format!("\"credentialsDir\": \"credentials\",\n\"credentialKeys\": [\"{key}\"],\n\"entrypoint\""),
        )
    };
    let contract = ContractFolder::set(&[("a", "hi"), ("b", "hi")])
        .with("flows/a/config.json", &config("KEY"))
        .with("flows/b/config.json", &config("KEY"))
        .with("flows/a/credentials/KEY", "one");
    let runner = contract.serve(&[]).await;
    assert_eq!(runner.post("/a", "").await.0, 200);
    let (status, why) = runner.refused("/b", "").await;
    assert!(status == 503 && why.starts_with("flows/b/credentials/KEY: the credential `KEY` is missing"), "{why}");
}
