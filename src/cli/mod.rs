//! The commands for people: what an object did, what it waits for, what the kinds are and how they move.
//!
//! Uses: cluster, cache
//!
//! Each command but `rollout` only reads, then hands what it read to pure functions that decide what to say; those are what the tests
//! look at. The binary works under the name `kubectl-recif` too, which makes it a kubectl plugin: `kubectl recif why
//! agent/my-agent`.

pub mod definitions;
mod error;
pub mod machine;
pub mod rollout;
mod target;
pub mod trace;
pub mod why;

use std::{
    io::{self, Write},
    process::ExitCode,
};

pub use error::CliError;
pub use target::{ConnectArgs, Target};

/// The commands besides the processes of the cluster.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show what an object did, step by step, and why
    Trace(trace::TraceArgs),
    /// Say in one sentence what an object waits for and what to do
    Why(why::WhyArgs),
    /// Replace the Pods of a workload, with the images that the operator gives today
    Rollout(rollout::RolloutArgs),
    /// Print the CustomResourceDefinitions as YAML
    Crds(definitions::CrdsArgs),
    /// Print the state machine of a kind as a Mermaid diagram
    Machine(machine::MachineArgs),
}

impl Command {
    /// Runs the command. An error is one line on stderr and exit code 1; a reader of stdout that went away (`| head`)
    /// is none.
    pub async fn run(self) -> ExitCode {
        let outcome = match self {
            Self::Trace(args) => trace::run(args).await,
            Self::Why(args) => why::run(args).await,
            Self::Rollout(args) => rollout::run(args).await,
            Self::Crds(args) => definitions::run(&args),
            Self::Machine(args) => machine::run(&args),
        };
        match outcome {
            Ok(code) => code,
            Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
            Err(error) => {
                hint(&format!("error: {error}"));
                ExitCode::FAILURE
            }
        }
    }
}

/// Writes to stdout at once, so that a follower sees it.
fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(CliError::Print)
}

/// One line beside the answer. Nobody is there to be told when stderr is closed.
fn hint(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
