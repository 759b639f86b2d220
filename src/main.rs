//! `recif`: the processes of Récif, and the commands that ask about its objects, in one program.
//!
//! Installed under the name `kubectl-recif` it is a kubectl plugin: `kubectl recif why agent/my-agent`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs AI agents on Kubernetes.
#[derive(Debug, Parser)]
#[command(
    name = "recif",
    version,
    propagate_version = true,
    after_help = "As kubectl plugin: ln -s recif kubectl-recif"
)]
struct Recif {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Cli(recif::cli::Command),
}

#[tokio::main]
async fn main() -> ExitCode {
    // Fails only if a provider is installed already, and then there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match Recif::parse().command {
        Command::Cli(command) => command.run().await,
    }
}
