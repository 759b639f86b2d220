//! Binds the kinds that have a state machine to their informer caches: [`ReconciledKind`].

use std::sync::Arc;

use actions::kind::ControlledKind;
use cluster::{
    ObjectMap,
    cache::{KindCaches, MapOf},
};
use crds::CustomObject;

/// Kind that the operator reconciles.
pub trait ReconciledKind: ControlledKind + CustomObject {
    /// Returns the informer cache of its objects.
    fn map(caches: &KindCaches) -> &Arc<ObjectMap<Self>>;
}

impl<K: ControlledKind + CustomObject> ReconciledKind for K
where
    KindCaches: MapOf<K>,
{
    fn map(caches: &KindCaches) -> &Arc<ObjectMap<Self>> {
        caches.of::<K>()
    }
}
