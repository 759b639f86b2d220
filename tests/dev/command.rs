//! The sample, a command that runs when all is Ready, and standard input.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Stdio};

use tokio::time::timeout;

use super::{
    harness::{Dev, SOON, command, folder, output, save, text, until_gone},
    samples::agent,
};

#[tokio::test]
async fn the_sample_runs_answers_and_ends_with_all_its_programs() {
    let folder = folder("sample");
    let mut dev = Dev::start(&folder, &[]).await;
    let url = dev.phase("agent/my-agent", "Running").await;
    assert!(url.starts_with("http://127.0.0.1:2"), "{url}");
    dev.ready().await;
    let (code, answer) = dev.chat("my-agent", "/tool calculator {\"expression\": \"6*7\"}").await;
    assert!(code == 200 && answer.contains("42"), "{code} {answer}");
    let (code, answer, errors) = dev.recif(&["chat", "agent/my-agent", "hello", "--gateway", &dev.gateway]).await;
    assert!(code == 0 && answer.contains("hello"), "{answer} {errors}");
    let (code, listed, errors) = dev.recif(&["approve", "agent/my-agent", "--gateway", &dev.gateway]).await;
    let refused = "error: agent/my-agent refused: callers without a name cannot be told apart";
    let works = "decide with `recif approve agent/NAME TASK`";
    assert!(code == 5 && errors.contains(refused) && errors.contains(works), "{code} {listed} {errors}");
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
async fn a_command_runs_when_all_is_ready_and_its_exit_code_counts() {
    let folder = folder("command");
    save(folder.join("a.yaml"), agent("one")).unwrap();
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
    save(folder.join("a.yaml"), agent("one") + "  tools: [missing]\n").unwrap();
    let ended = output(&folder, &["a.yaml", "--timeout", "5s", "--", "touch", "ran"]).await;
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("Agent default/a is Resolving and waits: tool \"missing\" not found"), "{said}");
    save(folder.join("a.yaml"), agent("one").replace("replicas: 1", "replicas: 11")).unwrap();
    let ended = output(&folder, &["a.yaml", "--", "touch", "ran"]).await;
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("a.yaml:9:13: agent/a is refused"), "{said}");
    assert!(!folder.join("ran").exists());
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
