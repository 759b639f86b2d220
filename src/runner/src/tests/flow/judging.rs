//! Validation of a flow's files, and the text of the problems.

use super::{CONFIG, ContractFolder};

/// Returns the error of `/readyz`, after a check that a flow's route returns the same.
async fn why(contract: &ContractFolder, variables: &[(&'static str, &str)]) -> String {
    let runner = contract.serve(variables).await;
    let (status, ready) = runner.get("/readyz").await;
    let (refused, text) = runner.refused("/anything", "{}").await;
    assert_eq!((status, refused), (503, 503), "{ready} {text}");
    assert_eq!(ready, serde_json::json!({ "error": text }).to_string());
    assert_eq!(runner.get("/healthz").await.0, 200);
    text
}

#[tokio::test]
async fn a_bad_file_makes_the_flow_not_ready_and_is_named_with_its_line() {
    let flow = || ContractFolder::flow(&[("main", "hi")]);
    for (file, text, problem) in [
        ("prompts/main.prompt", "---\nmodel: stub/x\ninput: [\n---\nhi", "prompts/main.prompt:"),
        ("prompts/main.prompt", "---\nmodel: x\n---\none\n{{#if a}}\n", "prompts/main.prompt:"),
        (
            "prompts/main.prompt",
            "---\nmodel: gemini/pro\n---\nhi",
            "prompts/main.prompt:2: the flow has a plugin for stub, not for gemini",
        ),
        (
            "prompts/main.prompt",
            "---\ntools:\n  - gone\n---\nhi",
            "prompts/main.prompt:3: the flow has no tool `gone`; it has: none",
        ),
        ("prompts/chat.prompt", "hi", "prompts/chat.prompt: `chat` is a route of the runtime's own; use another name"),
        (
            "prompts/a b.prompt",
            "hi",
            "prompts/a b.prompt: its name must be letters, digits, `-`, `_` and `.`, the first not `.`",
        ),
        ("prompts/...prompt", "hi", "prompts/...prompt: its name must be"),
        ("config.json", "{\n\"defaultModel\": {}\n}", "config.json:2: missing field `provider`"),
        ("config.json", "{\n\"plugin\": 3", "config.json:2: "),
        (
            "config.json",
            &CONFIG.replace("\"main\"", "\"../main\""),
            "config.json:4: the entrypoint \"../main\" is not one of its prompts: main",
        ),
        ("config.json", &CONFIG.replace("\"type\": \"stub\"", "\"type\": \"telepathy\""), "config.json:3: "),
        (
            "config.json",
            &CONFIG.replace("\"stub\"}", "\"stub\", \"extraConfig\": {\"baseUrl\": 3}}"),
            "config.json:3: `baseUrl` in `extraConfig` must be a string",
        ),
        ("tools/t.json", "{\n\n!", "tools/t.json:3: "),
        ("tools/t.json", "{\"name\": \"t\"}", "tools/t.json: missing field `implementation`"),
    ] {
        let contract = flow().with(file, text);
        let found = why(&contract, &[]).await;
        assert!(found.starts_with(problem), "{file}: {found}");
        let at_a_line = found.split(": ").next().unwrap().rsplit(':').next().unwrap().parse::<usize>().is_ok();
        assert_eq!(at_a_line, problem.split(": ").next().unwrap().contains(':'), "{found}");
    }
}

#[tokio::test]
async fn all_that_is_wrong_is_said_at_once() {
    let contract = ContractFolder::flow(&[("main", "{{#if}}"), ("two", "---\ntools: [gone]\n---\nhi")])
        .with("tools/a.json", "[")
        .with("tools/b.json", "{}")
        .with("config.json", &CONFIG.replace("main", "three"));
    let found = why(&contract, &[("RECIF_FLOW_NAME", "metrics")]).await;
    for part in [
        "RECIF_FLOW_NAME: `metrics` is a route",
        "config.json:4: the entrypoint \"three\"",
        "tools/a.json:1: ",
        "tools/b.json: missing field",
        "prompts/main.prompt:1: ",
        "prompts/two.prompt:2: the flow has no tool `gone`",
    ] {
        assert!(found.contains(part), "{part} is not in {found}");
    }
    assert_eq!(
        found.split("; ").filter(|part| part.contains(".prompt:") || part.contains(".json:")).count(),
        5,
        "{found}"
    );
}

#[tokio::test]
async fn files_that_are_missing_too_large_or_no_text_are_named() {
    let none = ContractFolder::new().with("config.json", CONFIG);
    assert_eq!(why(&none, &[]).await, "prompts: it has no `.prompt` file; a flow needs one");
    let large = ContractFolder::flow(&[("main", &"x".repeat((1 << 20) + 1))]);
    assert_eq!(why(&large, &[]).await, "prompts/main.prompt: it has 1048577 bytes; a file may have 1 MiB");
    let binary = ContractFolder::flow(&[("main", "hi")]);
    std::fs::write(binary.0.join("prompts/main.prompt"), b"one\ntwo\n\xff").unwrap();
    assert_eq!(why(&binary, &[]).await, "prompts/main.prompt:3: it is not UTF-8 text");
}

#[tokio::test]
async fn files_of_another_version_of_the_contract_are_not_read() {
    let version = "RECIF_CONTRACT_VERSION";
    for contract in [ContractFolder::flow(&[("main", "hi")]), ContractFolder::set(&[("a", "hi")])] {
        let found = why(&contract, &[(version, "2")]).await;
        let expected = "RECIF_CONTRACT_VERSION: the operator writes version 2 of the contract and this runtime reads 1";
        assert!(found.starts_with(expected), "{found}");
        assert_eq!(contract.serve(&[(version, "1")]).await.get("/readyz").await.0, 200);
    }
}

#[tokio::test]
async fn hidden_links_of_a_mounted_configmap_are_no_prompts() {
    let contract = ContractFolder::flow(&[]).with("prompts/..data/main.prompt", "hi");
    std::os::unix::fs::symlink("..data/main.prompt", contract.0.join("prompts/main.prompt")).unwrap();
    assert_eq!(contract.serve(&[]).await.post("/", "").await, (200, "echo: hi".into()));
}

#[tokio::test]
async fn a_credential_that_is_declared_must_be_there() {
    let config = |more: &str| CONFIG.replace("\"entrypoint\"", &format!("{more},\n  \"entrypoint\""));
    let text = "the credential `API_KEY` is missing; put it into the Secret under that key";

    let from_environment =
        ContractFolder::flow(&[("main", "hi")]).with("config.json", &config(r#""credentialKeys": ["API_KEY"]"#));
    assert_eq!(why(&from_environment, &[]).await, format!("config.json:4: {text}"));
    assert_eq!(from_environment.serve(&[("API_KEY", "k")]).await.get("/readyz").await.0, 200);

    let from_files = config(r#""credentialsDir": "/genkit/credentials", "credentialKeys": ["API_KEY"]"#);
    let from_files = ContractFolder::flow(&[("main", "hi")]).with("config.json", &from_files);
    assert_eq!(why(&from_files, &[]).await, format!("credentials/API_KEY: {text}"));
    let from_files = from_files.with("credentials/API_KEY", "k\n");
    assert_eq!(from_files.serve(&[]).await.get("/readyz").await.0, 200);

    let outside = config(r#""credentialsDir": "/genkit/../../etc", "credentialKeys": []"#);
    let outside = ContractFolder::flow(&[("main", "hi")]).with("config.json", &outside);
    assert_eq!(why(&outside, &[]).await, "config.json:4: it leads out of the contract's folder");
}
