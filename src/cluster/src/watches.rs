//! Opens watches: one of all namespaces, or one per configured namespace.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{
    store::ObjectMap,
    transport::Transport,
    watch::{KeptNamespaces, Watch, WatchSource},
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
        for namespace in self.scopes() {
            self.watch_in(namespace, source.clone(), map, tasks);
        }
    }

    /// Starts to watch the configured namespaces after the first lists of these kinds. Of the objects of `source` those are kept whose
    /// namespace is `kept` when they come.
    pub fn watch_after<T: Send + Sync + 'static>(
        &self,
        kinds: &[&'static str],
        kept: &KeptNamespaces,
        source: &WatchSource<T>,
        map: &Arc<ObjectMap<T>>,
        tasks: &mut JoinSet<()>,
    ) {
        for namespace in self.scopes() {
            let (transport, board) = (self.transport.clone(), self.watch_health.clone());
            let mut watch = Watch::new(source.clone(), namespace, transport, map.clone(), board.clone());
            watch.kept = Some(kept.clone());
            let kinds = kinds.to_vec();
            tasks.spawn(async move {
                for kind in kinds {
                    board.settled_of(kind).await;
                }
                watch.run().await;
            });
        }
    }

    /// Returns the configured namespaces, or `None` alone for all of them.
    fn scopes(&self) -> impl Iterator<Item = Option<String>> {
        let all = self.namespaces.is_empty().then_some(None);
        all.into_iter().chain(self.namespaces.iter().cloned().map(Some))
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
    use std::time::Duration;

    use super::*;
    use crate::{
        resource::Resource,
        store::ObjectVersion,
        testing::{response, scripted},
    };

    #[tokio::test(start_paused = true)]
    async fn a_watch_after_a_kind_begins_with_the_first_list_of_that_kind() {
        let list = response(200, r#"{"metadata":{"resourceVersion":"10"},"items":[]}"#.to_owned());
        let (transport, mut asked) = scripted(vec![list]);
        let watches = Watches { namespaces: Vec::new(), transport, watch_health: Arc::default() };
        let agents = watches.watch_health.add(&Resource::of::<crds::Agent>(), None);
        let source = WatchSource::<()> {
            resource: Resource::EVENT,
            labels: None,
            fields: None,
            decode: Arc::new(|_: &ObjectVersion, _: &str| Ok(())),
        };
        let kept: KeptNamespaces = Arc::new(|_: &str| true);
        let (map, mut tasks) = (Arc::new(ObjectMap::default()), JoinSet::new());
        watches.watch_after(&["Agent"], &kept, &source, &map, &mut tasks);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(asked.try_recv().is_err(), "nothing is known of the Agents");
        assert_eq!(watches.watch_health.unready().len(), 2, "it is waited for");
        watches.watch_health.record_list(agents);
        assert_eq!(asked.recv().await.unwrap().line, "GET /apis/events.k8s.io/v1/events?limit=100");
    }

    #[test]
    fn an_empty_variable_names_nothing() {
        assert_eq!(named(vec![String::new()]), Vec::<String>::new());
        assert_eq!(named(vec!["a".into(), String::new(), "b".into()]), ["a", "b"]);
    }
}
