//! Size and result of a list in pages.

use super::store::ListItem;

/// Most objects in one page of a list, so that no response holds the whole list.
pub(super) const PAGE: u32 = 100;

/// Complete list, from all its pages.
pub(super) struct List<T> {
    pub(super) items: Vec<ListItem<T>>,
    /// Resource version of the store that the list shows.
    pub(super) version: u64,
}
