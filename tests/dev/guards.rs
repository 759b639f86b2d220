//! Tests of who is served: programs of this machine and those who have the token, no web page; and what a repository brings is not used.

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::{
    harness::{Dev, SOON, ended, folder, output, recif, save, text},
    samples::agent,
};

/// A server of tools that our runner is, behind the bridge.
const TOOL_SERVER: &str = "apiVersion: agents.recif.dev/v1
kind: MCPServer
metadata:
  name: clock
spec:
  transportType: stdio
  deployment:
    image: recif.local/runner:dev
    cmd: /recif-runner
    args: [mcp]
    env:
      CORAIL_TOOLS: '[{\"name\": \"datetime\", \"type\": \"builtin\", \"description\": \"The current time in UTC\"}]'
";

/// Paths, of which each server that is not the API server has some: those of requests and of its administration.
const PATHS: [&str; 6] = ["/v1/fleet", "/v1/agents/default/a/chat", "/metrics", "/healthz", "/readyz", "/load"];

/// The API server, as the kubeconfig says.
struct Api {
    client: reqwest::Client,
    server: String,
    token: String,
}

impl Api {
    fn of(dev: &Dev) -> Self {
        // Only the first call in a process has an effect.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let file = dev.kubeconfig();
        let cluster = &file["clusters"][0]["cluster"];
        let authority = STANDARD.decode(cluster["certificate-authority-data"].as_str().unwrap()).unwrap();
        let authority = reqwest::Certificate::from_pem(&authority).unwrap();
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([authority]).build().unwrap();
        let token = file["users"][0]["user"]["token"].as_str().unwrap().to_owned();
        Self { client, server: cluster["server"].as_str().unwrap().to_owned(), token }
    }

    /// Returns the code of the answer to a GET.
    async fn code(&self, path: &str, token: &str, field: Option<(&str, &str)>) -> u16 {
        let mut request = self.client.get(format!("{}{path}", self.server)).bearer_auth(token).timeout(SOON);
        if let Some((name, value)) = field {
            request = request.header(name, value);
        }
        request.send().await.unwrap().status().as_u16()
    }

    fn port(&self) -> u16 {
        self.server.rsplit(':').next().unwrap().parse().unwrap()
    }
}

/// Returns the codes of the answers to GETs with these header fields.
async fn codes(port: u16, fields: &str) -> Vec<u16> {
    let mut codes = Vec::new();
    for path in PATHS {
        let answered = async {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
            let request = format!("GET {path} HTTP/1.1\r\n{fields}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            Ok::<_, std::io::Error>(text(&answer))
        };
        let answer = timeout(SOON, answered).await.unwrap().unwrap();
        let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        codes.push(code.unwrap_or_else(|| panic!("port {port}: {answer:?}")));
    }
    codes
}

#[tokio::test]
async fn no_port_serves_a_web_page_and_none_is_open_to_other_machines() {
    let folder = folder("pages");
    save(folder.join("a.yaml"), agent("one")).unwrap();
    save(folder.join("clock.yaml"), TOOL_SERVER).unwrap();
    let mut dev = Dev::start(&folder, &["."]).await;
    dev.ready().await;
    let api = Api::of(&dev);
    let listeners = dev.listeners();
    let open: Vec<_> = listeners.iter().filter(|(_, address)| *address != "0100007F").collect();
    assert!(open.is_empty(), "only 127.0.0.1 is meant: {open:?}");
    // Gateway and control plane with their admin ports, the API server, sidecars, runner and bridge, and relays of all of them.
    assert!(listeners.len() >= 9 && listeners.contains_key(&api.port()), "{listeners:?}");

    let page = |port: u16| {
        let host = format!("Host: 127.0.0.1:{port}");
        let with = |field: &str| format!("{host}\r\n{field}");
        [
            "Host: evil.example".to_owned(),
            with("Origin: http://evil.example"),
            with("Origin: null"),
            with("Sec-Fetch-Site: cross-site"),
            with("Sec-Fetch-Site: same-site"),
        ]
    };
    for port in listeners.into_keys().filter(|port| *port != api.port()) {
        let own = codes(port, &format!("Host: 127.0.0.1:{port}")).await;
        assert!(!own.contains(&403), "a program of this machine is served at port {port}: {own:?}");
        for fields in page(port) {
            let found = codes(port, &fields).await;
            // What is not there may be said to be so.
            let is_refused = own.iter().zip(&found).all(|(own, page)| *page == 403 || (*own, *page) == (404, 404));
            assert!(is_refused && found.contains(&403), "port {port}, {fields}: {found:?}, and for programs {own:?}");
        }
    }
    for field in [
        ("host", "evil.example"),
        ("origin", "http://evil.example"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        assert_eq!(api.code("/api/v1/pods", &api.token, Some(field)).await, 403, "{field:?}");
        assert_eq!(api.code("/livez", &api.token, Some(field)).await, 403, "{field:?}");
    }
}

#[tokio::test]
async fn the_api_server_is_for_those_who_have_the_token() {
    let folder = folder("token");
    let mut dev = Dev::start(&folder, &[]).await;
    dev.ready().await;
    let api = Api::of(&dev);
    assert_eq!(api.token.len(), 64);
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(api.code(pods, &api.token, None).await, 200);
    assert_eq!(api.code(pods, "other", None).await, 401);
    assert_eq!(api.code("/livez", "other", None).await, 200);
    let without = api.client.get(format!("{}{pods}", api.server)).send().await.unwrap();
    assert_eq!(without.status(), 401);
    let status: Value = without.json().await.unwrap();
    assert_eq!((&status["kind"], &status["reason"]), (&"Status".into(), &"Unauthorized".into()));
}

#[tokio::test]
async fn a_folder_that_a_repository_brings_is_used_by_no_command() {
    let folder = folder("repository");
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let own = folder.join(".recif");
    fs::create_dir(&own).unwrap();
    let addresses = json!({ "gateway": format!("http://{address}"), "controlPlane": format!("http://{address}") });
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "recif-dev",
        "contexts": [{ "name": "recif-dev", "context": { "cluster": "recif-dev", "user": "recif-dev" } }],
        "clusters": [{ "name": "recif-dev", "cluster": {
            "server": format!("https://{address}"),
            "certificate-authority-data": STANDARD.encode("no certificate"),
            "extensions": [{ "name": "recif.dev/dev", "extension": addresses }],
        } }],
        "users": [{ "name": "recif-dev", "user": { "token": "x" } }],
    });
    fs::write(own.join("kubeconfig"), kubeconfig.to_string()).unwrap();
    fs::write(own.join("lock"), "").unwrap();
    for mode in [0o755, 0o700] {
        fs::set_permissions(&own, fs::Permissions::from_mode(mode)).unwrap();
        for arguments in [&["get"][..], &["chat", "agent/a", "hello"]] {
            let looks = ended(recif(&folder, arguments)).await;
            assert_ne!(looks.status.code(), Some(0), "{mode:o} {arguments:?}: {}", text(&looks.stdout));
        }
    }
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = output(&folder, &[]).await;
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains(".recif is not used: its mode is not 0700"), "{said}");
    let asked = timeout(Duration::from_millis(100), server.accept()).await;
    assert!(asked.is_err(), "the server that it names was asked");
}
