//! Tool that calls a flow or another agent: JSON over HTTP, the protocol of Récif's own runtimes.
//!
//! A flow takes the arguments as its input and responds with text. An agent takes a `message` and responds with a
//! `reply`; each call is a conversation of its own, so the other agent gets only that message as context. An agent of
//! another framework is asked in Agent2Agent ([`super::a2a_agent`]).

use std::collections::BTreeMap;

use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::{
    a2a_agent::AgentCards,
    client::{self, HttpClient},
    error::ToolError,
    headers::{ToolHeaders, ToolVariables},
    parameters::{Parameter, ParameterType},
};

/// Flow that is called as a tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FlowTool {
    /// URL of the flow.
    pub(super) url: Url,
    /// Headers of each request.
    pub(super) headers: ToolHeaders,
}

impl FlowTool {
    /// Calls the flow.
    ///
    /// # Errors
    /// Any failure, as text for the model.
    pub(super) async fn call(
        &self,
        arguments: &BTreeMap<String, Value>,
        client: &HttpClient,
        environment: &ToolVariables<'_>,
    ) -> Result<String, ToolError> {
        post(&self.url, arguments, self.headers.expand(environment)?, environment, client).await
    }
}

/// Protocol in which an agent is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentProtocol {
    /// `POST /chat`.
    Chat,
    /// Agent2Agent.
    A2a,
}

impl AgentProtocol {
    /// Parses the protocol of a tool; that of a tool without one is chat.
    pub(super) fn parse(name: Option<&str>) -> Option<Self> {
        match name {
            None | Some("chat") => Some(Self::Chat),
            Some("a2a") => Some(Self::A2a),
            Some(_) => None,
        }
    }
}

/// Agent that is called as a tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AgentTool {
    /// URL of the agent, without `/chat`.
    pub(super) url: Url,
    /// Headers of each request.
    pub(super) headers: ToolHeaders,
    /// Protocol in which it is asked.
    pub(super) protocol: AgentProtocol,
}

/// Response of an agent.
#[derive(Deserialize)]
struct AgentReply {
    reply: String,
}

impl AgentTool {
    /// Returns the parameters of every agent.
    pub(super) fn parameters() -> Vec<Parameter> {
        let description = "What to say to the agent. It knows nothing of this conversation.".into();
        vec![Parameter { description, ..Parameter::required("message", ParameterType::String) }]
    }

    /// Calls the agent.
    ///
    /// # Errors
    /// Any failure, as text for the model.
    pub(super) async fn call(
        &self,
        arguments: &BTreeMap<String, Value>,
        client: &HttpClient,
        cards: &AgentCards,
        environment: &ToolVariables<'_>,
    ) -> Result<String, ToolError> {
        if self.protocol == AgentProtocol::A2a {
            let message = arguments.get("message").and_then(Value::as_str).unwrap_or_default();
            return cards.ask(&self.url, message, &self.headers, environment, client).await;
        }
        let mut url = self.url.clone();
        url.set_path(&format!("{}/chat", self.url.path().trim_end_matches('/')));
        // No person reads the answer who could approve a call that waits.
        let message = json!({ "message": arguments.get("message"), "may_wait": false });
        let answer = post(&url, &message, self.headers.expand(environment)?, environment, client).await?;
        let answer: AgentReply = serde_json::from_str(&answer)
            .map_err(|_| ToolError::Failed("the agent did not answer with JSON that has a `reply`".into()))?;
        Ok(answer.reply)
    }
}

async fn post(
    url: &Url,
    body: &(impl serde::Serialize + Sync),
    headers: HeaderMap,
    environment: &ToolVariables<'_>,
    client: &HttpClient,
) -> Result<String, ToolError> {
    let request = client.for_url(url).await?.post(url.clone()).header("accept", "application/json, text/plain");
    let request = request.headers(headers).headers(environment.trace().headers()).json(body);
    client::read(request.send().await.map_err(client::failed)?).await
}
