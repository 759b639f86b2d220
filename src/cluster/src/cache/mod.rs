//! Informer caches of the cluster, and indexes over them.
//!
//! An [`ObjectMap`](crate::ObjectMap) holds each object of a kind once. This module holds the view of all maps that actions read, and
//! indexes for the two questions that a map cannot answer: which objects refer to this one, and which Pods belong to this workload.

mod caches;
mod keys;
mod pods;
mod references;

pub use caches::{Caches, InformerReader, KindCaches, MapOf, NamespaceState, PodSelectors, TerminatingNamespaces};
pub use keys::{IDENTITY_SECRET, Keys, KeysError, bytes, secret_data};
pub use pods::{PodIndex, workload_label};
pub use references::Referrers;
