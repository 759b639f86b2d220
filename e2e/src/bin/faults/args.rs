//! Command line.

use std::path::PathBuf;

use clap::Parser;
use e2e::in_third_of;

/// Plays scenarios on the cluster of KUBECONFIG, which must have no node.
#[derive(Debug, Clone, Parser)]
#[command(name = "faults")]
pub(crate) struct Args {
    /// Plays only scenarios whose name begins with one of these; none: all.
    pub(crate) filters: Vec<String>,
    /// What every fault is drawn from.
    #[arg(long, env = "E2E_SEED", default_value_t = 1)]
    pub(crate) seed: u64,
    /// In how many namespaces each script is played.
    #[arg(long, env = "E2E_SEEDS", default_value_t = 40)]
    pub(crate) seeds: usize,
    /// Plays only a third of the scenarios, which this decides: a commit's hash, say.
    #[arg(long)]
    pub(crate) third_of: Option<String>,
    /// A `recif` of an older commit: plays the upgrade to the built one, and back, and nothing else.
    #[arg(long)]
    pub(crate) older: Option<PathBuf>,
    /// The built `recif`.
    #[arg(long, env = "RECIF_BIN")]
    pub(crate) program: PathBuf,
    /// A folder for logs and the operator's kubeconfig.
    #[arg(long, env = "RECIF_STATE")]
    pub(crate) state: PathBuf,
    /// How the cluster is reached.
    #[arg(long, env = "KUBECONFIG")]
    pub(crate) kubeconfig: PathBuf,
}

impl Args {
    /// Reports whether a scenario is selected.
    pub(crate) fn wants(&self, at: usize, name: &str) -> bool {
        let named = self.filters.is_empty() || self.filters.iter().any(|filter| name.starts_with(filter.as_str()));
        named && self.third_of.as_ref().is_none_or(|text| in_third_of(text, at))
    }
}
