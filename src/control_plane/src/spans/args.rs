//! Command line options about spans.

use std::{net::SocketAddr, time::Duration};

use crate::mirror::days;

/// Options of what receives and keeps spans.
#[derive(Debug, clap::Args)]
pub(crate) struct SpansArgs {
    /// Address that receives spans of workloads, gateway and operator, by OTLP over HTTP, such as 0.0.0.0:4318; without it none are kept
    #[arg(long, env = "RECIF_OTLP_LISTEN", value_name = "ADDRESS")]
    pub(crate) otlp_listen: Option<SocketAddr>,
    /// ServiceAccounts of gateway and operator, as namespace/name, separated by commas: each of their spans says itself which object it is
    /// about
    #[arg(long, env = "RECIF_OTLP_ACCOUNTS", value_delimiter = ',', value_parser = account, value_name = "NAMES")]
    pub(crate) otlp_accounts: Vec<String>,
    /// How long spans are kept
    #[arg(long, env = "RECIF_SPANS", default_value = "3d", value_parser = days, value_name = "DURATION")]
    spans: Duration,
    /// How much room the kept spans may take, such as 256Mi or 1Gi; the oldest go first
    #[arg(long, env = "RECIF_SPANS_SIZE", default_value = "256Mi", value_parser = size, value_name = "SIZE")]
    spans_size: u64,
}

/// Bounds of what is kept of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpanRetention {
    /// Retention time of a span.
    pub(crate) time: Duration,
    /// Limit of all spans, in bytes.
    pub(crate) bytes: u64,
}

impl SpansArgs {
    /// Returns the bounds of what is kept.
    pub(crate) fn retention(&self) -> SpanRetention {
        SpanRetention { time: self.spans, bytes: self.spans_size }
    }
}

/// Parses `namespace/name` of a ServiceAccount, and returns the name by which the API server knows it.
fn account(text: &str) -> Result<String, String> {
    let is_whole = |part: &&str| !part.is_empty() && !part.contains('/');
    let parts = text.trim().split_once('/').filter(|(namespace, name)| is_whole(namespace) && is_whole(name));
    let account = parts.map(|(namespace, name)| format!("system:serviceaccount:{namespace}:{name}"));
    account.ok_or_else(|| "give namespace/name of a ServiceAccount, such as recif-system/recif-gateway".into())
}

/// Parses a size in bytes with one of Kubernetes' binary suffixes.
fn size(text: &str) -> Result<u64, String> {
    const SUFFIXES: [(&str, u64); 2] = [("Mi", 1 << 20), ("Gi", 1 << 30)];
    let read = |(suffix, unit): (&str, u64)| {
        let number = text.strip_suffix('B').unwrap_or(text).strip_suffix(suffix)?.trim_end();
        number.parse::<u64>().ok()?.checked_mul(unit)
    };
    let size = SUFFIXES.into_iter().find_map(read).filter(|size| *size > 0);
    size.ok_or_else(|| "give a size such as `256Mi` or `1Gi`".into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        spans: SpansArgs,
    }

    #[test]
    fn time_and_size_are_bounded_by_default() {
        let args = Cli::parse_from(["recif"]).spans;
        let day = 24 * 3600;
        assert_eq!(args.retention(), SpanRetention { time: Duration::from_secs(3 * day), bytes: 256 << 20 });
        assert_eq!(args.otlp_listen, None);
        let args = Cli::parse_from(["recif", "--otlp-listen=0.0.0.0:4318", "--spans=12h", "--spans-size=1 GiB"]).spans;
        assert_eq!(args.retention(), SpanRetention { time: Duration::from_secs(day / 2), bytes: 1 << 30 });
        assert_eq!(args.otlp_listen, Some(([0, 0, 0, 0], 4318).into()));
    }

    #[test]
    fn accounts_are_read_by_namespace_and_name() {
        let accounts = "--otlp-accounts=recif-system/recif-gateway,a/b";
        let args = Cli::parse_from(["recif", accounts]).spans;
        let expected = ["system:serviceaccount:recif-system:recif-gateway", "system:serviceaccount:a:b"];
        assert_eq!(args.otlp_accounts, expected);
        for text in ["", "recif-gateway", "/a", "a/", "a/b/c"] {
            assert!(account(text).unwrap_err().contains("recif-system/recif-gateway"), "{text}");
        }
    }

    #[test]
    fn a_size_that_is_none_is_refused() {
        for text in ["", "256", "256M", "0Mi", "-1Mi", "1.5Gi", "99999999999999999999Mi", "99999999999Gi"] {
            assert_eq!(size(text), Err("give a size such as `256Mi` or `1Gi`".to_owned()), "{text}");
        }
    }
}
