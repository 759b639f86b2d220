//! Computes the digest of a workload's dependencies that other clients may change: its references, and children that have
//! drifted.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::{
    children::{Drift, drift, kind_of, records},
    kind::WorkloadKind,
};
use crate::{deps::Deps, ports::ChildRef};

/// Returns the digest for the detection of hot loops. It is never stored, and the operator's own writes do not change it.
pub(crate) fn external_digest<K: WorkloadKind>(cr: &K, deps: &Deps) -> u64 {
    let mut digest = DefaultHasher::new();
    cr.inputs(deps).pin().hash(&mut digest);
    let namespace = cr.meta().namespace.clone().unwrap_or_default();
    for record in cr.status().map(|status| status.children.as_slice()).unwrap_or_default() {
        let Some(kind) = kind_of(record) else { continue };
        let child = ChildRef { kind, namespace: namespace.clone(), name: record.name.clone() };
        let seen = deps.cache.child(&child);
        let record = deps.applied_records.record(cr.uid(), records(cr), &child);
        if record.is_some_and(|record| drift(seen.as_deref(), &record) != Drift::None) {
            (child.to_string(), seen.map(|seen| seen.resource_version)).hash(&mut digest);
        }
    }
    digest.finish()
}
