//! Names of spans' attributes, and some of their values.
//!
//! | names | from |
//! |---|---|
//! | `error.*`, `http.*`, `k8s.*`, `server.*`, `service.*`, `url.*`, `user.*` | [semantic-conventions](https://github.com/open-telemetry/semantic-conventions) 1.44 |
//! | `gen_ai.*` | [semantic-conventions-genai](https://github.com/open-telemetry/semantic-conventions-genai), commit `9f1b0bb4320aba1797371a60f19ab07bad938932` |
//! | `mcp.*` | the same, commit `4172e394d28f2d26ec4a4514a45f153580c68670` |
//! | `a2a.*` | the same, commit `bd8475c93bf6ca13a0977c5a1335cc2661020908` |
//! | `recif.*` | this project |
//!
//! Those of semantic-conventions-genai are in development: they may change with it. Only `recif.*` is promised.

/// Schema of the names of semantic-conventions.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.44.0";

/// Kind of an error: a short word or an HTTP status.
pub const ERROR_TYPE: &str = "error.type";
/// Template of the path.
pub const HTTP_ROUTE: &str = "http.route";
/// Method of the request.
pub const HTTP_REQUEST_METHOD: &str = "http.request.method";
/// Status of the response.
pub const HTTP_RESPONSE_STATUS_CODE: &str = "http.response.status_code";
/// Path of the request, without its query.
pub const URL_PATH: &str = "url.path";
/// Scheme of the request.
pub const URL_SCHEME: &str = "url.scheme";
/// Host that is asked.
pub const SERVER_ADDRESS: &str = "server.address";
/// Its port.
pub const SERVER_PORT: &str = "server.port";
/// Caller.
pub const USER_ID: &str = "user.id";
/// Name of the service.
pub const SERVICE_NAME: &str = "service.name";
/// Its version.
pub const SERVICE_VERSION: &str = "service.version";
/// One process of the service.
pub const SERVICE_INSTANCE_ID: &str = "service.instance.id";
/// Namespace of the Pod, or of the object that a request is for.
pub const K8S_NAMESPACE_NAME: &str = "k8s.namespace.name";
/// Name of the Pod.
pub const K8S_POD_NAME: &str = "k8s.pod.name";

/// Operation, such as `chat`.
pub const GEN_AI_OPERATION_NAME: &str = "gen_ai.operation.name";
/// Provider of a model.
pub const GEN_AI_PROVIDER_NAME: &str = "gen_ai.provider.name";
/// Name of the agent or flow.
pub const GEN_AI_AGENT_NAME: &str = "gen_ai.agent.name";
/// Its version: the content hash of its template.
pub const GEN_AI_AGENT_VERSION: &str = "gen_ai.agent.version";
/// Conversation.
pub const GEN_AI_CONVERSATION_ID: &str = "gen_ai.conversation.id";
/// Knowledge base.
pub const GEN_AI_DATA_SOURCE_ID: &str = "gen_ai.data_source.id";
/// Model that is asked.
pub const GEN_AI_REQUEST_MODEL: &str = "gen_ai.request.model";
/// Setting of the request.
pub const GEN_AI_REQUEST_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
/// Setting of the request.
pub const GEN_AI_REQUEST_TEMPERATURE: &str = "gen_ai.request.temperature";
/// Setting of the request.
pub const GEN_AI_REQUEST_TOP_P: &str = "gen_ai.request.top_p";
/// Setting of the request.
pub const GEN_AI_REQUEST_TOP_K: &str = "gen_ai.request.top_k";
/// Setting of the request.
pub const GEN_AI_REQUEST_SEED: &str = "gen_ai.request.seed";
/// Model that answered.
pub const GEN_AI_RESPONSE_MODEL: &str = "gen_ai.response.model";
/// Id of the answer.
pub const GEN_AI_RESPONSE_ID: &str = "gen_ai.response.id";
/// Reason why the model stopped.
pub const GEN_AI_RESPONSE_FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// Seconds until the first piece of the answer.
pub const GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
/// Tokens of the request, with those from and to the cache.
pub const GEN_AI_USAGE_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Tokens of the answer, with those of reasoning.
pub const GEN_AI_USAGE_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// Tokens of the request that were read from the cache.
pub const GEN_AI_USAGE_CACHE_READ: &str = "gen_ai.usage.cache_read.input_tokens";
/// Tokens of the request that were written to the cache.
pub const GEN_AI_USAGE_CACHE_CREATION: &str = "gen_ai.usage.cache_creation.input_tokens";
/// Tokens of reasoning.
pub const GEN_AI_USAGE_REASONING: &str = "gen_ai.usage.reasoning.output_tokens";
/// Name of a tool.
pub const GEN_AI_TOOL_NAME: &str = "gen_ai.tool.name";
/// Type of a tool: `function`, `extension` or `datastore`.
pub const GEN_AI_TOOL_TYPE: &str = "gen_ai.tool.type";
/// Id of a call, given by the model.
pub const GEN_AI_TOOL_CALL_ID: &str = "gen_ai.tool.call.id";

