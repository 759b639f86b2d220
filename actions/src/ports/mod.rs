//! Defines the ports of the actions: requests about children, and reads from the informer caches.
//!
//! The types are reduced: a child is its identity, its owner, a digest of the fields that the operator owns in it, and the few
//! status fields that decisions need. The packages `cluster` and `operator` implement the ports; `fake` implements them over a
//! simulated cluster.

mod cache;
mod child;
mod client;

pub use cache::{CacheReader, Cached, CachedKinds, WorkloadPod};
pub use child::{CachedChild, ChildKind, ChildManifest, ChildRef, Controller, DeploymentState, ReplicasManagers};
pub use client::{ChildClient, OwnerState};
