//! Which watches feed the read model.

use std::sync::Arc;

use actions::ports::ChildKind;
use crds::KINDS;
use tokio::task::JoinSet;

use super::{
    around::{self, Around},
    fleet::{Column, Fleet, Record},
};
use crate::cluster::{Board, Head, ObjectMap, Source, Transport, Watch, resource::Resource, watch::Decode};

/// What the operator made.
const OURS: Option<&str> = Some("app.kubernetes.io/managed-by=recif-operator");
/// Events that the operator wrote: others do not speak of our kinds.
const BY_OPERATOR: &str = "reportingController=recif-operator";

/// Where watches look.
#[derive(Debug)]
pub(super) struct Scope {
    /// Namespaces; empty: all.
    pub(super) namespaces: Vec<String>,
    /// What they are opened through.
    pub(super) transport: Arc<Transport>,
    /// Where they say how they are.
    pub(super) board: Arc<Board>,
}

impl Scope {
    /// Begins the watches of our kinds.
    pub(super) fn watch_fleet(&self, fleet: &Arc<Fleet>, tasks: &mut JoinSet<()>) {
        for (row, kind) in (0_u8..).zip(KINDS) {
            let Some(resource) = Resource::custom(kind.name) else { continue };
            let map = Arc::new(ObjectMap::default());
            let follower = fleet.clone();
            map.subscribe(move |change| follower.follow(row, change));
            let columns = Column::of(kind);
            let decode = Arc::new(move |head: &Head, json: &str| Record::read(row, &columns, head, json));
            self.watch(Source { resource, labels: None, fields: None, decode }, &map, tasks);
        }
    }

    /// Begins the watches of what hangs on them.
    pub(super) fn watch_around(&self, around: &Around, fleet: &Arc<Fleet>, tasks: &mut JoinSet<()>) {
        let follower = fleet.clone();
        around.config_maps.subscribe(move |change| {
            let seen = change.new.as_ref().or(change.old.as_ref());
            if let Some((kind, _)) = seen.and_then(|seen| seen.tools.as_ref())
                && let Some(server) = around::server_of(kind, &change.key)
            {
                let tools = change.new.as_ref().and_then(|new| new.tools.as_ref());
                follower.define(kind, &server, tools.map(|(_, text)| text.clone()));
            }
        });
        let ours = |resource, fields| (resource, OURS, fields);
        let (deployment, config_map) = (Resource::child(ChildKind::Deployment), Resource::child(ChildKind::ConfigMap));
        self.watch(source(ours(deployment, None), Arc::new(around::deployment)), &around.deployments, tasks);
        self.watch(source(ours(config_map, None), Arc::new(around::config_map)), &around.config_maps, tasks);
        self.watch(source(ours(Resource::POD, None), Arc::new(around::pod)), &around.pods, tasks);
        let events = (Resource::EVENT, None, Some(BY_OPERATOR));
        self.watch(source(events, Arc::new(around::event)), &around.events, tasks);
    }

    fn watch<T: Send + Sync + 'static>(&self, source: Source<T>, map: &Arc<ObjectMap<T>>, tasks: &mut JoinSet<()>) {
        let everywhere = self.namespaces.is_empty().then_some(None);
        for namespace in everywhere.into_iter().chain(self.namespaces.iter().cloned().map(Some)) {
            let (transport, board) = (self.transport.clone(), self.board.clone());
            tasks.spawn(Watch::new(source.clone(), namespace, transport, map.clone(), board).run());
        }
    }
}

type Selected = (Resource, Option<&'static str>, Option<&'static str>);

fn source<T>((resource, labels, fields): Selected, decode: Decode<T>) -> Source<T> {
    Source { resource, labels, fields, decode }
}
