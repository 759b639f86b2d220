//! Paths at the root of the gateway that name no workload: the request's body does, or the caller's rights.
//!
//! | path | leads to |
//! |---|---|
//! | `POST /v1/chat/completions`, `POST /v1/responses` | the agent that `model` names, `namespace/name` |
//! | `/v1/responses/{id}`, any method | nothing: 404 |
//! | `GET /v1/models`, `GET /v1/models/{model}` | the agents that the caller may call; the slash of a name is `%2F` |
//! | `POST /mcp` | an [MCP server](mcp) whose tools are these agents |
//!
//! An agent that was named so is called as by its own path: the same authorization, admission, limits and metrics. The
//! name may stand anywhere in the first 1 MiB of the body, which is relayed as it is. Every refusal has OpenAI's form.

mod body;
mod call;
mod limits;
mod mcp;
mod models;
mod rpc;
mod scanner;

use std::{net::IpAddr, sync::Arc};

use crds::agent::NO_RESPONSE_BY_ID;
use http1::{Connection, RequestHead, write_local_response};

use self::{
    body::{BodyError, SeenBody, Sender},
    scanner::{ModelError, ModelScanner},
};
use super::{
    local_response::LocalResponse,
    path::Path,
    peer::{ClientStream, Peer},
    state::GatewayContext,
};

pub(super) use limits::{HeldBody, RootLimits};
#[cfg(test)]
pub(super) use limits::{MAX_CALLS, MAX_LARGE, MAX_LARGE_PER_CLIENT, MAX_LISTS};

/// Paths at the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RootPath {
    /// Operation of OpenAI's API that a model answers.
    Answer,
    /// One response, by its id.
    OneResponse,
    /// List of models, or one of them.
    Models,
    /// MCP server.
    Mcp,
}

/// Path of the agent that a request at the root is for.
pub(super) struct ChosenAgent {
    /// Path prefix of the agent, such as `/v1/agents/default/weather`.
    prefix: String,
}

/// Outcome of a request at the root.
pub(super) enum RootOutcome<'a> {
    /// The request is for this agent, and is relayed to it. Its body is in memory until then, by this permit.
    Agent(ChosenAgent, HeldBody<'a>),
    /// Nothing was sent yet: the client gets this refusal.
    Refused(LocalResponse),
    /// A response is in `outgoing`.
    Responded {
        /// Set if the whole request was read, so that another one may follow.
        again: bool,
    },
    /// The client closed its connection.
    Gone,
}

impl From<BodyError> for RootOutcome<'_> {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Refused(refusal) => Self::Refused(refusal),
            BodyError::Gone => Self::Gone,
        }
    }
}

impl ChosenAgent {
    /// Returns the path by which the agent gets a request for `target`.
    pub(super) fn path<'a>(&'a self, target: &'a [u8]) -> Path<'a> {
        let prefix = self.prefix.as_bytes();
        Path { key: prefix.strip_prefix(b"/v1/").unwrap_or_default(), prefix, rest: target }
    }
}

/// Reports whether a target is one of the paths at the root.
pub(super) fn is_root(target: &[u8]) -> bool {
    root_path(target).is_some()
}

fn root_path(target: &[u8]) -> Option<RootPath> {
    match target.split(|byte| *byte == b'?').next()? {
        b"/v1/chat/completions" | b"/v1/responses" => Some(RootPath::Answer),
        b"/v1/models" => Some(RootPath::Models),
        b"/mcp" => Some(RootPath::Mcp),
        path if path.starts_with(b"/v1/responses/") => Some(RootPath::OneResponse),
        path if path.starts_with(models::ONE) => Some(RootPath::Models),
        _ => None,
    }
}

