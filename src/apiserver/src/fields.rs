//! Sets of fields in the format `FieldsV1` of `managedFields`: a trie whose edges are field names (`f:spec`), keys of list items
//! (`k:{"name":"x"}`) and values of sets (`v:"x"`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A set of fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet(BTreeMap<String, SetNode>);

/// A field, and what of its content is in the set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SetNode {
    /// The field itself is in the set.
    member: bool,
    children: FieldSet,
}

impl FieldSet {
    /// Reports whether nothing is in the set.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the field at a path of edges; the empty path is no field.
    pub(crate) fn insert(&mut self, path: &[String]) {
        let Some((first, rest)) = path.split_first() else { return };
        let node = self.0.entry(first.clone()).or_default();
        if rest.is_empty() {
            node.member = true;
        } else {
            node.children.insert(rest);
        }
    }

    /// Reads the format `FieldsV1`; what it does not know stays an edge.
    pub(crate) fn from_json(value: &Value) -> Self {
        let fields = value.as_object().into_iter().flatten().filter(|(edge, _)| *edge != ".");
        let node = |content: &Value| {
            let is_leaf = content.as_object().is_none_or(Map::is_empty);
            SetNode { member: is_leaf || content.get(".").is_some(), children: Self::from_json(content) }
        };
        Self(fields.map(|(edge, content)| (edge.clone(), node(content))).collect())
    }

    /// Writes the format `FieldsV1`.
    pub(crate) fn to_json(&self) -> Value {
        let node = |node: &SetNode| {
            let mut content = node.children.to_json();
            if node.member && !node.children.is_empty() {
                content["."] = Value::Object(Map::new());
            }
            content
        };
        Value::Object(self.0.iter().map(|(edge, found)| (edge.clone(), node(found))).collect())
    }

    /// Returns the fields that are in one of the sets.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        for (edge, node) in &other.0 {
            let mine = all.0.entry(edge.clone()).or_default();
            mine.member |= node.member;
            mine.children = mine.children.union(&node.children);
        }
        all
    }

    /// Returns the fields that are in both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.combined(other, |mine, others| mine && others, Self::intersection)
    }

    /// Returns the fields that are not in the other set.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        self.combined(other, |mine, others| mine && !others, Self::difference)
    }

    fn combined(&self, other: &Self, member: fn(bool, bool) -> bool, children: fn(&Self, &Self) -> Self) -> Self {
        let nothing = SetNode::default();
        let nodes = self.0.iter().map(|(edge, mine)| {
            let others = other.0.get(edge).unwrap_or(&nothing);
            let member = member(mine.member, others.member);
            (edge.clone(), SetNode { member, children: children(&mine.children, &others.children) })
        });
        Self(nodes.filter(|(_, node)| node.member || !node.children.is_empty()).collect())
    }

    /// Returns the set with every named field on the way to a member as a member, too. Items of lists stay as they are: they are
    /// owned only by those that list them.
    pub(crate) fn with_parents(&self) -> Self {
        let nodes = self.0.iter().map(|(edge, node)| {
            let member = node.member || edge.starts_with("f:");
            (edge.clone(), SetNode { member, children: node.children.with_parents() })
        });
        Self(nodes.collect())
    }

    /// Removes a field, named by its edge, with all that is in it.
    pub(crate) fn remove_tree(&mut self, edge: &str) {
        self.0.remove(edge);
    }

    /// Removes a field at a path, but not what is in it.
    pub(crate) fn remove(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else { return };
        let Some(node) = self.0.get_mut(*first) else { return };
        if rest.is_empty() {
            node.member = false;
        } else {
            node.children.remove(rest);
        }
        if !node.member && node.children.is_empty() {
            self.0.remove(*first);
        }
    }

    /// Returns whether the field behind an edge is a member, and what of its content is in the set.
    pub(crate) fn get(&self, edge: &str) -> Option<(bool, &Self)> {
        self.0.get(edge).map(|node| (node.member, &node.children))
    }

    /// Returns the paths of the members as messages show them: `.spec.ports[port=80,protocol="TCP"].name`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths("", &mut paths);
        paths
    }

    fn collect_paths(&self, above: &str, paths: &mut Vec<String>) {
        for (edge, node) in &self.0 {
            let path = format!("{above}{}", shown(edge));
            if node.member {
                paths.push(path.clone());
            }
            node.children.collect_paths(&path, paths);
        }
    }
}

/// Returns an edge as messages show it.
fn shown(edge: &str) -> String {
    match edge.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        Some(("v", value)) => format!("[={value}]"),
        Some(("i", index)) => format!("[{index}]"),
        _ => edge.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn set(value: Value) -> FieldSet {
        FieldSet::from_json(&value)
    }

    #[test]
    fn paths_are_shown_as_in_the_messages_of_the_api_server() {
        let fields = json!({ "f:spec": { "f:replicas": {}, "f:ports": { "k:{\"port\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:name": {} } } },
            "f:metadata": { "f:finalizers": { "v:\"a\"": {} } } });
        let expected = [
            ".metadata.finalizers[=\"a\"]",
            ".spec.ports[port=80,protocol=\"TCP\"]",
            ".spec.ports[port=80,protocol=\"TCP\"].name",
            ".spec.replicas",
        ];
        assert_eq!(set(fields).paths(), expected);
    }

    #[test]
    fn a_parent_is_a_member_only_where_it_says_so() {
        let with = set(json!({ "f:a": { ".": {}, "f:b": {} } }));
        let without = set(json!({ "f:a": { "f:b": {} } }));
        assert_eq!(with.paths(), [".a", ".a.b"]);
        assert_eq!(without.paths(), [".a.b"]);
        assert_eq!(without.with_parents(), with);
        assert_eq!(with.difference(&without).to_json(), json!({ "f:a": {} }));
        let item = set(json!({ "f:l": { "k:{\"n\":1}": { "f:b": {} } } }));
        assert_eq!(item.with_parents().to_json(), json!({ "f:l": { ".": {}, "k:{\"n\":1}": { "f:b": {} } } }));
    }

    fn sets() -> impl Strategy<Value = FieldSet> {
        let path = proptest::collection::vec(prop_oneof!["f:a", "f:b", "k:\\{\"n\":[12]\\}", "v:\"x\""], 1..4);
        proptest::collection::vec(path, 0..6).prop_map(|paths| {
            let mut set = FieldSet::default();
            paths.iter().for_each(|path| set.insert(path));
            set
        })
    }

    proptest! {
        #[test]
        fn a_set_survives_its_text_form(set in sets()) {
            prop_assert_eq!(FieldSet::from_json(&set.to_json()), set);
        }

        #[test]
        fn the_operations_are_those_of_sets(a in sets(), b in sets()) {
            let members = |set: &FieldSet| set.paths().into_iter().collect::<std::collections::BTreeSet<_>>();
            prop_assert_eq!(members(&a.union(&b)), &members(&a) | &members(&b));
            prop_assert_eq!(members(&a.intersection(&b)), &members(&a) & &members(&b));
            prop_assert_eq!(members(&a.difference(&b)), &members(&a) - &members(&b));
            prop_assert!(a.difference(&a).is_empty());
        }
    }
}
