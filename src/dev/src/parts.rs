//! Operator, gateway and control plane in this process: with the flags that a user would give them on a machine of their own, and the
//! client of the API server in memory.

use std::{collections::BTreeMap, fmt::Display, path::Path, time::Duration};

use clap::{Args, Command};
use control_plane::ControlPlaneArgs;
use daemon::runtime::Runtime;
use gateway::{GatewayArgs, RequestCount};
use kube::Client;
use node::RUNNER_IMAGE;
use operator::{args::OperatorArgs, discovery::HostMap};
use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{part::Part, platform::NAMESPACE};

/// Longest drain of the gateway. What it serves ends with the programs, which have their own limits.
const DRAIN: &str = "24h";
/// Longest wait for the end of a part that serves no request any more.
const END: Duration = Duration::from_secs(6);

/// Listeners of the parts.
#[derive(Debug)]
pub(crate) struct PartListeners {
    /// Of the gateway, for clients.
    pub(crate) gateway: std::net::TcpListener,
    /// Of the gateway, for the scaler and metrics.
    pub(crate) gateway_admin: TcpListener,
    /// Of the control plane.
    pub(crate) control_plane: TcpListener,
    /// Of the control plane, for metrics.
    pub(crate) control_plane_admin: TcpListener,
    /// Of the control plane, for spans.
    pub(crate) otlp: TcpListener,
}

/// Configuration of the parts.
pub(crate) struct PartConfig<'a> {
    /// Folder of the control plane's database.
    pub(crate) folder: &'a Path,
    /// Address of the gateway, as `127.0.0.1:8080`.
    pub(crate) gateway: String,
    /// Address of the control plane.
    pub(crate) control_plane: String,
    /// Address at which the control plane receives spans.
    pub(crate) otlp: String,
    /// Ports that no MCP server may have.
    pub(crate) closed_ports: Vec<u16>,
    /// Addresses of the hosts of MCP servers.
    pub(crate) hosts: HostMap,
}

/// The parts cannot start, or one has ended.
#[derive(Debug, thiserror::Error)]
#[error("the {} ends: {cause}", .part.name())]
pub(crate) struct PartError {
    part: Part,
    cause: String,
}

impl PartError {
    fn of(part: Part) -> impl Fn(&dyn Display) -> Self {
        move |cause| Self { part, cause: cause.to_string() }
    }
}

/// Running parts.
pub(crate) struct PlatformParts {
    operator: CancellationToken,
    gateway: CancellationToken,
    control_plane: CancellationToken,
    tasks: Vec<(Part, JoinHandle<()>)>,
    failures: mpsc::UnboundedReceiver<PartError>,
    requests: RequestCount,
}

impl PlatformParts {
    /// Starts the parts.
    ///
    /// # Errors
    /// A part cannot start.
    pub(crate) async fn start(
        client: &Client,
        config: PartConfig<'_>,
        bound: PartListeners,
    ) -> Result<Self, PartError> {
        let [operator_stops, gateway_stops, control_plane_stops] = std::array::from_fn(|_| CancellationToken::new());
        let (failed, failures) = mpsc::unbounded_channel();
        let PartConfig {
            folder,
            gateway: gateway_address,
            control_plane: control_plane_address,
            otlp: otlp_address,
            closed_ports,
            hosts,
        } = config;

        let fail = PartError::of(Part::Operator);
        let closed = closed_ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        let flags = [
            "--leader-elect=false",
            "--network-policies=false",
            "--local",
            "--agent-image",
            RUNNER_IMAGE,
            "--operator-namespace",
            NAMESPACE,
            "--closed-ports",
            &closed,
        ];
        let args: OperatorArgs = parse(Part::Operator, &flags)?;
        let mut operator = operator::prepare::prepare(args).map_err(|error| fail(&error))?;
        operator.listen = None;
        operator.network.hosts = Some(hosts);
        // A collector of the user's own, which the shell's variables name, goes before.
        let collector = telemetry(&otlp_address);
        operator.offer_telemetry(collector.clone()).map_err(|error| fail(&error))?;
        let runtime = Runtime::with_shutdown(operator_stops.clone());
        let runs = operator::run::reconcile(operator, Some(client.clone()), runtime);
        let operator = spawn(Part::Operator, runs, &operator_stops, &failed);

        let fail = PartError::of(Part::Gateway);
        let flags = [
            "--listen",
            &gateway_address,
            "--auth",
            "none",
            "--lame-duck",
            "0s",
            "--shutdown-timeout",
            DRAIN,
            "--operator-namespace",
            NAMESPACE,
            // The screen is for the user.
            "--audit",
            "off",
        ];
        let args: GatewayArgs = parse(Part::Gateway, &flags)?;
        let gateway = gateway::prepare(args, Some(client.clone()), &collector).await.map_err(|error| fail(&error))?;
        let requests = gateway.requests();
        let listeners = gateway::Listeners { clients: Some(bound.gateway), admin: Some(bound.gateway_admin) };
        let runtime = Runtime::with_shutdown(gateway_stops.clone());
        let gateway = spawn(Part::Gateway, gateway::serve(gateway, listeners, runtime), &gateway_stops, &failed);

        let folder = folder.to_string_lossy();
        let gateway_url = format!("http://{gateway_address}");
        let flags = [
            "--bind",
            &control_plane_address,
            "--auth",
            "none",
            "--gateway-url",
            &gateway_url,
            "--data-dir",
            &folder,
            "--otlp-listen",
            &otlp_address,
        ];
        let args: ControlPlaneArgs = parse(Part::ControlPlane, &flags)?;
        let listeners = control_plane::Listeners {
            api: Some(bound.control_plane),
            admin: Some(bound.control_plane_admin),
            otlp: Some(bound.otlp),
        };
        let runtime = Runtime::with_shutdown(control_plane_stops.clone());
        let runs = control_plane::serve(args, Some(client.clone()), listeners, runtime);
        let control_plane = spawn(Part::ControlPlane, runs, &control_plane_stops, &failed);

        let tasks = vec![(Part::Operator, operator), (Part::Gateway, gateway), (Part::ControlPlane, control_plane)];
        let (operator, gateway, control_plane) = (operator_stops, gateway_stops, control_plane_stops);
        Ok(Self { operator, gateway, control_plane, tasks, failures, requests })
    }

