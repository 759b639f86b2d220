//! The operator under faults: a proxy between it and the API server disturbs what passes, and oracles judge the outcome against a
//! run of the same script that nothing disturbed.
//!
//! There is no node: the operator is a process of ours, and a loop says of each Deployment that it is ready. Every scenario plays
//! its script in many namespaces at once; each has draws of its own, so they are as many seeds. A failure prints how to replay it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the report is this program's output")]

mod judge;
mod masked;
mod scenarios;
mod script;
mod world;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;

use crate::{
    scenarios::{SCENARIOS, Scenario},
    world::World,
};

/// Plays scenarios on the cluster of KUBECONFIG, which must have no node.
#[derive(Debug, Clone, Parser)]
#[command(name = "faults")]
pub(crate) struct Args {
    /// Plays only scenarios whose name begins with one of these; none: all.
    filters: Vec<String>,
    /// What every fault is drawn from.
    #[arg(long, env = "E2E_SEED", default_value_t = 1)]
    seed: u64,
    /// In how many namespaces each script is played.
    #[arg(long, env = "E2E_SEEDS", default_value_t = 40)]
    seeds: usize,
    /// Plays only a third of the scenarios, which this decides: a commit's hash, say.
    #[arg(long)]
    third_of: Option<String>,
    /// The built `recif`.
    #[arg(long, env = "RECIF_BIN")]
    program: PathBuf,
    /// A folder for logs and the operator's kubeconfig.
    #[arg(long, env = "RECIF_STATE")]
    state: PathBuf,
    /// How the cluster is reached.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: PathBuf,
}

impl Args {
    /// Whether a scenario is to be played.
    fn wants(&self, at: usize, scenario: &Scenario) -> bool {
        let named = self.filters.is_empty() || self.filters.iter().any(|name| scenario.name.starts_with(name.as_str()));
        let digest =
            |text: &String| text.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        named && self.third_of.as_ref().is_none_or(|text| at % 3 == digest(text) % 3)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let _ = rustls::crypto::ring::default_provider().install_default();
    match play(&args).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("{failed} scenarios failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("nothing can be played: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Plays what was asked for; how many failed.
async fn play(args: &Args) -> anyhow::Result<usize> {
    let world = World::connect(args).await?;
    let mut failed = 0;
    for (_, scenario) in SCENARIOS.iter().enumerate().filter(|(at, scenario)| args.wants(*at, scenario)) {
        let begun = tokio::time::Instant::now();
        let result = world.play(scenario).await;
        let took = begun.elapsed().as_secs_f32();
        match result {
            Ok(note) => println!("ok    {} ({took:.1} s) {note}", scenario.name),
            Err(error) => {
                failed += 1;
                println!(
                    "FAIL  {} ({took:.1} s)\n  {error:#}\n  again: hack/faults --seed {} {}",
                    scenario.name, args.seed, scenario.name
                );
            }
        }
    }
    Ok(failed)
}