/// Serves a request at the root, or finds the agent that serves it. `origin` is the client's address.
pub(super) async fn resolve<'a, S: ClientStream>(
    client: &mut Connection<S>,
    head: &RequestHead<'_>,
    peer: &Peer,
    origin: IpAddr,
    shared: &'a Arc<GatewayContext>,
) -> RootOutcome<'a> {
    let path = root_path(head.target).unwrap_or(RootPath::Models);
    let method: &'static str = if path == RootPath::Models { "GET" } else { "POST" };
    let is_taken = match path {
        RootPath::OneResponse => true,
        RootPath::Models => head.method == b"GET" || head.is_head(),
        RootPath::Answer | RootPath::Mcp => head.method == b"POST",
    };
    if !is_taken {
        let refusal = LocalResponse::new(405, "bad-request", format!("this path takes {method} alone"));
        return RootOutcome::Refused(LocalResponse { field: Some(("Allow", method.into())), ..refusal });
    }
    match path {
        RootPath::Answer => choose(client, head, origin, shared).await,
        RootPath::OneResponse => RootOutcome::Refused(LocalResponse::new(404, "unknown", NO_RESPONSE_BY_ID)),
        RootPath::Models => models::respond(client, head, origin, shared).await,
        RootPath::Mcp => mcp::respond(client, head, peer, origin, shared).await,
    }
}

/// Finds the agent that the body names.
async fn choose<'a, S: ClientStream>(
    client: &mut Connection<S>,
    head: &RequestHead<'_>,
    origin: IpAddr,
    shared: &'a GatewayContext,
) -> RootOutcome<'a> {
    let mut scanner = ModelScanner::default();
    let sender = Sender { head, origin, rest: head.target };
    let SeenBody { found, large, .. } = match body::read(client, sender, shared, |run| scanner.feed(run)).await {
        Ok(seen) => seen,
        Err(error) => return error.into(),
    };
    let named = found.unwrap_or(Err(ModelError::NoObject)).map_err(|error| match error {
        ModelError::NoObject => LocalResponse::new(400, "bad-request", "the body must be a JSON object"),
        ModelError::Missing | ModelError::NoName => LocalResponse::new(400, "bad-request", NAME_ONE),
    });
    match named {
        Err(refusal) => RootOutcome::Refused(refusal),
        Ok(model) if is_agent(&model) => {
            let agent = ChosenAgent { prefix: format!("/v1/agents/{model}") };
            RootOutcome::Agent(agent, HeldBody::new(large))
        }
        Ok(model) => RootOutcome::Refused(no_agent(&model)),
    }
}

/// Creates the refusal of a model whose name no agent can have.
fn no_agent(model: &str) -> LocalResponse {
    let name: String = model.chars().take(128).collect();
    let error = format!("unknown model `{name}`: name an agent as `namespace/name`; GET /v1/models lists them");
    LocalResponse::new(404, "unknown", error)
}

const NAME_ONE: &str = "`model` must name an agent as `namespace/name`; GET /v1/models lists them";

/// Creates the refusal of a model that no agent is, from that of the agent's own path.
pub(super) fn unknown_model(refusal: &LocalResponse, path: &Path<'_>) -> LocalResponse {
    let name = String::from_utf8_lossy(path.key.strip_prefix(b"agents/").unwrap_or_default());
    match refusal.status {
        404 => unknown_agent(&name),
        _ => refusal.clone(),
    }
}

fn unknown_agent(name: &str) -> LocalResponse {
    let error = format!("unknown model `{name}`: there is no such agent; GET /v1/models lists those that you may call");
    LocalResponse::new(404, "unknown", error)
}

/// Reports whether a model's name has the form `namespace/name`.
fn is_agent(model: &str) -> bool {
    let fits = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    model.split_once('/').is_some_and(|(namespace, name)| fits(namespace) && fits(name))
}

/// Appends a response with this JSON to the client's output.
fn write<S>(client: &mut Connection<S>, head: &RequestHead<'_>, status: u16, body: &str, close: bool) {
    let fields = [("Content-Type", &b"application/json"[..])];
    write_local_response(status, &fields, body, head.is_head(), close, &mut client.outgoing);
}
