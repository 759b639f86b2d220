//! Watches that feed the read model.

use std::sync::Arc;

use actions::ports::ChildKind;
use cluster::{
    Change, ObjectMap, ObjectVersion, WatchSource, Watches,
    resource::Resource,
    watch::{Decode, KeptNamespaces},
};
use crds::{ApiKind, KINDS, Role};
use meta::Key;
use tokio::task::JoinSet;

use super::{
    fleet::{Column, FleetCache, Record},
    related::{self, ConfigMapRecord, RelatedObjects},
};

/// Label selector of the objects that the operator made.
const MANAGED_BY_OPERATOR: Option<&str> = Some("app.kubernetes.io/managed-by=recif-operator");
/// Field selector of the Events that the operator wrote. Other reporters do not write about objects of our kinds.
const REPORTED_BY_OPERATOR: &str = "reportingController=recif-operator";
/// Field selector of the warnings of others, such as about Pods and ReplicaSets. Other Events about them are many, and say only that all is
/// well. Those of namespaces without workloads are not kept: a cluster may have any number of them.
const WARNINGS_OF_OTHERS: &str = "type=Warning,reportingController!=recif-operator";

/// Starts the watches of our kinds.
pub(super) fn watch_fleet(watches: &Watches, fleet: &Arc<FleetCache>, tasks: &mut JoinSet<()>) {
    for (row, kind) in (0_u8..).zip(KINDS) {
        let Some(resource) = Resource::custom(kind.name) else { continue };
        let map = Arc::new(ObjectMap::default());
        let follower = fleet.clone();
        map.subscribe(move |change| follower.apply_change(row, change));
        let columns = Column::of(kind);
        let decode = Arc::new(move |head: &ObjectVersion, json: &str| Record::read(row, &columns, head, json));
        watches.watch(WatchSource { resource, labels: None, fields: None, decode }, &map, tasks);
    }
}

/// Starts the watches of the objects related to ours: Deployments, ConfigMaps, Pods and Events.
pub(super) fn watch_related(
    watches: &Watches,
    around: &RelatedObjects,
    fleet: &Arc<FleetCache>,
    tasks: &mut JoinSet<()>,
) {
    let follower = fleet.clone();
    around.config_maps.subscribe(move |change| {
        if let Some((kind, server, tools)) = tools_change(change) {
            follower.set_tools(kind, &server, tools);
        }
    });
    let ours = |resource, fields| (resource, MANAGED_BY_OPERATOR, fields);
    let (deployment, config_map) = (Resource::child(ChildKind::Deployment), Resource::child(ChildKind::ConfigMap));
    watches.watch(watch_source(ours(deployment, None), Arc::new(related::deployment)), &around.deployments, tasks);
    watches.watch(watch_source(ours(config_map, None), Arc::new(related::config_map)), &around.config_maps, tasks);
    watches.watch(watch_source(ours(Resource::POD, None), Arc::new(related::pod)), &around.pods, tasks);
    let events = (Resource::EVENT, None, Some(REPORTED_BY_OPERATOR));
    watches.watch(watch_source(events, Arc::new(related::event)), &around.events, tasks);
    // A workload is there before its children, and they before the warnings about them.
    let workloads: Vec<_> = KINDS.iter().filter(|kind| kind.role == Role::Workload).map(|kind| kind.name).collect();
    let known = fleet.clone();
    let kept: KeptNamespaces = Arc::new(move |namespace: &str| known.has_workload_in(namespace));
    let warnings = watch_source((Resource::EVENT, None, Some(WARNINGS_OF_OTHERS)), Arc::new(related::event));
    watches.watch_after(&workloads, &kept, &warnings, &around.warnings, tasks);
}

/// Returns the server that a change of a ConfigMap is about, and its tools as of this change: `None` if the ConfigMap no longer
/// holds them.
fn tools_change(change: &Change<ConfigMapRecord>) -> Option<(&'static ApiKind, Key, Option<Arc<str>>)> {
    let held = |seen: &Option<Arc<ConfigMapRecord>>| seen.as_ref().and_then(|seen| seen.tools.clone());
    let new = held(&change.new);
    let (kind, _) = new.clone().or_else(|| held(&change.old))?;
    Some((kind, related::server_of(kind, &change.key)?, new.map(|(_, text)| text)))
}

type ResourceSelector = (Resource, Option<&'static str>, Option<&'static str>);

fn watch_source<T>((resource, labels, fields): ResourceSelector, decode: Decode<T>) -> WatchSource<T> {
    WatchSource { resource, labels, fields, decode }
}

#[cfg(test)]
mod tests {
    use cluster::ChangeSource;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn tools_go_when_their_config_map_holds_them_no_more() {
        let owners =
            json!([{ "apiVersion": "v1", "kind": "MCPServer", "name": "files", "uid": "u", "controller": true }]);
        let key = Key::new("a", crds::tool_server::tools_config_map("MCPServer", "files"));
        let head = ObjectVersion { key: key.clone(), uid: "m".into(), resource_version: 1 };
        let seen = |data: Value| {
            let map = json!({ "metadata": { "ownerReferences": owners }, "data": data });
            Some(Arc::new(related::config_map(&head, &map.to_string()).unwrap()))
        };
        let full = seen(json!({ crds::tool_server::TOOLS_KEY: "[]" }));
        let of = |old: &Option<_>, new: &Option<_>| {
            let change = Change { key: key.clone(), old: old.clone(), new: new.clone(), source: ChangeSource::Watch };
            tools_change(&change).map(|(kind, server, tools)| (kind.name, server.name, tools))
        };
        let files = |tools: Option<&str>| Some(("MCPServer", "files".to_owned(), tools.map(Arc::<str>::from)));
        assert_eq!(of(&None, &full), files(Some("[]")));
        assert_eq!(of(&full, &seen(json!({}))), files(None));
        assert_eq!(of(&full, &None), files(None));
        assert_eq!(of(&None, &seen(json!({}))), None);
    }
}
