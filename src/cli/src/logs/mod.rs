//! `recif logs`: prints the logs of a workload's Pods.
//!
//! With several Pods each line names its own. With `-f` it goes on through rollouts and restarts: new Pods are read,
//! too, and a log that has ended is opened again after its last line.

mod followed_pods;

use std::time::Duration;

use crds::{ApiKind, KINDS, Role};
use followed_pods::FollowedPods;
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};

use crate::{
    cluster::{ReadError, UserClient, pods_of},
    error::CliError,
    exit::Exit,
    output::{hint, print_foreign},
    target::{ConnectArgs, TargetArgs},
    trace::split_timestamp,
    why::explain_not_ready,
};

/// Interval at which `-f` looks for new Pods.
const POD_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Lines that are buffered before they are printed.
const BUFFERED_LINES: usize = 256;
/// Annotation that names the container to use where none is given, as for kubectl.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Flags of `recif logs`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Of several Pods each line begins with the name of its own.\n\nExamples:\n  recif logs agent/my-agent\n  recif logs \
                  agent/my-agent -f --tail 20\n  recif logs ag/my-agent -c proxy\n  recif logs flow/greeter --previous"
)]
pub struct LogsArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    connection: ConnectArgs,
    /// Follow: print what is written from now on too, also by Pods that come, until Ctrl-C
    #[arg(short, long, conflicts_with = "previous")]
    follow: bool,
    /// Container [default: the one that the workload is about; its sidecar is `proxy`]
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// Only the last lines of each Pod
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(i64).range(0..))]
    tail: Option<i64>,
    /// The log of the container before its last restart
    #[arg(short, long)]
    previous: bool,
}

/// Prints the logs.
pub(super) async fn run(args: LogsArgs) -> Result<Exit, CliError> {
    let LogsArgs { target, connection, follow, container, tail, previous } = args;
    let (kind, name) = target.parse()?;
    if kind.role != Role::Workload {
        let workloads = KINDS.iter().filter(|kind| kind.role == Role::Workload).map(|kind| kind.name.to_lowercase());
        let workloads = workloads.collect::<Vec<_>>().join(", ");
        return Err(CliError::Usage(format!("a {} has no Pods: logs are of one of {workloads}", kind.name)));
    }
    let live = connection.connect().await?;
    let object = live.object(kind, name).await?.ok_or_else(|| CliError::missing(&live, kind, name))?;
    let pods = live.pods(&live.namespace, &pods_of(kind, name)).await?;
    if pods.is_empty() {
        let why = explain_not_ready(&live, kind, name, &object).await.join("\n");
        let message = format!("{} {name} has no Pods{}{why}", kind.name, if why.is_empty() { "" } else { ":\n" });
        if !follow {
            return Err(CliError::NotReady(message));
        }
        hint(&message);
    }
    let wanted = LogSelection { container, tail, previous };
    if follow { wanted.follow(&live, kind, name).await } else { wanted.print(&live, &pods).await }
}

/// Selection of log lines.
#[derive(Debug)]
struct LogSelection {
    container: Option<String>,
    tail: Option<i64>,
    previous: bool,
}

/// Event of a followed log.
enum FollowedLogEvent {
    /// A line of this Pod, and the time at which it was written.
    Line(String, Option<Timestamp>, String),
    /// The end of this Pod's log for now, with the error if one ended it.
    End(String, Option<ReadError>),
}

impl LogSelection {
    /// Prints the logs once. Fails only if no Pod's log could be read.
    async fn print(&self, live: &UserClient, pods: &[Pod]) -> Result<Exit, CliError> {
        let (mut read, mut failed) = (false, None);
        for pod in pods {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let prefix = if pods.len() > 1 { format!("{name}  ") } else { String::new() };
            let mut lines = std::pin::pin!(live.log_lines(&live.namespace, name, &self.params(pod)));
            loop {
                match lines.next().await {
                    Some(Ok(line)) => print_foreign(&format!("{prefix}{line}\n"))?,
                    Some(Err(error)) => {
                        if let Some(before) = failed.replace(error) {
                            hint(&format!("note: {before}"));
                        }
                        break;
                    }
                    None => {
                        read = true;
                        break;
                    }
                }
            }
        }
        match failed {
            Some(error) if !read => Err(error.into()),
            Some(error) => {
                hint(&format!("note: {error}"));
                Ok(Exit::Done)
            }
            None => Ok(Exit::Done),
        }
    }

