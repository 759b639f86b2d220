//! `recif approve`: lists the calls of an agent's tools that wait for the caller, and decides on those of a task, through the gateway.
//!
//! Arguments are shown before anything is decided. The reply of the turn that goes on is printed as that of a chat.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use crds::approval::APPROVER;
use http::Method;
use jiff::Timestamp;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    chat_target::ChatTarget,
    gateway::JSON,
    open,
    reply::{refusal, typable, visible},
    session::{ChatSession, TurnEnd, read_all},
};
use crate::{
    error::CliError,
    exit::Exit,
    output::{hint, print_foreign},
    target::{ConnectArgs, SystemArgs},
};

/// Flags of `recif approve`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without a task it lists what waits for you, as `recif approvals` does for all agents; with one it shows the calls, asks, and prints the reply of the turn \
                  that goes on. Each task says who decides on it; who has the ClusterRole recif-approver sees those of others too. The gateway is reached as by `recif chat`.\n\nExamples:\n  recif approve agent/my-agent\n  recif \
                  approve agent/my-agent 0123abcd\n  recif approve agent/my-agent 0123abcd --id call_1   # this one, none of \
                  the others\n  recif approve agent/my-agent 0123abcd --reject --reason \"too much\""
)]
pub struct ApproveArgs {
    /// The agent, as agent/NAME
    #[arg(value_name = "TARGET")]
    target: String,
    /// The task whose calls are decided [default: list what waits]
    #[arg(value_name = "TASK")]
    task: Option<String>,
    /// Approve this call and reject the others; may be repeated
    #[arg(long, value_name = "ID", requires = "task")]
    id: Vec<String>,
    /// Reject all calls
    #[arg(long, requires = "task", conflicts_with = "id")]
    reject: bool,
    /// Reason of the rejection, for the model; with --reject or --id
    #[arg(long, value_name = "TEXT", requires = "task")]
    reason: Option<String>,
    /// Decide without being asked
    #[arg(long, requires = "task")]
    yes: bool,
    /// URL of the gateway [default: through the API server, or that of `recif dev`]
    #[arg(long, env = "RECIF_GATEWAY", value_name = "URL")]
    gateway: Option<String>,
    #[command(flatten)]
    connection: ConnectArgs,
    #[command(flatten)]
    system: SystemArgs,
}

/// Tasks of the caller that wait, or are decided and have not ended.
#[derive(Debug, Deserialize)]
pub(super) struct ListedTasks {
    pub(super) approvals: Vec<ListedTask>,
}

/// Task that waits.
#[derive(Debug, Deserialize)]
pub(super) struct ListedTask {
    pub(super) task: String,
    /// User whose request began the turn.
    user: Option<String>,
    /// Set once it is decided: the same decision again goes on with it.
    #[serde(default)]
    decided: bool,
    approval: ListedApproval,
}

#[derive(Debug, Deserialize)]
struct ListedApproval {
    /// Who decides; empty: the runtime does not say.
    #[serde(default)]
    by: String,
    expires: String,
    tools: Vec<ListedCall>,
}

/// Call that waits.
#[derive(Debug, Deserialize)]
struct ListedCall {
    id: String,
    name: String,
    args: Value,
}

/// Runs the command.
pub(crate) async fn run(args: ApproveArgs) -> Result<Exit, CliError> {
    let ApproveArgs { target, task, id, reject, reason, yes, gateway, connection, system } = args;
    let asked = ChatTarget::parse(&target)?;
    if !asked.is_agent() {
        return Err(CliError::Usage("only agents have calls that wait: name one, as agent/my-agent".into()));
    }
    if task.as_ref().is_some_and(|task| !is_task(task)) {
        let why = "a task is letters, digits, and . _ : -: take it from the answer of the agent";
        return Err(CliError::Usage(why.into()));
    }
    let mut talk = open(asked, None, gateway, connection, &system).await?;
    talk.check_target().await?;
    let path = format!("{}/approvals", talk.target.root(&talk.namespace));
    let Some(task) = task else {
        let listed: ListedTasks = read(&talk, &path).await?;
        if listed.approvals.is_empty() {
            hint("nothing waits for you");
        }
        print_foreign(&listed.approvals.iter().map(text).collect::<String>())?;
        return Ok(Exit::Done);
    };
    let path = format!("{path}/{task}");
    let waiting: ListedTask = read(&talk, &path).await?;
    let decisions = decisions(&waiting.approval.tools, &id, reject, reason.as_deref())?;
    print_foreign(&text(&waiting))?;
    if !yes && !is_confirmed(reject)? {
        hint("nothing was decided");
        return Ok(Exit::Done);
    }
    match talk.post(&path, json!({ "approvals": decisions }).to_string()).await? {
        TurnEnd::Stopped => Ok(Exit::Interrupted),
        TurnEnd::Done => Ok(Exit::Done),
    }
}

