//! Tests `recif chat`: the reply is printed while it is generated, and a failure is explained.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use super::{
    commands::interrupt,
    flows::provide_stub,
    gateway_auth::{send_request, token},
};
use crate::{
    client::ClientTarget,
    env::{ProcessOutput, run_to_exit},
    manifests::{agent, flow, flow_set, workload},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_chat_shows_the_first_word_before_the_last,
    a_chat_is_stopped_by_ctrl_c,
    a_chat_goes_on_with_its_conversation,
    flows_are_asked_with_their_variables,
    a_chat_says_why_there_is_no_answer,
    a_chat_says_what_it_waits_for_before_it_waits,
);

/// Time limit of every wait.
const SOON: std::time::Duration = std::time::Duration::from_secs(30);

/// Runs a chat with these arguments and this input, and returns its result.
async fn chat(ns: &Namespace, arguments: &[&str], input: &str, token: Option<&str>) -> Result<ProcessOutput> {
    let mut command = ns.env.recif_command();
    command.arg("chat").args(arguments).args(["-n", &ns.name]).env_remove("RECIF_GATEWAY");
    if let Some(token) = token {
        command.env("RECIF_TOKEN", token);
    }
    run_to_exit(command, Some(input.to_owned())).await
}

/// Starts a chat whose workload waits at a gate after the first word.
async fn start_gated_chat(ns: &Namespace, gate: &str) -> Result<(tokio::process::Child, tokio::process::ChildStdout)> {
    let mut command = ns.env.recif_command();
    command.args(["chat", "agent/talks", "gate", gate, "-n", &ns.name]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut process = command.spawn().context("start the chat")?;
    let mut message = process.stdout.take().context("no standard output")?;
    let mut first = [0; 6];
    let read = tokio::time::timeout(SOON, message.read_exact(&mut first)).await;
    read.context("no first word")?.context("the chat ended")?;
    ensure!(first == *b"first ", "{:?}", String::from_utf8_lossy(&first));
    Ok((process, message))
}

async fn a_chat_shows_the_first_word_before_the_last(ns: Namespace) -> Result<()> {
    ns.start(&workload("talks", json!({}))).await?;
    let (mut process, mut message) = start_gated_chat(&ns, "g").await?;
    // The workload has not sent the last word yet.
    let service = ClientTarget::service(&ns, "talks").await?;
    // The cluster IP of the Service may not be routed for a moment after the Pod is ready.
    poll(SOON, "the gate open", || async {
        let opened = send_request(&ns, &service, "POST", "/open?gate=g", "").await?;
        Ok((opened.status == 200).then_some(()))
    })
    .await?;
    let mut rest = String::new();
    tokio::time::timeout(SOON, message.read_to_string(&mut rest)).await.context("no last word")??;
    ensure!(rest == "last\n" && process.wait().await?.code() == Some(0), "{rest:?}");
    Ok(())
}

async fn a_chat_is_stopped_by_ctrl_c(ns: Namespace) -> Result<()> {
    ns.start(&workload("talks", json!({}))).await?;
    let (mut process, _said) = start_gated_chat(&ns, "never").await?;
    interrupt(&process)?;
    let ended = tokio::time::timeout(SOON, process.wait()).await.context("it did not end")??;
    ensure!(ended.code() == Some(130), "{ended}");
    // The client disconnects from the runtime, which therefore ends the turn.
    let service = ClientTarget::service(&ns, "talks").await?;
    poll(SOON, "nothing in flight", || async {
        let stats = send_request(&ns, &service, "GET", "/stats", "").await?;
        let stats: serde_json::Value = serde_json::from_str(&stats.text)?;
        ensure!(stats["inFlight"] == 0, "{stats}");
        Ok(Some(()))
    })
    .await
}

async fn a_chat_goes_on_with_its_conversation(ns: Namespace) -> Result<()> {
    ns.start(&agent("talks", json!({}))).await?;
    let first = chat(&ns, &["agent/talks", "hello", "there"], "", None).await?;
    ensure!(first.code == 0 && first.stdout == "echo: hello there\n", "{first:?}");
    let id = first.stderr.split("--conversation ").nth(1).context(first.stderr.clone())?.trim().to_owned();
    let next = chat(&ns, &["agent/talks", "--conversation", &id], "from\na pipe\n", None).await?;
    ensure!(next.code == 0 && next.stdout == "echo: from\na pipe\n" && next.stderr.contains(&id), "{next:?}");
    Ok(())
}

async fn flows_are_asked_with_their_variables(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.start(&flow("says", &["say"], json!({}))).await?;
    ns.start(&flow_set("set", &[("one", &["say"])], json!({}))).await?;
    for target in ["flow/says", "flowset/set/one"] {
        let message = chat(&ns, &[target, r#"{"text": "Ada"}"#], "", None).await?;
        ensure!(message.code == 0 && message.stdout == "echo: Ada\n", "{target}: {message:?}");
    }
    Ok(())
}

async fn a_chat_says_why_there_is_no_answer(ns: Namespace) -> Result<()> {
    ns.start(&agent("talks", json!({}))).await?;
    ns.apply(&agent("waits", json!({"tools": ["nowhere"]}))).await?;
    ns.await_agent_not_ready("waits", REPORT_TIMEOUT, "Resolving", &["nowhere"]).await?;
    let stranger = token(&ns, "stranger").await?;
    for (arguments, token, code, words) in [
        (&["agent/absent", "hi"][..], None, 4, "Agent absent not found"),
        (&["agent/waits", "hi"], None, 3, "tool \"nowhere\" not found"),
        (&["agent/talks", "hi"], Some(stranger.as_str()), 5, "may not talk to agent/talks"),
        (&["agent/talks", "hi"], Some("wrong"), 5, "may not talk to agent/talks"),
        (&["agent/talks", "hi", "--system-namespace", "nowhere"], None, 6, "say its URL with --gateway"),
        (&["agent/talks", "hi", "--gateway", "http://127.0.0.1:1"], None, 6, "cannot be reached"),
        (&["agent/talks", "hi", "--gateway", "nonsense"], None, 2, "give a URL"),
        (&["agent/talks"], None, 2, "no message: give one"),
        (&["tool/x", "hi"], None, 2, "cannot be talked to"),
    ] {
        let ended = chat(&ns, arguments, "", token).await?;
        ensure!(ended.code == code && ended.stderr.contains(words), "{arguments:?}: not {code}, {words}: {ended:?}");
        ensure!(ended.stdout.is_empty() && !ended.stderr.contains("panicked"), "{ended:?}");
    }
    Ok(())
}

async fn a_chat_says_what_it_waits_for_before_it_waits(ns: Namespace) -> Result<()> {
    ns.apply(&agent("typo", json!({"image": "corial:latest"}))).await?;
    // The kubelet looks for the image only after the sidecar has started.
    poll(START_TIMEOUT, "the status names the image", || async {
        // The warnings about the Pod, which come earlier, do not all name it.
        let (_, message) = ns.env.recif(&["why", "agent/typo", "-n", &ns.name]).await?;
        Ok(message.contains("corial:latest is not on the node").then_some(()))
    })
    .await?;
    let mut command = ns.env.recif_command();
    command.args(["chat", "agent/typo", "hi", "-n", &ns.name]).env_remove("RECIF_GATEWAY");
    command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut process = command.spawn().context("start the chat")?;
    let mut lines = BufReader::new(process.stderr.take().context("no standard error")?).lines();
    let reported = async {
        while let Some(line) = lines.next_line().await? {
            if line.contains("corial:latest") {
                return Ok(());
            }
        }
        anyhow::bail!("it ended")
    };
    tokio::time::timeout(SOON, reported).await.context("the chat reported no problem")??;
    ensure!(process.try_wait()?.is_none(), "it waits for an answer meanwhile");
    process.kill().await.context("end it")
}
