//! Sends requests to workloads: through the Service, or directly to a container without the sidecar. In a cluster they go by the
//! proxy of the API server, and to a `recif dev` at the ports that it gives them on this machine.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use kube::{ResourceExt as _, client::Body};
use serde_json::{Value, json};

use crate::{
    client::{ClientTarget, HttpClientConnection},
    kinds::{KubeKind, POD, SERVICE},
    namespace::Namespace,
    object::{Object, ObjectExt as _},
    watch::poll,
};

/// Annotation with the ports of a Pod of `recif dev`, such as `8000=21000,8888=21001`.
const PORTS: &str = "recif.dev/dev-ports";

/// Longest wait for the expected response of a ready workload. The proxy routes to a new Pod, and stops routing to an old
/// one, only after a while.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Port of every agent's Service.
const AGENT: u16 = 8000;
/// Port of the sidecar in a Pod.
const SIDECAR: u16 = 8888;
/// Port of the Service of a flow or a set, unless the spec sets another one.
const FLOW: u16 = 8080;

/// Response to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceResponse {
    /// Status code.
    pub(crate) status: u16,
    /// Body.
    pub(crate) text: String,
}

impl Namespace {
    /// Sends a message to an agent and returns the reply.
    pub(crate) async fn chat(&self, agent: &str, message: &str) -> Result<String> {
        let body = json!({"message": message});
        poll(TIMEOUT, &format!("an answer of {agent} to {message:?}"), || async {
            reply_in(&self.send(agent, AGENT, "POST", "/chat", &body).await?).map(Some)
        })
        .await
    }

    /// Sends a message to each Pod of the namespace that is not being deleted, through its sidecar, and returns the replies. The Service
    /// routes to an old Pod for a while.
    pub(crate) async fn chat_with_pods(&self, message: &str) -> Result<Vec<String>> {
        let body = json!({"message": message});
        poll(TIMEOUT, &format!("an answer of every Pod to {message:?}"), || async {
            let mut replies = Vec::new();
            for pod in self.list(POD).await?.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
                let answer = self.send_to(POD, &pod.name_any(), SIDECAR, "POST", "/chat", &body).await?;
                replies.push(reply_in(&answer)?);
            }
            Ok((!replies.is_empty()).then_some(replies))
        })
        .await
    }

    /// Waits until an agent replies to this message as it is to: after a rollout the proxy may lead to an old Pod for a while, and right
    /// after a start the node may not lead to the Service that a tool calls.
    pub(crate) async fn await_reply(&self, agent: &str, message: &str, fits: impl Fn(&str) -> bool) -> Result<()> {
        poll(TIMEOUT, &format!("the expected reply of {agent} to {message:?}"), || async {
            let reply = self.chat(agent, message).await?;
            ensure!(fits(&reply), "it replied {reply:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Sends variables to a flow, or to the flow of a set at this path, and returns the response.
    pub(crate) async fn post(&self, service: &str, path: &str, variables: Value) -> Result<ServiceResponse> {
        self.request(service, "POST", path, &variables).await
    }

    /// Sends a GET to a flow or a set and returns the response.
    pub(crate) async fn get_path(&self, service: &str, path: &str) -> Result<ServiceResponse> {
        self.request(service, "GET", path, &Value::Null).await
    }

    /// Waits until a flow responds to these variables with exactly this text.
    pub(crate) async fn await_response(
        &self,
        service: &str,
        path: &str,
        variables: Value,
        expected: &str,
    ) -> Result<()> {
        poll(TIMEOUT, &format!("{service}{path} answers {variables} with {expected:?}"), || async {
            let answer = self.send(service, FLOW, "POST", path, &variables).await?;
            ensure!(answer.status == 200 && answer.text == expected, "{answer:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Waits until the workload responds to these variables with this status. After a rollout the proxy may lead to an old Pod for a while.
    pub(crate) async fn await_status(&self, service: &str, path: &str, variables: Value, status: u16) -> Result<()> {
        poll(TIMEOUT, &format!("{service}{path} answers {variables} with status {status}"), || async {
            let answer = self.request(service, "POST", path, &variables).await?;
            ensure!(answer.status == status, "{answer:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Returns a response of a Pod: the request is repeated while the proxy has no Pod to send it to.
    async fn request(&self, service: &str, method: &str, path: &str, body: &Value) -> Result<ServiceResponse> {
        poll(TIMEOUT, &format!("an answer to {method} {service}{path}"), || async {
            let answer = self.send(service, FLOW, method, path, body).await?;
            let by_proxy = serde_json::from_str::<Value>(&answer.text).is_ok_and(|it| it["kind"] == "Status");
            ensure!(!by_proxy, "{answer:?}");
            Ok(Some(answer))
        })
        .await
    }

    /// Sends a GET to the port of a container, without the sidecar, and returns the response.
    pub(crate) async fn get_from_pod(&self, pod: &str, port: u16, path: &str) -> Result<ServiceResponse> {
        self.send_to(POD, pod, port, "GET", path, &Value::Null).await
    }

    /// Sends one request to a Service and returns the response.
    pub(crate) async fn send(
        &self,
        service: &str,
        port: u16,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<ServiceResponse> {
        self.send_to(SERVICE, service, port, method, path, body).await
    }

    async fn send_to(
        &self,
        kind: KubeKind,
        name: &str,
        port: u16,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<ServiceResponse> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        if self.env.paths.local {
            let port = local_port(kind, &self.get(kind, name).await?, port)?;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let target = ClientTarget { route: "recif dev", address, prefix: String::new(), headers: String::new() };
            let response = HttpClientConnection::request(&target, method, path, &body).await?;
            return Ok(ServiceResponse { status: response.status, text: response.text });
        }
        let uri = format!("/api/v1/namespaces/{}/{}/{name}:{port}/proxy{path}", self.name, kind.plural);
        let request = http::Request::builder().method(method).uri(uri).header("content-type", "application/json");
        let response = self.env.client_without_retry.send(request.body(Body::from(body.into_bytes()))?).await?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect_bytes().await?;
        Ok(ServiceResponse { status, text: String::from_utf8_lossy(&bytes).into_owned() })
    }
}

/// Returns the reply in the response to a chat.
fn reply_in(response: &ServiceResponse) -> Result<String> {
    ensure!(response.status == 200, "{response:?}");
    let answer: Value = serde_json::from_str(&response.text).context("read the answer")?;
    Ok(answer["reply"].as_str().with_context(|| format!("no reply in {answer}"))?.to_owned())
}

/// Returns the port of this machine at which a `recif dev` serves the port of a Service or of a Pod.
fn local_port(kind: KubeKind, object: &Object, port: u16) -> Result<u16> {
    let found = match kind {
        POD => {
            let ports = object.annotations().get(PORTS).map_or("", String::as_str);
            let mut pairs = ports.split(',').filter_map(|pair| pair.split_once('='));
            pairs.find(|(declared, _)| *declared == port.to_string()).and_then(|(_, own)| own.parse().ok())
        }
        _ => {
            let mut ports = object.at("/spec/ports").as_array().into_iter().flatten();
            let found = ports.find(|found| found["port"] == port);
            found.and_then(|found| u16::try_from(found["nodePort"].as_u64()?).ok())
        }
    };
    found.with_context(|| format!("{} has no port {port} on this machine", object.describe()))
}
