//! `recif dev`: Récif on a laptop, without a cluster. The API server in memory, operator, gateway, control plane and node are one
//! process; programs of Pods are its children.
//!
//! [`start`] makes all of it, [`session`] is what happens then. Files become objects in [`desired`]: [`workspace`] reads them, [`yaml`]
//! knows the place of each field, [`apply`] writes what changed, [`status`] follows what becomes of it. What the user sees is in
//! [`screen`].

mod apply;
mod args;
mod bound;
mod certificate;
mod code;
mod command;
mod desired;
mod env_file;
mod files;
mod folder;
mod kinds;
mod kubeconfig;
mod listener;
mod manifest;
mod part;
mod part_logs;
mod parts;
mod platform;
mod ports;
mod programs;
mod refusal;
mod reload;
mod screen;
mod secrets;
mod session;
mod signals;
mod start;
mod status;
mod workspace;

use std::process::ExitCode;

pub use args::DevArgs;

/// Runs until a signal, or the end of the user's command. The exit code is that of the command; without one 0 after the first signal and
/// 130 after the second; 1 if it cannot go on, 2 for a wrong flag, 3 if not all is Ready in time.
pub async fn run(args: DevArgs) -> ExitCode {
    match start::start(args).await {
        Ok(session) => session.run().await,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.code())
        }
    }
}
