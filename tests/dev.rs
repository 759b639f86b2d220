//! `recif dev` as a user has it: real processes, files that are saved, signals.

#![cfg(feature = "local")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod dev_process;

use std::{fs, os::unix::fs::PermissionsExt as _, process::Stdio, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dev_process::{Dev, SOON, command, folder, output, until_gone};
use serde_json::Value;
use tokio::time::timeout;

const AGENT: &str = "apiVersion: agents.recif.dev/v1
kind: Agent
metadata:
  name: a
spec:
  name: A
  framework: corail
  systemPrompt: PROMPT
  replicas: 1
";

fn agent(prompt: &str) -> String {
    AGENT.replace("PROMPT", prompt)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn the_sample_runs_answers_and_ends_with_all_its_programs() {
    let folder = folder("sample");
    let mut dev = Dev::start(&folder, &[]).await;
    let url = dev.phase("agent/my-agent", "Running").await;
    assert!(url.starts_with("http://127.0.0.1:2"), "{url}");
    assert_eq!(dev.event("ready").await["except"], Value::Array(Vec::new()));
    let (code, answer) = dev.chat("my-agent", "/tool calculator {\"expression\": \"6*7\"}").await;
    assert!(code == 200 && answer.contains("42"), "{code} {answer}");
    let (code, answer, errors) = dev.recif(&["chat", "agent/my-agent", "hello", "--gateway", &dev.gateway]).await;
    assert!(code == 0 && answer.contains("hello"), "{answer} {errors}");
    let (code, objects, errors) = dev.recif(&["get"]).await;
    assert!(code == 0 && objects.contains("my-agent") && objects.contains("calculator"), "{objects} {errors}");
    let (code, steps, errors) = dev.recif(&["trace", "agent/my-agent", "-o", "json"]).await;
    assert!(code == 0 && steps.contains("Running") && errors.is_empty(), "{steps} {errors}");

    let file = folder.join(".recif/kubeconfig");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let second = output(&folder, &[]).await;
    let pid = dev.process.id().unwrap();
    assert_eq!(second.status.code(), Some(2));
    let said = text(&second.stderr);
    assert!(said.starts_with(&format!("error: recif dev runs here already (pid {pid}): http://127.0.0.1:")), "{said}");

    let children = dev.children();
    assert!(children.len() >= 2, "a sidecar and a runner: {children:?}");
    dev.signal("-INT").await;
    assert_eq!(dev.end().await, 0);
    until_gone(&children).await;
    assert!(!file.exists());
}

#[tokio::test]
async fn a_saved_file_is_applied_and_what_no_file_names_is_deleted() {
    let folder = folder("reload");
    fs::write(folder.join("a.yaml"), agent("one")).unwrap();
    let tool =
        "apiVersion: agents.recif.dev/v1\nkind: Tool\nmetadata: {name: t}\nspec: {name: datetime, type: builtin}\n";
    fs::write(folder.join("t.yaml"), tool).unwrap();
    let mut dev = Dev::start(&folder, &["."]).await;
    dev.event("ready").await;
    let before = dev.children();

    // As an editor does it: another file in its place.
    fs::write(folder.join("a.yaml~"), agent("two")).unwrap();
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
    fs::write(folder.join("a.yaml"), agent("one")).unwrap();
    let mut dev = Dev::start(&folder, &["a.yaml"]).await;
    dev.event("ready").await;
    let children = dev.children();
    for (wrong, place, words) in [
        (agent("one") + "   x: 1\n", "a.yaml:10:", "; agent/a stays as it was"),
        (
            agent("one").replace("replicas: 1", "replicas: 11"),
            "a.yaml:9:13: ",
            "agent/a is refused: spec.replicas in body should be less than or equal to 10",
        ),
        (agent("one") + "  color: red\n", "a.yaml:10:3: ", "agent/a is refused: unknown field \"spec.color\""),
        (agent("one").replace("framework: corail", "framework: other"), "a.yaml:7:14: ", "agent/a is refused: "),
    ] {
        fs::write(folder.join("a.yaml"), &wrong).unwrap();
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
    fs::write(folder.join("p.yaml"), config).unwrap();
    let mut dev = Dev::start(&folder, &["p.yaml"]).await;
    let why = dev.phase("pluginconfig/p", "Resolving").await;
    assert!(why.contains("openai") && why.ends_with("Put OPENAI_API_KEY=… into .env."), "{why}");
    assert_eq!(dev.event("ready").await["except"][0], "pluginconfig/p");
    fs::write(folder.join(".env"), "# mine\nOPENAI_API_KEY=x\nOTHER=y\n").unwrap();
    let made = dev.event("secret").await;
    assert_eq!((&made["object"], &made["keys"]), (&"secret/openai".into(), &serde_json::json!(["OPENAI_API_KEY"])));
    dev.phase("pluginconfig/p", "Available").await;
}

#[tokio::test]
async fn a_command_runs_when_all_is_ready_and_its_exit_code_counts() {
    let folder = folder("command");
    fs::write(folder.join("a.yaml"), agent("one")).unwrap();
    let script = "test -r \"$KUBECONFIG\" && echo \"at $RECIF_GATEWAY\" && exit 7";
    let ended = output(&folder, &["a.yaml", "--", "sh", "-c", script]).await;
    let (out, err) = (text(&ended.stdout), text(&ended.stderr));
    assert_eq!(ended.status.code(), Some(7), "{out} {err}");
    assert!(out.starts_with("at http://127.0.0.1:") && out.lines().count() == 1, "only the command's own: {out}");
    assert!(err.contains("agent/a             Running"), "{err}");

    let missing = output(&folder, &["a.yaml", "--", "/no/such/program"]).await;
    assert_eq!(missing.status.code(), Some(127));
}

#[tokio::test]
async fn a_command_does_not_run_if_not_all_is_ready() {
    let folder = folder("unready");
    fs::write(folder.join("a.yaml"), agent("one") + "  tools: [missing]\n").unwrap();
    let ended = output(&folder, &["a.yaml", "--timeout", "1s", "--", "touch", "ran"]).await;
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("Agent default/a is Resolving and waits: tool \"missing\" not found"), "{said}");
    fs::write(folder.join("a.yaml"), agent("one").replace("replicas: 1", "replicas: 11")).unwrap();
    let ended = output(&folder, &["a.yaml", "--", "touch", "ran"]).await;
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("a.yaml:9:13: agent/a is refused"), "{said}");
    assert!(!folder.join("ran").exists());
}

#[tokio::test]
async fn a_second_signal_waits_for_nothing() {
    let folder = folder("second");
    let deployment = "apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec:
      terminationGracePeriodSeconds: 600
      containers:
        - name: c
          image: none
          command: [sh, -c, \"trap '' TERM; echo started; while :; do sleep 1; done\"]
";
    fs::write(folder.join("d.yaml"), deployment).unwrap();
    let mut dev = Dev::start(&folder, &["d.yaml", "--logs", "all"]).await;
    dev.wait(|event| event["event"] == "line" && event["text"] == "started").await;
    let children = dev.children();
    dev.signal("-INT").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(dev.process.try_wait().unwrap().is_none(), "the program has its time");
    dev.signal("-INT").await;
    assert_eq!(dev.end().await, 130);
    until_gone(&children).await;
}

#[tokio::test]
async fn what_the_user_can_put_right_is_told_before_anything_runs() {
    let folder = folder("usage");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (arguments, words) in [
        (vec!["none.yaml"], "error: none.yaml: ".to_owned()),
        (vec!["--env-file", "none.env"], "error: --env-file none.env: there is no such file".to_owned()),
        (
            vec!["--api-port", &port],
            format!("error: --api-port {port} is taken: choose another one, or leave the flag out"),
        ),
    ] {
        let ended = output(&folder, &arguments).await;
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(said.starts_with(&words), "{said}");
    }
}

#[tokio::test]
async fn the_api_server_is_for_those_who_have_the_token() {
    let folder = folder("token");
    let mut dev = Dev::start(&folder, &[]).await;
    dev.event("ready").await;
    let file: Value = serde_json::from_str(&fs::read_to_string(folder.join(".recif/kubeconfig")).unwrap()).unwrap();
    let cluster = &file["clusters"][0]["cluster"];
    let authority = STANDARD.decode(cluster["certificate-authority-data"].as_str().unwrap()).unwrap();
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([reqwest::Certificate::from_pem(&authority).unwrap()])
        .build()
        .unwrap();
    let server = cluster["server"].as_str().unwrap();
    let code = async |path: &str, token: &str, host: Option<&str>| {
        let mut request = client.get(format!("{server}{path}")).bearer_auth(token);
        if let Some(host) = host {
            request = request.header("host", host);
        }
        request.send().await.unwrap().status().as_u16()
    };
    let token = file["users"][0]["user"]["token"].as_str().unwrap();
    assert_eq!(token.len(), 64);
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(code(pods, token, None).await, 200);
    assert_eq!(code(pods, "other", None).await, 401);
    assert_eq!(code("/livez", "other", None).await, 200);
    assert_eq!(code(pods, token, Some("evil.example")).await, 403);
}

#[tokio::test]
async fn standard_input_counts_as_a_file() {
    let folder = folder("stdin");
    let mut command = command(&folder, &["-o", "json", "-", "--", "true"]);
    let mut process = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = process.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stdin, agent("one").as_bytes()).await.unwrap();
    drop(stdin);
    let ended = timeout(SOON, process.wait_with_output()).await.unwrap().unwrap();
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(said.contains("\"object\":\"agent/a\""), "{said}");
}
