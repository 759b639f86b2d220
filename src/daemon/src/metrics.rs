//! The flag that says whether metrics name the workload that they are about.

use clap::ArgAction;

/// Flag of processes with metrics by workload.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct MetricsArgs {
    /// Label metrics with the namespace and name of the workload; =false leaves these labels empty and counts by kind, where there
    /// are more workloads than the monitoring can take
    #[arg(
        long = "metrics-by-workload", env = "RECIF_METRICS_BY_WORKLOAD", default_value_t = true, action = ArgAction::Set,
        require_equals = true, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL"
    )]
    pub by_workload: bool,
}
