//! Tests the operator under fault injection: a proxy between it and the API server disturbs requests and responses, and
//! oracles compare the outcome with an undisturbed run of the same script.
//!
//! There is no node: the operator is a child process, and a loop marks each Deployment as ready. Every scenario plays its
//! script in many namespaces at once. The draws of each namespace are independent, so each namespace is a seed of its own.
//! A failure prints the command to replay it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the report is this program's output")]

mod args;
mod away;
mod counts;
mod fault_env;
mod invariants;
mod leaders;
mod masked;
mod oracles;
mod scenarios;
mod script;
mod upgrade;
mod walk;
mod writes;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;

use crate::{
    args::Args,
    fault_env::FaultEnv,
    leaders::{Disturbance, TAKE_OVERS},
    scenarios::{FaultScenario, SCENARIOS},
};

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
    let env = FaultEnv::connect(args).await?;
    let scenarios = SCENARIOS.iter().map(|scenario| (scenario.name, ScenarioKind::Disturbed(scenario)));
    let take_overs = TAKE_OVERS.iter().map(|(name, disturbance)| (*name, ScenarioKind::TakenOver(*disturbance)));
    let all = scenarios
        .chain(take_overs)
        // The walk leaves hundreds of agents to delete, for which whatever follows it would have to wait.
        .chain([(away::NAME, ScenarioKind::Away), (walk::NAME, ScenarioKind::Walk)])
        .enumerate();
    if let Some(older) = &args.older {
        let summary = upgrade::play(&env, older).await?;
        println!("ok    {} {summary}", upgrade::NAME);
        return Ok(0);
    }
    let wanted: Vec<_> = all.filter(|(at, (name, _))| args.wants(*at, name)).collect();
    anyhow::ensure!(!wanted.is_empty(), "no scenario's name begins so");
    env.baseline().await.context("the undisturbed run")?;
    let mut failed = 0;
    for (_, (name, kind)) in wanted {
        let begun = tokio::time::Instant::now();
        let result = match kind {
            ScenarioKind::Disturbed(scenario) => env.play(scenario).await,
            ScenarioKind::Walk => walk::play(&env).await,
            ScenarioKind::Away => away::play(&env).await,
            ScenarioKind::TakenOver(disturbance) => leaders::play(&env, name, disturbance).await,
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
