//! Operations about references: the graph of the whole fleet, and the part of it around one object.

use std::{collections::BTreeSet, sync::Arc};

use crds::{RefKind, Reference};
use futures::FutureExt as _;
use meta::Key;

use super::{
    graph_types::{Graph, Link, Node},
    object::find,
    operation::{OperationFuture, OperationRequest, Param, ParamValues},
    response::OperationResponse,
};
use crate::{
    app::SharedAppState,
    auth::ApiCaller,
    fleet::{Ready, Record, RecordReference, Visibility},
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
        let mut graph = GraphBuilder::new(&app, &visible);
        let shown = |record: &&Arc<Record>| {
            only.is_none_or(|only| only == record.key.namespace) && visible.sees(record.row, &record.key.namespace)
        };
        for record in records.iter().filter(shown) {
            graph.add_object(record);
        }
        for record in records.iter().filter(shown) {
            for link in &record.references {
                graph.add_reference(record, link);
            }
        }
        OperationResponse::of(&graph.built)
    }
    .boxed()
}

/// Returns the references of one object, to Secrets and ConfigMaps too, and those of others to it.
pub(super) fn references(app: SharedAppState, caller: ApiCaller, asked: OperationRequest) -> OperationFuture {
    async move {
        let record = find(&app, &caller, &asked).await?.record;
        let visible = app.auth.reviewed_visibility(&caller, &app.fleet, &[], &[]).await?;
        let (_, records) = app.fleet.snapshot();
        let mut graph = GraphBuilder::new(&app, &visible);
        graph.add_object(&record);
        for link in &record.references {
            graph.add_reference(&record, link);
        }
        for reference in record.kind.references(&record.object()) {
            if matches!(reference.kind, RefKind::Secret | RefKind::ConfigMap) {
                graph.add_unread(&record, &reference);
            }
        }
        let others = records.iter().filter(|other| other.uid != record.uid);
        for other in others.filter(|other| visible.sees(other.row, &other.key.namespace)) {
            for link in other.references.iter().filter(|link| leads_to(link, &record)) {
                graph.add_object(other);
                graph.add_reference(other, link);
            }
        }
        OperationResponse::of(&graph.built)
    }
    .boxed()
}

/// Reports whether a reference is to this object.
fn leads_to(link: &RecordReference, record: &Record) -> bool {
    link.kind.name == record.kind.name && *link.namespace == *record.key.namespace && *link.name == *record.key.name
}

/// Graph under construction, of what a caller may see.
struct GraphBuilder<'a> {
    app: &'a SharedAppState,
    visible: &'a Visibility,
    nodes: BTreeSet<String>,
    built: Graph,
}

impl<'a> GraphBuilder<'a> {
    fn new(app: &'a SharedAppState, visible: &'a Visibility) -> Self {
        Self { app, visible, nodes: BTreeSet::new(), built: Graph { nodes: Vec::new(), edges: Vec::new() } }
    }

    /// Adds an object, unless it is in the graph.
    fn add_object(&mut self, record: &Record) {
        if self.nodes.insert(node_id(record.kind.name, &record.key.namespace, &record.key.name)) {
            self.built.nodes.push(Node {
                kind: record.kind.name.to_owned(),
                namespace: record.key.namespace.clone(),
                name: record.key.name.clone(),
                phase: record.phase.as_deref().map(str::to_owned),
                ready: record.ready,
                missing: false,
            });
        }
    }

    /// Adds a reference of an object, and what it leads to.
    fn add_reference(&mut self, record: &Record, link: &RecordReference) {
        let from = node_id(record.kind.name, &record.key.namespace, &record.key.name);
        let to = node_id(link.kind.name, &link.namespace, &link.name);
        let seen = crate::fleet::row(link.kind).is_some_and(|row| self.visible.sees(row, &link.namespace));
        let found = self.app.fleet.get(link.kind, &Key::new(&*link.namespace, &*link.name)).map(|entry| entry.record);
        // A caller does not learn whether an object exists that it may not see.
        let missing = seen && found.is_none();
        let found = found.filter(|_| seen);
        let phase = found.as_ref().and_then(|found| found.phase.as_deref().map(str::to_owned));
        let broken = missing || matches!(phase.as_deref(), Some("Error" | "Failed"));
        if self.nodes.insert(to.clone()) {
            self.built.nodes.push(Node {
                kind: link.kind.name.to_owned(),
                namespace: link.namespace.to_string(),
                name: link.name.to_string(),
                phase,
                ready: found.map_or(Ready::Unknown, |found| found.ready),
                missing,
            });
        }
        self.built.edges.push(Link { from, to, broken });
    }

    /// Adds a reference to a Secret or ConfigMap, of which nothing is read here.
    fn add_unread(&mut self, record: &Record, reference: &Reference) {
        let namespace = reference.namespace.as_ref().unwrap_or(&record.key.namespace);
        let from = node_id(record.kind.name, &record.key.namespace, &record.key.name);
        let to = node_id(reference.kind.as_str(), namespace, &reference.name);
        if self.nodes.insert(to.clone()) {
            self.built.nodes.push(Node {
                kind: reference.kind.as_str().to_owned(),
                namespace: namespace.clone(),
                name: reference.name.clone(),
                phase: None,
                ready: Ready::Unknown,
                missing: false,
            });
        }
        self.built.edges.push(Link { from, to, broken: false });
    }
}

fn node_id(kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind}/{namespace}/{name}")
}
