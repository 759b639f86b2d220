//! Runs end-to-end scenarios against a real cluster, through the API only.
//!
//! Each scenario is named after the rule that it tests and has a namespace of its own. Most run in parallel; those that
//! disturb the whole cluster run one at a time afterwards. The last line of the output is the result.

mod cleanup;
mod client;
mod control_plane;
mod env;
mod environment;
mod gateway;
mod kinds;
mod manifests;
mod mutate;
mod namespace;
mod netns;
mod node_load;
mod object;
mod operator;
mod prometheus;
mod report;
mod run;
mod scenario;
mod scenarios;
mod setup;
mod traffic;
mod upgrade;
mod watch;

use std::{process::ExitCode, sync::Arc};

use clap::Parser;

use crate::{
    env::{Env, TestPaths},
    scenario::Scenario,
    scenarios::Suite,
    upgrade::UpgradeArgs,
};

/// Runs scenarios against the cluster of KUBECONFIG.
#[derive(Debug, Parser)]
#[command(name = "e2e")]
struct Args {
    /// Runs only scenarios whose name contains one of these; none: all.
    filters: Vec<String>,
    /// Prints the names and runs nothing.
    #[arg(long)]
    list: bool,
    /// Brings operator and gateway into the cluster and runs nothing.
    #[arg(long)]
    deploy_only: bool,
    /// Runs the scenarios of a cluster with two nodes instead of all others.
    #[arg(long, conflicts_with = "local")]
    nodes: bool,
    /// Runs the scenarios of all samples of frameworks instead of all others.
    #[arg(long, conflicts_with_all = ["local", "nodes"])]
    frameworks: bool,
    /// Runs of the exclusive scenarios, which are the longest, and of those that `recif dev` passes too, only a third, which this decides: a commit's hash, say.
    #[arg(long)]
    third_of: Option<String>,
    /// How many scenarios run at once.
    #[arg(long, default_value_t = 6)]
    jobs: usize,
    #[command(flatten)]
    upgrade: UpgradeArgs,
    #[command(flatten)]
    paths: TestPaths,
}

impl Args {
    /// Returns the scenarios that run; none where the product is only deployed, or upgraded.
    fn chosen(&self) -> Vec<&'static Scenario> {
        if self.deploy_only || self.upgrade.upgrade_from.is_some() {
            return Vec::new();
        }
        let suite = match (self.nodes, self.paths.local) {
            (_, true) => Suite::Local,
            (true, false) => Suite::Nodes,
            (false, false) if self.frameworks => Suite::Frameworks,
            (false, false) if self.paths.has_default_version() => Suite::Cluster,
            (false, false) => Suite::OtherVersion,
        };
        scenarios::matching(&self.filters, suite, self.third_of.as_deref())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let chosen = args.chosen();
    let Args { list, deploy_only, jobs, upgrade, paths, .. } = args;
    if list {
        chosen.iter().for_each(|scenario| report::line(&scenario.title()));
        return ExitCode::SUCCESS;
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let env = match Env::connect(paths).await {
        Ok(env) => Arc::new(env),
        Err(error) => {
            report::line(&format!("no cluster to test: {error:#}"));
            return ExitCode::FAILURE;
        }
    };
    if let Some(older) = &upgrade.upgrade_from {
        return match upgrade::run(&env, &upgrade, older).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                report::line(&format!("FAIL  upgrade\n  {error:#}"));
                ExitCode::FAILURE
            }
        };
    }
    if let Err(error) = setup::deploy(&env).await {
        report::line(&format!("the operator could not be deployed: {error:#}"));
        return ExitCode::FAILURE;
    }
    if deploy_only {
        return ExitCode::SUCCESS;
    }
    let failed = run::run(&env, &chosen, jobs.max(1)).await;
    report::line(&format!("{} passed, {failed} failed", chosen.len() - failed));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `hack/e2e` builds the images of the samples if one of the listed scenarios needs them.
    #[test]
    fn a_run_that_only_deploys_has_no_scenarios() {
        let chosen = |more: &[&str]| {
            let paths = ["e2e", "--state", "s", "--bin-dir", "b", "--cluster", "c", "--list"];
            Args::parse_from(paths.iter().chain(more)).chosen()
        };
        assert!(chosen(&["--deploy-only"]).is_empty());
        assert!(!chosen(&[]).is_empty());
    }
}