    /// Prints the logs and follows them until stopped.
    async fn follow(&self, live: &UserClient, kind: &'static ApiKind, name: &str) -> Result<Exit, CliError> {
        let (sender, mut events) = mpsc::channel(BUFFERED_LINES);
        let mut followed = FollowedPods::default();
        let mut looks = interval(POD_POLL_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = looks.tick() => match live.pods(&live.namespace, &pods_of(kind, name)).await {
                    Ok(pods) => {
                        for (pod, since) in followed.begin(&pods) {
                            let mut params = LogParams { follow: true, timestamps: true, ..self.params(pod) };
                            if let Some(since) = since {
                                params.tail_lines = None;
                                // The API takes whole seconds, which must not be rounded up.
                                params.since_time = Timestamp::from_second(since.as_second()).ok();
                            }
                            let pod = pod.metadata.name.clone().unwrap_or_default();
                            tokio::spawn(send(live.log_lines(&live.namespace, &pod, &params), pod, sender.clone()));
                        }
                    }
                    Err(error) if error.is_forbidden() => return Err(error.into()),
                    Err(error) => hint(&format!("note: {error}")),
                },
                event = events.recv() => match event {
                    Some(FollowedLogEvent::Line(pod, at, line)) => {
                        if let Some(line) = followed.line(&pod, at, &line) {
                            print_foreign(&line)?;
                        }
                    }
                    Some(FollowedLogEvent::End(pod, error)) => match error.filter(ReadError::is_forbidden) {
                        Some(error) => return Err(error.into()),
                        None => followed.end(&pod),
                    },
                    None => return Ok(Exit::Done),
                },
            }
        }
    }

    fn params(&self, pod: &Pod) -> LogParams {
        let container = self.container.clone().or_else(|| main_container(pod));
        LogParams { container, tail_lines: self.tail, previous: self.previous, ..LogParams::default() }
    }
}

/// Sends a log to the channel until it ends.
async fn send(
    lines: impl futures::Stream<Item = Result<String, ReadError>>,
    pod: String,
    sender: mpsc::Sender<FollowedLogEvent>,
) {
    let mut lines = std::pin::pin!(lines);
    let mut error = None;
    while let Some(line) = lines.next().await {
        match line {
            Ok(line) => {
                let (at, text) = split_timestamp(&line);
                if sender.send(FollowedLogEvent::Line(pod.clone(), at, text.to_owned())).await.is_err() {
                    return;
                }
            }
            Err(failed) => error = Some(failed),
        }
    }
    // The receiver is gone when the command has ended.
    let _ = sender.send(FollowedLogEvent::End(pod, error)).await;
}

/// Returns the container to read: the one that the Pod's annotation names, else the first.
fn main_container(pod: &Pod) -> Option<String> {
    let named = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(DEFAULT_CONTAINER));
    named.cloned().or_else(|| pod.spec.as_ref()?.containers.first().map(|container| container.name.clone()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str) -> Pod {
        let containers = json!([{ "name": "agent" }, { "name": "extra" }]);
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": { "containers": containers } })).unwrap()
    }

    #[test]
    fn the_container_that_the_workload_is_about_is_meant() {
        let mut pod = pod("a-1");
        assert_eq!(main_container(&pod).as_deref(), Some("agent"));
        pod.metadata.annotations = Some([(DEFAULT_CONTAINER.to_owned(), "extra".to_owned())].into());
        assert_eq!(main_container(&pod).as_deref(), Some("extra"));
    }
}
