//! Reconcile loop of a kind: one step of one object at a time, level-triggered, as Kubernetes
//! [controllers](https://kubernetes.io/docs/concepts/architecture/controller/) work.
//!
//! A step: newest object → rules → first matching action → run under its deadline, panics caught → check of the edge → one write
//! → sinks. A step that changes nothing sends nothing. The state that is kept between steps ([`RetryState`]: how long a wait has
//! lasted, how often the API server was unavailable) only delays; losing it in a restart changes no decision.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::FutureExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use meta::{Key, Phase, PhasedObject, reason};

use super::{
    Action, ActionError, ApiError, Clock, Context, EdgeOwner, ObjectClient, Registry, Rule, Sink, StepNotes, Table,
    Wait,
    dropped_fields::DroppedFields,
    retry_state::{ObjectRetryState, RetryState},
    status,
};

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

/// Longest time for which the previous leader may go on writing during a handover, and for which clocks may differ.
const HANDOVER: SignedDuration = SignedDuration::from_secs(30);

/// Delay until the next step of an object whose dependencies could not be read.
const UNREADABLE_RECHECK: Duration = Duration::from_secs(10);

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
    leading_since: Mutex<Timestamp>,
    /// Fields of the status that the API server drops.
    pub(super) dropped: DroppedFields,
}

/// One step: the object it is based on, the action or rule that decides, and the result.
pub(super) struct StepDecision<'a, K: PhasedObject> {
    pub(super) key: &'a Key,
    pub(super) cr: Arc<K>,
    pub(super) owner: EdgeOwner,
    pub(super) passed_over: Vec<&'static str>,
    /// Notes of the action.
    pub(super) wait: Option<Wait>,
    pub(super) reason: Option<String>,
    pub(super) facts: String,
    /// Delay after which the action asks for the next step without a watch event.
    pub(super) recheck: Option<Duration>,
    /// True if the object changes phase once too often without an outside change.
    pub(super) backed_off: bool,
    pub(super) took: Duration,
}

impl<'a, K: PhasedObject> StepDecision<'a, K> {
    /// Creates a step for which no action is picked yet, and which changes nothing.
    fn new(key: &'a Key, cr: Arc<K>) -> Self {
        Self {
            key,
            cr,
            owner: EdgeOwner::Action(""),
            passed_over: Vec::new(),
            wait: None,
            reason: None,
            facts: String::new(),
            recheck: None,
            backed_off: false,
            took: Duration::ZERO,
        }
    }
}

impl<K: PhasedObject, D> fmt::Debug for Driver<K, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("kind", &K::KIND).field("actions", &self.registry).finish_non_exhaustive()
    }
}

