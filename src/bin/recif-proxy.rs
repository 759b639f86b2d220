//! The sidecar of workloads' Pods.

use std::process::ExitCode;

use clap::Parser;
use recif::proxy::{self, Config};
use tracing_subscriber::{filter::Targets, fmt, prelude::*};

/// Takes the requests of a workload, lets no more in than its cap, and empties its Pod before it goes. It is configured by
/// environment variables alone.
#[derive(Parser)]
#[command(version, after_help = proxy::help())]
struct Cli {}

fn main() -> ExitCode {
    let Cli {} = Cli::parse();
    recif::limits::raise_open_files();
    let wanted = std::env::var("RUST_LOG").ok().and_then(|text| text.parse().ok());
    let filter = wanted.unwrap_or_else(|| Targets::new().with_default(tracing::Level::INFO));
    let lines = fmt::layer().with_writer(std::io::stderr).json().flatten_event(true);
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    let config = match Config::read(|name| std::env::var(name).ok()) {
        Ok(config) => config,
        Err(error) => {
            tracing::error!("{error}");
            return ExitCode::from(2);
        }
    };
    // One thread: the buffer that connections share is its own, and one core relays more than a Pod answers.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(anyhow::Error::from).and_then(|runtime| Ok(runtime.block_on(proxy::run(config))?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}
