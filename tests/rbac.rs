//! The shipped rights cover every kind: a kind that is added to the table and not to `config/rbac` fails here.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, fs, path::Path};

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
}

/// `verb resource` for every right on our group that the ClusterRole of that name gives.
fn rights(file: &str, name: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("config/rbac").join(file)).unwrap();
    let mut rights = BTreeSet::new();
    for document in text.split("\n---\n") {
        let object: serde_yaml::Value = serde_yaml::from_str(document).unwrap();
        if object["kind"] != "ClusterRole" || object["metadata"]["name"] != name {
            continue;
        }
        let rules: Vec<Rule> = serde_yaml::from_value(object["rules"].clone()).unwrap();
        for rule in rules.iter().filter(|rule| rule.api_groups.iter().any(|group| group == crds::GROUP)) {
            for resource in &rule.resources {
                rights.extend(rule.verbs.iter().map(|verb| format!("{verb} {resource}")));
            }
        }
    }
    rights
}

#[test]
fn the_operator_may_watch_every_kind_and_write_its_status_but_not_delete_it() {
    let rights = rights("operator.yaml", "recif-operator");
    for kind in crds::KINDS {
        let plural = kind.plural;
        for right in [format!("list {plural}"), format!("watch {plural}"), format!("patch {plural}/status")] {
            assert!(rights.contains(&right), "{right}");
        }
        for right in [format!("delete {plural}"), format!("create {plural}"), format!("update {plural}")] {
            assert!(!rights.contains(&right), "{right}");
        }
    }
}

#[test]
fn users_may_view_and_edit_every_kind() {
    let (view, edit) = (rights("users.yaml", "recif-view"), rights("users.yaml", "recif-edit"));
    for kind in crds::KINDS {
        assert!(view.contains(&format!("get {}", kind.plural)), "view {}", kind.name);
        assert!(edit.contains(&format!("create {}", kind.plural)), "edit {}", kind.name);
        assert!(!edit.contains(&format!("patch {}/status", kind.plural)), "the status of {} is ours", kind.name);
    }
}
