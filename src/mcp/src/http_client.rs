//! Builds HTTP clients, which name their program to servers and do not fail without CA certificates.

use reqwest::{Client, ClientBuilder};

/// Builds a client of this program, such as `recif-operator`. `configure` sets everything else. An image without CA certificates
/// can still use plain HTTP.
///
/// # Errors
/// The configuration cannot be used.
pub fn build_client(
    program: &str,
    configure: impl Fn(ClientBuilder) -> ClientBuilder,
) -> Result<Client, reqwest::Error> {
    let agent = format!("{program}/{}", env!("CARGO_PKG_VERSION"));
    let builder = || configure(Client::builder().user_agent(agent.as_str()));
    builder().build().or_else(|_| builder().tls_certs_only([]).build())
}
