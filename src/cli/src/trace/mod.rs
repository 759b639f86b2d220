//! `recif trace`: prints the steps of an object and their reasons; with `--run`, what became of one request.
//!
//! The object's own `status.history` is enough for a timeline. Where the caller may read the operator's logs, the
//! phase-trace lines add what a status does not hold: waits too short to be written, actions that were passed over, and
//! times finer than a second.

mod entry;
mod line;
mod merge;
mod run_tree;
mod runs;
#[cfg(test)]
mod tests;
mod text;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crds::ApiKind;
use futures::StreamExt;
use jiff::Timestamp;
use kube::api::{DynamicObject, LogParams};
use machine::StepSpan;
use meta::HistoryEntry;
use tokio::time::{MissedTickBehavior, interval};

pub use entry::{PhaseSpan, TimelineEntry};
pub use line::parse_line;
pub use merge::{merge, spans};
pub use text::{PlainTimeline, data, status_of};

use crate::{
    cluster::{ObjectEvent, ReadError, UserClient},
    error::CliError,
    exit::Exit,
    output::{PrintFormat, hint, print_foreign},
    target::{ConnectArgs, SystemArgs, TargetArgs},
};

/// Labels of the operator's Pods.
const OPERATOR: &str = "app.kubernetes.io/name=recif-operator";
/// Name of the operator's container.
const CONTAINER: &str = "operator";

/// Flags of `recif trace`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The operator's logs, where you may read them, add the waits that were too short for the history.\n\nA run is what became of one request: its \
                  requests to models, its calls of tools, and those of the agents that it asked. Its id is in the header x-recif-run of \
                  the response. The control plane keeps runs if it receives spans: see docs/traces.md.\n\nExamples:\n  recif trace \
                  agent/my-agent\n  recif trace ag my-agent -n team-a -f\n  kubectl recif trace tool/weather -o json | jq .reason\n  \
                  recif trace --run 4bf92f3577b34da6a3ce929d0e0e4736"
)]
pub struct TraceArgs {
    /// The object, as KIND/NAME or KIND NAME; KIND is a kind, its plural or its short name
    #[arg(required_unless_present = "run", num_args = 1..=2, value_name = "OBJECT")]
    object: Vec<String>,
    /// In place of an object: the run with this id, or the newest of the conversation with this id
    #[arg(long, value_name = "ID", conflicts_with_all = ["object", "follow"])]
    run: Option<String>,
    #[command(flatten)]
    connection: ConnectArgs,
    /// Follow: print each new step until the object is gone
    #[arg(short, long)]
    follow: bool,
    /// How to print it: a timeline, one JSON object per step and line, or one YAML document per step; a run as a tree, or as one
    /// document
    #[arg(short, long, value_parser = PrintFormat::parser(PrintFormat::TEXT_FORMATS), default_value = "plain")]
    output: PrintFormat,
    #[command(flatten)]
    system: SystemArgs,
}

/// Prints the timeline, and with `-f` the steps that follow.
pub(super) async fn run(args: TraceArgs) -> Result<Exit, CliError> {
    if let Some(id) = &args.run {
        let live = args.connection.connect().await?;
        runs::print_run(&live, &args.system.system_namespace, id, args.output).await?;
        return Ok(Exit::Done);
    }
    let target = TargetArgs { object: args.object };
    let (kind, name) = target.parse()?;
    let live = args.connection.connect().await?;
    let object = live.object(kind, name).await?.ok_or_else(|| CliError::missing(&live, kind, name))?;
    let uid = object.metadata.uid.clone().unwrap_or_default();
    let mut logs = Logs::new(&live, &args.system.system_namespace, &uid);
    let mut printer =
        TimelinePrinter { kind, output: args.output, plain: PlainTimeline::default(), printed: BTreeSet::new() };

    let mut known = SeenSteps::default();
    let mut entries = known.merge(&object, logs.read().await);
    printer.print_heading(&object, &live.namespace)?;
    printer.entries(&entries)?;
    if !args.follow {
        printer.summary(&entries, Some(Timestamp::now()))?;
        return Ok(Exit::Done);
    }
    let mut object = object;
    let mut seen = std::pin::pin!(live.watch(kind, name));
    // A wait that is not written changes no object.
    let mut polls = interval(POLL);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut gone = false;
    while !gone {
        tokio::select! {
            sight = seen.next() => match sight {
                Some(ObjectEvent::Changed(newer)) if newer.metadata.uid.as_deref() == Some(&uid) => object = *newer,
                _ => gone = true,
            },
            _ = polls.tick(), if logs.readable => {}
        }
        entries = known.merge(&object, logs.read().await);
        printer.entries(&entries)?;
    }
    printer.print_gone(&entries)?;
    Ok(Exit::Done)
}

/// Interval at which the logs are read on.
const POLL: Duration = Duration::from_secs(2);

/// Steps read so far: a history drops its oldest entries, and logs are read in overlapping pieces.
#[derive(Default)]
struct SeenSteps {
    history: BTreeMap<i64, HistoryEntry>,
    lines: BTreeMap<(Timestamp, String), TimelineEntry>,
}

