//! Tests tools whose calls a person has to approve.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::{
    flows::provide_stub,
    gateway_auth::{GRANTED, bind, send_request, token, with_token},
};
use crate::{
    client::ClientTarget,
    kinds::{AGENT, FLOW, TOOL},
    manifests::{agent, flow, tool, workload},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    an_image_that_may_not_ask_gets_no_tool_that_a_person_approves,
    a_flow_gets_no_tool_that_a_person_approves,
    a_call_waits_until_its_caller_approves_it,
    what_waits_is_approved_and_rejected_by_the_command,
    an_approver_who_did_not_ask_decides,
    an_approver_is_known_only_behind_a_sidecar,
);

/// Port of every agent's Service.
const AGENT_PORT: u16 = 8000;

/// Exit code of `recif why` for an object that is not Ready.
const NOT_READY: i32 = 3;

/// Returns the tool `pay`, whose calls change something.
fn pay() -> Value {
    let fields = json!({
        "type": "http", "endpoint": "http://bank.example/payments", "method": "POST", "approval": {"when": "OnWrite"},
    });
    tool("pay", fields)
}

async fn an_image_that_may_not_ask_gets_no_tool_that_a_person_approves(ns: Namespace) -> Result<()> {
    ns.provide(&pay()).await?;
    ns.apply(&workload("own", json!({"tools": ["pay"]}))).await?;
    let words = ["ApprovalUnsupported", r#"tool "pay" asks a person"#];
    ns.await_agent_not_ready("own", REPORT_TIMEOUT, "Failed", &words).await?;
    let (code, why) = ns.env.recif(&["why", "agent/own", "-n", &ns.name]).await?;
    ensure!(code == NOT_READY && why.contains("annotate recif.dev/asks"), "exit code {code}: {why}");
    ns.edit(AGENT, "own", json!({"metadata": {"annotations": {"recif.dev/asks": "true"}}})).await?;
    ns.await_agent_running("own").await?;
    Ok(())
}

async fn a_flow_gets_no_tool_that_a_person_approves(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.provide(&pay()).await?;
    ns.apply(&flow("f", &["say"], json!({"tools": [{"name": "pay"}]}))).await?;
    let words = ["ApprovalUnsupported", "a flow has no conversation to wait in"];
    ns.await_not_ready(FLOW, "f", REPORT_TIMEOUT, "Failed", &words).await?;
    ns.edit(TOOL, "pay", json!({"spec": {"approval": null}})).await?;
    ns.await_running(FLOW, "f").await?;
    Ok(())
}

async fn a_call_waits_until_its_caller_approves_it(ns: Namespace) -> Result<()> {
    ns.provide(&tool("sum", json!({"name": "calculator", "approval": {"when": "Always"}}))).await?;
    let running = ns.start(&agent("careful", json!({"tools": ["sum"], "storage": "memory"}))).await?;
    ensure!(running.condition("ApprovalsDurable").reason == "InMemory", "{}", running.describe());
    ensure!(ns.chat("careful", "hi").await? == "echo: hi", "it does not answer");
    let message = json!({"message": r#"/tool calculator {"expression": "6*7"}"#});
    let waits = ns.send("careful", AGENT_PORT, "POST", "/chat", &message).await?;
    ensure!(waits.status == 202, "{waits:?}");
    let alone = json!({"message": r#"/tool calculator {"expression": "6*7"}"#, "may_wait": false});
    let refused = ns.send("careful", AGENT_PORT, "POST", "/chat", &alone).await?;
    ensure!(refused.status == 200 && refused.text.contains("no user can be asked here"), "{refused:?}");
    let waits: Value = serde_json::from_str(&waits.text).context("read what waits")?;
    let (task, call) = (&waits["task"], &waits["approval"]["tools"][0]);
    ensure!(call["name"] == "calculator" && call["args"]["expression"] == "6*7", "{waits}");

    let path = format!("/approvals/{}", task.as_str().context("no task")?);
    let decision = json!({"approvals": [{"id": call["id"], "approved": true}]});
    let answer = ns.send("careful", AGENT_PORT, "POST", &path, &decision).await?;
    ensure!(answer.status == 200 && answer.text.contains("42"), "{answer:?}");
    let again = ns.send("careful", AGENT_PORT, "POST", &path, &decision).await?;
    ensure!(again.status == 404, "{again:?}");

    let rpc = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let said = json!({"text": r#"/tool calculator {"expression": "6*8"}"#});
    let said = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [said]}});
    let asked = ns.send("careful", AGENT_PORT, "POST", "/", &rpc("SendMessage", said)).await?;
    let command = format!("recif approve agent/careful TASK -n {}, where TASK is in the metadata", ns.name);
    ensure!(asked.text.contains("TASK_STATE_INPUT_REQUIRED") && asked.text.contains(&command), "{asked:?}");
    let asked: Value = serde_json::from_str(&asked.text).context("read the task")?;
    let asked = &asked["result"]["task"];
    let waits = &asked["status"]["message"]["metadata"]["recif.dev/waiting"];
    let path = format!("/approvals/{}", waits["task"].as_str().context("no task")?);
    let decision = json!({"approvals": [{"id": waits["approval"]["tools"][0]["id"], "approved": true}]});
    let answer = ns.send("careful", AGENT_PORT, "POST", &path, &decision).await?;
    ensure!(answer.status == 200, "{answer:?}");
    let done = ns.send("careful", AGENT_PORT, "POST", "/", &rpc("GetTask", json!({"id": asked["id"]}))).await?;
    ensure!(done.text.contains("TASK_STATE_COMPLETED") && done.text.contains("48"), "{done:?}");

    let change = json!({"spec": {"replicas": 2}});
    ns.edit(AGENT, "careful", change).await?;
    ns.await_agent_not_ready("careful", REPORT_TIMEOUT, "Failed", &["ApprovalUnsupported", "set storage"]).await?;
    Ok(())
}

async fn what_waits_is_approved_and_rejected_by_the_command(ns: Namespace) -> Result<()> {
    ns.provide(&tool("sum", json!({"name": "calculator", "approval": {"when": "Always"}}))).await?;
    ns.start(&agent("careful", json!({"tools": ["sum"], "storage": "memory"}))).await?;
    let message = r#"/tool calculator {"expression": "6*7"}"#;
    for (flags, expected) in [(&["--yes"][..], "42"), (&["--reject", "--reason", "too hard", "--yes"], "too hard")] {
        let (code, said) = ns.env.recif(&["chat", "agent/careful", message, "-n", &ns.name]).await?;
        ensure!(code == 0 && said.contains("waiting until you approve `calculator`"), "exit code {code}: {said}");
        ensure!(said.contains(r#"waiting for approval: calculator {"expression":"6*7"}"#), "{said}");
        ensure!(said.contains("decide with: recif approve agent/careful "), "{said}");
        let waits = |it: &Object| {
            let pending = it.condition("ApprovalsPending");
            pending.is_true() && pending.contains("1 call waits since ")
        };
        ns.until(AGENT, "careful", START_TIMEOUT, "says that a call waits", waits).await?;
        let (code, why) = ns.env.recif(&["why", "agent/careful", "-n", &ns.name]).await?;
        ensure!(code == 0 && why.contains("decide with recif approve agent/careful"), "exit code {code}: {why}");
        let (code, listed) = ns.env.recif(&["approve", "agent/careful", "-n", &ns.name]).await?;
        ensure!(code == 0 && listed.contains(r#"calculator {"expression":"6*7"}"#), "exit code {code}: {listed}");
        let task = listed.split_whitespace().next().context("no task")?;
        let (code, all) = ns.env.recif(&["approvals", "-n", &ns.name]).await?;
        let command = format!("recif approve agent/careful -n {} {task} ", ns.name);
        ensure!(
            code == 0 && all.contains(&command) && all.contains(r#"{"expression":"6*7"}"#),
            "exit code {code}: {all}"
        );
        let words = ["approve", "agent/careful", task, "-n", ns.name.as_str()];
        let (code, answer) = ns.env.recif(&[&words[..], flags].concat()).await?;
        ensure!(code == 0 && answer.contains(expected), "exit code {code}: {answer}");
        let waits_no_more = |it: &Object| it.condition("ApprovalsPending").reason == "NothingWaits";
        ns.until(AGENT, "careful", START_TIMEOUT, "says that no call waits", waits_no_more).await?;
    }
    let (code, left) = ns.env.recif(&["approve", "agent/careful", "-n", &ns.name]).await?;
    ensure!(code == 0 && left.contains("nothing waits for you"), "exit code {code}: {left}");
    let (code, left) = ns.env.recif(&["approvals", "-n", &ns.name]).await?;
    let nothing = format!("nothing waits for you in namespace {}", ns.name);
    ensure!(code == 0 && left.contains(&nothing), "exit code {code}: {left}");
    let service = ClientTarget::service(&ns, "careful").await?;
    let metrics = send_request(&ns, &service, "GET", "/metrics", "").await?;
    for line in [
        "recif_runner_approvals_pending 0",
        r#"recif_runner_approvals_total{outcome="approved"} 1"#,
        r#"recif_runner_approvals_total{outcome="rejected"} 1"#,
    ] {
        ensure!(metrics.text.lines().any(|found| found == line), "no {line} in {}", metrics.text);
    }

    ns.start(&agent("speaks", json!({"tools": ["sum"], "storage": "memory", "protocol": "a2a"}))).await?;
    let (code, said) = ns.env.recif(&["chat", "agent/speaks", message, "-n", &ns.name]).await?;
    // The card offers the extension by which the chat gets to know the calls.
    ensure!(said.contains(r#"waiting for approval: calculator {"expression":"6*7"}"#), "{said}");
    let (_, command) = said.split_once("decide with: recif approve agent/speaks ").context(said.clone())?;
    let task = command.split_whitespace().next().context("no task")?;
    ensure!(code == 0, "exit code {code}: {said}");
    let (code, answer) = ns.env.recif(&["approve", "agent/speaks", task, "-n", &ns.name, "--yes"]).await?;
    ensure!(code == 0 && answer.contains("42"), "exit code {code}: {answer}");
    Ok(())
}

async fn an_approver_who_did_not_ask_decides(ns: Namespace) -> Result<()> {
    let approval = json!({"when": "Always", "by": "Approver"});
    ns.provide(&tool("sum", json!({"name": "calculator", "approval": approval}))).await?;
    let running = ns.start(&agent("careful", json!({"tools": ["sum"], "storage": "memory"}))).await?;
    ensure!(*running.at("/status/approvals") == true, "{}", running.describe());
    let careful = ClientTarget::gateway(&ns, AGENT, "careful").await?;
    let mut callers = Vec::new();
    for (account, is_approver) in [("asker", false), ("chief", true), ("approver", true), ("stranger", false)] {
        let token = token(&ns, account).await?;
        bind(&ns, account, "ClusterRole", "recif-invoker").await?;
        if is_approver {
            bind(&ns, account, "ClusterRole", "recif-approver").await?;
        }
        callers.push(with_token(&careful, "Authorization", &token));
    }
    let [asker, chief, approver, stranger] = &callers[..] else { bail!("there are four callers") };
    let message = json!({"message": r#"/tool calculator {"expression": "6*7"}"#}).to_string();
    for asking in [asker, chief] {
        let waits = send_request(&ns, asking, "POST", "/chat", &message).await?;
        ensure!(waits.status == 202, "{waits:?}");
        let waits: Value = serde_json::from_str(&waits.text).context("read what waits")?;
        ensure!(waits["approval"]["by"] == "Approver", "{waits}");
        let task = waits["task"].as_str().context("no task")?;
        let path = format!("/approvals/{task}");
        let decision =
            json!({"approvals": [{"id": waits["approval"]["tools"][0]["id"], "approved": true}]}).to_string();
        // A gateway may see later than the others that the tools of the agent ask, and reviews the approver by itself. Of twelve
        // connections some go to each.
        poll(GRANTED, "what an approver sees", || async {
            for _ in 0..12 {
                let listed = send_request(&ns, approver, "GET", "/approvals", "").await?;
                ensure!(listed.status == 200 && listed.text.contains(task), "{listed:?}");
            }
            Ok(Some(()))
        })
        .await?;
        let own = send_request(&ns, asking, "GET", "/approvals", "").await?;
        ensure!(own.status == 200 && own.text.contains(task), "{own:?}");
        let others = send_request(&ns, stranger, "GET", "/approvals", "").await?;
        ensure!(others.status == 200 && !others.text.contains(task), "{others:?}");
        let spoofing = format!("{}X-Recif-Approver: true\r\n", stranger.headers);
        let spoofing = ClientTarget { headers: spoofing, ..stranger.clone() };
        for refused in [asking, stranger, &spoofing] {
            let answer = send_request(&ns, refused, "POST", &path, &decision).await?;
            let why = "an approver other than the caller decides this";
            ensure!(answer.status == 403 && answer.text.contains(why), "{answer:?}");
        }
        let answer = send_request(&ns, approver, "POST", &path, &decision).await?;
        ensure!(answer.status == 200 && answer.text.contains("42"), "{answer:?}");
        let again = send_request(&ns, approver, "POST", &path, &decision).await?;
        ensure!(again.status == 404, "{again:?}");
    }
    Ok(())
}

async fn an_approver_is_known_only_behind_a_sidecar(ns: Namespace) -> Result<()> {
    let approval = json!({"when": "Always", "by": "Approver"});
    ns.provide(&tool("sum", json!({"name": "calculator", "approval": approval}))).await?;
    let fields = json!({"tools": ["sum"], "storage": "memory", "proxy": {"enabled": false}});
    ns.apply(&agent("bare", fields)).await?;
    let words = ["ApprovalUnsupported", r#"tool "sum" asks an approver"#, "leave out proxy.enabled"];
    ns.await_agent_not_ready("bare", REPORT_TIMEOUT, "Failed", &words).await?;
    ns.edit(AGENT, "bare", json!({"spec": {"proxy": {"enabled": true}}})).await?;
    ns.await_agent_running("bare").await?;
    Ok(())
}
