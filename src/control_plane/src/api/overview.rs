//! Operations about the whole fleet or no object: the graph, the state machines, the caller.

use std::collections::BTreeSet;

use actions::kind::ControlledKind;
use crds::{ApiKind, RemoteMCPServer, Role};
use futures::FutureExt as _;
use http::StatusCode;
use machine::{Edge as TableEdge, EdgeFrom};
use meta::{Key, Phase, PhasedObject as _};

use super::{
    graph_types::{Edge, Graph, Link, Machine, Node},
    operation::{OperationFuture, OperationRequest, Param, ParamValues},
    problem::Problem,
    response::OperationResponse,
    types::Me,
};
use crate::{
    app::SharedAppState,
    auth::{ApiCaller, Auth},
    fleet::{Ready, Record},
};

/// Parameters of the graph.
pub(super) const GRAPH: &[Param] = &[Param {
    name: "namespace",
    about: "Only references of objects in this namespace.",
    values: ParamValues::Text,
    repeatable: false,
}];

/// Returns the graph of references between objects.
pub(super) fn graph(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let only = asked.one("namespace").filter(|name| !name.is_empty());
        let visible = app.auth.visibility(&caller, &app.fleet, &[], &[]).await?;
        let (_, records) = app.fleet.snapshot();
        let mut graph = Graph { nodes: Vec::new(), edges: Vec::new() };
        let mut nodes = BTreeSet::new();
        let shown = |record: &&std::sync::Arc<Record>| {
            only.is_none_or(|only| only == record.key.namespace) && visible.sees(record.row, &record.key.namespace)
        };
        for record in records.iter().filter(shown) {
            nodes.insert(node_id(record.kind.name, &record.key.namespace, &record.key.name));
            graph.nodes.push(Node {
                kind: record.kind.name.to_owned(),
                namespace: record.key.namespace.clone(),
                name: record.key.name.clone(),
                phase: record.phase.as_deref().map(str::to_owned),
                ready: record.ready,
                missing: false,
            });
        }
        for record in records.iter().filter(shown) {
            let from = node_id(record.kind.name, &record.key.namespace, &record.key.name);
            for link in &record.references {
                let to = node_id(link.kind.name, &link.namespace, &link.name);
                let seen = crate::fleet::row(link.kind).is_some_and(|row| visible.sees(row, &link.namespace));
                let found =
                    app.fleet.get(link.kind, &Key::new(&*link.namespace, &*link.name)).map(|entry| entry.record);
                // A caller does not learn whether an object exists that it may not see.
                let missing = seen && found.is_none();
                let found = found.filter(|_| seen);
                let phase = found.as_ref().and_then(|found| found.phase.as_deref().map(str::to_owned));
                let broken = missing || matches!(phase.as_deref(), Some("Error" | "Failed"));
                if nodes.insert(to.clone()) {
                    graph.nodes.push(Node {
                        kind: link.kind.name.to_owned(),
                        namespace: link.namespace.to_string(),
                        name: link.name.to_string(),
                        phase,
                        ready: found.map_or(Ready::Unknown, |found| found.ready),
                        missing,
                    });
                }
                graph.edges.push(Link { from: from.clone(), to, broken });
            }
        }
        OperationResponse::of(&graph)
    }
    .boxed()
}

fn node_id(kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind}/{namespace}/{name}")
}

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