impl SeenSteps {
    fn merge(&mut self, object: &DynamicObject, lines: Vec<TimelineEntry>) -> Vec<TimelineEntry> {
        self.history.extend(status_of(object).history.into_iter().map(|entry| (entry.seq, entry)));
        self.lines.extend(lines.into_iter().map(|line| ((line.at, line.action.clone()), line)));
        let mut entries = merge(self.history.values(), &self.lines.values().cloned().collect::<Vec<_>>());
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        for entry in entries.iter_mut().filter(|entry| entry.written) {
            let span = self.history.get(&entry.seq).and_then(|written| StepSpan::of(uid, written));
            if let Some(span) = span {
                entry.run = span.trace_text();
            }
        }
        entries
    }
}

/// Phase-trace lines of one object, as far as the caller may read them.
struct Logs<'a> {
    live: &'a UserClient,
    namespace: &'a str,
    uid: &'a str,
    readable: bool,
    pods: BTreeMap<String, LogPosition>,
}

/// Position up to which the log of a Pod was read.
#[derive(Clone, Copy, Default)]
struct LogPosition {
    /// Time of the last line, by the clock of the node.
    until: Option<Timestamp>,
    /// Restart count of the containers at that time: after another restart, lines may be left in the previous log.
    restarts: i32,
}

impl<'a> Logs<'a> {
    fn new(live: &'a UserClient, namespace: &'a str, uid: &'a str) -> Self {
        Self { live, namespace, uid, readable: true, pods: BTreeMap::new() }
    }

    /// Reads the steps from the logs of all the operator's Pods, from the last position on; the second of the last line
    /// is read again. Without the right to read the logs it prints a note once, and the timeline is made from the
    /// history alone.
    async fn read(&mut self) -> Vec<TimelineEntry> {
        if !self.readable {
            return Vec::new();
        }
        self.try_read().await.unwrap_or_else(|error| {
            self.readable = false;
            let namespace = self.namespace;
            hint(&if error.is_forbidden() {
                format!(
                    "note: you may not read the operator's logs in {namespace} (bind the Role recif-trace-reader to \
                     yourself there): showing the last steps from the object's history only"
                )
            } else {
                format!("note: showing the object's history only: {error}")
            });
            Vec::new()
        })
    }

    async fn try_read(&mut self) -> Result<Vec<TimelineEntry>, ReadError> {
        let mut found = Vec::new();
        for pod in self.live.pods(self.namespace, OPERATOR).await? {
            let Some(name) = pod.metadata.name.as_deref() else { continue };
            let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
            let restarts = containers.unwrap_or_default().iter().map(|container| container.restart_count).sum();
            let before = self.pods.get(name).copied().unwrap_or_default();
            let mut until = before.until;
            for previous in [true, false] {
                if previous && restarts == before.restarts {
                    continue;
                }
                let params = LogParams {
                    container: Some(CONTAINER.into()),
                    previous,
                    // The API takes whole seconds, which must not be rounded up.
                    since_time: before.until.and_then(|until| Timestamp::from_second(until.as_second()).ok()),
                    timestamps: true,
                    ..LogParams::default()
                };
                let wanted = |line: &str| {
                    until = until.max(split_timestamp(line).0);
                    line.contains(self.uid)
                };
                match self.live.log(self.namespace, name, &params, wanted).await {
                    Ok(lines) => {
                        found.extend(lines.iter().filter_map(|line| parse_line(split_timestamp(line).1, self.uid)));
                        if !previous {
                            self.pods.insert(name.to_owned(), LogPosition { until, restarts });
                        }
                    }
                    Err(error) if error.is_forbidden() => return Err(error),
                    // A Pod that starts or terminates has no log; those of the others are still worth reading.
                    Err(_) => {}
                }
            }
        }
        Ok(found)
    }
}

/// Splits a line of a log into the time at which it was read from the container, and the text.
pub(super) fn split_timestamp(line: &str) -> (Option<Timestamp>, &str) {
    let parts = line.split_once(' ').and_then(|(stamp, rest)| Some((stamp.parse().ok()?, rest)));
    parts.map_or((None, line), |(stamp, rest)| (Some(stamp), rest))
}

/// Printer that prints each entry once.
struct TimelinePrinter {
    kind: &'static ApiKind,
    output: PrintFormat,
    plain: PlainTimeline,
    printed: BTreeSet<String>,
}

impl TimelinePrinter {
    fn print_heading(&self, object: &DynamicObject, namespace: &str) -> Result<(), CliError> {
        if self.output != PrintFormat::Plain {
            return Ok(());
        }
        let status = status_of(object);
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let phase = status.written_phase().unwrap_or("not yet seen by an operator");
        print_foreign(&format!("{} {name} in namespace {namespace}: {phase}\n", self.kind.name))
    }

    fn entries(&mut self, entries: &[TimelineEntry]) -> Result<(), CliError> {
        for entry in entries {
            let identities: Vec<_> = entry.identities().collect();
            let printed = identities.iter().any(|identity| self.printed.contains(identity));
            self.printed.extend(identities);
            if !printed {
                let text = match self.output {
                    PrintFormat::Plain => self.plain.entry(entry),
                    output => data(output, entry)?,
                };
                print_foreign(&text)?;
            }
        }
        Ok(())
    }

    fn print_gone(&self, entries: &[TimelineEntry]) -> Result<(), CliError> {
        self.summary(entries, None)?;
        if self.output == PrintFormat::Plain { print_foreign("The object is gone.\n") } else { Ok(()) }
    }

    fn summary(&self, entries: &[TimelineEntry], now: Option<Timestamp>) -> Result<(), CliError> {
        if self.output != PrintFormat::Plain {
            return Ok(());
        }
        print_foreign(&text::summary(&spans(entries, now)))
    }
}
