//! Commands of `recif` for people: the history and state of objects, the kinds, and their state machines.
//!
//! Each command reads, then passes what it read to pure functions that decide on the output; those are tested. Only
//! `rollout`, `tools accept`, `rotate-identity` and `doctor --pull` write to the cluster; `chat`, `approvals`, `approve`, `ui`, `top` and
//! `trace --run` connect to its gateway and control plane. The
//! binary also works under the name `kubectl-recif`, which makes it a kubectl plugin: `kubectl recif why
//! agent/my-agent`.

pub mod chat;
mod cluster;
mod completions;
mod control_plane;
pub mod definitions;
pub mod doctor;
mod error;
mod exit;
pub mod get;
pub mod import;
pub mod logs;
pub mod machine;
mod names;
mod output;
mod progress;
pub mod roles;
pub mod rollout;
pub mod rotate_identity;
mod selection;
mod target;
pub mod tools;
pub mod top;
pub mod trace;
pub mod ui;
pub mod version;
pub mod why;

use std::{path::Path, process::ExitCode};

pub use error::CliError;
pub use exit::Exit;
pub use output::PrintFormat;
use output::{hint, print};
pub use target::{ConnectArgs, SystemArgs, TargetArgs};

/// The commands besides the processes of the cluster.
#[derive(Debug, clap::Subcommand)]
pub enum CliCommand {
    /// List objects
    Get(get::GetArgs),
    /// Explain why an object is not ready and how to fix it
    Why(why::WhyArgs),
    /// Show what an object did, step by step, and why
    Trace(trace::TraceArgs),
    /// Show what models used and what it cost, by agent, flow, model, caller or namespace
    Top(top::TopArgs),
    /// List the tools of an MCP server; show and accept what it changed
    Tools(tools::ToolsArgs),
    /// Print the logs of a workload's Pods
    Logs(logs::LogsArgs),
    /// Talk to an agent, or ask a flow, through the gateway
    Chat(chat::ChatArgs),
    /// List the calls of tools that wait for you, at all agents
    Approvals(chat::ApprovalsArgs),
    /// List calls of an agent's tools that wait for you, and approve or reject them
    Approve(chat::ApproveArgs),
    /// Show the web UI of the cluster's control plane on this machine
    Ui(ui::UiArgs),
    /// Replace the Pods of a workload, with the images that the operator gives today
    Rollout(rollout::RolloutArgs),
    /// Rotate the key with which gateways sign the caller's identity
    RotateIdentity(rotate_identity::RotateIdentityArgs),
    /// Turn objects of kagent, genkit-operator, Krypton or upstream Récif into ours
    Import(import::ImportArgs),
    /// Judge whether it works here, or would after an install
    Doctor(doctor::DoctorArgs),
    /// Print the versions of this program and of what is installed
    Version(version::VersionArgs),
    /// Print the CustomResourceDefinitions as YAML
    Crds(definitions::CrdsArgs),
    /// Print the state machine of a kind as a Mermaid diagram
    Machine(machine::MachineArgs),
    /// Print a script with which a shell completes what is typed
    Completions(completions::CompletionsArgs),
}

impl CliCommand {
    /// Runs the command. An error is one line on stderr and a code of [`Exit`]. A
    /// reader of stdout that has closed the pipe (`| head`) is not an error.
    pub async fn run(self) -> ExitCode {
        let outcome = match self {
            Self::Get(args) => get::run(args).await,
            Self::Why(args) => why::run(args).await,
            Self::Trace(args) => trace::run(args).await,
            Self::Top(args) => top::run(args).await,
            Self::Tools(args) => tools::run(args).await,
            Self::Logs(args) => logs::run(args).await,
            Self::Chat(args) => chat::run(args).await,
            Self::Approvals(args) => chat::approvals(args).await,
            Self::Approve(args) => chat::approve(args).await,
            Self::Ui(args) => ui::run(args).await,
            Self::Rollout(args) => rollout::run(args).await,
            Self::RotateIdentity(args) => rotate_identity::run(args).await,
            Self::Import(args) => import::run(args).await,
            Self::Doctor(args) => doctor::run(args).await,
            Self::Version(args) => version::run(args).await,
            Self::Crds(args) => definitions::run(&args),
            Self::Machine(args) => machine::run(&args),
            Self::Completions(args) => completions::run(&args),
        };
        match outcome {
            Ok(code) => code.into(),
            Err(error) if error.is_closed_pipe() => Exit::Done.into(),
            Err(error) => {
                hint(&format!("error: {error}"));
                error.code().into()
            }
        }
    }
}

/// Returns the name by which the program was called, for usage texts.
pub fn called_as(program: Option<&str>) -> &'static str {
    if stem(program) == Some("kubectl-recif") { "kubectl recif" } else { "recif" }
}

/// Answers a shell that requests completions of the words typed so far, which follow `__complete`, and kubectl, which
/// runs the program under the name `kubectl_complete-recif`; `None` for any other call.
pub async fn complete(program: Option<&str>, words: &[String], root: &clap::Command) -> Option<ExitCode> {
    let words = match words.split_first() {
        _ if stem(program) == Some("kubectl_complete-recif") => words,
        Some((first, rest)) if first == "__complete" => rest,
        _ => return None,
    };
    let printed = print(&completions::complete(root, words).await);
    Some(if printed.is_ok() { Exit::Done } else { Exit::Failed }.into())
}

fn stem(program: Option<&str>) -> Option<&str> {
    Path::new(program?).file_stem()?.to_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_called_as_kubectl_calls_it() {
        for (program, name) in [
            (Some("/usr/local/bin/kubectl-recif"), "kubectl recif"),
            (Some("/x/recif"), "recif"),
            (Some("renamed"), "recif"),
            (None, "recif"),
        ] {
            assert_eq!(called_as(program), name, "{program:?}");
        }
    }
}
