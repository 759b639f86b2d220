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

#[cfg(test)]
mod tests {
    use std::{env, process::Command};

    use super::*;

    /// Variable that makes a process of this test binary the child.
    const CHILD: &str = "RECIF_MCP_WITHOUT_CERTIFICATES";

    /// Builds a client where there are no CA certificates. Returns at once in an ordinary run, which has them.
    #[test]
    fn child() {
        if env::var_os(CHILD).is_none() {
            return;
        }
        let _ = rustls::crypto::ring::default_provider().install_default();
        assert!(Client::builder().build().is_err(), "a usual client cannot be built here");
        build_client("recif-test", |builder| builder).unwrap();
    }

    #[test]
    fn a_client_is_built_without_ca_certificates() {
        // The variables of a process cannot be set safely while its other tests run.
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "http_client::tests::child"]).env(CHILD, "1");
        let output = command.env("SSL_CERT_FILE", "/dev/null").env_remove("SSL_CERT_DIR").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
}