/// Reports whether a text can be a task: what `recif chat` prints as one, and a segment of a path.
pub(super) fn is_task(text: &str) -> bool {
    typable(text).is_some() && !matches!(text, "." | "..")
}

/// Reads JSON from a path of the agent.
async fn read<T: DeserializeOwned>(talk: &ChatSession, path: &str) -> Result<T, CliError> {
    let answer = talk.gateway.send(Method::GET, path, &[("accept", JSON)], String::new()).await?;
    if answer.status.as_u16() == 404 {
        return Err(CliError::NotFound(refusal(&read_all(answer.body).await?)));
    }
    if !answer.status.is_success() {
        return Err(talk.refusal_error(answer).await);
    }
    let body = read_all(answer.body).await?;
    serde_json::from_str(&body).map_err(|_| {
        CliError::FailedAnswer(
            "the agent does not say what waits as Récif's runtime does: is it one of your own?".into(),
        )
    })
}

/// Describes a task: its end, who decides, and each call with its arguments.
pub(super) fn text(waiting: &ListedTask) -> String {
    let calls = waiting.approval.tools.iter();
    let line = |ListedCall { id, name, args }: &ListedCall| {
        format!("  {}  {} {}\n", visible(id), visible(name), visible(&args.to_string()))
    };
    let calls: String = calls.map(line).collect();
    let until = match waiting.decided {
        true => "decided: the same decision again goes on with it".to_owned(),
        false => format!("until {}{}", seconds(&waiting.approval.expires), deciders(waiting)),
    };
    format!("{}  {until}\n{calls}", waiting.task)
}

/// Returns a time in full seconds, without the nanoseconds of the agent; a text that is no time as it is.
fn seconds(time: &str) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Err(_) => visible(time),
    }
}

/// Returns who decides on a task, as the end of a line.
fn deciders(waiting: &ListedTask) -> String {
    let user = waiting.user.as_deref().map(visible);
    match (waiting.approval.by == APPROVER, user) {
        (true, Some(user)) => format!(", for an approver other than {user}"),
        (true, None) => ", for an approver".to_owned(),
        (false, Some(user)) => format!(", for {user} or an approver"),
        (false, None) => String::new(),
    }
}

/// Returns the decision on each call: all are approved or all rejected, or those of `ids` are approved and the others rejected.
fn decisions(calls: &[ListedCall], ids: &[String], reject: bool, reason: Option<&str>) -> Result<Vec<Value>, CliError> {
    if reason.is_some() && !reject && ids.is_empty() {
        let why = "--reason is for calls that are rejected: say --reject, or --id for those to approve";
        return Err(CliError::Usage(why.into()));
    }
    if let Some(unknown) = ids.iter().find(|id| !calls.iter().any(|call| call.id == **id)) {
        return Err(CliError::Usage(format!("no call {unknown} waits in this task")));
    }
    let decision = |ListedCall { id, .. }: &ListedCall| {
        let approved = !reject && (ids.is_empty() || ids.contains(id));
        match reason.filter(|_| !approved) {
            Some(reason) => json!({ "id": id, "approved": approved, "rejection_reason": reason }),
            None => json!({ "id": id, "approved": approved }),
        }
    };
    Ok(calls.iter().map(decision).collect())
}

