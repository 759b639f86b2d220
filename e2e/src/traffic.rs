//! Sends requests to workloads by the proxy of the API server: through the Service, or directly to a container without the
//! sidecar.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::client::Body;
use serde_json::{Value, json};

use crate::{namespace::Namespace, watch::poll};

/// Longest wait for the expected response of a ready workload. The proxy routes to a new Pod, and stops routing to an old
/// one, only after a while.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Port of every agent's Service.
const AGENT: u16 = 8000;
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
            let answer = self.send(agent, AGENT, "POST", "/chat", &body).await?;
            ensure!(answer.status == 200, "{answer:?}");
            let answer: Value = serde_json::from_str(&answer.text).context("read the answer")?;
            Ok(Some(answer["reply"].as_str().with_context(|| format!("no reply in {answer}"))?.to_owned()))
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
        self.send_to(&format!("pods/{pod}:{port}"), "GET", path, &Value::Null).await
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
        self.send_to(&format!("services/{service}:{port}"), method, path, body).await
    }

    async fn send_to(&self, target: &str, method: &str, path: &str, body: &Value) -> Result<ServiceResponse> {
        let uri = format!("/api/v1/namespaces/{}/{target}/proxy{path}", self.name);
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder().method(method).uri(uri).header("content-type", "application/json");
        let response = self.env.client_without_retry.send(request.body(Body::from(body))?).await?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect_bytes().await?;
        Ok(ServiceResponse { status, text: String::from_utf8_lossy(&bytes).into_owned() })
    }
}
