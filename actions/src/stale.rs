//! Guards writes with a consistent read: before a child is written, the version of its owner that calls for the write is
//! confirmed to be the newest one. A list or a watch may deliver an old version.

use machine::{ActionError, ApiError, external_digest};
use meta::PhasedObject;

use crate::{kind::Context, ports::OwnerState};

/// Refuses to act for a version of the object that may be stale. Drift detection could not tell the children of an old version
/// from those of the newest one, because the same field manager applied the same fields.
pub(crate) async fn refuse_stale<K: PhasedObject>(cx: &Context, cr: &K) -> Result<(), ActionError> {
    if cx.is_confirmed(cr) { Ok(()) } else { confirm_newest(cx, cr).await }
}

/// Refuses as [`refuse_stale`] does, and for a repair reads the object past the cache each time: children change and disappear
/// because their owner does, and the watch of owners may lag behind theirs. A child that is repaired then would outlive a
/// deletion that was to orphan it, or would be created for an owner that is gone.
pub(crate) async fn refuse_stale_repair<K: PhasedObject>(
    cx: &Context,
    cr: &K,
    repair: bool,
) -> Result<(), ActionError> {
    if repair { confirm_newest(cx, cr).await } else { refuse_stale(cx, cr).await }
}

/// Reads the object past the cache, and ends the step as stale if it has changed.
async fn confirm_newest<K: PhasedObject>(cx: &Context, cr: &K) -> Result<(), ActionError> {
    let newest = cx.client.get_owner(K::KIND, &cr.key()).await?;
    let seq = cr.common().and_then(|machine| machine.history.last()).map_or(0, |entry| entry.seq);
    // Not compared by resource version: other clients write to the object all the time, which is no reason to wait.
    let is_this = |newest: &OwnerState| {
        newest.meta.uid == cr.meta().uid
            && external_digest(&newest.meta) == external_digest(cr.meta())
            && newest.seq == seq
    };
    if !newest.as_ref().is_some_and(|newest| is_this(newest) && newest.meta.deletion_timestamp.is_none()) {
        cx.mark_stale(cr);
        return Err(ApiError::Stale.into());
    }
    cx.confirm(cr);
    Ok(())
}
