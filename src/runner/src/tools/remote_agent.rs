//! A tool that is a flow or another agent: JSON over HTTP, as Récif's own runtimes speak it.
//!
//! A flow takes the arguments as its input and answers with text. An agent takes a `message` and answers with a
//! `reply`; each call is a conversation of its own, so that an agent hears only what it is told.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::{
    client::{self, HttpClient},
    error::ToolError,
    parameters::{Parameter, ParameterType},
};

/// A flow.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FlowTool {
    /// Where it takes its input.
    pub(super) url: Url,
}

impl FlowTool {
    /// Calls it.
    ///
    /// # Errors
    /// Everything that goes wrong, as text for the model.
    pub(super) async fn call(
        &self,
        arguments: &BTreeMap<String, Value>,
        client: &HttpClient,
    ) -> Result<String, ToolError> {
        post(&self.url, arguments, client).await
    }
}

/// Another agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AgentTool {
    /// Its address, without `/chat`.
    pub(super) url: Url,
}

/// What an agent answers.
#[derive(Deserialize)]
struct AgentReply {
    reply: String,
}

impl AgentTool {
    /// What every agent takes.
    pub(super) fn parameters() -> Vec<Parameter> {
        let description = "What to say to the agent. It knows nothing of this conversation.".into();
        vec![Parameter { description, ..Parameter::required("message", ParameterType::String) }]
    }

    /// Calls it.
    ///
    /// # Errors
    /// Everything that goes wrong, as text for the model.
    pub(super) async fn call(
        &self,
        arguments: &BTreeMap<String, Value>,
        client: &HttpClient,
    ) -> Result<String, ToolError> {
        let mut url = self.url.clone();
        url.set_path(&format!("{}/chat", self.url.path().trim_end_matches('/')));
        let answer = post(&url, &json!({ "message": arguments.get("message") }), client).await?;
        let answer: AgentReply = serde_json::from_str(&answer)
            .map_err(|_| ToolError::Failed("the agent did not answer with JSON that has a `reply`".into()))?;
        Ok(answer.reply)
    }
}

async fn post(url: &Url, body: &(impl serde::Serialize + Sync), client: &HttpClient) -> Result<String, ToolError> {
    let request =
        client.for_url(url).await?.post(url.clone()).header("accept", "application/json, text/plain").json(body);
    client::read(request.send().await.map_err(client::failed)?).await
}
