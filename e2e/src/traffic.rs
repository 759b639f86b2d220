//! Talking to what runs, by the API server's proxy: through its Service, or past the sidecar.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::client::Body;
use serde_json::{Value, json};

use crate::{namespace::Namespace, watch::poll};

/// How long somebody who is ready may take to answer what is expected. The proxy knows of a new Pod, and forgets an old
/// one, only after a while.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Port of every agent's Service.
const AGENT: u16 = 8000;
/// Port of the Service of a flow or a set, unless the spec says otherwise.
const FLOW: u16 = 8080;

/// An answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceResponse {
    /// Its status code.
    pub(crate) status: u16,
    /// Its body.
    pub(crate) text: String,
}

impl Namespace {
    /// The agent's reply to a message.
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

    /// What a flow, or the flow of a set at this path, answers to these variables.
    pub(crate) async fn post(&self, service: &str, path: &str, variables: Value) -> Result<ServiceResponse> {
        self.request(service, "POST", path, &variables).await
    }

    /// What a flow or a set answers to a GET.
    pub(crate) async fn get_path(&self, service: &str, path: &str) -> Result<ServiceResponse> {
        self.request(service, "GET", path, &Value::Null).await
    }

    /// Waits until a flow answers these variables with exactly this text.
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

    /// An answer of the Pod: while the proxy has none to send the request to, it is sent again.
    async fn request(&self, service: &str, method: &str, path: &str, body: &Value) -> Result<ServiceResponse> {
        poll(TIMEOUT, &format!("an answer to {method} {service}{path}"), || async {
            let answer = self.send(service, FLOW, method, path, body).await?;
            let by_proxy = serde_json::from_str::<Value>(&answer.text).is_ok_and(|it| it["kind"] == "Status");
            ensure!(!by_proxy, "{answer:?}");
            Ok(Some(answer))
        })
        .await
    }

    /// What the container of a Pod answers to a GET on its own port, past its sidecar.
    pub(crate) async fn get_from_pod(&self, pod: &str, port: u16, path: &str) -> Result<ServiceResponse> {
        self.send_to(&format!("pods/{pod}:{port}"), "GET", path, &Value::Null).await
    }

    /// The answer of a Service, once.
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
