//! REST API: a table of operations, each a GET that is answered from the read model.

mod children;
mod diagnosis;
mod graph;
mod graph_types;
mod history;
mod lists;
mod object;
mod openapi;
mod operation;
mod overview;
pub(super) mod problem;
mod response;
mod runs;
#[cfg(test)]
mod schemathesis;
pub(super) mod step_types;
mod table;
#[cfg(test)]
mod tests;
pub(super) mod types;
mod usage;

use crate::app::SharedAppState;
use std::{collections::BTreeMap, net::IpAddr, sync::atomic::Ordering::Relaxed};

use axum::{
    Router,
    extract::{FromRequestParts as _, Path, Request, State},
    http::{Extensions, StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
    routing::{any, get},
};
use bytes::Bytes;
use operation::{OperationRequest, RestOperation};
use problem::Problem;
use table::OPERATIONS;
use tower_http::{CompressionLevel, compression::CompressionLayer};

use super::{
    relay::{self},
    serve::Peer,
    ui,
};

/// Creates the router of the public port; probes and metrics have a port of their own.
pub(super) fn router(app: SharedAppState) -> Router {
    // The document is constant, so it is rendered once.
    let document = Bytes::from(openapi::document().to_string());
    let document = get(move || async move { ([(header::CONTENT_TYPE, "application/json")], document) });
    let mut api = Router::new().route("/openapi.json", document.clone()).route("/api/openapi.json", document);
    for operation in OPERATIONS {
        for prefix in ["", "/api"] {
            let handle = move |State(app): State<SharedAppState>, request: Request| serve(app, operation, request);
            api = api.route(&format!("{prefix}{}", operation.path), get(handle));
        }
    }
    let refuse = |uri: Uri| async move { overview::not_found(uri.path()) };
    let method = || async { Problem::new(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here") };
    let compress = CompressionLayer::new().gzip(true).br(true).quality(CompressionLevel::Fastest);
    let api = api.fallback(refuse).method_not_allowed_fallback(method).layer(compress);
    let pass = |State(app): State<SharedAppState>, mut request: Request| async move {
        let may = match app.auth.may_relay(request.headers()) {
            Ok(()) => app.auth.check_token(request.headers(), peer_address(request.extensions())).await,
            refused => refused,
        };
        match may {
            Ok(()) => {
                app.auth.hide_cluster_token(request.headers_mut());
                app.relay.proxy_request(request).await
            }
            Err(problem) => problem.into_response(),
        }
    };
    // The build has compressed the files of the UI.
    let ui = get(ui::serve);
    // A wildcard does not match an empty rest.
    let api = api.route("/ui", ui.clone()).route("/ui/", ui.clone()).route("/ui/{*path}", ui);
    let api = api.route("/", get(ui::redirect));
    let api = api.route(relay::PREFIX, any(pass)).route("/gateway/", any(pass)).route("/gateway/{*path}", any(pass));
    api.with_state(app)
}

async fn serve(app: SharedAppState, operation: &'static RestOperation, request: Request) -> Response {
    try_serve(app, operation, request).await.unwrap_or_else(|problem| problem.into_response())
}

/// Returns the address of the client that sent a request.
fn peer_address(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<Peer>().map(|peer| peer.address)
}

async fn try_serve(
    app: SharedAppState,
    operation: &'static RestOperation,
    request: Request,
) -> Result<Response, Problem> {
    if !app.synced.load(Relaxed) {
        return Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "not every watch has begun yet: try again, or see /readyz on the admin address",
        ));
    }
    let (mut parts, _) = request.into_parts();
    // Authentication and authorization are left to the operations, which know the object that they show.
    app.auth.check_token(&parts.headers, peer_address(&parts.extensions)).await?;
    let caller = app.auth.caller(&parts.headers)?;
    let mut asked = OperationRequest::read(operation.query, parts.uri.query())?;
    let path = Path::<BTreeMap<String, String>>::from_request_parts(&mut parts, &()).await;
    asked.path = path.map_err(|_| overview::not_found(parts.uri.path()))?.0;
    let last = parts.headers.get("last-event-id").map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
    asked.last_event = last.filter(|id| !id.is_empty());
    (operation.handle)(app, caller, asked).await?.respond(&parts.headers)
}
