//! Logs on stdout: one JSON object per line in production, readable lines in a terminal. The phase trace is a target of
//! its own, `phase_trace`, and is on by default.

use std::str::FromStr;

use tracing_subscriber::{EnvFilter, filter::ParseError};

/// Default log filter.
pub const DEFAULT_FILTER: &str = "info,kube_client=off,hyper=warn,tower=warn";

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Pretty,
}

/// The options of a process that logs.
#[derive(Debug, clap::Args)]
pub struct LogArgs {
    /// How log lines look
    #[arg(long, env = "RECIF_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
    /// What is logged: a level, or target=level, separated by commas
    #[arg(long, env = "RECIF_LOG", default_value = DEFAULT_FILTER, value_name = "FILTER")]
    pub log: String,
}

/// Starts logging; to be called once.
///
/// # Errors
/// The filter is not of the form `level` or `target=level`, separated by commas.
pub fn init(format: LogFormat, filter: &str) -> Result<(), ParseError> {
    let filter = EnvFilter::from_str(filter)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter);
    // A second call, as in a test, has no effect.
    let _ = match format {
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
        LogFormat::Pretty => builder.compact().try_init(),
    };
    Ok(())
}
