//! MCP server at the gateway's root, over Streamable HTTP: each agent that the caller may call is a tool.
//!
//! A tool is named `namespace_name` and takes a `message`, which it sends to the agent's `/chat`. Each call is a
//! conversation of its own. There are no sessions and no streams: every answer is one JSON document, so that any replica
//! answers any request. Both eras of the protocol are spoken, with `initialize` and with `server/discover`.

use std::{net::IpAddr, sync::Arc};

use http1::{Connection, RequestHead};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    super::{
        local_response::{LocalResponse, too_many_requests},
        peer::{ClientStream, Peer},
        routes::Route,
        state::GatewayContext,
    },
    RootOutcome,
    body::{self, SeenBody, Sender},
    call, is_agent,
    rpc::{INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, RpcMessage, answer},
    write,
};

/// Revisions of the protocol that begin with `initialize`, the newest first.
const REVISIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// Revision of the protocol without a handshake.
const STATELESS_REVISION: &str = "2026-07-28";
/// Most tools in one answer.
const PAGE: usize = 100;
/// Path for which the caller must have the right.
const CHAT: &[u8] = b"/chat";
/// Time for which a client may keep a list, in milliseconds: as long as a right is cached.
const TTL: u64 = 60_000;

/// Failure of a request.
enum McpError {
    /// The whole HTTP request is refused.
    Refused(LocalResponse),
    /// The answer is an error of JSON-RPC.
    Rpc(RpcError),
}

impl From<RpcError> for McpError {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

/// Request whose body was read.
struct McpRequest<'a> {
    head: &'a RequestHead<'a>,
    peer: &'a Peer,
    origin: IpAddr,
    shared: &'a Arc<GatewayContext>,
}

/// Responds to a message.
pub(super) async fn respond<'a, S: ClientStream>(
    client: &mut Connection<S>,
    head: &RequestHead<'_>,
    peer: &Peer,
    origin: IpAddr,
    shared: &'a Arc<GatewayContext>,
) -> RootOutcome<'a> {
    let mut bytes = Vec::new();
    let whole = body::read(client, Sender { head, origin, rest: CHAT }, shared, |run| -> Option<()> {
        bytes.extend_from_slice(run);
        None
    });
    // The permit is held to the end: what was read is in the parameters.
    let SeenBody { length, large: _large, .. } = match whole.await {
        Ok(seen) => seen,
        Err(error) => return error.into(),
    };
    // Of the bytes themselves nothing is kept, nor the room for them.
    client.incoming = client.incoming.split_off(length);
    let message = RpcMessage::read(&bytes);
    drop(bytes);
    let again = head.keeps_alive && !shared.leaving();
    let (id, method, params) = match message {
        Ok(RpcMessage::Request { id, method, params }) => (id, method, params),
        Ok(RpcMessage::Notification) => {
            write(client, head, 202, "", !again);
            return RootOutcome::Responded { again };
        }
        Err(error) => {
            write(client, head, 400, &answer(&Value::Null, Err(error)), !again);
            return RootOutcome::Responded { again };
        }
    };
    let call = (method == "tools/call").then(|| shared.root.calls.try_acquire()).transpose();
    let Ok(_call) = call else {
        return refused(LocalResponse::new(503, "queue-full", "too many calls of tools run: try again"));
    };
    let request = McpRequest { head, peer, origin, shared };
    let result = tokio::select! {
        result = request.result(&method, params) => result,
        () = client.io.closed() => return RootOutcome::Gone,
    };
    let result = match result {
        Ok(result) => Ok(result),
        Err(McpError::Rpc(error)) => Err(error),
        Err(McpError::Refused(refusal)) => return refused(refusal),
    };
    write(client, head, 200, &answer(&id, result), !again);
    // A call ends when the client has taken its answer, which may be large.
    match timeout(body::PATIENCE, client.flush()).await {
        Ok(Ok(())) => RootOutcome::Responded { again },
        Ok(Err(_)) | Err(_) => RootOutcome::Gone,
    }
}

/// Refuses the whole HTTP request.
fn refused<'a>(refusal: LocalResponse) -> RootOutcome<'a> {
    // -32000 is a server error (JSON-RPC 2.0, section 5.1).
    RootOutcome::Refused(LocalResponse { rpc: Some(-32000), ..refusal })
}

