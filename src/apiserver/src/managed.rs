//! Server-side apply and the owners of fields, `metadata.managedFields`
//! ([KEP 555](https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/555-server-side-apply)): who set which
//! field last, by which operation.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    errors::StatusError,
    fields::FieldSet,
    object::{items, set_field, set_metadata, text},
    structure::Structure,
};

/// Field manager, with operation, version and subresource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ManagerIdentifier {
    /// Operation; the first in the list of owners are applies.
    pub(crate) operation: Operation,
    /// Field manager.
    pub(crate) manager: String,
    /// Version of the API that is written; applies by another version are of the same owner.
    pub(crate) api_version: String,
    /// Subresource; empty for the object itself.
    pub(crate) subresource: String,
}

/// Kind of write that set fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

impl ManagerIdentifier {
    /// Returns the owner under which the fields are recorded.
    fn owner(&self) -> Self {
        let mut owner = self.clone();
        if self.operation == Operation::Apply {
            owner.api_version.clear();
        }
        owner
    }

    /// Returns the owner as messages show it.
    fn shown(&self) -> String {
        let mut shown = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            shown = format!("{shown} with subresource {:?}", self.subresource);
        }
        match self.operation {
            Operation::Apply => shown,
            Operation::Update => format!("{shown} using {}", self.api_version),
        }
    }

    /// Removes fields that have no owner, and those that this writer cannot set.
    fn owned(&self, structure: Structure<'_>, mut set: FieldSet) -> FieldSet {
        const SYSTEM: &[&str] = &[
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "generation",
            "managedFields",
            "resourceVersion",
        ];
        set.remove_tree("f:apiVersion");
        set.remove_tree("f:kind");
        set.remove(&["f:metadata"]);
        for field in SYSTEM {
            set.remove(&["f:metadata", &format!("f:{field}")]);
        }
        if self.subresource == "status" {
            set.remove_tree("f:spec");
            set.remove_tree("f:metadata");
        } else if structure.0.traits.status {
            set.remove_tree("f:status");
        }
        set
    }
}

/// Fields of one owner.
#[derive(Debug, Clone, Default)]
struct Owned {
    set: FieldSet,
    time: Option<String>,
    api_version: String,
}

type ManagedFields = BTreeMap<ManagerIdentifier, Owned>;

fn read(object: &Value) -> ManagedFields {
    let entries = items(object, "/metadata/managedFields").iter().map(|entry| {
        let operation = if text(entry, "/operation") == "Apply" { Operation::Apply } else { Operation::Update };
        let writer = ManagerIdentifier {
            operation,
            manager: text(entry, "/manager").to_owned(),
            api_version: text(entry, "/apiVersion").to_owned(),
            subresource: text(entry, "/subresource").to_owned(),
        };
        let owned = Owned {
            set: FieldSet::from_json(&entry["fieldsV1"]),
            time: entry["time"].as_str().map(str::to_owned),
            api_version: writer.api_version.clone(),
        };
        (writer.owner(), owned)
    });
    entries.collect()
}

fn write(object: &mut Value, owners: ManagedFields) {
    let mut owners: Vec<_> = owners.into_iter().filter(|(_, owned)| !owned.set.is_empty()).collect();
    owners.sort_by(|(a, one), (b, other)| (a.operation, &one.time, a).cmp(&(b.operation, &other.time, b)));
    let entries: Vec<Value> = owners
        .iter()
        .map(|(writer, owned)| {
            let operation = if writer.operation == Operation::Apply { "Apply" } else { "Update" };
            let mut entry = json!({
                "operation": operation, "apiVersion": owned.api_version, "fieldsType": "FieldsV1",
                "fieldsV1": owned.set.to_json(),
            });
            let optional = [("manager", &writer.manager), ("subresource", &writer.subresource)];
            for (field, value) in optional.into_iter().chain(owned.time.as_ref().map(|time| ("time", time))) {
                if !value.is_empty() {
                    entry[field] = value.as_str().into();
                }
            }
            entry
        })
        .collect();
    set_metadata(object, "managedFields", (!entries.is_empty()).then(|| entries.into()));
}

/// Returns an object without the list of owners.
fn without_owners(object: &Value) -> Value {
    let mut object = object.clone();
    set_metadata(&mut object, "managedFields", None);
    object
}

