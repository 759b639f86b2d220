//! Commands of `recif`: its processes, and the commands that query its objects.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use control_plane::{self, ControlPlaneArgs};
use daemon::logs::{self, LogArgs};
use gateway::{self, GatewayArgs};
use operator::args::OperatorArgs;

/// Runs AI agents on Kubernetes.
#[derive(Debug, Parser)]
#[command(
    name = "recif",
    version,
    propagate_version = true,
    after_help = cli::Exit::table() + "\nAs kubectl plugin: ln -s recif kubectl-recif"
)]
pub(crate) struct Recif {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run agents, flows and tools on this machine, without a cluster
    #[cfg(feature = "local")]
    Dev(Box<dev::DevArgs>),
    /// Run the operator: watch the objects and reconcile them
    Operator(Box<OperatorArgs>),
    /// Run the gateway: one address for every agent and flow
    Gateway {
        #[command(flatten)]
        args: Box<GatewayArgs>,
        #[command(flatten)]
        logs: LogArgs,
    },
    /// Run the control plane: the fleet as a REST API, and its changes live
    ControlPlane {
        #[command(flatten)]
        args: Box<ControlPlaneArgs>,
        #[command(flatten)]
        logs: LogArgs,
    },
    #[command(flatten)]
    Cli(cli::CliCommand),
}

impl Recif {
    /// Runs the command to its end.
    pub(crate) async fn run(self) -> ExitCode {
        match self.command {
            #[cfg(feature = "local")]
            Command::Dev(args) => dev::run(*args).await,
            Command::Operator(args) => operator::run::run(*args).await,
            Command::Gateway { args, logs } => match logs::init(logs.log_format, &logs.log) {
                Ok(()) => gateway::run(*args).await,
                Err(error) => bad_filter(&logs.log, &error),
            },
            Command::ControlPlane { args, logs } => match logs::init(logs.log_format, &logs.log) {
                Ok(()) => control_plane::run(*args).await,
                Err(error) => bad_filter(&logs.log, &error),
            },
            Command::Cli(command) => command.run().await,
        }
    }
}

fn bad_filter(filter: &str, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("error: --log {filter}: {error}");
    ExitCode::from(2)
}
