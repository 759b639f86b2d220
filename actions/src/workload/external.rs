//! What others may change that a workload depends on: its references, and children that are not as they were applied.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::{
    WorkloadKind,
    children::{Drift, drift, kind_of, records},
};
use crate::{deps::Deps, ports::ChildRef};

/// A digest of it, for the brake: never kept beyond this process, and the same after everything that is our own doing.
pub(crate) fn external_digest<K: WorkloadKind>(cr: &K, world: &Deps) -> u64 {
    let mut digest = DefaultHasher::new();
    cr.inputs(world).pin().hash(&mut digest);
    let namespace = cr.meta().namespace.clone().unwrap_or_default();
    for record in cr.status().map(|status| status.children.as_slice()).unwrap_or_default() {
        let Some(kind) = kind_of(record) else { continue };
        let child = ChildRef { kind, namespace: namespace.clone(), name: record.name.clone() };
        let seen = world.cache.child(&child);
        let record = world.applied_records.record(cr.uid(), records(cr), &child);
        if record.is_some_and(|record| drift(seen.as_deref(), &record) != Drift::None) {
            (child.to_string(), seen.map(|seen| seen.resource_version)).hash(&mut digest);
        }
    }
    digest.finish()
}
