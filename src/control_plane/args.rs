//! What the command line says.

use std::net::SocketAddr;

use super::mirror::MirrorArgs;
use crate::cluster::access::AuthArgs;

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
    /// Namespaces to show, separated by commas; all when empty
    #[arg(long, env = "RECIF_NAMESPACES", value_delimiter = ',', value_name = "NAMES")]
    pub(super) namespaces: Vec<String>,
    #[command(flatten)]
    pub(super) mirror: MirrorArgs,
}
