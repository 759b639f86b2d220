//! Tools that a model may call: HTTP endpoints, programs, MCP servers, flows, other agents, knowledge bases and
//! built-in functions.
//!
//! A failed call is a result for the model, which can correct itself, and never an error for the user. So a call has
//! one outcome: a text of at most 1 MiB, or a [`ToolError`] whose text tells the model what to do.

mod a2a_agent;
mod approval;
mod bounded_buffer;
mod builtin;
mod calculator;
mod cli;
mod client;
mod contract;
mod definition;
mod egress;
mod element;
pub(crate) mod error;
mod headers;
mod http;
mod input;
mod knowledge;
mod listed_hosts;
mod mcp;
mod parameters;
mod remote_agent;
mod schema;
mod template;
mod tls;
mod web_search;

use crate::tools::error::ToolError;
use std::{sync::Arc, time::Duration};

use ::mcp::Sessions;
use a2a_agent::AgentCards;
use approval::ApprovalRule;
use builtin::{Builtin, NO_SEARCH};
use client::HttpClient;
use definition::ToolKind;
use egress::EgressPolicy;
use headers::ToolVariables;
use serde_json::Value;
use telemetry::SpanKind;
use telemetry::semconv::{
    GEN_AI_OPERATION_NAME, GEN_AI_TOOL_CALL_ARGUMENTS, GEN_AI_TOOL_CALL_ID, GEN_AI_TOOL_CALL_RESULT, GEN_AI_TOOL_NAME,
    GEN_AI_TOOL_TYPE, MCP_METHOD_NAME,
};
use web_search::SearchService;

use super::{
    Lookup,
    approval_metrics::ApprovalMetrics,
    caller::RequestHeaders,
    metrics::{RunnerMetrics, ToolCallOutcome},
    models::{ToolCall, ToolSpec},
    usage::UsageAccount,
};

/// Most characters of a call's id in a span: the model chooses it.
const MAX_CALL_ID: usize = 128;
/// Answer to the model for a call that no user has approved.
const UNAPPROVED: &str = "a person has to approve calls of this tool, and no user can be asked here: say what you would have called it \
                          with, and do not try again";

pub(super) use approval::{Consent, Decider};
pub(super) use definition::CallableTool;
pub(super) use headers::{expand, upper_snake};
pub(super) use schema::Schema;
pub(super) use tls::Tls;

/// Tools of an agent, or of a prompt. Clones share the tools and the connections.
#[derive(Clone)]
pub(super) struct Toolbox {
    tools: Arc<[CallableTool]>,
    specs: Arc<[ToolSpec]>,
    connections: Arc<Connections>,
    environment: Arc<Lookup>,
    /// Service of the web search.
    search: Option<SearchService>,
    metrics: RunnerMetrics,
    /// Headers of the request that began the turn, which calls may have too.
    request: RequestHeaders,
    /// Account of that request, which counts embeddings, with the parent span of the calls.
    account: UsageAccount,
    /// Value of `Idempotency-Key` of the call that is made, if a person approved it.
    idempotency_key: Option<Arc<str>>,
}

struct Connections {
    client: HttpClient,
    sessions: Sessions,
    cards: AgentCards,
}

impl Toolbox {
    /// Creates a toolbox; `$NAME` in headers is looked up in `environment`. The web search is left out unless a service
    /// for it is configured there.
    pub(super) fn new(mut tools: Vec<CallableTool>, environment: Arc<Lookup>, metrics: RunnerMetrics) -> Self {
        let search = SearchService::from_environment(&*environment);
        tools.retain(|tool| {
            let offered = search.is_some() || tool.kind != ToolKind::Builtin(Builtin::WebSearch);
            if !offered {
                tracing::warn!(tool = tool.name, "a tool is not offered: {NO_SEARCH}");
            }
            offered
        });
        if let Some(secrets) = &metrics.secrets {
            secrets.add(tools.iter().flat_map(|tool| tool.kind.header_values(&*environment)));
        }
        let client = HttpClient::new(EgressPolicy::new(&*environment));
        let connections = Arc::new(Connections { client, sessions: Sessions::default(), cards: AgentCards::default() });
        let specs = tools.iter().map(CallableTool::spec).collect();
        let (request, account, idempotency_key) = Default::default();
        let tools = tools.into();
        Self { tools, specs, connections, environment, search, metrics, request, account, idempotency_key }
    }

