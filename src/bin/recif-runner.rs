//! The reference agent runtime.

use std::process::ExitCode;

use clap::Parser;
use recif::runner::{self, Config, LogFormat};
use tracing_subscriber::EnvFilter;

/// Serves one AI agent over HTTP. It is configured by environment variables alone.
#[derive(Parser)]
#[command(version, after_help = runner::help())]
struct Cli {}

fn main() -> ExitCode {
    // Fails only when a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Cli {} = Cli::parse();
    let config = Config::read(&|name| std::env::var(name).ok());
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match config.as_ref().map_or(LogFormat::Json, |config| config.log) {
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Pretty => log.init(),
    }
    let config = match config {
        Ok(config) => config,
        Err(error) => {
            tracing::error!("{error}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match runtime.map_err(anyhow::Error::from).and_then(|runtime| Ok(runtime.block_on(runner::run(config))?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}
