//! Measures the cost of the operator in requests, CPU, memory and time against goals.
//!
//! The operator runs as a child process under its own ServiceAccount, so the API server's audit log shows which requests
//! are the operator's, and `/proc` shows the resources of the process. There is no node: a loop of this program marks each
//! Deployment as ready. The result is one table. A missed goal is exit code 1.

mod agents;
mod bare;
mod bench_env;
mod counts;
mod crowd;
mod fake_mcp;
mod flows;
mod footprint;
mod latency;
mod peer;
mod quiet;
mod references;
mod requests;
mod servers;
mod table;
mod template;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use futures::future::BoxFuture;

use crate::{
    bench_env::{BenchEnv, BenchOptions},
    table::{BenchMeasurement, print_progress},
};

/// Measures the operator on the cluster of KUBECONFIG, which must have no node.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Args {
    /// What to measure; nothing given: everything, in this order.
    scenarios: Vec<Benchmark>,
    #[command(flatten)]
    options: BenchOptions,
}

/// What can be measured. The order is that of a full run: few agents before many, and what needs the many last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Benchmark {
    /// Size of the image, and time from start to ready in an empty cluster.
    Start,
    /// Requests from the creation of one agent to Running.
    Requests,
    /// Time from a stored change to the first stored child.
    Latency,
    /// An agent that a stranger patches all the time while it starts.
    Strangers,
    /// A stranger's changes to what already runs.
    Foreign,
    /// Nothing to do with 1 agent.
    SteadyOne,
    /// Nothing to do with 100 agents.
    SteadyHundred,
    /// Many agents created at once, against a bare loop that sends the same requests.
    Crowd,
    /// Nothing to do with many agents.
    SteadyMany,
    /// Memory with many agents.
    Memory,
    /// An annotation on a Tool that many agents use.
    SharedTool,
    /// A restart of the operator with many agents.
    Restart,
    /// An edit of a Prompt that one of many flows uses.
    PromptEdit,
    /// A Secret that 100 flows use gets another value.
    SecretRotation,
    /// Two hundred servers of tools that tell the same again and again, then one of them hangs.
    Servers,
}

impl Benchmark {
    fn run(self, env: &mut BenchEnv) -> BoxFuture<'_, anyhow::Result<Vec<BenchMeasurement>>> {
        match self {
            Self::Start => Box::pin(footprint::start(env)),
            Self::Requests => Box::pin(requests::one_agent(env)),
            Self::Latency => Box::pin(latency::first_child(env)),
            Self::Strangers => Box::pin(requests::beside_a_stranger(env)),
            Self::Foreign => Box::pin(quiet::foreign_changes(env)),
            Self::SteadyOne => Box::pin(quiet::steady(env, 1)),
            Self::SteadyHundred => Box::pin(quiet::steady(env, 100)),
            Self::Crowd => Box::pin(crowd::created_at_once(env)),
            Self::SteadyMany => Box::pin(quiet::steady(env, env.many())),
            Self::Memory => Box::pin(footprint::memory(env)),
            Self::SharedTool => Box::pin(quiet::shared_tool(env)),
            Self::Restart => Box::pin(quiet::restart(env)),
            Self::PromptEdit => Box::pin(references::prompt_edit(env)),
            Self::SecretRotation => Box::pin(references::secret_rotation(env)),
            Self::Servers => Box::pin(servers::steady(env)),
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let Args { mut scenarios, options } = Args::parse();
    if scenarios.is_empty() {
        scenarios = Benchmark::value_variants().to_vec();
    }
    scenarios.sort_unstable();
    scenarios.dedup();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut env = match BenchEnv::connect(options).await {
        Ok(env) => env,
        Err(error) => {
            print_progress(&format!("nothing could be measured: {error:#}"));
            return ExitCode::FAILURE;
        }
    };
    let mut rows = Vec::new();
    for scenario in scenarios {
        let name = scenario.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        print_progress(&format!("measuring {name}"));
        let measured = scenario.run(&mut env).await;
        rows.extend(measured.unwrap_or_else(|error| vec![BenchMeasurement::failed(&name, &error)]));
    }
    if let Err(error) = env.stop_operator().await {
        print_progress(&format!("{error:#}"));
    }
    table::print(&rows);
    if rows.iter().all(|row| row.ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
