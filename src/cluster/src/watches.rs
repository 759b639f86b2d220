//! Opens watches: one of all namespaces, or one per configured namespace.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{
    store::ObjectMap,
    transport::Transport,
    watch::{Watch, WatchSource},
    watch_health::WatchHealth,
};

/// Namespaces to watch, and the transport of the watches.
#[derive(Debug)]
pub struct Watches {
    /// Namespaces; empty: all of them.
    pub namespaces: Vec<String>,
    /// Transport of the watches.
    pub transport: Arc<Transport>,
    /// Board on which the watches report their state.
    pub watch_health: Arc<WatchHealth>,
}

/// Returns the names of a list from an environment variable: the parser of lists reads an empty variable as one empty
/// name.
pub fn named(names: Vec<String>) -> Vec<String> {
    names.into_iter().filter(|name| !name.is_empty()).collect()
}

impl Watches {
    /// Starts to watch the configured namespaces: the objects of `source` are in `map` from then on.
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

    /// Starts to watch one namespace, or (`None`) all of them, whatever the configured namespaces.
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
