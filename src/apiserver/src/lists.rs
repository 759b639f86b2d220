//! Lists: the objects of one kind in a namespace or in all of them that a selector selects. A list is always whole: a server may
//! ignore `limit`.

use serde_json::{Value, json};

use crate::{
    builtin,
    errors::ApiError,
    kinds::{Kind, Shape, stored},
    object::fields,
    options::Query,
    select::Selector,
    store::{Key, Store},
    write::Target,
};

/// What a list or watch is about.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    kind: usize,
    namespace: String,
    pub(crate) selector: Selector,
}

impl Scope {
    /// Reads the selectors of a request.
    ///
    /// # Errors
    /// 400 for a selector that cannot be read.
    pub(crate) fn parse(kinds: &[Kind], target: &Target, query: &Query) -> Result<Self, ApiError> {
        let selector = Selector::parse(&kinds[target.kind], query.get("labelSelector"), query.get("fieldSelector"))?;
        Ok(Self { kind: target.kind, namespace: target.namespace.clone(), selector })
    }

    /// Returns the kind.
    pub(crate) fn kind<'a>(&self, kinds: &'a [Kind]) -> &'a Kind {
        &kinds[self.kind]
    }

    /// Reports whether the object at a place is of the kind and namespace.
    pub(crate) fn has(&self, kinds: &[Kind], key: &Key) -> bool {
        key.kind == stored(kinds, self.kind) && (self.namespace.is_empty() || key.namespace == self.namespace)
    }

    /// Returns the selected objects.
    pub(crate) fn list(&self, kinds: &[Kind], store: &Store) -> Vec<Value> {
        let kind = self.kind(kinds);
        store
            .of_kind(stored(kinds, self.kind))
            .filter(|(key, _)| self.has(kinds, key))
            .map(|(_, object)| builtin::to_view(kind, (**object).clone()))
            .filter(|object| self.selector.matches(object))
            .collect()
    }
}

/// Returns the list object.
pub(crate) fn body(kind: &Kind, mut objects: Vec<Value>, version: u64) -> Value {
    if matches!(kind.shape, Shape::BuiltIn(_)) {
        for object in &mut objects {
            fields(object).retain(|name, _| name != "apiVersion" && name != "kind");
        }
    }
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    if matches!(kind.shape, Shape::Custom { .. }) {
        metadata["continue"] = "".into();
    }
    json!({
        "kind": format!("{}List", kind.name), "apiVersion": kind.api_version(), "metadata": metadata, "items": objects,
    })
}
