//! Says what an action is, and through which port the driver reads and writes.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use meta::{Key, PhasedObject};
use serde_json::Value;

use super::{ActionError, ApiError, Clock, StepNotes, retry_state::ObjectRetryState};

/// What a step may use.
pub struct Context<D> {
    /// The ports that the actions use; also reached by dereferencing the context.
    pub deps: Arc<D>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where the action explains itself.
    pub notes: StepNotes,
    /// For how long something lasts, as this process saw it.
    pub(super) retry_state: ObjectRetryState,
}

impl<D> Context<D> {
    /// How much is left of the time `most` that something may last which began at `since` by the wall clock.
    ///
    /// The wall clock counts once, when this process first sees it, and for four fifths of the time at most; from then on it is
    /// this process's own monotonic clock. So a clock that jumps neither ends nor prolongs it.
    pub fn time_left(&self, what: &'static str, since: Timestamp, most: Duration) -> Duration {
        let age = Duration::try_from(self.clock.now().duration_since(since)).unwrap_or_default();
        let lasted = self.retry_state.observed_for(what, since, age.min(most * 4 / 5), self.clock.elapsed());
        most.saturating_sub(lasted)
    }

    /// Whether this version of the object is known to have been the newest one: this process wrote it, or [`confirm`](Self::confirm)
    /// was called for it. What a list or a watch brings may be stale.
    pub fn is_confirmed<K: PhasedObject>(&self, cr: &K) -> bool {
        self.retry_state.is_confirmed(cr.version())
    }

    /// Takes note that the API server holds a newer version of the object: this one is not tried again at every wake.
    pub fn mark_stale<K: PhasedObject>(&self, cr: &K) {
        self.retry_state.mark_stale(cr.version(), self.clock.elapsed());
    }

    /// Takes note that the API server holds no newer version of the object.
    pub fn confirm<K: PhasedObject>(&self, cr: &K) {
        self.retry_state.confirm(cr.version());
    }
}

impl<D> fmt::Debug for Context<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("notes", &self.notes).finish_non_exhaustive()
    }
}

impl<D> Deref for Context<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.deps
    }
}

/// One thing the machine does. The driver runs the first action of a kind's list that claims the object.
#[async_trait]
pub trait Action<K: PhasedObject, D>: Send + Sync {
    /// A verb, such as `resolve`.
    fn name(&self) -> &'static str;
    /// The phases it claims; checked at start-up.
    fn phases(&self) -> &'static [K::Phase];
    /// Whether it takes this object. Pure, without I/O and clock; may only narrow [`Action::phases`].
    fn can_handle(&self, cr: &K) -> bool {
        cr.phase().is_some_and(|phase| self.phases().contains(&phase))
    }
    /// How long [`Action::handle`] may take.
    fn deadline(&self) -> Duration {
        Duration::from_secs(30)
    }
    /// How long a wait may last before looking again although nothing happened.
    fn recheck(&self, _cr: &K) -> Option<Duration> {
        None
    }
    /// Does it. `Ok(Some(next))` is persisted; `Ok(None)` stays in the phase, with nothing to add.
    ///
    /// # Errors
    /// Whatever kept it from finishing; the driver decides what follows.
    async fn handle(&self, cx: &Context<D>, cr: Arc<K>) -> Result<Option<K>, ActionError>;
}

/// The driver's way to the objects of its kind: a cache to read from, two subresources to write to.
#[async_trait]
pub trait ObjectClient<K: PhasedObject>: Send + Sync {
    /// The newest object known, never older than the answer to our own last write.
    fn newest(&self, key: &Key) -> Option<Arc<K>>;
    /// Sends a JSON Patch to the status subresource and returns what the API server answered.
    ///
    /// # Errors
    /// [`ApiError::StaleVersion`] when one of the patch's tests failed.
    async fn patch_status(&self, key: &Key, patch: Value) -> Result<Arc<K>, ApiError>;
    /// Sends a JSON Patch to the object itself; `None` when that was the end of it (its last finalizer went).
    ///
    /// # Errors
    /// [`ApiError::StaleVersion`] when one of the patch's tests failed.
    async fn patch_metadata(&self, key: &Key, patch: Value) -> Result<Option<Arc<K>>, ApiError>;
}
