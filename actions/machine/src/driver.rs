//! Reconcile loop of a kind: one step of one object at a time, level-triggered, as Kubernetes
//! [controllers](https://kubernetes.io/docs/concepts/architecture/controller/) work.
//!
//! A step: newest object → decide → plan → commit, one file each. A step that changes nothing sends nothing. The state that is
//! kept between steps ([`RetryState`]: how long a wait has lasted, how often the API server was unavailable) only delays; losing it
//! in a restart changes no decision.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;
use meta::{Key, Phase, PhasedObject};

use super::{
    ApiError, Clock, NamespaceReader, ObjectClient, Registry, Requeue, Sink, Table, dropped_fields::DroppedFields,
    move_backoff::external_digest, retry_state::RetryState, step_decision::StepDecision,
};

/// Delay until the next step of a settled object for which no step can be taken.
const BLOCKED_RECHECK: Duration = Duration::from_secs(10);

/// Reconciler of the objects of one kind.
///
/// Invariant: `retry_state` and `dropped` only delay steps or add a condition; every decision is made from the object and the
/// ports.
///
/// # Example
///
/// A lamp that waits is lit as soon as a step finds power. The [crate](crate#example) shows the kind.
///
/// ```
/// # use std::sync::Arc;
/// # use machine::{ObjectClient, TableError, example::{Lamp, LampPhase, OneLamp, PowerSupply, Switch, TABLE}};
/// # use meta::PhasedObject;
/// use machine::{Driver, Registry, Requeue, SystemClock};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), TableError> {
/// let lamp = Lamp::new("desk", 40).moved_to(LampPhase::Pending);
/// let (key, objects) = (lamp.key(), Arc::new(OneLamp::new(lamp)));
/// let power = Arc::new(PowerSupply::default());
/// let registry = Registry::new(TABLE, vec![Arc::new(Switch)], |_, power: &PowerSupply| power.is_on().into())?;
/// let driver = Driver::new(registry, power.clone(), objects.clone(), Arc::new(SystemClock::default()), vec![]);
/// let phase = || objects.newest(&key).and_then(|lamp| lamp.phase());
///
/// driver.reconcile(&key).await;
/// assert_eq!(phase(), Some(LampPhase::Pending), "it waits for the power supply");
///
/// power.set(true);
/// assert_eq!(driver.reconcile(&key).await, Requeue::Now);
/// assert_eq!(phase(), Some(LampPhase::Lit));
/// # Ok(())
/// # }
/// ```
pub struct Driver<K: PhasedObject, D> {
    pub(super) registry: Registry<K, D>,
    pub(super) deps: Arc<D>,
    pub(super) objects: Arc<dyn ObjectClient<K>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) sinks: Vec<Arc<dyn Sink>>,
    pub(super) retry_state: Arc<RetryState>,
    /// Identity of this operator, namespace and name of its lease; `None`: there is certainly no other operator.
    pub(super) instance: Option<String>,
    /// Time at which this operator became the leader: another operator that wrote later is running at the same time.
    pub(super) leading_since: Mutex<Timestamp>,
    /// Fields of the status that the API server drops.
    pub(super) dropped: DroppedFields,
}

impl<K: PhasedObject, D> fmt::Debug for Driver<K, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("kind", &K::KIND).field("actions", &self.registry).finish_non_exhaustive()
    }
}

impl<K: PhasedObject, D: NamespaceReader> Driver<K, D> {
    /// Creates a driver over these actions and ports.
    pub fn new(
        registry: Registry<K, D>,
        deps: Arc<D>,
        objects: Arc<dyn ObjectClient<K>>,
        clock: Arc<dyn Clock>,
        sinks: Vec<Arc<dyn Sink>>,
    ) -> Self {
        let began = Mutex::new(clock.now());
        Self {
            leading_since: began,
            registry,
            deps,
            objects,
            clock,
            sinks,
            retry_state: Arc::default(),
            instance: None,
            dropped: DroppedFields::default(),
        }
    }

    pub(super) fn table(&self) -> &Table<K::Phase> {
        &self.registry.table
    }

    /// Returns a digest of the dependencies of the object that other clients may change.
    pub(super) fn dependency_digest(&self, cr: &K) -> u64 {
        (self.registry.dependency_digest)(cr, &self.deps)
    }

    /// Returns what the API server drops from statuses of this kind, because its CRD is older than this build; `None` if no write
    /// of the last half hour has shown that.
    pub fn dropped_fields(&self) -> Option<String> {
        self.dropped.recent_sentence::<K>(self.clock.elapsed())
    }

    /// Runs one reconcile step of one object and returns its requeue. In a namespace that is being deleted no child can be
    /// created again, so an object there has no step before its own deletion.
    pub async fn reconcile(&self, key: &Key) -> Requeue {
        let now = self.clock.elapsed();
        self.retry_state.sweep(now);
        let Some(cr) = self.objects.newest(key) else {
            self.retry_state.forget(key);
            return Requeue::OnChange;
        };
        if cr.is_deleting() && !cr.has_finalizer() {
            return Requeue::OnChange;
        }
        if !cr.is_deleting() && self.deps.is_namespace_going(&key.namespace) {
            return self.report_blocked(key, ApiError::NamespaceTerminating).await;
        }
        if let Some(left) = self.retry_state.delay_left(key, cr.uid(), cr.version(), now) {
            return Requeue::After(left);
        }
        let left = self.observe_contention(key, &cr, now);
        if !left.is_zero() {
            return self.yield_to_other_writer(StepDecision::new(key, cr), left).await;
        }
        if let Some(left) = self.retry_state.pause_left(
            (key, cr.uid()),
            external_digest(cr.meta()),
            || self.dependency_digest(&cr),
            now,
        ) {
            return Requeue::After(left);
        }
        let (mut step, result) = self.decide(key, cr).await;
        let plan = self.plan(&mut step, result);
        self.commit(&step, plan).await
    }

    /// Reports that no step can be taken: the dependencies of the object cannot be read (informer cache not available), or its
    /// namespace is being deleted. An object that is under way gets it in its status; a settled one is left as it is, without a
    /// write.
    pub async fn report_blocked(&self, key: &Key, error: ApiError) -> Requeue {
        let Some(cr) = self.objects.newest(key) else { return Requeue::OnChange };
        if let Some(left) = self.retry_state.delay_left(key, cr.uid(), cr.version(), self.clock.elapsed()) {
            return Requeue::After(left);
        }
        let current = cr.common().and_then(|machine| machine.observed_generation) == Some(cr.generation());
        if cr.is_deleting() || (current && cr.phase().is_some_and(K::Phase::is_settled)) {
            return Requeue::After(BLOCKED_RECHECK);
        }
        let mut step = StepDecision::new(key, cr);
        let plan = self.plan(&mut step, Err(error.into()));
        self.commit(&step, plan).await
    }
}
