//! Runs a bridge and sends requests to it.

use std::{path::Path, process::Stdio, time::Duration};

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    time::{sleep, timeout},
};

/// Longest wait of every step.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Running bridge. It ends when it is dropped.
pub(crate) struct Bridge {
    pub(crate) process: Child,
    pub(crate) url: String,
    pub(crate) client: Client,
    log: Lines<BufReader<ChildStderr>>,
}

impl Bridge {
    /// Starts a bridge with the server of `tests/peers`, which a test controls by its requests.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        Self::with(&[], flags).await
    }

    /// Starts a bridge with that server and these environment variables.
    pub(crate) async fn with(variables: &[(&str, &str)], flags: &[&str]) -> Self {
        let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/mcp_child.py");
        Self::run(variables, flags, &["/usr/bin/python3", "-S", "-E", "-B", server.to_str().unwrap()]).await
    }

    /// Starts a bridge with this command as the server.
    pub(crate) async fn of(flags: &[&str], command: &[&str]) -> Self {
        Self::run(&[], flags, command).await
    }

    async fn run(variables: &[(&str, &str)], flags: &[&str], command: &[&str]) -> Self {
        let mut bridge = Command::new(env!("CARGO_BIN_EXE_recif-proxy"));
        bridge.args(["mcp-bridge", "--port", "0", "--address", "127.0.0.1"]).args(flags).arg("--").args(command);
        bridge.envs(variables.iter().copied());
        let mut process = bridge.stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let log = BufReader::new(process.stderr.take().unwrap()).lines();
        // Only the first call in a process has an effect.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().timeout(SOON).build().unwrap();
        let mut bridge = Self { process, url: String::new(), client, log };
        let line = bridge.wait_for_log("listening").await;
        bridge.url = format!("http://{}", line["address"].as_str().unwrap());
        bridge
    }

    /// Waits for the next line of its log with this message.
    pub(crate) async fn wait_for_log(&mut self, message: &str) -> Value {
        loop {
            let line = timeout(SOON, self.log.next_line()).await.unwrap().unwrap().unwrap();
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["message"].as_str().unwrap().contains(message) {
                return line;
            }
        }
    }

    /// Returns a request to its endpoint.
    pub(crate) fn request(&self, method: Method) -> RequestBuilder {
        let request = self.client.request(method, format!("{}/mcp", self.url));
        request.header("accept", "application/json, text/event-stream")
    }

    /// Returns a POST of this message.
    pub(crate) fn post(&self, message: &Value) -> RequestBuilder {
        self.request(Method::POST).json(message)
    }

    /// Returns the status code of a path.
    pub(crate) async fn probe(&self, path: &str) -> u16 {
        self.client.get(format!("{}{path}", self.url)).send().await.unwrap().status().as_u16()
    }

    /// Waits until a path has this status code. A request may fail because the bridge closes an idle connection at the same
    /// moment.
    pub(crate) async fn wait_for_status(&self, path: &str, status: u16) {
        let waiting = async {
            loop {
                let answer = self.client.get(format!("{}{path}", self.url)).send().await;
                if answer.is_ok_and(|answer| answer.status() == status) {
                    break;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(SOON, waiting).await.unwrap();
    }

    /// Opens a session.
    pub(crate) async fn session(&self) -> BridgeSession<'_> {
        let answer =
            self.post(&request(0, "initialize", json!({"protocolVersion": "2025-11-25"}))).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let id = answer.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        assert_eq!(answer.json::<Value>().await.unwrap()["result"]["serverInfo"]["name"], "child");
        BridgeSession { bridge: self, id }
    }

    /// Returns a request of the newer protocol era.
    pub(crate) fn modern(&self, id: impl Into<Value>, method: &str, mut params: Value) -> RequestBuilder {
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        let message = request(id, method, params);
        self.post(&message).header("mcp-protocol-version", "2026-07-28").header("mcp-method", method)
    }

    /// Sends a request of the newer protocol era and returns the response, which is a JSON document.
    pub(crate) async fn query(&self, id: impl Into<Value>, method: &str, params: Value) -> Value {
        self.modern(id, method, params).send().await.unwrap().json().await.unwrap()
    }

    /// Sends a signal to the bridge.
    pub(crate) async fn signal(&self, signal: &str) {
        let pid = self.process.id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().await.unwrap().success());
    }
}

/// Session of the older protocol era.
pub(crate) struct BridgeSession<'a> {
    pub(crate) bridge: &'a Bridge,
    pub(crate) id: String,
}

impl BridgeSession<'_> {
    /// Returns a request to the endpoint in this session.
    pub(crate) fn request(&self, method: Method) -> RequestBuilder {
        self.bridge.request(method).header("mcp-session-id", &self.id).header("mcp-protocol-version", "2025-11-25")
    }

    /// Sends a POST of this message.
    pub(crate) async fn post(&self, message: Value) -> Response {
        self.request(Method::POST).json(&message).send().await.unwrap()
    }

    /// Sends a request and returns the response, which is a JSON document.
    pub(crate) async fn query(&self, method: &str, params: Value) -> Value {
        self.post(request(1, method, params)).await.json().await.unwrap()
    }

    /// Returns the process id of its child.
    pub(crate) async fn pid(&self) -> u64 {
        self.query("pid", json!({})).await["result"]["pid"].as_u64().unwrap()
    }

    /// Ends the session and returns the status code.
    pub(crate) async fn delete(&self) -> u16 {
        self.request(Method::DELETE).send().await.unwrap().status().as_u16()
    }
}

/// Returns the JSON-RPC message of a request.
pub(crate) fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

/// Stream of server-sent events, which are read as they arrive.
pub(crate) struct EventStream {
    response: Response,
    text: String,
}

impl EventStream {
    /// Reads the events of this response.
    pub(crate) fn of(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    /// Returns the next message, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let data = event.strip_prefix("event: message\ndata: ").map(|data| serde_json::from_str(data).unwrap());
                self.text = rest.to_owned();
                if data.is_some() {
                    return data;
                }
                continue;
            }
            let chunk = timeout(SOON, self.response.chunk()).await.unwrap().unwrap()?;
            self.text.push_str(str::from_utf8(&chunk).unwrap());
        }
    }

    /// Returns all remaining messages.
    pub(crate) async fn rest(mut self) -> Vec<Value> {
        let mut all = Vec::new();
        while let Some(message) = self.next().await {
            all.push(message);
        }
        all
    }
}

/// Waits until the shared child of a bridge has received this number of cancellations.
pub(crate) async fn wait_until_cancelled(bridge: &Bridge, count: usize) {
    let waiting = async {
        loop {
            let answer = bridge.query(1, "cancelled", json!({})).await;
            if answer["result"]["ids"].as_array().unwrap().len() == count {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, waiting).await.unwrap();
}

/// Waits until a process is gone, also as a zombie.
pub(crate) async fn wait_until_gone(pid: u64) {
    let waiting = async {
        while Path::new(&format!("/proc/{pid}")).exists() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, waiting).await.unwrap();
}
