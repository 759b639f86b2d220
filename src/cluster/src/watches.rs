//! Opens watches: one of all namespaces, or one of each that is named.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{
    store::ObjectMap,
    transport::Transport,
    watch::{Watch, WatchSource},
    watch_health::WatchHealth,
};

/// Where watches look, and through what.
#[derive(Debug)]
pub struct Watches {
    /// The namespaces; empty: all of them.
    pub namespaces: Vec<String>,
    /// What they are opened through.
    pub transport: Arc<Transport>,
    /// Where they report their health.
    pub watch_health: Arc<WatchHealth>,
}

/// Returns the names of a list that came from a variable: an empty variable is one empty name to the parser of lists.
pub fn named(names: Vec<String>) -> Vec<String> {
    names.into_iter().filter(|name| !name.is_empty()).collect()
}

impl Watches {
    /// Begins to watch: the objects of `source` are in `map` from then on.
    pub fn watch<T: Send + Sync + 'static>(
        &self,
        source: WatchSource<T>,
        map: &Arc<ObjectMap<T>>,
        tasks: &mut JoinSet<()>,
    ) {
        let all = self.namespaces.is_empty().then_some(None);
        for namespace in all.into_iter().chain(self.namespaces.iter().cloned().map(Some)) {
            self.watch_in(namespace, source.clone(), map, tasks);
        }
    }

    /// Begins to watch one namespace, or all of them, whatever the list says.
    pub fn watch_in<T: Send + Sync + 'static>(
        &self,
        namespace: Option<String>,
        source: WatchSource<T>,
        map: &Arc<ObjectMap<T>>,
        tasks: &mut JoinSet<()>,
    ) {
        let (transport, board) = (self.transport.clone(), self.watch_health.clone());
        tasks.spawn(Watch::new(source, namespace, transport, map.clone(), board).run());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_names_nothing() {
        assert_eq!(named(vec![String::new()]), Vec::<String>::new());
        assert_eq!(named(vec!["a".into(), String::new(), "b".into()]), ["a", "b"]);
    }
}
