//! Tests the operator under fault injection: a proxy between it and the API server disturbs requests and responses, and
//! oracles compare the outcome with an undisturbed run of the same script.
//!
//! There is no node: the operator is a child process, and a loop marks each Deployment as ready. Every scenario plays its
//! script in many namespaces at once. The draws of each namespace are independent, so each namespace is a seed of its own.
//! A failure prints the command to replay it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the report is this program's output")]

mod away;
mod counts;
mod fault_env;
mod invariants;
mod leaders;
mod masked;
mod scenarios;
mod script;
mod upgrade;
mod walk;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Parser;

use crate::{
    fault_env::FaultEnv,
    leaders::{Disturbance, TAKE_OVERS},
    scenarios::{FaultScenario, SCENARIOS},
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
    /// A `recif` of an older commit: plays the upgrade to the built one, and back, and nothing else.
    #[arg(long)]
    older: Option<PathBuf>,
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
    /// Reports whether a scenario is selected.
    fn wants(&self, at: usize, name: &str) -> bool {
        let named = self.filters.is_empty() || self.filters.iter().any(|filter| name.starts_with(filter.as_str()));
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

/// Kind of a scenario.
enum ScenarioKind {
    /// One operator, whose requests are disturbed.
    Disturbed(&'static FaultScenario),
    /// Two replicas, of which the leader is disturbed.
    TakenOver(Disturbance),
    /// One operator without faults, and every field in turn.
    Walk,
    /// One operator, which does not run during the deletions.
    Away,
}

/// Plays the selected scenarios; returns the number of failures.
async fn play(args: &Args) -> anyhow::Result<usize> {
    let world = FaultEnv::connect(args).await?;
    let scenarios = SCENARIOS.iter().map(|scenario| (scenario.name, ScenarioKind::Disturbed(scenario)));
    let take_overs = TAKE_OVERS.iter().map(|(name, disturbance)| (*name, ScenarioKind::TakenOver(*disturbance)));
    let all = scenarios
        .chain(take_overs)
        .chain([(walk::NAME, ScenarioKind::Walk), (away::NAME, ScenarioKind::Away)])
        .enumerate();
    if let Some(older) = &args.older {
        let told = upgrade::play(&world, older).await?;
        println!("ok    {} {told}", upgrade::NAME);
        return Ok(0);
    }
    let wanted: Vec<_> = all.filter(|(at, (name, _))| args.wants(*at, name)).collect();
    anyhow::ensure!(!wanted.is_empty(), "no scenario's name begins so");
    world.baseline().await.context("the undisturbed run")?;
    let mut failed = 0;
    for (_, (name, kind)) in wanted {
        let begun = tokio::time::Instant::now();
        let result = match kind {
            ScenarioKind::Disturbed(scenario) => world.play(scenario).await,
            ScenarioKind::Walk => walk::play(&world).await,
            ScenarioKind::Away => away::play(&world).await,
            ScenarioKind::TakenOver(disturbance) => leaders::play(&world, name, disturbance).await,
        };
        let took = begun.elapsed().as_secs_f32();
        match result {
            Ok(note) => println!("ok    {name} ({took:.1} s) {note}"),
            Err(error) => {
                failed += 1;
                println!(
                    "FAIL  {name} ({took:.1} s)\n  {error:#}\n  again: hack/faults --seed {} --seeds {} {name}",
                    args.seed, args.seeds
                );
            }
        }
    }
    Ok(failed)
}
