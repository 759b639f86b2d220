//! Lists: the objects of one kind in a namespace or in all of them that a selector selects. A list is always whole: a server may
//! ignore `limit`.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    builtin,
    errors::StatusError,
    kinds::{Kind, Shape, stored},
    object::fields,
    options::Query,
    select::Selector,
    snapshot::Snapshot,
    store::Store,
    target::Target,
};

/// Set of objects that a list or watch is about.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    kind: usize,
    namespace: String,
    selector: Selector,
}

impl Scope {
    /// Reads the selectors of a request.
    ///
    /// # Errors
    /// 400 for a selector that cannot be read.
    pub(crate) fn parse(kinds: &[Kind], target: &Target, query: &Query) -> Result<Self, StatusError> {
        let selector = Selector::parse(&kinds[target.kind], query.get("labelSelector"), query.get("fieldSelector"))?;
        Ok(Self { kind: target.kind, namespace: target.namespace.clone(), selector })
    }

    /// Returns the kind.
    pub(crate) fn kind<'a>(&self, kinds: &'a [Kind]) -> &'a Kind {
        &kinds[self.kind]
    }

    /// Returns the index of the kind in whose form the objects are stored.
    pub(crate) fn stored_kind(&self, kinds: &[Kind]) -> usize {
        stored(kinds, self.kind)
    }

    /// Reports whether an object of the kind in a namespace is selected.
    pub(crate) fn has(&self, namespace: &str, object: &Snapshot) -> bool {
        (self.namespace.is_empty() || self.namespace == namespace) && self.selector.matches(object)
    }

    /// Returns the selected objects.
    pub(crate) fn snapshots<'a>(&self, kinds: &[Kind], store: &'a Store) -> Vec<&'a Arc<Snapshot>> {
        let all = store.list(self.stored_kind(kinds), &self.namespace).map(|(_, object)| object);
        all.filter(|object| self.selector.matches(object)).collect()
    }

    /// Returns the selected objects in the form of the kind.
    pub(crate) fn list(&self, kinds: &[Kind], store: &Store) -> Vec<Value> {
        let (kind, stored) = (self.kind(kinds), &kinds[self.stored_kind(kinds)]);
        self.snapshots(kinds, store).into_iter().map(|object| builtin::to_view(kind, object.object(stored))).collect()
    }
}

/// Returns the JSON of a list of stored objects in the form of a kind.
pub(crate) fn body(kind: &Kind, stored: &Kind, objects: &[&Arc<Snapshot>], version: u64) -> String {
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    let is_custom = matches!(kind.shape, Shape::Custom { .. });
    if is_custom {
        metadata["continue"] = "".into();
    }
    let (name, api_version) = (kind.name, kind.api_version());
    let mut text =
        format!("{{\"kind\":\"{name}List\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[");
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        if is_custom {
            object.write_json(stored, &mut text);
        } else if kind.is_event_view() {
            let mut object = builtin::to_view(kind, object.object(stored));
            fields(&mut object).retain(|name, _| name != "apiVersion" && name != "kind");
            text.push_str(&object.to_string());
        } else {
            text.push_str(object.json_without_types());
        }
    }
    text.push_str("]}");
    text
}
