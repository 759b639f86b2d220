//! The contract of an action, of a kind, and of the port through which the driver writes.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::{MachineStatus, Phase};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::{ActionError, ApiError, Clock, Edge, Notes, memory::Observed};

/// Namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Key {
    /// The key of the object `name` in `namespace`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A kind that the driver can take through its life.
pub trait Machine: Clone + fmt::Debug + Send + Sync + 'static {
    /// The phases of its life.
    type Phase: Phase;
    /// What its actions may ask of the world.
    type World: Send + Sync + 'static;

    /// The kind's name, such as `Agent`.
    const KIND: &'static str;
    /// The finalizer its objects get before they have children that are to be drained.
    const FINALIZER: Option<&'static str>;
    /// Raised by hand when the same spec is to be rendered differently; objects admitted under an older one start over.
    const RENDER_VERSION: i64;
    /// Every move its objects may make.
    const EDGES: &'static [Edge<Self::Phase>];
    /// Failure reasons that waiting does not mend.
    const NOT_BY_TIME: &'static [&'static str];

    /// Condition types its actions write; all others but Ready, Reconciling and Stalled are somebody else's.
    const CONDITIONS: &'static [&'static str];
    /// Whether `Available` says the same as `Ready`, as for kinds without Pods.
    const AVAILABLE_BY_PHASE: bool;
    /// Paths in its status, `[]` for every item of a list, by which its actions choose what to do, besides the machine's own.
    const STEERED_BY: &'static [&'static str];

    /// The metadata.
    fn meta(&self) -> &ObjectMeta;
    /// The metadata, for an action that changes labels, annotations or finalizers.
    fn meta_mut(&mut self) -> &mut ObjectMeta;
    /// The machine's part of the status; `None` when there is no status at all.
    fn machine(&self) -> Option<&MachineStatus>;
    /// The machine's part of the status, made if there is none.
    fn machine_mut(&mut self) -> &mut MachineStatus;
    /// The whole status as JSON; `Null` when there is none.
    fn status_json(&self) -> Value;
    /// SHA-256 (hex) of the spec, without what only moves the replica count.
    fn spec_digest(&self) -> String;
    /// Whether both have the same spec.
    fn same_spec(&self, other: &Self) -> bool;

    /// A digest of what others may change that it depends on: references, and children that are not as they were applied.
    fn outside(&self, _world: &Self::World) -> u64 {
        0
    }
    /// A digest of what it offers to those that refer to it, beside its spec and whether it is available.
    fn offers(&self) -> Option<&str> {
        None
    }
    /// SHA-256 (hex) of what was rendered, for the trace.
    fn content_hash(&self) -> Option<&str> {
        None
    }
    /// The phase, if this build knows it.
    fn phase(&self) -> Option<Self::Phase> {
        Self::Phase::parse(self.raw_phase()?)
    }
    /// The phase as stored.
    fn raw_phase(&self) -> Option<&str> {
        self.machine()?.phase.as_deref()
    }
    /// Moves the object to another phase.
    fn set_phase(&mut self, phase: Self::Phase) {
        self.machine_mut().phase = Some(phase.as_str().to_owned());
    }
    /// This object in that phase: what an action that moves returns.
    #[must_use]
    fn moved_to(&self, phase: Self::Phase) -> Self {
        let mut next = self.clone();
        next.set_phase(phase);
        next
    }
    /// Puts our finalizer on it, if the kind has one.
    fn hold(&mut self) {
        if let Some(ours) = Self::FINALIZER.filter(|_| !self.has_finalizer()) {
            self.meta_mut().finalizers.get_or_insert_default().push(ours.to_owned());
        }
    }
    /// Namespace and name.
    fn key(&self) -> Key {
        let meta = self.meta();
        Key::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }
    /// The uid; empty for an object that was never stored.
    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }
    /// Its resource version, if the API server gave it a number.
    fn version(&self) -> Option<u64> {
        self.meta().resource_version.as_deref()?.parse().ok()
    }
    /// The generation of the spec; 0 for an object that was never stored.
    fn generation(&self) -> i64 {
        self.meta().generation.unwrap_or_default()
    }
    /// Whether the API server was told to delete it.
    fn is_deleting(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }
    /// Whether our finalizer is on it.
    fn has_finalizer(&self) -> bool {
        Self::FINALIZER.is_some_and(|ours| self.meta().finalizers.iter().flatten().any(|found| found == ours))
    }
}

/// What a step may use.
pub struct Context<K: Machine> {
    /// The ports of this kind; also reached by dereferencing the context.
    pub world: Arc<K::World>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where the action explains itself.
    pub notes: Notes,
    /// For how long something lasts, as this process saw it.
    pub(super) observed: Observed,
}

impl<K: Machine> Context<K> {
    /// How much is left of the time `most` that something may last which began at `since` by the wall clock.
    ///
    /// The wall clock counts once, when this process first sees it, and for four fifths of the time at most; from then on it is
    /// this process's own monotonic clock. So a clock that jumps neither ends nor prolongs it.
    pub fn time_left(&self, what: &'static str, since: Timestamp, most: Duration) -> Duration {
        let age = Duration::try_from(self.clock.now().duration_since(since)).unwrap_or_default();
        let lasted = self.observed.lasted(what, since, age.min(most * 4 / 5), self.clock.elapsed());
        most.saturating_sub(lasted)
    }

    /// Whether this version of the object is known to have been the newest one: this process wrote it, or [`confirm`](Self::confirm)
    /// was called for it. What a list or a watch brings may be stale.
    pub(crate) fn is_confirmed(&self, cr: &K) -> bool {
        self.observed.is_confirmed(cr.version())
    }

    /// Takes note that the API server holds a newer version of the object: this one is not tried again at every wake.
    pub(crate) fn outdated(&self, cr: &K) {
        self.observed.outdated(cr.version(), self.clock.elapsed());
    }

    /// Takes note that the API server holds no newer version of the object.
    pub(crate) fn confirm(&self, cr: &K) {
        self.observed.confirm(cr.version());
    }
}

impl<K: Machine> fmt::Debug for Context<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("notes", &self.notes).finish_non_exhaustive()
    }
}

impl<K: Machine> Deref for Context<K> {
    type Target = K::World;

    fn deref(&self) -> &K::World {
        &self.world
    }
}

/// One thing the machine does. The driver runs the first action of a kind's list that claims the object.
#[async_trait]
pub trait Action<K: Machine>: Send + Sync {
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
    async fn handle(&self, cx: &Context<K>, cr: Arc<K>) -> Result<Option<K>, ActionError>;
}

/// The driver's way to the objects of its kind: a cache to read from, two subresources to write to.
#[async_trait]
pub trait Objects<K: Machine>: Send + Sync {
    /// The newest object known, never older than the answer to our own last write.
    fn newest(&self, key: &Key) -> Option<Arc<K>>;
    /// Sends a JSON Patch to the status subresource and returns what the API server answered.
    ///
    /// # Errors
    /// [`ApiError::Stale`] when one of the patch's tests failed.
    async fn patch_status(&self, key: &Key, patch: Value) -> Result<Arc<K>, ApiError>;
    /// Sends a JSON Patch to the object itself; `None` when that was the end of it (its last finalizer went).
    ///
    /// # Errors
    /// [`ApiError::Stale`] when one of the patch's tests failed.
    async fn patch_metadata(&self, key: &Key, patch: Value) -> Result<Option<Arc<K>>, ApiError>;
}
