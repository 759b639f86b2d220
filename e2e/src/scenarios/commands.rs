//! Tests that `recif get`, `recif ui`, `recif rollout` and `recif logs` do what their help says, and that each failure has its
//! exit code.

use std::{env, fs, path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

use super::gateway_auth::token;
use crate::{
    client::{ClientTarget, HttpClientConnection},
    env::{ProcessOutput, output, run_to_exit},
    manifests::{agent, tool},
    namespace::{Namespace, REPORT_TIMEOUT},
    object::ObjectExt as _,
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    get_shows_what_kubectl_shows,
    get_prints_each_form,
    the_ui_is_shown_to_holders_of_the_key,
    a_rollout_is_waited_for,
    logs_are_those_of_the_pods,
    the_archive_of_a_release_is_a_plugin_of_kubectl,
    each_failure_has_its_exit_code,
);

/// Time limit for a process to print its first line, and to end.
const SOON: Duration = Duration::from_secs(30);

/// Time limit to compress three programs at the highest level, beside other scenarios.
const PACKED: Duration = Duration::from_secs(180);

/// Runs `recif` with these arguments.
pub(super) async fn recif(ns: &Namespace, arguments: &[&str]) -> Result<ProcessOutput> {
    let mut command = ns.env.recif_command();
    command.args(arguments);
    run_to_exit(command, None).await
}

/// Returns the words of each line except for the age, which changes.
fn ageless(text: &str) -> Vec<Vec<&str>> {
    let is_age =
        |word: &&str| word.starts_with(|first: char| first.is_ascii_digit()) && word.ends_with(['s', 'm', 'h']);
    text.lines().map(|line| line.split_whitespace().filter(|word| !is_age(word)).collect()).collect()
}

async fn get_shows_what_kubectl_shows(ns: Namespace) -> Result<()> {
    ns.start(&agent("runs", json!({}))).await?;
    ns.apply(&agent("waits", json!({"tools": ["nowhere"]}))).await?;
    ns.await_agent_not_ready("waits", REPORT_TIMEOUT, "Resolving", &["nowhere"]).await?;
    for (kind, more) in [("agents", &[][..]), ("agent", &["runs", "-o", "wide"]), ("agent", &["runs"])] {
        let arguments = [&["get", kind, "-n", &ns.name][..], more].concat();
        let (ours, theirs) = (recif(&ns, &arguments).await?, ns.env.kubectl(&arguments).await?);
        ensure!(ours.code == 0 && ageless(&ours.stdout) == ageless(&theirs), "{ours:?} instead of {theirs}");
    }
    ns.provide(&tool("clock", json!({}))).await?;
    let arguments = ["get", "agent", "runs", "waits", "-n", &ns.name];
    let (ours, theirs) = (recif(&ns, &arguments).await?, ns.env.kubectl(&arguments).await?);
    ensure!(ours.code == 0 && ageless(&ours.stdout) == ageless(&theirs), "{ours:?} instead of {theirs}");
    let both = recif(&ns, &["get", "agents,tools", "-n", &ns.name, "-o", "name"]).await?;
    ensure!(
        both.stdout.contains("agent.agents.recif.dev/runs\n") && both.stdout.contains("tool.agents.recif.dev/clock\n"),
        "{both:?}"
    );
    let partly = recif(&ns, &["get", "tool/clock", "agent/runs", "tool/absent", "-n", &ns.name]).await?;
    ensure!(
        partly.code == 4 && partly.stdout.contains("tool/clock ") && partly.stdout.contains("agent/runs "),
        "{partly:?}"
    );
    ensure!(partly.stderr.contains("Tool absent not found"), "{partly:?}");
    let all = recif(&ns, &["get", "-n", &ns.name]).await?;
    ensure!(all.stdout.contains("agent/runs ") && all.stdout.contains("tool/clock "), "{all:?}");
    let labelled = recif(&ns, &["get", "agents", "-n", &ns.name, "-l", "team=x"]).await?;
    ensure!(labelled.code == 0 && labelled.stdout.is_empty() && labelled.stderr.contains("no agents"), "{labelled:?}");
    let everywhere = recif(&ns, &["get", "agents", "-A"]).await?;
    let row = everywhere.stdout.lines().find(|line| line.starts_with(&ns.name) && line.contains("runs"));
    ensure!(everywhere.stdout.starts_with("NAMESPACE ") && row.is_some(), "{everywhere:?}");
    Ok(())
}

async fn get_prints_each_form(ns: Namespace) -> Result<()> {
    for name in ["one", "two"] {
        ns.provide(&tool(name, json!({}))).await?;
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().into_iter().flatten();
        items.filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect()
    };
    let json = recif(&ns, &["get", "tools", "-n", &ns.name, "-o", "json"]).await?;
    let list: Value = serde_json::from_str(&json.stdout).context(json.stdout)?;
    ensure!(names(&list) == ["one", "two"] && list["items"][0]["spec"]["type"] == "builtin", "{list}");
    let yaml = recif(&ns, &["get", "-n", &ns.name, "-o", "yaml"]).await?;
    let list: Value = serde_yaml::from_str(&yaml.stdout).context(yaml.stdout)?;
    ensure!(names(&list) == ["one", "two"], "{list}");
    let one = recif(&ns, &["get", "tl/one", "-n", &ns.name, "-o", "yaml"]).await?;
    let one: Value = serde_yaml::from_str(&one.stdout).context(one.stdout)?;
    ensure!(one["metadata"]["name"] == "one" && one["metadata"]["managedFields"].is_null(), "{one}");
    let names = recif(&ns, &["get", "tools", "-n", &ns.name, "-o", "name"]).await?;
    ensure!(names.stdout == "tool.agents.recif.dev/one\ntool.agents.recif.dev/two\n", "{names:?}");
    let mut command = ns.env.recif_command();
    command.args(["get", "tools", "--watch", "-o", "name", "-n", &ns.name]).stdout(Stdio::piped()).kill_on_drop(true);
    let mut watch = command.spawn().context("start the watch")?;
    let mut lines = BufReader::new(watch.stdout.take().context("no standard output")?).lines();
    ns.apply(&tool("three", json!({}))).await?;
    let seen = async {
        while let Some(line) = lines.next_line().await? {
            if line.ends_with("/three") {
                return Ok(());
            }
        }
        anyhow::bail!("the watch ended")
    };
    tokio::time::timeout(SOON, seen).await.context("the watch did not tell of a new object")??;
    watch.kill().await.context("end the watch")
}

async fn the_ui_is_shown_to_holders_of_the_key(ns: Namespace) -> Result<()> {
    ns.start(&agent("seen", json!({}))).await?;
    let mut command = ns.env.recif_command();
    command.arg("ui").stdout(Stdio::piped()).kill_on_drop(true);
    let mut relay = command.spawn().context("start the relay")?;
    let mut lines = BufReader::new(relay.stdout.take().context("no standard output")?).lines();
    let line = tokio::time::timeout(SOON, lines.next_line()).await.context("no address within the time")??;
    let line = line.context("the relay ended")?;
    let address = line.strip_prefix("http://").context("no address")?;
    let (address, path) = address.split_once('/').context("no path")?;
    let stranger = ClientTarget {
        route: "relay",
        address: address.parse().with_context(|| line.clone())?,
        prefix: String::new(),
        headers: String::new(),
    };
    let refused = HttpClientConnection::request(&stranger, "GET", "/api/v1/me", "").await?;
    ensure!(refused.status == 403, "without the key: {refused:?}");
    let reader = ClientTarget { headers: "Accept: text/html,*/*;q=0.8\r\n".into(), ..stranger.clone() };
    let helped = HttpClientConnection::request(&reader, "GET", "/", "").await?;
    let is_page = helped.header("content-type").is_some_and(|type_| type_.starts_with("text/html"));
    ensure!(helped.status == 403 && is_page && helped.text.contains("?key="), "a browser without the key: {helped:?}");
    let let_in = HttpClientConnection::request(&stranger, "GET", &format!("/{path}"), "").await?;
    ensure!(let_in.status == 303 && let_in.header("location") == Some("/ui/"), "{let_in:?}");
    let cookie = let_in.header("set-cookie").and_then(|cookie| cookie.split(';').next()).context("no cookie")?;
    let browser = ClientTarget { headers: format!("Cookie: {cookie}\r\n"), ..stranger.clone() };
    let page = HttpClientConnection::request(&browser, "GET", "/ui/", "").await?;
    // The control plane sends the same header, also if it was built without its UI.
    ensure!(page.header("content-security-policy").is_some_and(|policy| policy.contains("'self'")), "{page:?}");
    let me = HttpClientConnection::request(&browser, "GET", "/api/v1/me", "").await?;
    ensure!(me.status == 200 && me.text.contains("admin"), "the kubeconfig's user: {me:?}");
    let path = format!("/v1/agents/{}/seen", ns.name);
    let object = HttpClientConnection::request(&browser, "GET", &path, "").await?;
    ensure!(object.status == 200 && object.text.contains("\"seen\""), "{object:?}");
    let other = ClientTarget { headers: format!("{}Origin: http://evil.example\r\n", browser.headers), ..stranger };
    let refused = HttpClientConnection::request(&other, "GET", "/api/v1/me", "").await?;
    ensure!(refused.status == 403, "a page of another origin: {refused:?}");
    interrupt(&relay)?;
    let ended = tokio::time::timeout(SOON, relay.wait()).await.context("it did not end by Ctrl-C")??;
    ensure!(ended.code() == Some(0), "{ended}");
    Ok(())
}

/// Sends SIGINT, the signal of Ctrl-C.
pub(super) fn interrupt(process: &tokio::process::Child) -> Result<()> {
    let id = process.id().and_then(|id| i32::try_from(id).ok()).context("it has ended")?;
    let id = rustix::process::Pid::from_raw(id).context("no process id")?;
    rustix::process::kill_process(id, rustix::process::Signal::INT).context("interrupt it")
}

async fn a_rollout_is_waited_for(ns: Namespace) -> Result<()> {
    ns.start(&agent("rolls", json!({}))).await?;
    let before = ns.pod_uids("rolls").await?;
    let done = recif(&ns, &["rollout", "agent/rolls", "-n", &ns.name, "--wait", "--timeout", "50s"]).await?;
    ensure!(done.code == 0 && done.stdout.contains("has rolled out"), "{done:?}");
    ns.await_agent_running("rolls").await?;
    ensure!(ns.pod_uids("rolls").await? != before, "the Pods are those of before");
    ns.apply(&agent("waits", json!({"tools": ["nowhere"]}))).await?;
    ns.await_agent_not_ready("waits", REPORT_TIMEOUT, "Resolving", &["nowhere"]).await?;
    let late = recif(&ns, &["rollout", "agent/waits", "-n", &ns.name, "--wait", "--timeout", "2s"]).await?;
    ensure!(late.code == 7 && late.stderr.contains("nowhere"), "{late:?}");
    Ok(())
}

async fn the_archive_of_a_release_is_a_plugin_of_kubectl(ns: Namespace) -> Result<()> {
    ns.provide(&tool("clock", json!({}))).await?;
    let folder = env::temp_dir().join(format!("{}-plugin", ns.name));
    let mut pack = Command::new(ns.env.file("hack/dist"));
    pack.arg("archive").arg(ns.env.recif_command().as_std().get_program()).arg("amd64").arg(&folder);
    output(pack, None, PACKED).await?;
    // What krew does: it unpacks the archive, and links the program under the name of a plugin.
    let version = env!("CARGO_PKG_VERSION");
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(folder.join(format!("recif-{version}-linux-amd64.tar.gz"))).arg("-C").arg(&folder);
    output(unpack, None, SOON).await?;
    std::os::unix::fs::symlink(folder.join("recif"), folder.join("kubectl-recif"))?;
    let path = env::join_paths([folder.clone()].into_iter().chain(env::split_paths(&ns.env.path()?)))?;
    let plugin = async |arguments: &[&str]| {
        let mut command = ns.env.in_cluster(&ns.env.file("hack/kubectl"));
        command.arg("recif").args(arguments).env("PATH", &path);
        output(command, None, SOON).await
    };
    let names = plugin(&["get", "tools", "-n", &ns.name, "-o", "name"]).await?;
    ensure!(names == "tool.agents.recif.dev/clock\n", "{names}");
    let help = plugin(&["why", "--help"]).await?;
    ensure!(help.contains("Usage: kubectl recif why"), "{help}");
    fs::remove_dir_all(&folder).context("remove the unpacked archive")
}

async fn each_failure_has_its_exit_code(ns: Namespace) -> Result<()> {
    let folder = std::env::temp_dir().join(&ns.name);
    std::fs::create_dir_all(&folder)?;
    let result = failures(&ns, &folder).await;
    // The kubeconfigs contain tokens.
    std::fs::remove_dir_all(folder)?;
    result
}

async fn failures(ns: &Namespace, folder: &Path) -> Result<()> {
    let config = std::fs::read_to_string(std::env::var("KUBECONFIG").context("KUBECONFIG")?)?;
    let [stranger, nowhere] = ["stranger", "nowhere"].map(|name| folder.join(name).display().to_string());
    std::fs::write(&stranger, config.replace(ns.env.token()?, &token(ns, "stranger").await?))?;
    let server = config.split("server: ").nth(1).and_then(|rest| rest.split([',', '}', '\n']).next());
    std::fs::write(&nowhere, config.replace(server.context("no server in the kubeconfig")?, "https://127.0.0.1:1"))?;
    ns.apply(&agent("waits", json!({"tools": ["nowhere"]}))).await?;
    ns.await_agent_not_ready("waits", REPORT_TIMEOUT, "Resolving", &["nowhere"]).await?;
    let (stranger, nowhere) = (["--kubeconfig", &stranger], ["--kubeconfig", &nowhere]);
    let none: [&str; 0] = [];
    for (arguments, more, code, expected) in [
        (&["get", "pods"][..], &none[..], 2, "unknown kind \"pods\""),
        (&["get", "agents", "-l", "a=b=c"], &none, 2, "label"),
        (&["get", "--nonsense"], &none, 2, "--nonsense"),
        (&["rollout", "tool/x"], &none, 2, "has no Pods"),
        (&["rollout", "agent/x", "--wait", "--timeout", "soon"], &none, 2, "90s or 5m"),
        (&["why", "agent/waits"], &none, 3, "nowhere"),
        (&["why"], &none, 3, "nowhere"),
        (&["why", "agents,tools"], &none, 3, "nowhere"),
        (&["why", "tools"], &none, 0, "no tools in namespace"),
        (&["get", "agent", "absent"], &none, 4, "recif get agents -A"),
        (&["why", "agent/absent"], &none, 4, "Agent absent not found"),
        (&["trace", "agent/absent"], &none, 4, "Agent absent not found"),
        (&["rollout", "agent/absent"], &none, 4, "Agent absent not found"),
        (&["get", "agents"], &stranger, 5, "forbidden"),
        (&["get"], &stranger, 5, "forbidden"),
        (&["why", "agent/waits"], &stranger, 5, "forbidden"),
        (&["why"], &stranger, 5, "forbidden"),
        (&["ui"], &stranger, 5, "forbidden"),
        (&["doctor"], &stranger, 5, "you may read nothing"),
        (&["get", "agents"], &nowhere, 6, "the API server cannot be reached"),
        (&["doctor"], &nowhere, 6, "the API server cannot be reached"),
        (&["get"], &["--kubeconfig", "/nowhere/at/all"], 6, "/nowhere/at/all"),
        (&["ui", "--system-namespace", "nowhere"], &none, 6, "install it by Helm or kubectl (https://"),
    ] {
        let arguments = [arguments, &["-n", &ns.name], more].concat();
        let ended = recif(ns, &arguments).await?;
        let all = format!("{}{}", ended.stdout, ended.stderr);
        ensure!(ended.code == code && all.contains(expected), "{arguments:?}: not {code}, {expected}: {ended:?}");
        ensure!(!ended.stderr.contains("panicked"), "{arguments:?}: {ended:?}");
    }
    Ok(())
}

async fn logs_are_those_of_the_pods(ns: Namespace) -> Result<()> {
    ns.start(&agent("runs", json!({}))).await?;
    let logs = recif(&ns, &["logs", "agent/runs", "-n", &ns.name]).await?;
    ensure!(logs.code == 0 && !logs.stdout.is_empty() && !logs.stderr.contains("error"), "{logs:?}");
    let sidecar = recif(&ns, &["logs", "agent/runs", "-c", "proxy", "--tail", "1", "-n", &ns.name]).await?;
    ensure!(sidecar.code == 0 && sidecar.stdout.lines().count() <= 1 && sidecar.stdout != logs.stdout, "{sidecar:?}");
    let mut command = ns.env.recif_command();
    command.args(["logs", "agent/runs", "-f", "-n", &ns.name]).stdout(Stdio::piped()).kill_on_drop(true);
    let mut follower = command.spawn().context("start to follow")?;
    let mut lines = BufReader::new(follower.stdout.take().context("no standard output")?).lines();
    let first = tokio::time::timeout(SOON, lines.next_line()).await.context("no line")??;
    ensure!(first.as_deref() == logs.stdout.lines().next(), "{first:?} instead of {logs:?}");
    // A Pod of a new rollout is followed too, and its lines are prefixed with its name.
    let rolled = recif(&ns, &["rollout", "agent/runs", "--wait", "-n", &ns.name]).await?;
    ensure!(rolled.code == 0, "{rolled:?}");
    let named = async {
        while let Some(line) = lines.next_line().await? {
            if line.starts_with("runs-") {
                return Ok(());
            }
        }
        anyhow::bail!("it ended")
    };
    tokio::time::timeout(SOON, named).await.context("no line of the new Pod")??;
    follower.kill().await.context("end it")?;
    ns.provide(&tool("clock", json!({}))).await?;
    let none = recif(&ns, &["logs", "tool/clock", "-n", &ns.name]).await?;
    ensure!(none.code == 2 && none.stderr.contains("has no Pods"), "{none:?}");
    ns.apply(&agent("stopped", json!({"replicas": 0}))).await?;
    ns.until(crate::kinds::AGENT, "stopped", REPORT_TIMEOUT, "is stopped", |it| it.phase() == "Terminated").await?;
    let stopped = recif(&ns, &["logs", "agent/stopped", "-n", &ns.name]).await?;
    ensure!(stopped.code == 3 && stopped.stderr.contains("has no Pods"), "{stopped:?}");
    Ok(())
}
