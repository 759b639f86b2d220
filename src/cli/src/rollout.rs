//! `recif rollout`: replaces the Pods of a workload, with the images that the operator chooses today.
//!
//! The command only sets an annotation with the time on the object; the operator sees it and does the rest, phase by
//! phase, as for any other change.

use std::{pin::pin, time::Duration};

use crds::{ApiKind, KINDS, ROLLOUT_AT, Role};
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::json;
use tokio::time::{interval, timeout};

use crate::{
    cluster::{ObjectEvent, UserClient},
    error::CliError,
    exit::Exit,
    output::{PrintFormat, print},
    progress::ProgressLine,
    target::{ConnectArgs, TargetArgs, parse_timeout},
    trace::status_of,
    why::{StatusSummary, summarize},
};

/// Interval at which the progress line is updated.
const TICK: Duration = Duration::from_secs(1);

/// Flags of `recif rollout`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Needs the right to patch the object. Follow it with `recif trace KIND/NAME -f`.\n\nExamples:\n  recif \
                        rollout agent/my-agent --wait\n  kubectl recif rollout fl greeter -n team-a"
)]
pub struct RolloutArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    connection: ConnectArgs,
    /// Wait until the new Pods are ready
    #[arg(short, long)]
    wait: bool,
    /// How long to wait at most, such as 90s or 5m
    #[arg(long, value_name = "TIME", default_value = "5m", requires = "wait")]
    timeout: String,
    /// How to print it
    #[arg(short, long, value_parser = PrintFormat::parser(PrintFormat::TEXT_FORMATS), default_value = "plain")]
    output: PrintFormat,
}

/// Annotates the object, and waits if requested.
pub(super) async fn run(args: RolloutArgs) -> Result<Exit, CliError> {
    let RolloutArgs { target, connection, wait, timeout: within, output } = args;
    let (kind, name) = target.parse()?;
    has_pods(kind)?;
    let patience = parse_timeout(&within)?;
    let live = connection.connect().await?;
    let object = live.object(kind, name).await?.ok_or_else(|| CliError::missing(&live, kind, name))?;
    if object.metadata.deletion_timestamp.is_some() {
        return Err(CliError::BeingDeleted { kind: kind.name, name: name.to_owned() });
    }
    let at = Timestamp::now().to_string();
    live.annotate(kind, name, ROLLOUT_AT, &at, None).await?;
    if output == PrintFormat::Plain {
        print(&describe(kind, name, &object))?;
    }
    let wait = wait && !is_stopped(&object);
    if wait {
        let mut progress = ProgressLine::begin();
        let before = last_seq(&object);
        let done = timeout(patience, wait_until_done(&live, kind, name, before, &at, &mut progress)).await;
        progress.clear();
        match done {
            Ok(done) => done?,
            Err(_) => {
                let now = live.object(kind, name).await?.ok_or_else(|| CliError::missing(&live, kind, name))?;
                return Err(CliError::TimedOut { within, last: summarize(kind, &now).sentence });
            }
        }
    }
    match output {
        PrintFormat::Json | PrintFormat::Yaml => {
            let answer = json!({ "kind": kind.name, "namespace": live.namespace, "name": name, "rolloutAt": at,
                "stopped": is_stopped(&object), "done": wait });
            print(&output.document("the rollout", &answer)?)?;
        }
        _ if wait => print(&format!("{}/{name} has rolled out\n", kind.name.to_lowercase()))?,
        _ => {}
    }
    Ok(Exit::Done)
}

/// State of a rollout.
#[derive(Debug, PartialEq, Eq)]
enum RolloutStatus {
    InProgress,
    Done,
    Failed,
}

/// Returns the state of the rollout from the steps after `before`, the last one written when the rollout was requested.
fn rollout_status(object: &DynamicObject, summary: &StatusSummary, before: i64) -> RolloutStatus {
    let status = status_of(object);
    let phase = summary.phase.as_deref().unwrap_or_default();
    let moved = status.history.iter().any(|entry| entry.seq > before && entry.from != entry.to && entry.to == phase);
    match phase {
        "Failed" if moved => RolloutStatus::Failed,
        "Running" | "Terminated" if moved && summary.ready => RolloutStatus::Done,
        _ => RolloutStatus::InProgress,
    }
}

fn last_seq(object: &DynamicObject) -> i64 {
    status_of(object).history.iter().map(|entry| entry.seq).max().unwrap_or_default()
}

