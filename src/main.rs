//! `recif`: the processes of Récif, and the commands that query its objects, in one program.
//!
//! Under the name `kubectl-recif` it is a kubectl plugin: `kubectl recif why agent/my-agent`.

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use control_plane::{self, ControlPlaneArgs};
use daemon::logs::{self, LogArgs};
use gateway::{self, GatewayArgs};
use operator::args::OperatorArgs;

/// Global allocator of the process: [jemalloc](https://jemalloc.net). The operator allocates and frees many small JSON values:
/// this allocator costs a tenth less CPU time than the system's, at no more memory, and returns unused memory from a thread of
/// its own. It requires the page size of the build machine, which ARM does not guarantee; hence only x86_64.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Runs AI agents on Kubernetes.
#[derive(Debug, Parser)]
#[command(
    name = "recif",
    version,
    propagate_version = true,
    after_help = cli::Exit::table() + "\nAs kubectl plugin: ln -s recif kubectl-recif"
)]
struct Recif {
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

// Single-threaded runtime: the operator needs less than a core, and moving tasks between threads would cost a fifth of that; the
// gateway serves connections on threads of its own.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    daemon::limits::raise_open_files();
    // Fails only if a provider is installed already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let program = arguments.first().map(String::as_str);
    let root = Recif::command().bin_name(cli::called_as(program));
    if let Some(code) = cli::complete(program, arguments.get(1..).unwrap_or_default(), &root).await {
        return code;
    }
    let recif = Recif::from_arg_matches(&root.get_matches()).unwrap_or_else(|error| error.exit());
    match recif.command {
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

fn bad_filter(filter: &str, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("error: --log {filter}: {error}");
    ExitCode::from(2)
}
