//! Reference runtime of agents and flows.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use runner::{self, LogFormat, Mode, RunnerConfig};
use tracing_subscriber::EnvFilter;

/// Serves one AI agent, one flow or a set of flows over HTTP.
///
/// With a `manifest.json` in the contract's folder it is a set of flows, with a `config.json` there one flow, else an
/// agent, which is configured by environment variables alone.
#[derive(Parser)]
#[command(version, after_help = runner::help())]
struct Cli {
    #[command(subcommand)]
    command: Option<RunnerCommand>,
}

/// What the program does instead of serving an agent or flows.
#[derive(Subcommand)]
enum RunnerCommand {
    /// Serves the tools of CORAIL_TOOLS as an MCP server over standard input and output.
    Mcp,
}

enum Program {
    Serve(Mode),
    Tools(Box<RunnerConfig>),
}

fn main() -> ExitCode {
    // Fails only when a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Cli { command } = Cli::parse();
    let variable = |name: &str| std::env::var(name).ok();
    let program = match command {
        None => Mode::read(&variable).map(Program::Serve),
        Some(RunnerCommand::Mcp) => RunnerConfig::read(&variable).map(|config| Program::Tools(config.into())),
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let format = program.as_ref().map_or(LogFormat::Json, |program| match program {
        Program::Serve(mode) => mode.log(),
        Program::Tools(config) => config.log,
    });
    match format {
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Pretty => log.init(),
    }
    let program = match program {
        Ok(program) => program,
        Err(error) => {
            tracing::error!("{error}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ran = runtime.map_err(anyhow::Error::from).and_then(|runtime| match program {
        // On a worker: the main thread would be woken for every connection, only to give it to a worker.
        Program::Serve(mode) => Ok(runtime.block_on(runtime.spawn(runner::run(mode)))??),
        Program::Tools(config) => Ok(runtime.block_on(runner::serve_tools(*config))?),
    });
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}
