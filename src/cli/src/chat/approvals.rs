//! `recif approvals`: lists the calls of tools that wait for the caller, at every agent with a tool that asks.
//!
//! Each of these agents is asked through the gateway: only the agent knows what waits, and for whom.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use crds::{ToolSpec, agent::AgentSpec, approval::NEVER};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::{Method, StatusCode};
use kube::api::DynamicObject;
use serde::Deserialize as _;
use tokio::time::timeout;

use super::{
    approve::{ListedTask, ListedTasks, is_task, text},
    gateway::{GatewayClient, JSON},
    reach,
    reply::refusal,
    session::{read_all, with_progress},
};
use crate::{
    cluster::UserClient,
    error::CliError,
    exit::Exit,
    output::{hint, print_foreign},
    progress::ProgressLine,
    selection::place,
    target::{ConnectArgs, SystemArgs, find_kind},
};

/// Most agents that are asked at a time.
const AT_ONCE: usize = 32;
/// Longest wait for the answer of one agent, which is longer than the gateway waits for the first Pod of one.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most agents that one hint names.
const MOST_NAMES: usize = 5;
/// Reason for which an agent is left out that answers otherwise than Récif's runtime.
const OTHER_RUNTIME: &str = "it does not say what waits as Récif's runtime does";

/// Flags of `recif approvals`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Every agent with a tool that asks is asked, which starts Pods of those that are scaled to zero. Each task is shown \
                  as the command that decides on it, with who decides and its calls; who has the ClusterRole recif-approver sees those of \
                  others too. The gateway is reached as by `recif chat`.\n\nExamples:\n  \
                  recif approvals\n  recif approvals -A"
)]
pub struct ApprovalsArgs {
    /// In all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// URL of the gateway [default: through the API server, or that of `recif dev`]
    #[arg(long, env = "RECIF_GATEWAY", value_name = "URL")]
    gateway: Option<String>,
    #[command(flatten)]
    connection: ConnectArgs,
    #[command(flatten)]
    system: SystemArgs,
}

/// Agent that is asked what waits.
#[derive(Debug, PartialEq, Eq)]
struct AskedAgent {
    namespace: String,
    name: String,
}

/// Reason why it is not known what waits at an agent.
#[derive(Debug)]
struct UnknownTasks {
    /// Set if the gateway or the agent refused the caller.
    is_forbidden: bool,
    why: String,
}

/// Runs the command.
pub(crate) async fn run(args: ApprovalsArgs) -> Result<Exit, CliError> {
    let ApprovalsArgs { all_namespaces, gateway, connection, system } = args;
    let (gateway, live, _) = reach(gateway, connection, &system).await?;
    let Some(live) = live else {
        let why = "without it name an agent, as in recif approve agent/my-agent".into();
        return Err(CliError::Unreachable { part: "cluster", why });
    };
    let namespace = (!all_namespaces).then_some(live.namespace.as_str());
    let agents = asking_agents(&live, namespace).await?;
    let mut progress = ProgressLine::begin();
    let what = format!("asking {} agents what waits", agents.len());
    let asked: Vec<_> = agents.iter().map(|agent| ask(&gateway, agent)).collect();
    let asked = stream::iter(asked).buffered(AT_ONCE).try_collect::<Vec<_>>();
    let answers = with_progress(&mut progress, &what, asked).await?;
    progress.clear();
    let shown: String = agents.iter().zip(&answers).map(|(agent, answer)| lines(agent, answer)).collect();
    print_foreign(&shown)?;
    left_out(&agents, &answers).iter().for_each(|line| hint(line));
    if answers.iter().any(|answer| answer.as_ref().is_err_and(|unknown| !unknown.is_forbidden)) {
        return Ok(Exit::Failed);
    }
    if !answers.is_empty() && answers.iter().all(Result::is_err) {
        return Ok(Exit::Forbidden);
    }
    if shown.is_empty() {
        hint(&format!("nothing waits for you in {}", place(namespace)));
    }
    Ok(Exit::Done)
}