/// Returns an object without the times at which owners set their fields.
pub(crate) fn without_times(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(Value::Array(entries)) = object.pointer_mut("/metadata/managedFields") {
        entries.iter_mut().for_each(|entry| set_field(entry, "time", None));
    }
    object
}

/// Takes fields from owners that do not have them any more.
fn take(owners: &mut ManagedFields, except: Option<&ManagerIdentifier>, taken: &FieldSet) {
    for (owner, owned) in owners.iter_mut() {
        if Some(owner) != except {
            owned.set = owned.set.difference(taken);
        }
    }
}

/// Records in `new` what a create, update or patch has changed since `live`, at `now`.
pub(crate) fn update(structure: Structure<'_>, live: &Value, new: &mut Value, writer: &ManagerIdentifier, now: &str) {
    // A client may give the list, and empty it by one empty entry; one that leaves it out keeps it.
    let given = items(new, "/metadata/managedFields");
    let is_reset = given == [json!({})];
    let mut owners = if writer.subresource.is_empty() && !given.is_empty() { read(new) } else { read(live) };
    if is_reset && writer.subresource.is_empty() {
        owners.clear();
    }
    let found = structure.compare(&without_owners(live), &without_owners(new));
    let set = writer.owned(structure, found.added.union(&found.modified));
    take(&mut owners, None, &set.union(&found.removed));
    if !set.is_empty() {
        let mine = owners.entry(writer.owner()).or_default();
        mine.set = mine.set.union(&set);
        mine.time = Some(now.to_owned());
        mine.api_version.clone_from(&writer.api_version);
    }
    write(new, owners);
}

/// Applies a configuration to the live object, by the writer's field manager at `now`, and returns the new object: with what the
/// configuration sets, without what it does not set any more and no other manager owns.
///
/// # Errors
/// 409 if another owner's field would change, unless `force`.
pub(crate) fn apply(
    structure: Structure<'_>,
    live: &Value,
    config: &Value,
    writer: &ManagerIdentifier,
    force: bool,
    now: &str,
) -> Result<Value, StatusError> {
    let mut owners = read(live);
    let live = without_owners(live);
    let owner = writer.owner();
    let merged = structure.merge(&live, config);
    let set = writer.owned(structure, structure.fields(config));
    let last = owners.get(&owner).map(|owned| owned.set.clone()).unwrap_or_default();
    let mine = owners.entry(owner.clone()).or_default();
    mine.set = set;
    mine.api_version.clone_from(&writer.api_version);
    let all = owners.values().fold(FieldSet::default(), |all, owned| all.union(&owned.set));
    let mut new = structure.without(&merged, &last.with_parents().difference(&all.with_parents()));

    let found = structure.compare(&live, &new);
    let changed = writer.owned(structure, found.added.union(&found.modified));
    let conflicts: Vec<_> = owners
        .iter()
        .filter(|(other, _)| **other != owner)
        .map(|(other, owned)| (other.shown(), owned.set.intersection(&changed).paths()))
        .filter(|(_, paths)| !paths.is_empty())
        .collect();
    if !force && !conflicts.is_empty() {
        return Err(conflict(&conflicts));
    }
    take(&mut owners, Some(&owner), &changed.union(&found.removed));
    if live != new {
        owners.entry(owner).or_default().time = Some(now.to_owned());
    }
    write(&mut new, owners);
    Ok(new)
}

/// Returns the error that lists each owner with its fields.
fn conflict(conflicts: &[(String, Vec<String>)]) -> StatusError {
    let causes: Vec<Value> = conflicts
        .iter()
        .flat_map(|(owner, paths)| paths.iter().map(move |path| (owner, path)))
        .map(|(owner, path)| {
            json!({ "reason": "FieldManagerConflict", "message": format!("conflict with {owner}"), "field": path })
        })
        .collect();
    let message = match (conflicts, causes.len()) {
        ([(owner, paths)], 1) => format!("Apply failed with 1 conflict: conflict with {owner}: {}", paths.concat()),
        (_, count) => {
            let mut sorted = conflicts.to_vec();
            sorted.sort();
            let lines = sorted.iter().flat_map(|(owner, paths)| {
                let head = format!("conflicts with {owner}:");
                std::iter::once(head).chain(paths.iter().map(|path| format!("- {path}")))
            });
            format!("Apply failed with {count} conflicts: {}", lines.collect::<Vec<_>>().join("\n"))
        }
    };
    StatusError::apply_conflict(message, causes)
}
