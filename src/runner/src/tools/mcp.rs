//! Tool of an MCP server.

use std::{collections::BTreeMap, sync::OnceLock, time::Duration};

use ::mcp::{CallTrace, McpError, ServerEndpoint, Sessions};
use serde_json::Value;
use telemetry::semconv::MCP_PROTOCOL_VERSION;
use url::Url;

use super::{
    bounded_buffer::truncate_to_cap,
    client::HttpClient,
    error::ToolError,
    headers::{ToolHeaders, ToolVariables},
    tls::Tls,
};

/// Tool of an MCP server, with the server's connection settings.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct McpTool {
    /// Endpoint of the server.
    pub(super) url: Url,
    /// Name of the tool on the server.
    pub(super) tool: String,
    /// Headers of each request.
    pub(super) headers: ToolHeaders,
    /// Set for the HTTP+SSE transport of the protocol's first revision.
    pub(super) sse: bool,
    /// Verification of the server's certificate.
    pub(super) tls: Tls,
    /// Server in `toolServers` whose variables the headers may refer to; empty for the tool's own.
    pub(super) server: String,
}

impl McpTool {
    /// Calls the tool.
    ///
    /// # Errors
    /// Any failure, as text for the model.
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
        // The client's own timeout is shorter than the caller's, so that a session with a hanging call is not reused.
        let own = deadline - deadline / 20;
        let server = ServerEndpoint {
            headers: self.headers.expand(environment)?,
            sse: self.sse,
            trust,
            ..ServerEndpoint::at(&self.url)
        };
        let trace = environment.trace().context().map(|context| CallTrace {
            traceparent: context.traceparent(),
            tracestate: context.state.as_deref().map(str::to_owned),
            revision: OnceLock::new(),
        });
        let arguments = arguments.into_iter().collect();
        let answer = sessions.call_tool(&client, &server, &self.tool, arguments, own, trace.as_ref()).await;
        if let Some(revision) = trace.as_ref().and_then(|trace| trace.revision.get()) {
            environment.trace().set(MCP_PROTOCOL_VERSION, revision.clone());
        }
        match answer {
            Ok(text) => Ok(truncate_to_cap(&text)),
            Err(McpError::Timeout { .. }) => Err(ToolError::Timeout(deadline)),
            Err(error) => Err(ToolError::Failed(truncate_to_cap(&error.to_string()))),
        }
    }
}