    /// Creates a toolbox with other tools and their environment, which shares the connections.
    pub(super) fn with_tools(&self, tools: Vec<CallableTool>, environment: Arc<Lookup>) -> Self {
        let connections = self.connections.clone();
        Self { connections, ..Self::new(tools, environment, self.metrics.clone()) }
    }

    /// Creates a toolbox with the tools for which `keep` is true.
    pub(super) fn filtered(&self, keep: impl Fn(&CallableTool) -> bool) -> Self {
        let kept = self.tools.iter().filter(|tool| keep(tool)).cloned().collect();
        self.with_tools(kept, self.environment.clone())
    }

    /// Returns the toolbox for a turn of a request with these headers. The calls are children of the span in `account`.
    pub(super) fn for_request(&self, headers: &RequestHeaders, account: &UsageAccount) -> Self {
        Self { request: headers.clone(), account: account.clone(), ..self.clone() }
    }

    /// Returns the declarations for the model.
    pub(super) fn specs(&self) -> Arc<[ToolSpec]> {
        self.specs.clone()
    }

    /// Returns how long a call waits until a person decides; `None` for a call that waits for no person, or that none can decide on.
    pub(super) fn patience(&self, call: &ToolCall) -> Option<Duration> {
        self.find(&call.name)?.approval.as_ref()?.patience(&call.arguments)
    }

    /// Returns who decides on a call that waits.
    pub(super) fn decider(&self, call: &ToolCall) -> Option<Decider> {
        self.find(&call.name)?.approval.as_ref()?.decider()
    }

    /// Returns the digest of the definition of a tool, if there is the tool.
    pub(super) fn digest(&self, name: &str) -> Option<&str> {
        self.find(name).map(|tool| tool.digest.as_str())
    }

    /// Reports whether a call that may have been sent can be sent again, because the effect of two is that of one.
    pub(super) fn may_repeat(&self, call: &ToolCall) -> bool {
        let tool = self.find(&call.name);
        tool.is_some_and(|tool| matches!(&tool.kind, ToolKind::Http(http) if http.is_idempotent()))
    }

    /// Reports whether calls of a tool wait for a person.
    pub(super) fn asks_callers(&self) -> bool {
        self.tools.iter().any(|tool| tool.approval.as_ref().and_then(ApprovalRule::decider).is_some())
    }

