//! Prints the results: one line per scenario, and for a failed one the state of its namespace.

use std::{fmt::Write as _, io::Write as _};

use anyhow::Result;
use kube::ResourceExt as _;

use crate::{
    kinds::{DEPLOYMENT, EVENT, OURS, POD},
    namespace::Namespace,
    object::{Object, ObjectExt as _},
    operator,
};

const EVENTS: usize = 15;
const TRACE_LINES: usize = 30;

/// Prints one line.
pub(crate) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
}

/// Describes the state of a namespace: phases, conditions and history of our objects, its Pods, its last Events, and the
/// operator's last trace lines about it.
pub(crate) async fn state_of(namespace: &Namespace) -> String {
    let mut text = String::new();
    if let Err(error) = write_state(namespace, &mut text).await {
        let _ = writeln!(text, "  … and no more could be read: {error:#}");
    }
    text
}

async fn write_state(namespace: &Namespace, text: &mut String) -> Result<()> {
    for kind in OURS {
        for object in namespace.list(kind).await? {
            write_object(text, &object)?;
        }
    }
    for deployment in namespace.list(DEPLOYMENT).await? {
        writeln!(text, "  Deployment/{} status {}", deployment.name_any(), deployment.at("/status"))?;
    }
    for pod in namespace.list(POD).await? {
        let containers = pod.at("/status/containerStatuses").as_array().cloned().unwrap_or_default();
        let states: Vec<String> = containers.iter().map(|it| format!("{}: {}", it["name"], it["state"])).collect();
        writeln!(text, "  Pod/{} {} {}", pod.name_any(), pod.phase(), states.join(", "))?;
    }
    let mut events = namespace.list(EVENT).await?;
    events.sort_by_key(crate::object::ObjectExt::revision);
    for event in events.iter().skip(events.len().saturating_sub(EVENTS)) {
        let of = format!("{}/{}", event.text("/involvedObject/kind"), event.text("/involvedObject/name"));
        writeln!(text, "  Event {of} {}: {}", event.text("/reason"), event.text("/message"))?;
    }
    let logs = operator::logs(&namespace.env).await?;
    let lines: Vec<&str> = logs.lines().filter(|line| line.contains(&namespace.name)).collect();
    for line in lines.iter().skip(lines.len().saturating_sub(TRACE_LINES)) {
        writeln!(text, "  {line}")?;
    }
    Ok(())
}

fn write_object(text: &mut String, object: &Object) -> Result<()> {
    writeln!(text, "  {}", object.describe())?;
    for entry in object.at("/status/history").as_array().into_iter().flatten() {
        let word = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let (from, to) = (word("from"), word("to"));
        let moved = if from == to { format!("stays {to}") } else { format!("{from} → {to}") };
        writeln!(text, "    {} {} {moved} ({}) {}", entry["seq"], word("at"), word("action"), word("reason"))?;
    }
    for flow in object.at("/status/flows").as_array().into_iter().flatten().filter(|flow| flow["ready"] != true) {
        writeln!(text, "    flow {flow}")?;
    }
    if !object.at("/status/failure").is_null() {
        writeln!(text, "    failure {}", object.at("/status/failure"))?;
    }
    Ok(())
}