/// Asks the user at the terminal.
fn is_confirmed(reject: bool) -> Result<bool, CliError> {
    if !io::stdin().is_terminal() {
        return Err(CliError::Usage("there is no terminal to ask at: say --yes".into()));
    }
    let _ = write!(io::stderr().lock(), "{} [y/N] ", if reject { "Reject?" } else { "Approve?" });
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.map_err(|error| CliError::Usage(format!("read the answer from standard input: {error}")))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> ListedTask {
        let call = |id: &str| json!({ "id": id, "name": "pay", "args": { "euros": 5 } });
        let approval = json!({ "expires": "2026-01-01T01:00:00Z", "tools": [call("1"), call("2")] });
        serde_json::from_value(json!({ "conversation_id": "c", "task": "t", "approval": approval })).unwrap()
    }

    #[test]
    fn every_call_is_shown_with_its_arguments() {
        let expected = "t  until 2026-01-01T01:00:00Z\n  1  pay {\"euros\":5}\n  2  pay {\"euros\":5}\n";
        assert_eq!(text(&waiting()), expected);
        let decided = text(&ListedTask { decided: true, ..waiting() });
        assert!(decided.starts_with("t  decided: the same decision again goes on with it\n  1  pay"), "{decided}");
    }

    #[test]
    fn a_time_is_shown_in_seconds() {
        for (expires, expected) in [
            ("2026-11-27T21:00:00.123456789Z", "2026-11-27T21:00:00Z"),
            ("2026-11-27T22:00:00.5+01:00", "2026-11-27T21:00:00Z"),
            ("soon", "soon"),
        ] {
            let mut task = waiting();
            task.approval.expires = expires.to_owned();
            let expected = format!("t  until {expected}");
            assert_eq!(text(&task).lines().next(), Some(expected.as_str()), "{expires}");
        }
    }

    #[test]
    fn a_task_says_who_decides() {
        for (by, user, expected) in [
            ("Caller", Some("ada"), ", for ada or an approver"),
            ("Approver", Some("a\nb"), ", for an approver other than a\\u{a}b"),
            ("Approver", None, ", for an approver"),
            ("Caller", None, ""),
            ("", None, ""),
        ] {
            let mut task = waiting();
            (task.approval.by, task.user) = (by.to_owned(), user.map(str::to_owned));
            let expected = format!("t  until 2026-01-01T01:00:00Z{expected}");
            assert_eq!(text(&task).lines().next(), Some(expected.as_str()), "{by} {user:?}");
        }
    }

    #[test]
    fn nothing_of_what_is_approved_is_hidden() {
        let call = json!({ "id": "1\n2", "name": "pa\u{200b}y", "args": { "to": "\u{202e}bob\u{9b}\u{e0041}" } });
        let approval = json!({ "expires": "2026-01-01T01:00:00Z", "tools": [call] });
        let waiting: ListedTask = serde_json::from_value(json!({ "task": "t", "approval": approval })).unwrap();
        let line = r#"  1\u{a}2  pa\u{200b}y {"to":"\u{202e}bob\u{9b}\u{e0041}"}"#;
        assert_eq!(text(&waiting).lines().nth(1), Some(line));
        let approval = json!({ "expires": "soon\nrecif approve agent/bank", "tools": [] });
        let waiting: ListedTask = serde_json::from_value(json!({ "task": "t", "approval": approval })).unwrap();
        assert_eq!(text(&waiting), "t  until soon\\u{a}recif approve agent/bank\n", "an agent names no other one");
    }

    #[test]
    fn what_a_chat_prints_as_task_is_taken() {
        for (text, expected) in [("0123abcd", true), ("t-1:a_b.c", true), ("", false), ("a/b", false), ("..", false)] {
            assert_eq!(is_task(text), expected, "{text}");
        }
    }

    #[test]
    fn a_decision_names_every_call() {
        let decided = |ids: &[&str], reject, reason| {
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            decisions(&waiting().approval.tools, &ids, reject, reason).map(Value::from)
        };
        let approved = |id: &str| json!({ "id": id, "approved": true });
        let rejected = |id: &str| json!({ "id": id, "approved": false });
        assert_eq!(decided(&[], false, None).unwrap(), json!([approved("1"), approved("2")]));
        assert_eq!(decided(&["2"], false, None).unwrap(), json!([rejected("1"), approved("2")]));
        assert_eq!(decided(&[], true, None).unwrap(), json!([rejected("1"), rejected("2")]));
        let with_reason = |id: &str| json!({ "id": id, "approved": false, "rejection_reason": "too much" });
        assert_eq!(decided(&["1"], false, Some("too much")).unwrap(), json!([approved("1"), with_reason("2")]));
        let unclear = decided(&[], false, Some("too much")).unwrap_err().to_string();
        assert!(unclear.contains("say --reject"), "{unclear}");
        assert_eq!(decided(&["3"], false, None).unwrap_err().to_string(), "no call 3 waits in this task");
    }
}