    /// Returns the names of those headers of the request that began the turn which calls have, each once.
    pub(super) fn forwarded(&self, request: &RequestHeaders) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in self.tools.iter().flat_map(|tool| &tool.forwarded) {
            if request.has(name) && !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                names.push(name.clone());
            }
        }
        names
    }

    /// Returns the metrics of calls that wait for a person.
    pub(super) fn approvals(&self) -> &ApprovalMetrics {
        &self.metrics.approvals
    }

    fn find(&self, name: &str) -> Option<&CallableTool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Returns the names of all tools, for the error about an unknown one.
    fn names(&self) -> String {
        let names: Vec<_> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    }

    /// Executes a call of the model within the tool's timeout, in a span of its own, with this consent. Dropping the future cancels the
    /// call.
    pub(super) async fn execute(&self, call: &ToolCall, consent: Consent<'_>) -> Result<String, ToolError> {
        let tool = self.find(&call.name);
        // A name that no tool has may be anything.
        let name = tool.map_or_else(|| "execute_tool".to_owned(), |tool| format!("execute_tool {}", tool.name));
        let span = self.account.trace().begin(name, SpanKind::Internal);
        span.set(GEN_AI_OPERATION_NAME, "execute_tool");
        span.set(GEN_AI_TOOL_CALL_ID, call.id.chars().take(MAX_CALL_ID).collect::<String>());
        if let Some(tool) = tool {
            span.set(GEN_AI_TOOL_NAME, tool.name.clone());
            span.set(GEN_AI_TOOL_TYPE, tool.kind.standard_type());
            if let ToolKind::Mcp(_) = tool.kind {
                span.set(MCP_METHOD_NAME, "tools/call");
            }
        }
        span.scope().set_content(GEN_AI_TOOL_CALL_ARGUMENTS, |content| content.arguments(&call.arguments));
        let idempotency_key = match consent {
            Consent::Given(key) => Some(key.into()),
            Consent::Missing => None,
        };
        let account = self.account.clone().within(span.scope());
        let within = Self { account, idempotency_key, ..self.clone() };
        let result = within.call_with(&call.name, &call.arguments, consent).await;
        // The error goes to the model as the result of the call.
        span.scope().set_content(GEN_AI_TOOL_CALL_RESULT, |content| match &result {
            Ok(text) => content.result(text),
            Err(error) => content.result(&error.to_string()),
        });
        match &result {
            Ok(_) => span.succeed(),
            Err(error) => span.fail(error.word()),
        }
        result
    }

    /// Calls the tool `name` within its timeout, unless a person has to approve it. Dropping the future cancels the call.
    pub(super) async fn call(&self, name: &str, arguments: &Value) -> Result<String, ToolError> {
        self.call_with(name, arguments, Consent::Missing).await
    }

    async fn call_with(&self, name: &str, arguments: &Value, consent: Consent<'_>) -> Result<String, ToolError> {
        let tool = self.find(name);
        let result = match tool {
            None => Err(ToolError::Unknown(name.into(), self.names())),
            Some(tool) if tool.approval.is_some() && consent == Consent::Missing => {
                Err(ToolError::Refused(UNAPPROVED.into()))
            }
            Some(tool) => tokio::time::timeout(tool.timeout, self.run(tool, arguments))
                .await
                .unwrap_or(Err(ToolError::Timeout(tool.timeout))),
        };
        let outcome = match &result {
            Ok(_) => ToolCallOutcome::Ok,
            Err(ToolError::Timeout(_)) => ToolCallOutcome::Timeout,
            Err(_) => ToolCallOutcome::Error,
        };
        self.metrics.count_tool_call(tool.map_or("unknown", |tool| tool.kind.label()), outcome);
        result
    }

    /// Returns the variables that headers of `tool` may refer to.
    fn variables(&self, tool: &CallableTool) -> ToolVariables<'_> {
        let others = self.tools.iter().filter(|other| other.name != tool.name).map(CallableTool::variable_prefix);
        let variables = ToolVariables::new(tool.variable_prefix(), others, &*self.environment);
        let variables = variables.for_request(&self.request).for_call(self.idempotency_key.as_deref());
        variables.in_trace(self.account.trace().clone())
    }

    async fn run(&self, tool: &CallableTool, arguments: &Value) -> Result<String, ToolError> {
        let arguments = tool.input.check(arguments).await?;
        let Connections { client, sessions, cards } = &*self.connections;
        let mut answer = match &tool.kind {
            ToolKind::Http(http) => http.call(arguments, client, &self.variables(tool)).await,
            ToolKind::Cli(cli, names) => cli.call(names, &arguments).await,
            ToolKind::Builtin(builtin) => builtin.call(&arguments, client, self.search.as_ref()).await,
            ToolKind::Mcp(mcp) => mcp.call(arguments, client, sessions, &self.variables(tool), tool.timeout).await,
            ToolKind::Flow(flow) => flow.call(&arguments, client, &self.variables(tool)).await,
            ToolKind::Agent(agent) => agent.call(&arguments, client, cards, &self.variables(tool)).await,
            ToolKind::Knowledge(base) => knowledge::call(base, &arguments, self.account.clone()).await,
            ToolKind::Unsupported(why) => Err(ToolError::Failed(why.clone())),
        }?;
        let problem = match &tool.output {
            Some(schema) => output_mismatch(schema, &answer).await,
            None => None,
        };
        if let Some(problem) = problem {
            answer.push_str(&format!("\n[this answer does not fit the tool's output schema: {problem}]"));
        }
        Ok(answer)
    }
}

/// Returns the mismatch between `answer` and the schema, if any. It is not an error: the answer may still be useful.
async fn output_mismatch(schema: &Schema, answer: &str) -> Option<String> {
    match serde_json::from_str(answer) {
        Ok(value) => schema.check_off_thread(value).await.err(),
        Err(_) => Some("it is not JSON".into()),
    }
}