async fn wait_until_done(
    live: &UserClient,
    kind: &'static ApiKind,
    name: &str,
    before: i64,
    at: &str,
    progress: &mut ProgressLine,
) -> Result<(), CliError> {
    let mut seen = pin!(live.watch(kind, name));
    let mut ticks = interval(TICK);
    let mut now = String::new();
    loop {
        tokio::select! {
            sight = seen.next() => {
                let Some(ObjectEvent::Changed(object)) = sight else { return Err(CliError::missing(live, kind, name)) };
                let summary = summarize(kind, &object);
                match rollout_status(&object, &summary, before) {
                    RolloutStatus::Failed => return Err(CliError::NotReady(summary.sentence)),
                    // A rollout that was in progress already ends before this one.
                    RolloutStatus::Done if has_template(live, name, at).await => return Ok(()),
                    RolloutStatus::Done | RolloutStatus::InProgress => now = summary.sentence,
                }
            }
            _ = ticks.tick() => {}
        }
        progress.update(&now);
    }
}

/// Reports whether the Deployment's template is that of this rollout; assumed if the caller may not read the
/// Deployment.
async fn has_template(live: &UserClient, name: &str, at: &str) -> bool {
    let Ok(Some(deployment)) = live.deployment(name).await else { return true };
    let metadata = deployment.spec.and_then(|spec| spec.template.metadata);
    metadata.and_then(|metadata| metadata.annotations?.remove(ROLLOUT_AT)).is_some_and(|mark| mark == at)
}

fn is_stopped(object: &DynamicObject) -> bool {
    object.data.pointer("/spec/replicas") == Some(&0.into())
}

/// Checks that objects of the kind have Pods.
fn has_pods(kind: &'static ApiKind) -> Result<(), CliError> {
    if kind.role == Role::Workload {
        return Ok(());
    }
    let workloads: Vec<_> = KINDS.iter().filter(|kind| kind.role == Role::Workload).map(|kind| kind.name).collect();
    Err(CliError::NoPods { kind: kind.name, workloads: workloads.join(", ") })
}

fn describe(kind: &ApiKind, name: &str, object: &DynamicObject) -> String {
    let kind = kind.name.to_lowercase();
    if is_stopped(object) {
        return format!("{kind}/{name} is stopped: it takes the operator's images of then when it is started\n");
    }
    format!("{kind}/{name} rolls out: follow it with `recif trace {kind}/{name} -f`\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::find_kind;

    #[test]
    fn only_what_has_pods_can_roll_out() {
        for kind in ["agent", "fl", "flowsets"] {
            assert!(has_pods(find_kind(kind).unwrap()).is_ok(), "{kind}");
        }
        let error = has_pods(find_kind("pr").unwrap()).unwrap_err().to_string();
        assert!(error.starts_with("a Prompt has no Pods") && error.contains("Agent, Flow, FlowSet"), "{error}");
    }

    #[test]
    fn one_that_is_stopped_says_so() {
        let object = |replicas: i32| -> DynamicObject {
            serde_json::from_value(json!({ "metadata": { "name": "a" }, "spec": { "replicas": replicas } })).unwrap()
        };
        let kind = find_kind("ag").unwrap();
        assert_eq!(describe(kind, "a", &object(1)), "agent/a rolls out: follow it with `recif trace agent/a -f`\n");
        assert!(describe(kind, "a", &object(0)).starts_with("agent/a is stopped"));
    }

    #[test]
    fn a_rollout_is_done_when_the_object_came_back_after_it() {
        let object = |phase: &str, ready: &str, history: serde_json::Value| -> DynamicObject {
            let condition = json!({ "type": "Ready", "status": ready, "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z" });
            serde_json::from_value(json!({ "metadata": { "name": "a" },
                "status": { "phase": phase, "conditions": [condition], "history": history } }))
            .unwrap()
        };
        let entry = |seq: i64, from: &str, to: &str| json!({ "seq": seq, "at": "2026-01-01T00:00:00Z", "from": from, "to": to, "action": "x" });
        let kind = find_kind("agent").unwrap();
        let judged = |object: DynamicObject| rollout_status(&object, &summarize(kind, &object), 4);
        let old = json!([entry(4, "Deploying", "Running")]);
        let new = json!([
            entry(4, "Deploying", "Running"),
            entry(5, "Running", "Resolving"),
            entry(8, "Deploying", "Running")
        ]);
        assert_eq!(judged(object("Running", "True", old)), RolloutStatus::InProgress, "nothing has happened yet");
        assert_eq!(
            judged(object("Running", "False", new.clone())),
            RolloutStatus::InProgress,
            "not all Pods are ready"
        );
        assert_eq!(judged(object("Running", "True", new)), RolloutStatus::Done);
        assert_eq!(
            judged(object("Deploying", "False", json!([entry(5, "Rendering", "Deploying")]))),
            RolloutStatus::InProgress
        );
        assert_eq!(judged(object("Failed", "False", json!([entry(5, "Deploying", "Failed")]))), RolloutStatus::Failed);
    }
}