impl McpRequest<'_> {
    async fn result(&self, method: &str, params: Value) -> Result<Value, McpError> {
        match method {
            "initialize" => Ok(initialized(&params)),
            "server/discover" => Ok(json!({
                "resultType": "complete", "supportedVersions": [STATELESS_REVISION], "capabilities": { "tools": {} },
                "ttlMs": TTL, "cacheScope": "private", "_meta": { "io.modelcontextprotocol/serverInfo": server_info() },
            })),
            "ping" => Ok(json!({})),
            "tools/list" => self.list(&params).await,
            "tools/call" => self.call(params).await,
            other => {
                let name: String = other.chars().take(64).collect();
                Err(RpcError::new(METHOD_NOT_FOUND, format!("unknown method `{name}`: there are tools alone")).into())
            }
        }
    }

    async fn list(&self, params: &Value) -> Result<Value, McpError> {
        let after = match &params["cursor"] {
            Value::Null => "",
            Value::String(cursor) if is_agent(cursor) => cursor,
            _ => return Err(RpcError::new(INVALID_PARAMS, "`cursor` is none of this server's").into()),
        };
        let Self { head, origin, shared, .. } = *self;
        let caller = shared.auth.identify(head, origin).await.map_err(McpError::Refused)?;
        let ticket = shared.clients.acquire(|| caller.client(origin));
        let _ticket = ticket.ok_or_else(|| McpError::Refused(too_many_requests()))?;
        let agents = shared.routes.agents_after(after, |route| caller.may_see(route, CHAT));
        let listed = caller.callable(agents, CHAT, PAGE, &shared.root.lists, origin).await;
        let listed = listed.map_err(McpError::Refused)?;
        let tools: Vec<_> = listed.callable.iter().map(|route| tool(route)).collect();
        let mut result = json!({ "resultType": "complete", "tools": tools, "ttlMs": TTL, "cacheScope": "private" });
        if let Some(last) = listed.until {
            result["nextCursor"] = last.agent_name().into();
        }
        Ok(result)
    }

    async fn call(&self, mut params: Value) -> Result<Value, McpError> {
        let message = match params.pointer_mut("/arguments/message").map(Value::take) {
            Some(Value::String(message)) => Some(message),
            _ => None,
        };
        let name = params["name"].as_str().unwrap_or_default();
        let unknown = || {
            let name: String = name.chars().take(128).collect();
            McpError::Rpc(RpcError::new(
                INVALID_PARAMS,
                format!("unknown tool `{name}`: tools/list has those that you may call"),
            ))
        };
        // Names of namespaces and agents have no underscore.
        let agent = name.replacen('_', "/", 1);
        if !is_agent(&agent) {
            return Err(unknown());
        }
        let Some(message) = message else {
            return Err(RpcError::new(INVALID_PARAMS, "`message` must be a string").into());
        };
        let answered = call::chat(&format!("/v1/agents/{agent}"), message, self.head, self.peer, self.shared).await;
        match answered {
            Ok(text) => Ok(content(&text, false)),
            Err(error) => match (error.status, &*error.reason) {
                (401, "unauthenticated") => {
                    let field = Some(("WWW-Authenticate", "Bearer".into()));
                    let refusal = LocalResponse::new(401, "unauthenticated", error.message);
                    Err(McpError::Refused(LocalResponse { field, ..refusal }))
                }
                (403, "foreign-origin") => {
                    Err(McpError::Refused(LocalResponse::new(403, "foreign-origin", error.message)))
                }
                (403, "forbidden") | (404, "unknown") => Err(unknown()),
                // The agent's own answer, or a Pod is missing: the model that called the tool can read it, and try again.
                _ => Ok(content(&error.message, true)),
            },
        }
    }
}

fn initialized(params: &Value) -> Value {
    let wanted = params["protocolVersion"].as_str();
    let revision = REVISIONS.iter().find(|known| Some(**known) == wanted).unwrap_or(&REVISIONS[0]);
    json!({ "protocolVersion": revision, "capabilities": { "tools": {} }, "serverInfo": server_info() })
}

fn server_info() -> Value {
    json!({ "name": "recif", "title": "Récif agents", "version": env!("CARGO_PKG_VERSION") })
}

/// Describes an agent as a tool.
fn tool(route: &Route) -> Value {
    let (namespace, name) = (&route.workload.namespace, &route.workload.name);
    let description = match &*route.object.listing.description {
        "" => format!("Sends a message to the agent {name} of namespace {namespace}, and returns its answer."),
        own => own.to_owned(),
    };
    let message = json!({
        "type": "string", "description": "What to say to the agent. It knows nothing of this conversation.",
    });
    let schema = json!({ "type": "object", "properties": { "message": message }, "required": ["message"] });
    json!({ "name": format!("{namespace}_{name}"), "description": description, "inputSchema": schema })
}

fn content(text: &str, is_error: bool) -> Value {
    json!({ "resultType": "complete", "content": [{ "type": "text", "text": text }], "isError": is_error })
}
