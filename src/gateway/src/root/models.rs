//! `GET /v1/models`: the agents that the caller may call, as models of OpenAI's API; `GET /v1/models/{model}`: one of them.

use std::net::IpAddr;

use http1::{Connection, Framing, RequestHead};
use percent_encoding::percent_decode;
use serde_json::json;

use super::{
    super::{local_response::too_many_requests, peer::ClientStream, routes::Route, state::GatewayContext},
    RootOutcome, is_agent, no_agent, unknown_agent, write,
};

/// Most models in the list.
const MAX_MODELS: usize = 1000;
/// Beginning of the path of one model.
pub(super) const ONE: &[u8] = b"/v1/models/";
/// Path for which the caller must have the right.
const ANSWER: &[u8] = b"/v1/chat/completions";

/// Responds with the list, sorted by name, or with the model that the target names.
pub(super) async fn respond<'a, S: ClientStream>(
    client: &mut Connection<S>,
    head: &RequestHead<'_>,
    origin: IpAddr,
    shared: &'a GatewayContext,
) -> RootOutcome<'a> {
    let path = head.target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let name = path.strip_prefix(ONE).map(|name| percent_decode(name).decode_utf8_lossy());
    if let Some(name) = name.as_deref().filter(|name| !is_agent(name)) {
        return RootOutcome::Refused(no_agent(name));
    }
    let caller = match shared.auth.identify(head, origin).await {
        Ok(caller) => caller,
        Err(refusal) => return RootOutcome::Refused(refusal),
    };
    let Some(_ticket) = shared.clients.acquire(|| caller.client(origin)) else {
        return RootOutcome::Refused(too_many_requests());
    };
    let agents = match &name {
        None => shared.routes.agents_after("", |route| caller.may_see(route, ANSWER)),
        Some(name) => {
            let found = shared.routes.find(format!("agents/{name}").as_bytes());
            found.filter(|route| !route.object.listing.speaks_otherwise).into_iter().collect()
        }
    };
    let listed = tokio::select! {
        biased;
        listed = caller.callable(agents, ANSWER, MAX_MODELS, &shared.root.lists, origin) => listed,
        () = client.io.closed() => return RootOutcome::Gone,
    };
    let listed = match listed {
        Ok(listed) => listed,
        Err(refusal) => return RootOutcome::Refused(refusal),
    };
    let models: Vec<_> = listed.callable.iter().map(|route| model(route)).collect();
    let answer = match &name {
        None => json!({ "object": "list", "data": models }),
        Some(name) => match models.into_iter().next() {
            Some(model) => model,
            None => return RootOutcome::Refused(unknown_agent(name)),
        },
    };
    let again = head.keeps_alive && head.framing == Framing::Length(0) && !shared.leaving();
    write(client, head, 200, &answer.to_string(), !again);
    RootOutcome::Responded { again }
}

fn model(route: &Route) -> serde_json::Value {
    json!({ "id": route.agent_name(), "object": "model", "created": route.object.listing.created, "owned_by": "recif" })
}
