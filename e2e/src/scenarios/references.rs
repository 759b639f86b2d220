//! Tests references of flows: missing, created late, deleted, renamed, invalid, circular. The condition names them, and the
//! operator waits for them without polling.

use anyhow::{Context as _, Result, ensure};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::flows::provide_stub;
use crate::{
    kinds::{AGENT, FLOW, FLOW_SET, KubeKind, MODEL, PLUGIN_CONFIG, PROMPT, SECRET, TOOL},
    manifests::{agent, flow, flow_set, model, plugin_config, prompt, secret, tool},
    namespace::{Namespace, REPORT_TIMEOUT},
    object::{Object, ObjectExt as _, moved_at},
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    all_that_is_missing_is_named_at_once,
    a_reference_created_later_is_picked_up_at_once,
    a_deleted_reference_is_named_and_the_old_pods_stay,
    a_renamed_reference_is_followed,
    a_secret_that_lacks_a_key_is_named_with_the_key,
    a_prompt_with_broken_frontmatter_names_the_line,
    a_users_text_with_escaped_characters_stops_no_status_write,
    what_only_the_operator_can_judge_is_said_within_ten_seconds,
    a_circle_is_named_on_every_member_until_it_is_broken,
);

/// Waits until the object is Resolving, and the message of ReferencesResolved is exactly this.
async fn await_missing_dependency(ns: &Namespace, kind: KubeKind, name: &str, message: &str) -> Result<Object> {
    let exactly = |it: &Object| {
        let resolved = it.condition("ReferencesResolved");
        it.phase() == "Resolving"
            && resolved.is_false()
            && resolved.reason == "MissingDependency"
            && resolved.message == message
    };
    ns.until(kind, name, REPORT_TIMEOUT, &format!("says exactly: {message}"), exactly).await
}

