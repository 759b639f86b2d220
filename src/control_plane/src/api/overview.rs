//! Operations about no object: the state machines, the caller.

use actions::kind::ControlledKind;
use crds::{ApiKind, RemoteMCPServer, Role};
use futures::FutureExt as _;
use http::StatusCode;
use machine::{Edge as TableEdge, EdgeFrom};
use meta::{Phase, PhasedObject as _};

use super::{
    graph_types::{Edge, Machine},
    operation::{OperationFuture, OperationRequest},
    problem::Problem,
    response::OperationResponse,
    types::Me,
};
use crate::{
    app::SharedAppState,
    auth::{ApiCaller, Auth},
};

/// Returns the state machine of a kind.
pub(super) fn machine(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        // The response is the same for every caller with a valid token.
        app.auth.user(&caller).await?;
        let word = asked.path_segment("kind");
        let kind = ApiKind::find(word).ok_or_else(|| Problem::missing(format!("unknown kind {word}")))?;
        let edges = match kind.role {
            Role::Reference if kind.name == RemoteMCPServer::KIND => edges(RemoteMCPServer::TABLE.edges),
            Role::Workload => edges(actions::workload::EDGES),
            Role::Reference => edges(actions::reference::EDGES),
        };
        OperationResponse::of(&Machine { phases: kind.role.phases(), edges })
    }
    .boxed()
}

fn edges<P: Phase>(table: &'static [TableEdge<P>]) -> Vec<Edge> {
    let edge = |edge: &'static TableEdge<P>| Edge {
        from: match edge.from {
            EdgeFrom::Nothing => "",
            EdgeFrom::Any => "*",
            EdgeFrom::In(phase) => phase.as_str(),
        },
        to: edge.to.as_str(),
        by: edge.by.as_str(),
        why: edge.why,
    };
    table.iter().map(edge).collect()
}

/// Returns the caller's name and the way of authentication.
pub(super) fn me(app: SharedAppState, caller: ApiCaller, _: OperationRequest) -> OperationFuture {
    async move {
        let auth = match app.auth {
            Auth::None { .. } => "none",
            Auth::Kubernetes(..) => "kubernetes",
        };
        OperationResponse::of(&Me { auth, user: app.auth.user(&caller).await? })
    }
    .boxed()
}

/// Creates the problem for a path without an operation.
pub(super) fn not_found(path: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("unknown path {path}: see /openapi.json"))
}
