//! What the command line says.

use std::net::SocketAddr;

/// Options of `recif control-plane`.
#[derive(Debug, clap::Args)]
pub struct ControlPlaneArgs {
    /// Address of the API
    #[arg(long, env = "RECIF_BIND", default_value = "127.0.0.1:8780", value_name = "ADDRESS")]
    pub(super) bind: SocketAddr,
    /// Namespaces to show, separated by commas; all when empty
    #[arg(long, env = "RECIF_NAMESPACES", value_delimiter = ',', value_name = "NAMES")]
    pub(super) namespaces: Vec<String>,
}