async fn all_that_is_missing_is_named_at_once(ns: Namespace) -> Result<()> {
    let tools = json!({"modelRef": {"name": "m"}, "tools": [{"name": "t"}]});
    ns.apply(&flow("f", &["p"], tools)).await?;
    let mut set = flow_set("s", &[("one", &["p"]), ("two", &["q"])], json!({}));
    set["spec"]["flows"][0]["modelRef"]["name"] = json!("m");
    ns.apply(&set).await?;
    let (rest, more) = (r#"prompt "p" not found; tool "t" not found"#, r#"flow "one": prompt "p" not found"#);
    let two = r#"flow "two": prompt "q" not found; model "echo" not found"#;
    await_missing_dependency(&ns, FLOW, "f", &format!(r#"{rest}; model "m" not found"#)).await?;
    await_missing_dependency(&ns, FLOW_SET, "s", &format!(r#"{more}; model "m" not found; {two}"#)).await?;

    ns.apply(&model("m", "pc")).await?;
    let pc = r#"pluginconfig "pc" not found (referenced by model "m")"#;
    await_missing_dependency(&ns, FLOW, "f", &format!("{rest}; {pc}")).await?;
    await_missing_dependency(&ns, FLOW_SET, "s", &format!("{more}; {pc}; {two}")).await?;

    ns.apply(&plugin_config("pc", json!({"credentialsRef": {"name": "s"}}))).await?;
    let secret = r#"secret "s" not found (referenced by pluginconfig "pc")"#;
    await_missing_dependency(&ns, FLOW, "f", &format!("{rest}; {secret}")).await?;
    await_missing_dependency(&ns, FLOW_SET, "s", &format!("{more}; {secret}; {two}")).await?;
    let (code, sentence) = ns.env.recif(&["why", "flow/f", "-n", &ns.name]).await?;
    let reported = [r#"prompt "p" not found"#, r#"secret "s" not found"#].iter().all(|it| sentence.contains(it));
    ensure!(code == 3 && reported, "recif why: exit code {code}: {sentence}");
    Ok(())
}

async fn a_reference_created_later_is_picked_up_at_once(ns: Namespace) -> Result<()> {
    ns.provide(&plugin_config("stub", json!({}))).await?;
    ns.apply(&flow("patient", &["say"], json!({"tools": [{"name": "count"}]}))).await?;
    let mut missing = vec![r#"prompt "say" not found"#, r#"tool "count" not found"#, r#"model "echo" not found"#];
    let mut available = None;
    for reference in [prompt("say", "{{text}}"), tool("count", json!({})), model("echo", "stub")] {
        await_missing_dependency(&ns, FLOW, "patient", &missing.join("; ")).await?;
        missing.remove(0);
        let provided = ns.provide(&reference).await?;
        available = moved_at(&provided, |_, to| to == "Available");
    }
    ns.until(FLOW, "patient", REPORT_TIMEOUT, "goes on", |it| !matches!(it.phase(), "Pending" | "Resolving")).await?;
    let running = ns.await_running(FLOW, "patient").await?;
    // By the operator's times: on a busy machine the test itself may hear of both a while later.
    let available = available.context("no time of the last reference")?;
    let went_on = moved_at(&running, |from, _| from == "Resolving").context("no time of the flow")?;
    let took = went_on.duration_since(available);
    ensure!(took <= SignedDuration::from_secs(1), "it went on {took:?} after everything was there");
    ns.await_response("patient", "/", json!({"text": "hi"}), "echo: hi").await
}

async fn a_deleted_reference_is_named_and_the_old_pods_stay(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    let before = ns.start(&flow("loyal", &["say"], json!({}))).await?;
    let pods = ns.pod_uids("loyal").await?;
    for (kind, reference, message) in [
        (PROMPT, prompt("say", "{{text}}"), r#"prompt "say" not found"#),
        (MODEL, model("echo", "stub"), r#"model "echo" not found"#),
        (
            PLUGIN_CONFIG,
            plugin_config("stub", json!({})),
            r#"pluginconfig "stub" not found (referenced by model "echo")"#,
        ),
    ] {
        let name = reference["metadata"]["name"].as_str().unwrap_or_default();
        ns.delete(kind, name).await?;
        let waiting = await_missing_dependency(&ns, FLOW, "loyal", message).await?;
        ensure!(waiting.condition("Available").is_true(), "its Pods no longer count: {}", waiting.describe());
        ns.await_response("loyal", "/", json!({"text": "hi"}), "echo: hi").await?;
        ns.apply(&reference).await?;
        let now = ns.await_running(FLOW, "loyal").await?;
        let same = now.text("/status/contentHash") == before.text("/status/contentHash");
        ensure!(same, "the same {name} again changed the content hash");
        ensure!(ns.pod_uids("loyal").await? == pods, "the same {name} again replaced the Pods");
    }
    Ok(())
}

async fn a_renamed_reference_is_followed(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.provide(&prompt("old", "{{text}}!")).await?;
    let before = ns.start(&flow("follower", &["old"], json!({}))).await?;
    ns.delete(PROMPT, "old").await?;
    await_missing_dependency(&ns, FLOW, "follower", r#"prompt "old" not found"#).await?;
    ns.provide(&prompt("new", "{{text}}!")).await?;
    ns.edit(FLOW, "follower", json!({"spec": {"prompts": [{"promptRef": {"name": "new"}}]}})).await?;
    ns.await_reconfigured(FLOW, &before).await?;
    ns.await_response("follower", "/new", json!({"text": "hi"}), "echo: hi!").await?;
    ns.await_status("follower", "/old", json!({"text": "hi"}), 404).await
}

async fn a_secret_that_lacks_a_key_is_named_with_the_key(ns: Namespace) -> Result<()> {
    ns.apply(&secret("keys", json!({"OTHER": "hunter2"}))).await?;
    let keyed = json!({"credentialsRef": {"name": "keys"}, "credentialKeys": ["KEY", "OTHER"]});
    ns.apply(&plugin_config("stub", keyed)).await?;
    ns.provide(&prompt("say", "{{text}}")).await?;
    ns.apply(&model("echo", "stub")).await?;
    ns.apply(&flow("keyless", &["say"], json!({}))).await?;
    let says = |it: &Object| {
        let ready = it.condition("Ready");
        ready.is_false() && ready.contains("\"keys\"") && ready.contains("\"KEY\"") && !ready.contains("OTHER")
    };
    ns.until(PLUGIN_CONFIG, "stub", REPORT_TIMEOUT, "names the Secret and the key", says).await?;
    ns.until(FLOW, "keyless", REPORT_TIMEOUT, "names the Secret and the key", says).await?;
    ns.edit(SECRET, "keys", json!({"stringData": {"KEY": "hunter2"}})).await?;
    ns.await_running(FLOW, "keyless").await?;
    ns.await_response("keyless", "/", json!({"text": "hi"}), "echo: hi").await
}

async fn a_prompt_with_broken_frontmatter_names_the_line(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.apply(&prompt("torn", "---\ninput:\n  schema: [name\n---\nHello.")).await?;
    ns.apply(&flow("reader", &["torn"], json!({}))).await?;
    let in_error = |it: &Object| {
        let (ready, stalled) = (it.condition("Ready"), it.condition("Stalled"));
        it.phase() == "Error" && ready.is_false() && stalled.is_true() && ready.contains("line ")
    };
    ns.until(PROMPT, "torn", REPORT_TIMEOUT, "is in Error and names the line", in_error).await?;
    ns.await_not_ready(FLOW, "reader", REPORT_TIMEOUT, "Resolving", &["prompt \"torn\"", "line "]).await?;
    ns.edit(PROMPT, "torn", json!({"spec": {"content": "---\ninput: {}\n---\nHello."}})).await?;
    let mended = ns.until(PROMPT, "torn", REPORT_TIMEOUT, "is Available", |it| it.phase() == "Available").await?;
    ensure!(mended.at("/status/frontmatter").is_object(), "the frontmatter is not in the status");
    ns.await_running(FLOW, "reader").await?;
    ns.await_response("reader", "/", json!({}), "echo: Hello.").await
}

/// Go's JSON encoder escapes `<`, `>` and `&`, and the API server compares the bytes of what it stores with those of a `test`.
async fn a_users_text_with_escaped_characters_stops_no_status_write(ns: Namespace) -> Result<()> {
    for block in ["<a>&b", "c&<d>"] {
        let text = format!("{{{{#{block}}}}}never closed");
        let said = format!("the block `{{{{#{block}}}}}` does not end");
        ns.apply(&prompt("p", &text)).await?;
        ns.await_not_ready(PROMPT, "p", REPORT_TIMEOUT, "Error", &[&said]).await?;
    }
    ns.provide(&prompt("p", "closed")).await?;
    Ok(())
}

async fn what_only_the_operator_can_judge_is_said_within_ten_seconds(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.apply(&prompt("blank", " \n ")).await?;
    ns.until(PROMPT, "blank", REPORT_TIMEOUT, "is in Error", |it| it.phase() == "Error").await?;
    let large = "x".repeat(600 << 10);
    ns.provide(&prompt("large", &large)).await?;
    ns.provide(&prompt("larger", &large)).await?;
    let inline = json!({"prompts": [{"promptRef": {"name": "say"}}, {"prompt": {"name": "say", "content": "Again."}}]});
    for (name, manifest, words) in [
        ("twice", flow("twice", &[], inline), ["InvalidSpec", "say"]),
        (
            "torn",
            flow("torn", &[], json!({"prompts": [{"prompt": {"name": "own", "content": "---\na: [\n---\nHi"}}]})),
            ["InvalidSpec", "\"own\", line 3"],
        ),
        (
            "reserved",
            flow("reserved", &["say"], json!({"env": [{"name": "PORT", "value": "1"}]})),
            ["InvalidSpec", "PORT"],
        ),
        ("too-large", flow("too-large", &["large", "larger"], json!({})), ["InvalidSpec", "1048576"]),
    ] {
        ns.apply(&manifest).await?;
        ns.await_not_ready(FLOW, name, REPORT_TIMEOUT, "Failed", &words).await?;
    }
    for (name, fields, words) in [
        ("no-flow", json!({"type": "flow"}), "flowRef"),
        ("no-agent", json!({"type": "agent"}), "agentRef"),
        ("no-web", json!({"type": "http", "endpoint": "ftp://files.example/a"}), "http:// or https://"),
        ("no-method", json!({"type": "http", "endpoint": "http://a", "method": "FETCH"}), "GET"),
    ] {
        ns.apply(&tool(name, fields)).await?;
        let says = |it: &Object| it.phase() == "Error" && it.condition("Ready").contains(words);
        ns.until(TOOL, name, REPORT_TIMEOUT, &format!("is in Error and says {words}"), says).await?;
    }
    ns.apply(&plugin_config("no-web", json!({"extraConfig": {"baseUrl": "files.example/v1"}}))).await?;
    let says = |it: &Object| it.phase() == "Error" && it.condition("Ready").contains("extraConfig.baseUrl");
    ns.until(PLUGIN_CONFIG, "no-web", REPORT_TIMEOUT, "is in Error and says extraConfig.baseUrl", says).await?;
    Ok(())
}

async fn a_circle_is_named_on_every_member_until_it_is_broken(ns: Namespace) -> Result<()> {
    provide_stub(&ns).await?;
    ns.apply(&agent("a", json!({"tools": ["to-f"]}))).await?;
    ns.apply(&tool("to-f", json!({"type": "flow", "flowRef": {"name": "f"}}))).await?;
    ns.apply(&flow("f", &["say"], json!({"tools": [{"name": "to-a"}]}))).await?;
    ns.apply(&tool("to-a", json!({"type": "agent", "agentRef": {"name": "a"}}))).await?;
    let members: [(KubeKind, &str); 4] = [(AGENT, "a"), (TOOL, "to-f"), (FLOW, "f"), (TOOL, "to-a")];
    for (at, (kind, name)) in members.into_iter().enumerate() {
        let way = members.iter().cycle().skip(at).take(members.len() + 1);
        let way: Vec<String> = way.map(|(kind, name)| format!("{}/{name}", kind.kind)).collect();
        let circle = format!("cycle: {}", way.join(" → "));
        let says = |it: &Object| it.condition("Ready").is_false() && it.condition("Ready").contains(&circle);
        ns.until(kind, name, REPORT_TIMEOUT, &format!("says {circle}"), says).await?;
    }
    ns.edit(FLOW, "f", json!({"spec": {"tools": Value::Null}})).await?;
    ns.await_running(FLOW, "f").await?;
    ns.await_agent_running("a").await?;
    // Both have started at once: the node may not lead to the flow's Service yet.
    ns.await_reply("a", r#"/tool to-f {"text": "hi"}"#, |reply| reply.contains("echo: hi")).await
}
