//! What is known of the cluster, in the shapes in which it is asked for.
//!
//! The maps of `cluster` hold each object once; here are the views of them that actions read, and the indexes that answer
//! the two questions a map cannot: who refers to this, and which Pods does this workload have.

mod caches;
mod keys;
mod pods;
mod references;

pub use caches::{Caches, InformerReader, KindCaches, NamespaceState, TerminatingNamespaces};
pub use keys::{IDENTITY_SECRET, Keys, KeysError, bytes, secret_data};
pub use pods::{PodIndex, workload_label};
pub use references::Referrers;
