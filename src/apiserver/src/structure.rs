//! The structure of objects for server-side apply: which lists have keys, which maps are one value; and the operations of
//! [structured-merge-diff](https://github.com/kubernetes-sigs/structured-merge-diff) over it: fields of an object, comparison,
//! removal; and, in a file of its own, merge.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    builtin,
    field_path::{FieldPath, PathElement, item_edge},
    fields::FieldSet,
    kinds::{Kind, Shape},
    schema::ListType,
};

/// The structure of a kind's objects.
#[derive(Clone, Copy)]
pub(crate) struct Structure<'a>(pub(crate) &'a Kind);

/// Difference between two objects.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// Fields that only the new one has.
    pub(crate) added: FieldSet,
    /// Fields with another value.
    pub(crate) modified: FieldSet,
    /// Fields that only the old one has.
    pub(crate) removed: FieldSet,
}

/// Name of a field, and its values in the old and the new object.
type Pair<'a> = (Option<&'a str>, Option<&'a Value>, Option<&'a Value>);

impl Structure<'_> {
    fn list_type(self, names: &[&str]) -> ListType {
        match names {
            ["metadata", "finalizers"] => ListType::Set,
            ["metadata", "ownerReferences"] => ListType::Map(vec!["uid".to_owned()]),
            _ => match &self.0.shape {
                Shape::Custom { .. } => {
                    let schema = self.0.schema().and_then(Result::ok);
                    schema.and_then(|schema| schema.list_keys(names)).unwrap_or(ListType::Atomic)
                }
                _ => builtin::list_type(self.0.name, names),
            },
        }
    }

    /// Reports whether the map at a place is one value.
    fn is_atomic(self, place: &FieldPath<'_>) -> bool {
        let is_item = place.edges.last().is_some_and(|edge| !edge.starts_with("f:"));
        match place.names.as_slice() {
            ["metadata", "ownerReferences"] => is_item,
            ["metadata", ..] => false,
            names => matches!(self.0.shape, Shape::BuiltIn(_)) && !is_item && builtin::is_atomic_map(names),
        }
    }

    /// Returns the children of a value; none for a leaf, which is compared as a whole.
    pub(crate) fn children<'v>(
        self,
        place: &FieldPath<'_>,
        value: &'v Value,
    ) -> Option<Vec<(PathElement<'v>, &'v Value)>> {
        match value {
            Value::Object(fields) if !self.is_atomic(place) => Some(
                fields
                    .iter()
                    .map(|(name, value)| (PathElement { edge: format!("f:{name}"), name: Some(name.as_str()) }, value))
                    .collect(),
            ),
            Value::Array(items) => {
                let kind = self.list_type(&place.names);
                if kind == ListType::Atomic {
                    return None;
                }
                let step = |item| Some((PathElement { edge: item_edge(&kind, item)?, name: None }, item));
                // A list whose items have no identity is one value.
                items.iter().map(step).collect()
            }
            _ => None,
        }
    }

    /// Returns the fields that an object sets.
    pub(crate) fn fields(self, object: &Value) -> FieldSet {
        let mut set = FieldSet::default();
        self.add_fields(&mut FieldPath::default(), object, &mut set);
        set
    }

    fn add_fields<'v>(self, place: &mut FieldPath<'v>, value: &'v Value, set: &mut FieldSet) {
        match self.children(place, value) {
            Some(children) if !children.is_empty() => {
                for (step, child) in children {
                    place.enter(&step, |place| {
                        if step.name.is_none() {
                            set.insert(&place.edges);
                        }
                        self.add_fields(place, child, set);
                    });
                }
            }
            // An empty list whose items have an identity is no field; an empty map is.
            Some(_) if value.is_array() => {}
            _ => set.insert(&place.edges),
        }
    }

    /// Compares two objects.
    pub(crate) fn compare(self, old: &Value, new: &Value) -> Comparison {
        let mut found = Comparison::default();
        self.add_differences(&mut FieldPath::default(), (Some(old), Some(new)), &mut found);
        found
    }

    fn add_differences<'v>(
        self,
        place: &mut FieldPath<'v>,
        (old, new): (Option<&'v Value>, Option<&'v Value>),
        found: &mut Comparison,
    ) {
        match (old, new) {
            (Some(_), None) => found.removed.insert(&place.edges),
            (None, Some(_)) => found.added.insert(&place.edges),
            _ if old == new => return,
            _ => {}
        }
        let of = |value: Option<&'v Value>| value.map(|value| self.children(place, value));
        match (of(old), of(new)) {
            (Some(None), Some(None)) => found.modified.insert(&place.edges),
            (old, new) => {
                // A scalar in place of a map or list, or a map in place of a list.
                let is_other_form = match (&old, &new) {
                    (Some(None), Some(_)) | (Some(_), Some(None)) => true,
                    (Some(Some(old)), Some(Some(new))) => old.is_empty() && new.is_empty(),
                    _ => false,
                };
                if is_other_form {
                    found.modified.insert(&place.edges);
                }
                let (old, new) = (old.flatten().unwrap_or_default(), new.flatten().unwrap_or_default());
                let mut pairs: BTreeMap<String, Pair<'v>> = BTreeMap::new();
                for (step, value) in old {
                    pairs.insert(step.edge, (step.name, Some(value), None));
                }
                for (step, value) in new {
                    pairs.entry(step.edge).or_insert((step.name, None, None)).2 = Some(value);
                }
                for (edge, (name, old, new)) in pairs {
                    place.enter(&PathElement { edge, name }, |place| self.add_differences(place, (old, new), found));
                }
            }
        }
    }

    /// Removes the fields of a set, with all that is in them.
    pub(crate) fn without(self, object: &Value, set: &FieldSet) -> Value {
        self.reduced(&mut FieldPath::default(), object, set)
    }

    fn reduced<'v>(self, place: &mut FieldPath<'v>, value: &'v Value, set: &FieldSet) -> Value {
        let Some(children) = self.children(place, value).filter(|_| !set.is_empty()) else { return value.clone() };
        let kept = children.into_iter().filter_map(|(step, child)| match set.get(&step.edge) {
            Some((true, _)) => None,
            Some((false, below)) => {
                let child = place.enter(&step, |place| self.reduced(place, child, below));
                Some((step.name, child))
            }
            None => Some((step.name, child.clone())),
        });
        if value.is_object() {
            kept.filter_map(|(name, value)| Some((name?.to_owned(), value))).collect::<Map<_, _>>().into()
        } else {
            kept.map(|(_, value)| value).collect::<Vec<_>>().into()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::all;

    fn with<T>(kind: &str, test: impl FnOnce(Structure<'_>) -> T) -> T {
        let kinds = all();
        test(Structure(kinds.iter().find(|found| found.name == kind).unwrap()))
    }

    fn ports(names: &[&str]) -> Value {
        let port = |name: &&str| json!({ "port": name.len(), "name": name });
        json!({ "spec": { "ports": names.iter().map(port).collect::<Vec<_>>() } })
    }

    #[test]
    fn a_merge_keeps_the_order_of_the_configuration_and_the_items_of_others() {
        let cases: [(&[&str], &[&str], &[&str]); 5] = [
            (&["a", "bb"], &["a", "bb"], &["a", "bb"]),
            (&["a", "bb"], &["ccc"], &["a", "bb", "ccc"]),
            (&["a", "bb", "ccc"], &["a", "dddd", "ccc"], &["a", "bb", "dddd", "ccc"]),
            (&["a", "bb"], &["bb", "a"], &["bb", "a"]),
            (&[], &["a"], &["a"]),
        ];
        for (live, config, expected) in cases {
            let merged = with("Service", |structure| structure.merge(&ports(live), &ports(config)));
            assert_eq!(merged, ports(expected), "{live:?} {config:?}");
        }
    }

    #[test]
    fn lists_without_keys_and_atomic_maps_are_one_value() {
        let live = json!({ "spec": { "selector": { "a": "1" }, "externalIPs": ["1", "2"] } });
        let config = json!({ "spec": { "selector": { "b": "1" }, "externalIPs": ["3"] } });
        with("Service", |structure| {
            assert_eq!(structure.merge(&live, &config), config);
            let fields = json!({ "f:spec": { "f:selector": {}, "f:externalIPs": {} } });
            assert_eq!(structure.fields(&config).to_json(), fields);
            let found = structure.compare(&live, &config);
            assert_eq!(found.modified.to_json(), fields);
            assert!(found.added.is_empty() && found.removed.is_empty());
        });
    }

    #[test]
    fn an_empty_list_with_keys_is_no_field() {
        let config = json!({ "metadata": { "labels": {} }, "spec": { "ports": [], "externalIPs": [] } });
        let fields = json!({ "f:metadata": { "f:labels": {} }, "f:spec": { "f:externalIPs": {} } });
        assert_eq!(with("Service", |structure| structure.fields(&config).to_json()), fields);
    }

    #[test]
    fn a_port_without_protocol_is_that_of_tcp() {
        let live =
            json!({ "spec": { "ports": [{ "port": 80, "protocol": "TCP" }, { "port": 80, "protocol": "UDP" }] } });
        let config = json!({ "spec": { "ports": [{ "port": 80, "name": "n" }] } });
        let merged = with("Service", |structure| structure.merge(&live, &config));
        let expected = json!([{ "port": 80, "protocol": "TCP", "name": "n" }, { "port": 80, "protocol": "UDP" }]);
        assert_eq!(merged["spec"]["ports"], expected);
    }

    #[test]
    fn a_comparison_tells_added_changed_and_removed_fields() {
        let old = json!({ "data": { "a": "1", "b": "1" }, "metadata": { "finalizers": ["x", "y"] } });
        let new = json!({ "data": { "b": "2", "c": "1" }, "metadata": { "finalizers": ["y"], "labels": {} } });
        with("ConfigMap", |structure| {
            let found = structure.compare(&old, &new);
            assert_eq!(found.added.paths(), [".data.c", ".metadata.labels"]);
            assert_eq!(found.modified.paths(), [".data.b"]);
            assert_eq!(found.removed.paths(), [".data.a", ".metadata.finalizers[=\"x\"]"]);
            assert_eq!(structure.compare(&new, &new), Comparison::default());
            // A map in place of a text.
            let found = structure.compare(&json!({ "a": "1" }), &json!({ "a": { "b": "1" } }));
            assert_eq!((found.modified.paths(), found.added.paths()), (vec![".a".to_owned()], vec![".a.b".to_owned()]));
        });
    }
}
