//! Which watches feed the read model.

use std::sync::Arc;

use crds::KINDS;
use tokio::task::JoinSet;

use super::fleet::{Column, Fleet, Record};
use crate::cluster::{Board, Head, ObjectMap, Source, Transport, Watch, resource::Resource};

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

    fn watch<T: Send + Sync + 'static>(&self, source: Source<T>, map: &Arc<ObjectMap<T>>, tasks: &mut JoinSet<()>) {
        let everywhere = self.namespaces.is_empty().then_some(None);
        for namespace in everywhere.into_iter().chain(self.namespaces.iter().cloned().map(Some)) {
            let (transport, board) = (self.transport.clone(), self.board.clone());
            tasks.spawn(Watch::new(source.clone(), namespace, transport, map.clone(), board).run());
        }
    }
}
