//! Keys of objects in the store.

/// Key of an object in the store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StoreKey {
    /// Index of the kind in whose form it is stored.
    pub(crate) kind: usize,
    /// Namespace; empty for objects that are in none.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
}
