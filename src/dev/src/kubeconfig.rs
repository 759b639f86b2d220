//! The kubeconfig by which commands and kubectl reach the API server.

use std::net::SocketAddr;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

/// Name of the file.
pub(crate) const NAME: &str = "kubeconfig";
/// Name of cluster, user and context in it.
const CONTEXT: &str = "recif-dev";
/// Extension of the cluster by which commands find gateway and control plane.
const EXTENSION: &str = "recif.dev/dev";

/// Content of the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kubeconfig<'a> {
    /// Address of the API server.
    pub(crate) server: SocketAddr,
    /// Certificate of the authority that signed the server's, in PEM form.
    pub(crate) authority: &'a str,
    /// Token of the user.
    pub(crate) token: &'a str,
    /// Namespace of commands that name none.
    pub(crate) namespace: &'a str,
    /// URL of the gateway.
    pub(crate) gateway: &'a str,
    /// URL of the control plane.
    pub(crate) control_plane: &'a str,
}

impl Kubeconfig<'_> {
    /// Returns the text of the file.
    pub(crate) fn text(self) -> String {
        // Every JSON text is YAML.
        let mut text = serde_json::to_string_pretty(&self.value()).unwrap_or_default();
        text.push('\n');
        text
    }

    fn value(self) -> Value {
        let Self { server, authority, token, namespace, gateway, control_plane } = self;
        let extension = json!({ "gateway": gateway, "controlPlane": control_plane });
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": CONTEXT,
            "clusters": [{ "name": CONTEXT, "cluster": {
                "server": format!("https://{server}"),
                "certificate-authority-data": STANDARD.encode(authority),
                "extensions": [{ "name": EXTENSION, "extension": extension }],
            } }],
            "users": [{ "name": CONTEXT, "user": { "token": token } }],
            "contexts": [{ "name": CONTEXT, "context": { "cluster": CONTEXT, "user": CONTEXT, "namespace": namespace } }],
        })
    }
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig as Read;

    use super::*;

    #[test]
    fn a_client_reads_it() {
        let file = Kubeconfig {
            server: "127.0.0.1:6443".parse().unwrap(),
            authority: "PEM",
            token: "secret",
            namespace: "team",
            gateway: "http://127.0.0.1:8080",
            control_plane: "http://127.0.0.1:8780",
        };
        let read = Read::from_yaml(&file.text()).unwrap();
        let cluster = read.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:6443"));
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("UEVN"));
        let extension = &cluster.extensions.as_ref().unwrap()[0];
        assert_eq!(extension.name, "recif.dev/dev");
        assert_eq!(
            extension.extension,
            json!({ "gateway": "http://127.0.0.1:8080", "controlPlane": "http://127.0.0.1:8780" })
        );
        let context = read.contexts[0].context.as_ref().unwrap();
        assert_eq!(context.namespace.as_deref(), Some("team"));
    }
}