    /// Returns the number of requests that the gateway serves.
    pub(crate) fn requests(&self) -> usize {
        self.requests.get()
    }

    /// Waits until a part has ended that should not have.
    pub(crate) async fn failed(&mut self) -> PartError {
        match self.failures.recv().await {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Lets the gateway take no new connections and the operator change no objects from now on; requests go on.
    pub(crate) fn stop(&self) {
        self.operator.cancel();
        self.gateway.cancel();
    }

    /// Waits until operator and gateway have ended, then stops the control plane, which keeps their last spans and those of the programs.
    /// Reports whether all have ended. No program may be left that serves requests.
    pub(crate) async fn ended(self) -> bool {
        let mut all = true;
        let mut deadline = Instant::now() + END;
        // The control plane is the last of them.
        for (part, task) in self.tasks {
            if part == Part::ControlPlane {
                self.control_plane.cancel();
                deadline = Instant::now() + END;
            }
            if timeout_at(deadline, task).await.is_err() {
                tracing::warn!(part = part.name(), "it does not end in time");
                all = false;
            }
        }
        all
    }
}

/// Returns the variables by which programs and parts find the control plane, which keeps their spans.
fn telemetry(address: &str) -> BTreeMap<String, String> {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), format!("http://{address}"));
    [endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL".to_owned(), "http/protobuf".to_owned())].into()
}

/// Runs a part, and reports its end unless it was to stop.
fn spawn<E: Display + Send + 'static>(
    part: Part,
    runs: impl Future<Output = Result<(), E>> + Send + 'static,
    stops: &CancellationToken,
    failed: &mpsc::UnboundedSender<PartError>,
) -> JoinHandle<()> {
    let (stops, failed) = (stops.clone(), failed.clone());
    tokio::spawn(async move {
        let cause = match runs.await {
            Err(error) => error.to_string(),
            Ok(()) if stops.is_cancelled() => return,
            Ok(()) => "it has nothing left to do".to_owned(),
        };
        // The receiver is gone when this process ends.
        let _ = failed.send(PartError { part, cause });
    })
}

/// Reads the flags of a part. The environment counts for nothing: it is that of a user's shell.
fn parse<A: Args>(part: Part, flags: &[&str]) -> Result<A, PartError> {
    let command = A::augment_args(Command::new(part.name())).mut_args(|arg| arg.env(None::<&'static str>));
    let matches = command.try_get_matches_from([part.name()].iter().chain(flags));
    matches.and_then(|matches| A::from_arg_matches(&matches)).map_err(|error| PartError::of(part)(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_of_the_user_sets_no_flag() {
        // Every test process has this variable, and no part has a flag for it but this one.
        #[derive(clap::Args)]
        struct Flags {
            #[arg(long, env = "PATH", default_value = "none")]
            path: String,
        }
        assert_eq!(parse::<Flags>(Part::Operator, &[]).ok().map(|flags| flags.path).as_deref(), Some("none"));
    }

    #[test]
    fn each_part_knows_its_flags() {
        assert!(
            parse::<OperatorArgs>(Part::Operator, &["--leader-elect=false", "--network-policies=false", "--local"])
                .is_ok()
        );
        assert!(
            parse::<GatewayArgs>(Part::Gateway, &["--auth", "none", "--lame-duck", "0s", "--shutdown-timeout", DRAIN])
                .is_ok()
        );
        assert!(parse::<ControlPlaneArgs>(Part::ControlPlane, &["--auth", "none", "--data-dir", "x"]).is_ok());
        let error = parse::<GatewayArgs>(Part::Gateway, &["--nothing"]).unwrap_err().to_string();
        assert!(error.starts_with("the gateway ends: "), "{error}");
    }
}
