//! Command line options of the control plane.

use std::{net::SocketAddr, path::PathBuf};

use cluster::access::AuthArgs;
use daemon::tls::TlsArgs;

use super::{mirror::MirrorArgs, spans::SpansArgs, usage::StoredCallers};

/// Options of `recif control-plane`.
#[derive(Debug, clap::Args)]
pub struct ControlPlaneArgs {
    /// Address of the API and the web UI
    #[arg(long, env = "RECIF_BIND", default_value = "127.0.0.1:8780", value_name = "ADDRESS")]
    pub(super) bind: SocketAddr,
    /// Address of /metrics, /healthz and /readyz
    #[arg(long, env = "RECIF_ADMIN_BIND", default_value = "127.0.0.1:8781", value_name = "ADDRESS")]
    pub(super) admin_bind: SocketAddr,
    #[command(flatten)]
    pub(super) auth: AuthArgs,
    /// URL of the gateway, to which /gateway/* is passed on; without it there is none
    #[arg(long, env = "RECIF_GATEWAY_URL", default_value = "", value_name = "URL")]
    pub(super) gateway_url: String,
    /// PEM file of the authority that signs the certificate of an https gateway; read at the start
    #[arg(long, env = "RECIF_GATEWAY_CA", value_name = "FILE")]
    pub(super) gateway_ca: Option<PathBuf>,
    #[command(flatten)]
    pub(super) tls: TlsArgs,
    /// Namespaces to show, separated by commas; all when empty
    #[arg(long, env = "RECIF_NAMESPACES", value_delimiter = ',', value_name = "NAMES")]
    pub(super) namespaces: Vec<String>,
    /// Networks of proxies whose X-Forwarded-For says where a request comes from, separated by commas
    #[arg(long, env = "RECIF_TRUSTED_PROXIES", value_delimiter = ',', value_name = "CIDRS")]
    pub(super) trusted_proxies: Vec<String>,
    #[command(flatten)]
    pub(super) mirror: MirrorArgs,
    /// What is kept of the callers whose tokens are counted
    #[arg(long, env = "RECIF_USAGE_CALLERS", value_enum, default_value_t = StoredCallers::Names, value_name = "HOW")]
    pub(super) usage_callers: StoredCallers,
    #[command(flatten)]
    pub(super) spans: SpansArgs,
}