/// Content: messages that a model or agent gets, as JSON.
pub const GEN_AI_INPUT_MESSAGES: &str = "gen_ai.input.messages";
/// Content: its answer, as JSON.
pub const GEN_AI_OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
/// Content: instructions apart from the messages, as JSON.
pub const GEN_AI_SYSTEM_INSTRUCTIONS: &str = "gen_ai.system_instructions";
/// Content: declarations of tools, as JSON.
pub const GEN_AI_TOOL_DEFINITIONS: &str = "gen_ai.tool.definitions";
/// Content: arguments of a call, as JSON.
pub const GEN_AI_TOOL_CALL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
/// Content: result of a call.
pub const GEN_AI_TOOL_CALL_RESULT: &str = "gen_ai.tool.call.result";

/// Method of a request to an MCP server.
pub const MCP_METHOD_NAME: &str = "mcp.method.name";
/// Revision of the protocol.
pub const MCP_PROTOCOL_VERSION: &str = "mcp.protocol.version";
/// Session, of revisions that have them.
pub const MCP_SESSION_ID: &str = "mcp.session.id";

/// Operation of A2A, such as `SendMessage`.
pub const A2A_METHOD_NAME: &str = "a2a.method.name";
/// Task.
pub const A2A_TASK_ID: &str = "a2a.task.id";
/// State of the task, such as `TASK_STATE_COMPLETED`.
pub const A2A_TASK_STATE: &str = "a2a.task.state";

/// Kind of the object: `Agent`, `Flow`, `FlowSet`, `MCPServer` and others; of a process of the platform, its own name.
pub const RECIF_KIND: &str = "recif.kind";
/// Name of the object that a request is for.
pub const RECIF_NAME: &str = "recif.name";
/// Action or rule of the operator that decided a step.
pub const RECIF_ACTION: &str = "recif.action";
/// Phase before a step; empty for the admission of an object.
pub const RECIF_FROM: &str = "recif.from";
/// Phase after it.
pub const RECIF_TO: &str = "recif.to";
/// Generation of the object's spec.
pub const RECIF_GENERATION: &str = "recif.generation";
/// Pod that answered.
pub const RECIF_POD: &str = "recif.pod";
/// Milliseconds in the gateway's queue.
pub const RECIF_QUEUE_MS: &str = "recif.queue_ms";
/// Further attempts of the gateway.
pub const RECIF_RETRIES: &str = "recif.retries";
/// Answers of the model with calls of tools.
pub const RECIF_TOOL_TURNS: &str = "recif.tool_turns";
/// Milliseconds before the next attempt.
pub const RECIF_WAIT_MS: &str = "recif.wait_ms";

/// Event of the gateway: the request waits for room.
pub const EVENT_QUEUED: &str = "queued";
/// Event of the gateway: the request is sent to a Pod once more.
pub const EVENT_SENT_AGAIN: &str = "retry";
/// Event of the gateway: the head of the response came.
pub const EVENT_FIRST_BYTE: &str = "first_byte";

/// Event: another attempt follows.
pub const EVENT_RETRY: &str = "recif.retry";
/// Event: another model is asked.
pub const EVENT_FALLBACK: &str = "recif.fallback";
/// Event: the turn waits until a person approves a call of a tool.
pub const EVENT_PARKED: &str = "recif.parked";
