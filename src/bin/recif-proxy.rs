//! Sidecar of workload Pods, with its helpers: the preStop hook, the installer, and the bridge to MCP servers over stdio.

use std::{fmt::Display, path::PathBuf, process::ExitCode};

use bridge::{self, ServeError};
use clap::{Parser, Subcommand};
use proxy::{self, ProxyConfig};
use tracing_subscriber::{filter::Targets, fmt, prelude::*};

/// Relays the requests of a workload, with a limit on those in flight, and drains its Pod before it ends. It is configured by
/// environment variables alone.
#[derive(Parser)]
#[command(version, after_help = proxy::help())]
struct Cli {
    #[command(subcommand)]
    command: Option<ProxyCommand>,
}

/// What the program does instead of being a sidecar.
#[derive(Subcommand)]
enum ProxyCommand {
    McpBridge(bridge::Args),
    /// Notifies the sidecar in this container that its Pod is terminating: the container's preStop hook. It has the sidecar's
    /// environment.
    LameDuck,
    /// Copies this program, which runs in any image, to FILE: an init container shares it so with a container of another image.
    Install {
        /// The copy; its folder has to exist.
        file: PathBuf,
    },
}

fn main() -> ExitCode {
    // A sidecar has no arguments, and every Pod pays for the memory pages it touches: the argument parser's stay on disk.
    let command = if std::env::args_os().len() > 1 { Cli::parse().command } else { None };
    let wanted = std::env::var("RUST_LOG").ok().and_then(|text| text.parse().ok());
    let filter = wanted.unwrap_or_else(|| Targets::new().with_default(tracing::Level::INFO));
    let lines = fmt::layer().with_writer(std::io::stderr).json().flatten_event(true);
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    // Single-threaded runtime: connections share one thread-local buffer, and one core relays more than a Pod can answer.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(1, error),
    };
    match command {
        None => {
            daemon::limits::raise_open_files();
            match ProxyConfig::read(|name| std::env::var(name).ok()) {
                Ok(config) => ended(runtime.block_on(proxy::run(config))),
                Err(error) => failed(2, error),
            }
        }
        Some(ProxyCommand::LameDuck) => match ProxyConfig::read(|name| std::env::var(name).ok()) {
            Ok(config) => ended(runtime.block_on(proxy::lame_duck(&config))),
            Err(error) => failed(2, error),
        },
        Some(ProxyCommand::McpBridge(args)) => match runtime.block_on(bridge::run(args)) {
            Err(error @ ServeError::Args(_)) => failed(2, error),
            end => ended(end),
        },
        Some(ProxyCommand::Install { file }) => ended(bridge::install(&file)),
    }
}

fn ended(end: Result<(), impl Display>) -> ExitCode {
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(1, error),
    }
}

fn failed(status: u8, error: impl Display) -> ExitCode {
    tracing::error!("{error}");
    ExitCode::from(status)
}
