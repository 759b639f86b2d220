//! Command-line flags of `recif gateway`.

use std::{net::SocketAddr, time::Duration};

use cluster::access::{AuthArgs, AuthMode, Network, NetworkParseError, OpenBindError};
use crds::Period;
use daemon::{metrics::MetricsArgs, tls::TlsArgs};

use super::audit::AuditMode;

/// Options of `recif gateway`.
#[derive(Debug, clap::Args)]
pub struct GatewayArgs {
    /// Address that clients talk to
    #[arg(long, env = "RECIF_LISTEN", default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    pub(super) listen: SocketAddr,
    /// Address of /metrics, /healthz, /readyz and /_recif/demand
    #[arg(long, env = "RECIF_ADMIN_LISTEN", default_value = "0.0.0.0:8081", value_name = "ADDRESS")]
    pub(super) admin_listen: SocketAddr,
    /// Service behind whose Pods are the admin ports of all gateways, in the operator's namespace: they tell one another there
    /// how many requests they admitted; none when empty
    #[arg(long, env = "RECIF_ADMIN_SERVICE", default_value = "recif-gateway-admin", value_name = "NAME")]
    pub(super) admin_service: String,
    #[command(flatten)]
    pub(super) auth: AuthArgs,
    #[command(flatten)]
    pub(super) tls: TlsArgs,
    /// Namespaces to route to, separated by commas; all when empty
    #[arg(long, env = "RECIF_NAMESPACES", value_delimiter = ',', value_name = "NAMES")]
    pub(super) namespaces: Vec<String>,
    /// Namespace of the operator, where the Secret recif-identity holds the keys by which callers are vouched for
    #[arg(long, env = "POD_NAMESPACE", default_value = "recif-system", value_name = "NAMESPACE")]
    pub(super) operator_namespace: String,
    /// Networks of proxies whose X-Forwarded-Host, -Proto and -Prefix are believed, separated by commas
    #[arg(long, env = "RECIF_TRUSTED_PROXIES", value_delimiter = ',', value_name = "CIDRS")]
    pub(super) trusted_proxies: Vec<String>,
    /// Requests that may wait for room in the Pods of one workload
    #[arg(long, env = "RECIF_QUEUE_PER_WORKLOAD", default_value_t = 100, value_name = "N")]
    pub(super) queue_per_workload: usize,
    /// Longest wait for room in a Pod; spec.timeout where that is shorter
    #[arg(long, env = "RECIF_QUEUE_TIMEOUT", default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub(super) queue_timeout: Duration,
    /// Longest wait for the first Pod of a workload that has none
    #[arg(long, env = "RECIF_COLD_START_TIMEOUT", default_value = "30s", value_parser = duration,
        value_name = "DURATION")]
    pub(super) cold_start_timeout: Duration,
    /// Connections of clients at most; further ones wait to be accepted
    #[arg(long, env = "RECIF_MAX_CONNECTIONS", default_value_t = 20_000, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_connections: u32,
    /// Connections of one address at most, further ones are closed; 0 for any number. Addresses of --trusted-proxies, which
    /// stand for many clients, may have any
    #[arg(long, env = "RECIF_MAX_CONNECTIONS_PER_ADDRESS", default_value_t = 5_000, value_name = "N")]
    pub(super) max_connections_per_address: u32,
    /// Requests that one client, known by its name or its address, may have in flight; 0 for any number
    #[arg(long, env = "RECIF_MAX_IN_FLIGHT_PER_CLIENT", default_value_t = 0, value_name = "N")]
    pub(super) max_in_flight_per_client: u32,
    /// Requests for workloads of which a line of JSON with target=audit is written to stdout
    #[arg(long, env = "RECIF_AUDIT", value_enum, default_value_t = AuditMode::All, value_name = "REQUESTS")]
    pub(super) audit: AuditMode,
    #[command(flatten)]
    pub(super) metrics: MetricsArgs,
    /// How long a gateway that is to end still takes connections, not being ready any more
    #[arg(long, env = "RECIF_LAME_DUCK", default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub(super) lame_duck: Duration,
    /// How long requests may take to end after that
    #[arg(long, env = "RECIF_SHUTDOWN_TIMEOUT", default_value = "25s", value_parser = duration,
        value_name = "DURATION")]
    pub(super) shutdown_timeout: Duration,
}

/// Settings of the request path, read from the flags.
#[derive(Debug, Clone)]
pub(super) struct GatewaySettings {
    /// Method by which callers are authenticated.
    pub(super) auth: AuthMode,
    /// Networks of proxies whose `X-Forwarded-*` fields are trusted.
    pub(super) trusted_proxies: Vec<Network>,
    /// Most requests that may wait for one workload.
    pub(super) queue_per_workload: usize,
    /// Longest wait for room in a Pod.
    pub(super) queue_timeout: Duration,
    /// Longest wait for the first Pod of a workload that has none.
    pub(super) cold_start_timeout: Duration,
    /// Most client connections.
    pub(super) max_connections: usize,
}

/// Flag whose value cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FlagError {
    /// A network cannot be parsed.
    #[error(transparent)]
    TrustedProxies(#[from] NetworkParseError),
    /// Callers are not authenticated on an address that other machines reach.
    #[error(transparent)]
    Insecure(#[from] OpenBindError),
}

impl GatewaySettings {
    /// Reads the flags that concern requests.
    ///
    /// # Errors
    /// The value of a flag cannot be used.
    pub(super) fn read(args: &GatewayArgs) -> Result<Self, FlagError> {
        let auth = args.auth.mode(args.listen)?;
        if let Some((listen, ..)) = args.tls.read() {
            args.auth.mode(listen)?;
        }
        Ok(Self {
            auth,
            trusted_proxies: Network::parse_all(&args.trusted_proxies)?,
            queue_per_workload: args.queue_per_workload,
            queue_timeout: args.queue_timeout,
            cold_start_timeout: args.cold_start_timeout,
            max_connections: args.max_connections as usize,
        })
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    Period::from(text).length().ok_or_else(|| "give a duration such as `10s` or `1m30s`".into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: GatewayArgs,
    }

    fn read(flags: &[&str]) -> Result<GatewaySettings, FlagError> {
        let args = Cli::parse_from([&["gateway", "--auth", "none"], flags].concat()).args;
        GatewaySettings::read(&args)
    }

    #[test]
    fn each_address_is_judged() {
        assert!(read(&["--listen", "127.0.0.1:0"]).is_ok());
        assert!(matches!(read(&["--listen", "0.0.0.0:0"]), Err(FlagError::Insecure(_))));
        let tls = ["--tls-cert", "c", "--tls-key", "k", "--tls-listen", "0.0.0.0:0"];
        assert!(matches!(read(&[&["--listen", "127.0.0.1:0"][..], &tls].concat()), Err(FlagError::Insecure(_))));
    }
}
