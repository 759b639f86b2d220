//! Defines actions, the handlers of phases. The result of an action decides the requeue: when the workqueue runs the object's
//! next step.
//!
//! - `Ok(Some(next))` in another phase: the status is written, and the object is requeued at once.
//! - `Ok(Some(next))` in the same phase: the status is written, and the object is requeued after [`Action::recheck`] or the delay
//!   of the notes, or by the next watch event.
//! - `Ok(None)`: the object stays in its phase. A wait in the notes is written once it has lasted for its quiet period.
//! - `Err(Retry)`: a counted attempt; the object is requeued after an exponential back-off, and is Failed after eight attempts.
//! - `Err(Terminal)`: the object is Failed.
//! - `Err(Api)`: never an attempt; the object is requeued after a back-off, or it is Failed if the API server rejects the manifest
//!   itself (see [`ApiError`]).
//!
//! This module also defines the two ports of the driver itself: [`ObjectClient`] reads and writes the objects of its kind, and
//! [`NamespaceReader`] knows the namespaces that are being deleted.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use meta::{Key, PhasedObject};
use serde_json::Value;

use super::{ActionError, ApiError, Clock, StepNotes, object_retry_state::ObjectRetryState};

/// Ports, clock and notes of one step.
pub struct Context<D> {
    /// Ports of the actions; also reached by dereferencing the context.
    pub deps: Arc<D>,
    /// Clock of the step.
    pub clock: Arc<dyn Clock>,
    /// Notes in which the action explains its result.
    pub notes: StepNotes,
    /// Retry state of the object: durations that this process has observed, and the confirmed and the stale version.
    pub(super) retry_state: ObjectRetryState,
}

impl<D> Context<D> {
    /// Returns the rest of the duration `most` that a state named `what` may last, which began at `since` on the wall clock.
    ///
    /// The wall clock is used once, when this process first sees the state, and for at most four fifths of `most`. From then on
    /// the monotonic clock of this process counts. So a clock that jumps neither ends nor prolongs the state.
    pub fn time_left(&self, what: &'static str, since: Timestamp, most: Duration) -> Duration {
        let age = Duration::try_from(self.clock.now().duration_since(since)).unwrap_or_default();
        let lasted = self.retry_state.observed_for(what, since, age.min(most * 4 / 5), self.clock.elapsed());
        most.saturating_sub(lasted)
    }

    /// Reports whether this version of the object is known to have been the newest one: this process wrote it, or
    /// [`confirm`](Self::confirm) was called for it. A version from a list or a watch may be stale.
    pub fn is_confirmed<K: PhasedObject>(&self, cr: &K) -> bool {
        self.retry_state.is_confirmed(cr.version())
    }

    /// Records that the API server holds a newer version of the object: this version is retried after a back-off, not at every
    /// watch event.
    pub fn mark_stale<K: PhasedObject>(&self, cr: &K) {
        self.retry_state.mark_stale(cr.version(), self.clock.elapsed());
    }

    /// Records that the API server holds no newer version of the object.
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

/// Handler of one or more phases. The driver runs the first action of a kind's list that claims the object.
///
/// # Example
///
/// ```
/// # use std::sync::Arc;
/// # use async_trait::async_trait;
/// # use machine::{Action, ActionError, Context, example::{Lamp, LampPhase, PowerSupply}};
/// # use meta::PhasedObject;
/// struct Light;
///
/// #[async_trait]
/// impl Action<Lamp, PowerSupply> for Light {
///     fn name(&self) -> &'static str {
///         "light"
///     }
///     fn phases(&self) -> &'static [LampPhase] {
///         &[LampPhase::Pending]
///     }
///     async fn handle(&self, cx: &Context<PowerSupply>, lamp: Arc<Lamp>) -> Result<Option<Lamp>, ActionError> {
///         if cx.is_on() {
///             return Ok(Some(lamp.moved_to(LampPhase::Lit)));
///         }
///         cx.notes.waiting("NoPower", "it waits for the power supply");
///         Ok(None)
///     }
/// }
///
/// let lamp = Lamp::new("desk", 40);
/// assert!(Light.can_handle(&lamp.moved_to(LampPhase::Pending)));
/// assert!(!Light.can_handle(&lamp.moved_to(LampPhase::Lit)));
/// ```
#[async_trait]
pub trait Action<K: PhasedObject, D>: Send + Sync {
    /// Returns the name of the action, a verb such as `resolve`.
    fn name(&self) -> &'static str;
    /// Returns the phases that the action claims; checked at start-up.
    fn phases(&self) -> &'static [K::Phase];
    /// Reports whether the action handles this object. Pure, without I/O and clock; it may only narrow [`Action::phases`].
    fn can_handle(&self, cr: &K) -> bool {
        cr.phase().is_some_and(|phase| self.phases().contains(&phase))
    }
    /// Returns the deadline of [`Action::handle`].
    fn deadline(&self) -> Duration {
        Duration::from_secs(30)
    }
    /// Returns the period after which a waiting object is requeued without a watch event.
    fn recheck(&self, _cr: &K) -> Option<Duration> {
        None
    }
    /// Runs one step. `Ok(Some(next))` is written to the API server; `Ok(None)` stays in the phase and adds nothing.
    ///
    /// # Errors
    /// The cause that kept the action from finishing; the driver decides what follows.
    async fn handle(&self, cx: &Context<D>, cr: Arc<K>) -> Result<Option<K>, ActionError>;
}

/// Port of the driver to the objects of its kind: an informer cache to read from, and two subresources to write to.
#[async_trait]
pub trait ObjectClient<K: PhasedObject>: Send + Sync {
    /// Returns the newest known object, never older than the answer to this process's last write.
    fn newest(&self, key: &Key) -> Option<Arc<K>>;
    /// Sends a JSON Patch to the status subresource and returns the API server's answer.
    ///
    /// # Errors
    /// [`ApiError::Stale`] if a `test` of the patch failed.
    async fn patch_status(&self, key: &Key, patch: Value) -> Result<Arc<K>, ApiError>;
    /// Sends a JSON Patch to the object itself; returns `None` if the patch removed the last finalizer and the object is gone.
    ///
    /// # Errors
    /// [`ApiError::Stale`] if a `test` of the patch failed.
    async fn patch_metadata(&self, key: &Key, patch: Value) -> Result<Option<Arc<K>>, ApiError>;
}

/// Port of the driver to the namespaces. The ports of the actions implement it.
pub trait NamespaceReader: Send + Sync + 'static {
    /// Reports whether the namespace is being deleted, as far as is known.
    fn is_namespace_going(&self, namespace: &str) -> bool;
}
