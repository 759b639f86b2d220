//! The reference runtime of agents and flows.

use std::process::ExitCode;

use clap::Parser;
use recif::runner::{self, LogFormat, Mode};
use tracing_subscriber::EnvFilter;

/// Serves one AI agent, one flow or a set of flows over HTTP.
///
/// With a `manifest.json` in the contract's folder it is a set of flows, with a `config.json` there one flow, else an
/// agent, which is configured by environment variables alone.
#[derive(Parser)]
#[command(version, after_help = runner::help())]
struct Cli {}

fn main() -> ExitCode {
    // Fails only when a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Cli {} = Cli::parse();
    let mode = Mode::read(&|name| std::env::var(name).ok());
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match mode.as_ref().map_or(LogFormat::Json, Mode::log) {
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Pretty => log.init(),
    }
    let mode = match mode {
        Ok(mode) => mode,
        Err(error) => {
            tracing::error!("{error}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match runtime.map_err(anyhow::Error::from).and_then(|runtime| Ok(runtime.block_on(runner::run(mode))?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}
