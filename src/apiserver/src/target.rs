//! Object or collection that a request names.

/// An object that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// Index of the kind.
    pub(crate) kind: usize,
    /// Namespace; empty for all of them, or for kinds without.
    pub(crate) namespace: String,
    /// Name; empty for a collection.
    pub(crate) name: String,
    /// Subresource; empty for the object itself.
    pub(crate) subresource: String,
}