/// Returns the agents with a tool that asks.
async fn asking_agents(live: &UserClient, namespace: Option<&str>) -> Result<Vec<AskedAgent>, CliError> {
    let mut tools = HashSet::new();
    let note = |tool: &DynamicObject| {
        let asks = ToolSpec::deserialize(&tool.data["spec"]).is_ok_and(|spec| spec.needed_approval().is_some());
        if asks {
            tools.insert(key(tool));
        }
        false
    };
    live.list(find_kind("Tool")?, namespace, note).await?;
    let agents = live.list(find_kind("Agent")?, namespace, |agent| may_ask(agent, &tools)).await?;
    let asked = agents.iter().map(|agent| {
        let (namespace, name) = key(agent);
        AskedAgent { namespace, name }
    });
    Ok(asked.collect())
}

/// Reports whether an Agent has one of these Tools, or a server some of whose tools ask.
fn may_ask(agent: &DynamicObject, tools: &HashSet<(String, String)>) -> bool {
    let Ok(spec) = AgentSpec::deserialize(&agent.data["spec"]) else { return false };
    let (namespace, _) = key(agent);
    let mut servers = spec.tool_servers.iter().filter_map(|server| server.approval.as_ref());
    servers.any(|approval| approval.approval.when != NEVER)
        || spec.tools.into_iter().any(|tool| tools.contains(&(namespace.clone(), tool)))
}