impl<K: PhasedObject, D: Send + Sync + 'static> Driver<K, D> {
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

    /// Sets the identity of this operator, its lease as `namespace/name`: an object that another operator wrote last is left
    /// alone for a while.
    pub fn set_instance(&mut self, instance: impl Into<String>) {
        self.instance = Some(instance.into());
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

    /// Records that this operator is the leader from now on. Until then another operator may rightly have written.
    pub fn start_leading(&self) {
        *self.leading_since.lock().unwrap_or_else(PoisonError::into_inner) = self.clock.now();
        self.retry_state.unconfirm_all();
    }

    /// Runs one reconcile step of one object and returns its requeue.
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
        if let Some(left) = self.retry_state.delay_left(key, cr.uid(), cr.version(), now) {
            return Requeue::After(left);
        }
        if !cr.is_deleting() {
            let left = match self.other_writer(cr.as_ref()) {
                Some(write) => self.retry_state.written_by_other((key, cr.uid()), write, now),
                None => self.retry_state.contention_left((key, cr.uid()), now),
            };
            if !left.is_zero() {
                return self.yield_to_other_writer(StepDecision::new(key, cr), left).await;
            }
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

    /// Decides on the next step: by a rule of the driver, else by the first action that handles the object.
    async fn decide<'a>(&self, key: &'a Key, cr: Arc<K>) -> (StepDecision<'a, K>, Result<Option<K>, ActionError>) {
        let started = self.clock.elapsed();
        let mut step = StepDecision::new(key, cr);
        let result = match self.rule(&step.cr) {
            Some((rule, next)) => {
                step.owner = EdgeOwner::Rule(rule);
                Ok(Some(next))
            }
            None => self.run(&mut step).await,
        };
        step.took = self.clock.elapsed().saturating_sub(started);
        (step, result)
    }

    /// Returns the other operator that wrote the object last, the number of the last history entry, and whether that entry is
    /// newer than this operator's leadership.
    fn other_writer<'a>(&self, cr: &'a K) -> Option<(&'a str, i64, bool)> {
        let machine = cr.common()?;
        let other = machine.managed_by.as_deref()?;
        let began = *self.leading_since.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = |at: Timestamp| at.duration_since(began) > HANDOVER;
        let (seq, alive) = machine.history.last().map_or((0, false), |entry| (entry.seq, alive(entry.at.0)));
        self.instance.as_deref().is_some_and(|ours| ours != other).then_some((other, seq, alive))
    }

    /// Reports that no step can be taken because the dependencies of the object cannot be read (informer cache not available). An
    /// object that is under way gets it in its status; a settled one is left as it is, without a write.
    pub async fn report_unreadable(&self, key: &Key, error: ApiError) -> Requeue {
        let Some(cr) = self.objects.newest(key) else { return Requeue::OnChange };
        if let Some(left) = self.retry_state.delay_left(key, cr.uid(), cr.version(), self.clock.elapsed()) {
            return Requeue::After(left);
        }
        let current = cr.common().and_then(|machine| machine.observed_generation) == Some(cr.generation());
        if cr.is_deleting() || (current && cr.phase().is_some_and(K::Phase::is_settled)) {
            return Requeue::After(UNREADABLE_RECHECK);
        }
        let mut step = StepDecision::new(key, cr);
        let plan = self.plan(&mut step, Err(error.into()));
        self.commit(&step, plan).await
    }

    /// Returns the rule that the driver applies before it asks an action, and the object after it.
    fn rule(&self, cr: &Arc<K>) -> Option<(Rule, K)> {
        let phase = cr.phase();
        if cr.is_deleting() {
            let terminating = K::Phase::TERMINATING?;
            return (phase != Some(terminating)).then(|| (Rule::Delete, cr.moved_to(terminating)));
        }
        // A status that says Terminating although the object is not being deleted was copied or edited, and is ignored.
        if phase.is_none() || phase == K::Phase::TERMINATING {
            return Some((Rule::Admit, self.admitted(cr.as_ref())));
        }
        let machine = cr.common()?;
        // The default of the CRD has admitted it; its first status write pins the spec and adds the history entry.
        if status::is_new(cr.as_ref()) {
            return None;
        }
        let moved = machine.observed_generation != Some(cr.generation());
        let older = machine.render_version.is_none_or(|version| version < self.table().render_version);
        let changed = older || (moved && machine.spec_digest.as_deref() != Some(cr.spec_digest().as_str()));
        changed.then(|| {
            let mut next = self.admitted(cr.as_ref());
            next.common_mut().failure = None;
            (Rule::SpecChanged, next)
        })
    }

    /// Returns the object as admitted: in the first phase, with the spec digest and the render version pinned.
    fn admitted(&self, cr: &K) -> K {
        let mut next = cr.moved_to(K::Phase::FIRST);
        status::pin_spec(&mut next, self.table());
        next
    }

    /// Runs the first action that handles the object.
    async fn run(&self, step: &mut StepDecision<'_, K>) -> Result<Option<K>, ActionError> {
        let (action, passed_over) = self.registry.pick(&step.cr);
        step.passed_over = passed_over;
        let Some(action) = action else {
            let phase = step.cr.raw_phase().unwrap_or_default();
            let message = format!("no action handles this object in phase {phase}");
            step.wait = Some(Wait { needs_user: true, ..Wait::new(reason::UNHANDLED, message, Duration::ZERO) });
            return Ok(None);
        };
        let observed = ObjectRetryState {
            retry_state: self.retry_state.clone(),
            key: step.key.clone(),
            uid: step.cr.uid().to_owned(),
        };
        let cx = Context {
            deps: self.deps.clone(),
            clock: self.clock.clone(),
            notes: StepNotes::default(),
            retry_state: observed,
        };
        step.owner = EdgeOwner::Action(action.name());
        let result = run_bounded(action, &cx, step.cr.clone()).await;
        let notes = cx.notes.take();
        let usual = action.recheck(&step.cr).map(|usual| status::jitter(usual, step.cr.uid()));
        step.recheck = match (notes.requeue_after, usual) {
            (Some(requested), Some(usual)) => Some(requested.min(usual)),
            (requested, usual) => requested.or(usual),
        };
        step.facts = notes.facts.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ");
        step.wait = notes.wait;
        step.reason = notes.reason;
        result
    }
}

/// Returns a digest of the parts of the object itself that other clients may change.
pub fn external_digest(meta: &ObjectMeta) -> u64 {
    let ours = meta.annotations.iter().flatten().filter(|(name, _)| name.starts_with(meta::ANNOTATION_PREFIX));
    let mut digest = DefaultHasher::new();
    (meta.generation, &meta.labels, ours.collect::<Vec<_>>(), meta.deletion_timestamp.is_some()).hash(&mut digest);
    digest.finish()
}

/// Runs an action under its deadline and catches its panics.
async fn run_bounded<K: PhasedObject, D: Sync>(
    action: &dyn Action<K, D>,
    cx: &Context<D>,
    cr: Arc<K>,
) -> Result<Option<K>, ActionError> {
    let run = AssertUnwindSafe(action.handle(cx, cr)).catch_unwind();
    match tokio::time::timeout(action.deadline(), run).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => {
            let message = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            Err(ActionError::retry(reason::PANIC, format!("{} panicked: {message}; please report it", action.name())))
        }
        Err(_) => {
            let message = format!("{} took longer than {} s", action.name(), action.deadline().as_secs());
            Err(ApiError::Transient { message, after: None }.into())
        }
    }
}
