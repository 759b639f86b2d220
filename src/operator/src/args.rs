//! Command-line flags of `recif operator`.

use std::{net::SocketAddr, time::Duration};

use actions::render::PodSecurity;
use clap::ArgAction;
use crds::egress::AddressRange;
use daemon::{
    logs::{DEFAULT_FILTER, LogFormat},
    metrics::MetricsArgs,
};
use mcp::{Cidr, ClosedPorts, DENIED_RANGES};

use super::settings;

/// Options of `recif operator`.
#[derive(Debug, clap::Args)]
pub struct OperatorArgs {
    /// Namespaces to work in, separated by commas; all when empty
    #[arg(long, env = "RECIF_NAMESPACES", value_delimiter = ',', value_name = "NAMES")]
    pub(super) namespaces: Vec<String>,
    /// Address of /metrics, /healthz and /readyz
    #[arg(long, env = "RECIF_LISTEN", default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    pub(super) listen: SocketAddr,
    /// How log lines look
    #[arg(long, env = "RECIF_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub(super) log_format: LogFormat,
    /// What is logged: a level, or target=level, separated by commas
    #[arg(long, env = "RECIF_LOG", default_value = DEFAULT_FILTER, value_name = "FILTER")]
    pub(super) log: String,
    /// Write only while holding the lease; =false for a replica that is alone for sure
    #[arg(
        long, env = "RECIF_LEADER_ELECT", default_value_t = true, action = ArgAction::Set, require_equals = true,
        num_args = 0..=1, default_missing_value = "true", value_name = "BOOL"
    )]
    pub(super) leader_elect: bool,
    /// Name of the lease, in the operator's namespace
    #[arg(long, env = "RECIF_LEASE_NAME", default_value = "recif-operator", value_name = "NAME")]
    pub(super) lease_name: String,
    /// Namespace of the operator: of its lease, and of single-label hosts in its own URLs
    #[arg(long, env = "POD_NAMESPACE", default_value = "recif-system", value_name = "NAMESPACE")]
    pub(super) operator_namespace: String,
    /// DNS domain of the cluster
    #[arg(long, env = "RECIF_CLUSTER_DOMAIN", default_value = "cluster.local", value_name = "DOMAIN")]
    pub(super) cluster_domain: String,
    /// Objects of one kind that are worked on at the same time
    #[arg(long, env = "RECIF_WORKERS", default_value_t = 16, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) workers: u16,
    /// Uid of this Pod: its identity as a holder of the lease; random when empty
    #[arg(long, env = "POD_UID", default_value = "", value_name = "UID")]
    pub(super) pod_uid: String,
    /// Database of agents that name none of their own
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "DSN")]
    pub(super) database_url: Option<String>,
    /// Namespaces whose agents inherit DATABASE_URL, separated by commas, or * for all: every user who may create an Agent
    /// there can read that database. Those of --namespaces when empty
    #[arg(long, env = "RECIF_DATABASE_NAMESPACES", value_delimiter = ',', value_name = "NAMES")]
    pub(super) database_namespaces: Vec<String>,
    /// Ollama of agents that use one
    #[arg(long, env = "OLLAMA_BASE_URL", hide_env_values = true, value_name = "URL")]
    pub(super) ollama_base_url: Option<String>,
    /// Image of Agents that name none, or corail:latest; one that runs keeps its image until it changes or is rolled out.
    /// corail:latest itself when empty, which has to be on the nodes
    #[arg(long, env = "RECIF_AGENT_IMAGE", default_value = "", value_name = "IMAGE")]
    pub(super) agent_image: String,
    /// Image of Flows and FlowSets that name none; one that runs keeps its image until it changes or is rolled out
    #[arg(long, env = "RECIF_RUNNER_IMAGE", default_value = "recif.local/runner:dev", value_name = "IMAGE",
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(super) runner_image: String,
    /// Image of the sidecar of Agents, Flows and FlowSets; one that runs keeps its image until it changes or is rolled out
    #[arg(long, env = "RECIF_PROXY_IMAGE", default_value = "recif.local/proxy:dev", value_name = "IMAGE",
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(super) proxy_image: String,
    /// Give each workload with a sidecar a NetworkPolicy that closes the port of its image, unless another policy selects its
    /// Pods, and each with egress one that restricts what its Pods connect to; =false takes it away with the next change of each
    #[arg(
        long, env = "RECIF_NETWORK_POLICIES", default_value_t = true, action = ArgAction::Set, require_equals = true,
        num_args = 0..=1, default_missing_value = "true", value_name = "BOOL"
    )]
    pub(super) network_policies: bool,
    /// Range of addresses of the cluster's Pods, Services or nodes that is not private (10.0.0.0/8 and its kin are known), to
    /// which DNS names in egress do not lead; may be repeated
    #[arg(long = "cluster-cidr", env = "RECIF_CLUSTER_CIDR", value_delimiter = ',', value_name = "RANGE",
        value_parser = settings::cluster_cidr)]
    pub(super) cluster_cidrs: Vec<AddressRange>,
    /// Give Agents, Flows and FlowSets the operator's own variables of OpenTelemetry (OTEL_*), without headers and certificates,
    /// and their names as OTEL_SERVICE_NAME; one that runs keeps its variables until it changes or is rolled out
    #[arg(
        long, env = "RECIF_POD_OTEL", default_value_t = true, action = ArgAction::Set, require_equals = true,
        num_args = 0..=1, default_missing_value = "true", value_name = "BOOL"
    )]
    pub(super) pod_otel: bool,
    /// The Pod Security level that a podTemplate may not go beyond: restricted, baseline or privileged
    #[arg(long, env = "RECIF_POD_SECURITY", default_value = "baseline", value_name = "LEVEL",
        value_parser = settings::pod_security)]
    pub(super) pod_security: PodSecurity,
    /// How often the scaler asks workloads with traffic for their load, such as 1s
    #[arg(long, env = "RECIF_SCALER_INTERVAL", default_value = "1s", value_name = "TIME", value_parser = settings::interval)]
    pub(super) scaler_interval: Duration,
    /// Service whose Pods are the gateways, as namespace/name: they report waiting requests to the scaler; none when empty
    #[arg(
        long,
        env = "RECIF_GATEWAY_SERVICE",
        default_value = "recif-system/recif-gateway-admin",
        value_name = "NAME"
    )]
    pub(super) gateway_service: String,
    /// Addresses that no MCP server may have, as ranges separated by commas; the default denies link-local addresses and the
    /// metadata services of clouds; the operator's own (loopback) are denied besides, unless --local
    #[arg(long, env = "RECIF_MCP_DENY_CIDR", value_delimiter = ',', default_values = DENIED_RANGES, value_name = "RANGES")]
    pub(super) mcp_deny_cidr: Vec<Cidr>,
    /// The operator runs on a developer's machine: MCP servers may be on loopback
    #[arg(long, env = "RECIF_LOCAL")]
    pub(super) local: bool,
    /// TCP ports on loopback that no MCP server may have, separated by commas
    #[arg(long, env = "RECIF_CLOSED_PORTS", value_name = "PORTS")]
    pub(super) closed_ports: Option<ClosedPorts>,
    #[command(flatten)]
    pub(super) metrics: MetricsArgs,
    /// For tests: end the process at its n-th write, given as N:before, N:unacked or N:after
    #[arg(long, env = "RECIF_CRASH_AT", value_name = "N:SIDE", hide = true)]
    pub(super) crash_at: Option<String>,
    /// For tests: lose one wake of a hundred, and look at every object again within five seconds
    #[arg(long, env = "RECIF_LOSE_WAKES", hide = true)]
    pub(super) lose_wakes: bool,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: OperatorArgs,
    }

    #[test]
    fn closed_ports_are_read_as_by_the_runner() {
        let read = |value: &str| {
            let line = Line::try_parse_from(["operator", &format!("--closed-ports={value}")]);
            line.map(|line| line.args.closed_ports.unwrap_or_default()).map_err(|error| error.to_string())
        };
        assert_eq!(read(""), Ok(ClosedPorts::default()), "as if it were not set");
        assert_eq!(read("8780, 44321"), Ok(ClosedPorts::new(vec![8780, 44321], false)));
        let error = read("8780,0").unwrap_err();
        assert!(error.contains("numbers from 1 to 65535, separated by commas"), "{error}");
    }
}
