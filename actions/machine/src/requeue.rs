//! Defines when the workqueue runs the next step of an object: [`Requeue`].

use std::time::Duration;

/// Time at which the workqueue runs the next step of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// At once, because the object moved.
    Now,
    /// After this delay, unless a watch event comes first.
    After(Duration),
    /// With the next watch event.
    OnChange,
}

/// Returns the earlier one of a delay and of the recheck that an action asks for.
pub(super) fn soonest(after: Duration, recheck: Option<Duration>) -> Requeue {
    Requeue::After(recheck.map_or(after, |recheck| recheck.min(after)))
}
