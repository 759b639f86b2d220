//! A tool of an MCP server.

use std::{collections::BTreeMap, time::Duration};

use ::mcp::{McpError, ServerEndpoint, Sessions};
use serde_json::Value;
use url::Url;

use super::{
    bounded_buffer::truncate_to_cap,
    client::HttpClient,
    error::ToolError,
    headers::{ToolHeaders, ToolVariables},
    tls::Tls,
};

/// Which tool of which server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct McpTool {
    /// The server's endpoint.
    pub(super) url: Url,
    /// The tool's name there.
    pub(super) tool: String,
    /// What is sent with each request.
    pub(super) headers: ToolHeaders,
    /// Whether the server speaks the transport of the protocol's first revision.
    pub(super) sse: bool,
    /// How the server proves who it is.
    pub(super) tls: Tls,
}

impl McpTool {
    /// Calls it.
    ///
    /// # Errors
    /// Everything that goes wrong, as text for the model.
    pub(super) async fn call(
        &self,
        arguments: BTreeMap<String, Value>,
        client: &HttpClient,
        sessions: &Sessions,
        environment: &ToolVariables<'_>,
        deadline: Duration,
    ) -> Result<String, ToolError> {
        let trust = self.tls.trust(environment)?;
        let client = client.for_server(&self.url, &trust).await?;
        // Before the caller gives up, so that a session in which a call hangs is not used for the next.
        let own = deadline - deadline / 20;
        let server = ServerEndpoint {
            headers: self.headers.expand(environment)?,
            sse: self.sse,
            trust,
            ..ServerEndpoint::at(&self.url)
        };
        let answer = sessions.call_tool(&client, &server, &self.tool, arguments.into_iter().collect(), own).await;
        match answer {
            Ok(text) => Ok(truncate_to_cap(&text)),
            Err(McpError::Timeout { .. }) => Err(ToolError::Timeout(deadline)),
            Err(error) => Err(ToolError::Failed(truncate_to_cap(&error.to_string()))),
        }
    }
}