/// Returns the namespace and the name of an object.
fn key(object: &DynamicObject) -> (String, String) {
    let metadata = &object.metadata;
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// Asks an agent what waits for the caller.
///
/// # Errors
/// The gateway cannot be reached.
async fn ask(gateway: &GatewayClient, agent: &AskedAgent) -> Result<Result<Vec<ListedTask>, UnknownTasks>, CliError> {
    let path = format!("/v1/agents/{}/{}/approvals", agent.namespace, agent.name);
    let exchange = async {
        let answer = gateway.send(Method::GET, &path, &[("accept", JSON)], String::new()).await?;
        let status = answer.status;
        Ok::<_, CliError>(match read_all(answer.body).await {
            Ok(body) => read_tasks(status, &body),
            Err(error) => Err(UnknownTasks { is_forbidden: false, why: error.to_string() }),
        })
    };
    within(PATIENCE, exchange).await
}

/// Awaits the answer of an agent for at most this long: one that never answers leaves the others to be listed.
async fn within(
    most: Duration,
    exchange: impl Future<Output = Result<Result<Vec<ListedTask>, UnknownTasks>, CliError>>,
) -> Result<Result<Vec<ListedTask>, UnknownTasks>, CliError> {
    timeout(most, exchange).await.unwrap_or_else(|_| {
        let why = format!("there was no answer within {} s", most.as_secs());
        Ok(Err(UnknownTasks { is_forbidden: false, why }))
    })
}

/// Reads the answer of an agent.
fn read_tasks(status: StatusCode, body: &str) -> Result<Vec<ListedTask>, UnknownTasks> {
    if !status.is_success() {
        let is_forbidden = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let why = if status == StatusCode::NOT_FOUND { OTHER_RUNTIME.to_owned() } else { refusal(body) };
        return Err(UnknownTasks { is_forbidden, why });
    }
    let listed: Result<ListedTasks, _> = serde_json::from_str(body);
    match listed {
        Ok(listed) if listed.approvals.iter().all(|task| is_task(&task.task)) => Ok(listed.approvals),
        _ => Err(UnknownTasks { is_forbidden: false, why: OTHER_RUNTIME.to_owned() }),
    }
}

/// Shows each task of an agent as the command that decides on it, with its calls.
fn lines(AskedAgent { namespace, name }: &AskedAgent, answer: &Result<Vec<ListedTask>, UnknownTasks>) -> String {
    let tasks = answer.iter().flatten();
    tasks.map(|task| format!("recif approve agent/{name} -n {namespace} {}", text(task))).collect()
}

/// Returns a line for each reason why agents are left out.
fn left_out(agents: &[AskedAgent], answers: &[Result<Vec<ListedTask>, UnknownTasks>]) -> Vec<String> {
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (AskedAgent { namespace, name }, answer) in agents.iter().zip(answers) {
        if let Err(unknown) = answer {
            reasons.entry(&unknown.why).or_default().push(format!("{namespace}/{name}"));
        }
    }
    let line = |(why, names): (&str, Vec<String>)| {
        let more = names.len().saturating_sub(MOST_NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("left out {}{more}: {why}", names.into_iter().take(MOST_NAMES).collect::<Vec<_>>().join(", "))
    };
    reasons.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn agent(name: &str, spec: &Value) -> DynamicObject {
        let metadata = json!({ "namespace": "a", "name": name });
        let agent = json!({ "apiVersion": "agents.recif.dev/v1", "kind": "Agent", "metadata": metadata, "spec": spec });
        serde_json::from_value(agent).unwrap()
    }

    fn asked(name: &str) -> AskedAgent {
        AskedAgent { namespace: "a".into(), name: name.into() }
    }

    #[test]
    fn agents_with_a_tool_that_asks_are_asked() {
        let tools = HashSet::from([("a".to_owned(), "pay".to_owned()), ("b".to_owned(), "refund".to_owned())]);
        let server = |approval: Value| json!([{ "name": "docs", "approval": approval }]);
        for (more, expected) in [
            (json!({}), false),
            (json!({ "tools": ["clock"] }), false),
            (json!({ "tools": ["clock", "pay"] }), true),
            (json!({ "tools": ["refund"] }), false),
            (json!({ "toolServers": [{ "name": "docs" }] }), false),
            (json!({ "toolServers": server(json!({ "when": "OnWrite" })) }), true),
            (json!({ "toolServers": server(json!({ "when": "Never" })) }), false),
        ] {
            let mut spec = json!({ "name": "A", "framework": "corail", "modelType": "stub", "modelId": "stub-echo" });
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_eq!(may_ask(&agent("one", &spec), &tools), expected, "{more}");
        }
    }

    #[test]
    fn a_task_is_shown_as_the_command_that_decides_on_it() {
        let call = json!({ "id": "1", "name": "pay", "args": { "euros": 5 } });
        let approval = json!({ "expires": "2026-01-01T01:00:00Z", "tools": [call] });
        let body = |task: &str| json!({ "approvals": [{ "task": task, "approval": approval }] }).to_string();
        let shown = lines(&asked("shop"), &read_tasks(StatusCode::OK, &body("0a1b")));
        assert_eq!(shown, "recif approve agent/shop -n a 0a1b  until 2026-01-01T01:00:00Z\n  1  pay {\"euros\":5}\n");
        for (status, body, is_forbidden) in [
            (StatusCode::OK, body("$(reboot)"), false),
            (StatusCode::OK, "hello".to_owned(), false),
            (StatusCode::NOT_FOUND, r#"{"error": "unknown route"}"#.to_owned(), false),
            (StatusCode::FORBIDDEN, r#"{"error": "no"}"#.to_owned(), true),
        ] {
            let answer = read_tasks(status, &body);
            assert_eq!(lines(&asked("shop"), &answer), "", "{body}");
            assert_eq!(answer.unwrap_err().is_forbidden, is_forbidden, "{body}");
        }
    }

    #[tokio::test]
    async fn an_agent_that_never_answers_leaves_the_others_to_be_listed() {
        let unknown = within(Duration::ZERO, std::future::pending()).await.unwrap().unwrap_err();
        assert_eq!((unknown.why.as_str(), unknown.is_forbidden), ("there was no answer within 0 s", false));
    }

    #[test]
    fn agents_that_are_left_out_are_named_by_the_reason() {
        let agents: Vec<_> = ["a", "b", "c", "d", "e", "f", "g"].map(asked).into();
        let unknown = |why: &str| Err(UnknownTasks { is_forbidden: false, why: why.to_owned() });
        let answers =
            [unknown("x"), Ok(Vec::new()), unknown("x"), unknown("x"), unknown("x"), unknown("x"), unknown("x")];
        assert_eq!(left_out(&agents, &answers), ["left out a/a, a/c, a/d, a/e, a/f and 1 more: x"]);
        assert_eq!(left_out(&agents, &[Ok(Vec::new()), unknown("y")]), ["left out a/b: y"]);
    }
}
