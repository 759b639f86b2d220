//! Holds what a list in pages has read so far.

use super::store::ListItem;

/// Objects in one page of a list, so that a list is never held whole.
pub(super) const PAGE: u32 = 100;

/// A complete list.
pub(super) struct List<T> {
    pub(super) items: Vec<ListItem<T>>,
    /// The version of the store that it shows.
    pub(super) version: u64,
}
