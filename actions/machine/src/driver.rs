//! The driver: one step of one object, for any kind.
//!
//! newest object → rules → first matching action → run under its deadline, panics caught → check the edge → one write
//! → sinks. A step that changes nothing sends nothing. Whatever is remembered between steps (how long a wait has lasted,
//! how often the API server was away) only delays; losing it in a restart changes no decision.

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
use meta::{Key, Phase, PhasedObject};

use super::{
    Action, ActionError, ApiError, Clock, Context, EdgeOwner, ObjectClient, Registry, Rule, Sink, StepNotes, Table,
    Wait,
    dropped_fields::DroppedFields,
    retry_state::{ObjectRetryState, RetryState},
    status,
};

/// When to look at an object again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// At once: it moved.
    Now,
    /// After this long, unless something wakes it before.
    After(Duration),
    /// When something wakes it.
    OnChange,
}

/// For so long one operator may write on while another one takes over, and clocks may differ.
const HANDOVER: SignedDuration = SignedDuration::from_secs(30);

/// How soon an object is looked at again whose step would read what is not known.
const UNREADABLE_RECHECK: Duration = Duration::from_secs(10);

/// Takes the objects of one kind through their life.
pub struct Driver<K: PhasedObject, D> {
    pub(super) registry: Registry<K, D>,
    pub(super) deps: Arc<D>,
    pub(super) objects: Arc<dyn ObjectClient<K>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) sinks: Vec<Arc<dyn Sink>>,
    pub(super) retry_state: Arc<RetryState>,
    /// This operator, as namespace and name of its lease; `None`: it is alone for sure.
    pub(super) instance: Option<String>,
    /// When this operator began to lead: another one that wrote later is at work too.
    leading_since: Mutex<Timestamp>,
    /// What the API server does not keep of statuses.
    pub(super) dropped: DroppedFields,
}

/// One step: the object it is based on, who was picked to decide, and what came of it.
pub(super) struct StepDecision<'a, K: PhasedObject> {
    pub(super) key: &'a Key,
    pub(super) cr: Arc<K>,
    pub(super) owner: EdgeOwner,
    pub(super) passed_over: Vec<&'static str>,
    /// What the action returned; taken out by the conclusion.
    pub(super) result: Result<Option<K>, ActionError>,
    /// What the action said.
    pub(super) wait: Option<Wait>,
    pub(super) reason: Option<String>,
    pub(super) facts: String,
    /// When the action wants to look again although nothing happened.
    pub(super) recheck: Option<Duration>,
    /// Whether it moves once too often without a cause.
    pub(super) backed_off: bool,
    pub(super) took: Duration,
}

impl<'a, K: PhasedObject> StepDecision<'a, K> {
    /// A step for which no action was picked yet, and that changes nothing.
    fn new(key: &'a Key, cr: Arc<K>) -> Self {
        Self {
            key,
            cr,
            owner: EdgeOwner::Action(""),
            passed_over: Vec::new(),
            result: Ok(None),
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
    /// A driver over these actions and ports.
    pub fn new(
        registry: Registry<K, D>,
        world: Arc<D>,
        objects: Arc<dyn ObjectClient<K>>,
        clock: Arc<dyn Clock>,
        sinks: Vec<Arc<dyn Sink>>,
    ) -> Self {
        let began = Mutex::new(clock.now());
        Self {
            leading_since: began,
            registry,
            deps: world,
            objects,
            clock,
            sinks,
            retry_state: Arc::default(),
            instance: None,
            dropped: DroppedFields::default(),
        }
    }

    /// Names this operator by its lease, `namespace/name`: what another one wrote last is left alone for a while.
    pub fn set_instance(&mut self, instance: impl Into<String>) {
        self.instance = Some(instance.into());
    }

    pub(super) fn table(&self) -> &Table<K::Phase> {
        &self.registry.table
    }

    /// A digest of what others may change that the object depends on.
    pub(super) fn dependency_digest(&self, cr: &K) -> u64 {
        (self.registry.dependency_digest)(cr, &self.deps)
    }

    /// Begins to lead. Until then others may have written with good reason.
    pub fn start_leading(&self) {
        *self.leading_since.lock().unwrap_or_else(PoisonError::into_inner) = self.clock.now();
        self.retry_state.unconfirm_all();
    }

    /// Takes one step of one object.
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
        let mut step = StepDecision::new(key, cr);
        let started = self.clock.elapsed();
        match self.rule(&step.cr) {
            Some((rule, next)) => {
                step.owner = EdgeOwner::Rule(rule);
                step.result = Ok(Some(next));
            }
            None => self.run(&mut step).await,
        }
        step.took = self.clock.elapsed().saturating_sub(started);
        self.conclude(step).await
    }

    /// The other operator that wrote the object last, the last entry of the history, and whether that is newer than this operator.
    fn other_writer<'a>(&self, cr: &'a K) -> Option<(&'a str, i64, bool)> {
        let machine = cr.common()?;
        let other = machine.managed_by.as_deref()?;
        let began = *self.leading_since.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = |at: Timestamp| at.duration_since(began) > HANDOVER;
        let (seq, alive) = machine.history.last().map_or((0, false), |entry| (entry.seq, alive(entry.at.0)));
        self.instance.as_deref().is_some_and(|ours| ours != other).then_some((other, seq, alive))
    }

    /// Takes no step of an object, because a step would read what is not known: says so where the object waits for one. What is at
    /// rest is left as it is, without a write.
    pub async fn report_unreadable(&self, key: &Key, error: ApiError) -> Requeue {
        let Some(cr) = self.objects.newest(key) else { return Requeue::OnChange };
        if let Some(left) = self.retry_state.delay_left(key, cr.uid(), cr.version(), self.clock.elapsed()) {
            return Requeue::After(left);
        }
        let current = cr.common().and_then(|machine| machine.observed_generation) == Some(cr.generation());
        if cr.is_deleting() || (current && cr.phase().is_some_and(K::Phase::is_settled)) {
            return Requeue::After(UNREADABLE_RECHECK);
        }
        self.conclude(StepDecision { result: Err(error.into()), ..StepDecision::new(key, cr) }).await
    }

    /// What the driver itself decides, before any action is asked.
    fn rule(&self, cr: &Arc<K>) -> Option<(Rule, K)> {
        let phase = cr.phase();
        if cr.is_deleting() {
            let terminating = K::Phase::TERMINATING?;
            return (phase != Some(terminating)).then(|| (Rule::Delete, cr.moved_to(terminating)));
        }
        // A status that says Terminating of an object that nobody deletes was copied or edited: it says nothing.
        if phase.is_none() || phase == K::Phase::TERMINATING {
            return Some((Rule::Admit, self.admitted(cr.as_ref())));
        }
        let machine = cr.common()?;
        // The API server has admitted it: the first write pins what, and says so.
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

    /// The object as it is admitted: Pending, with what is pinned at that moment.
    fn admitted(&self, cr: &K) -> K {
        let mut next = cr.moved_to(K::Phase::FIRST);
        status::pin_spec(&mut next, self.table());
        next
    }

    /// Runs the first action that takes the object.
    async fn run(&self, step: &mut StepDecision<'_, K>) {
        let (action, passed_over) = self.registry.pick(&step.cr);
        step.passed_over = passed_over;
        let Some(action) = action else {
            let phase = step.cr.raw_phase().unwrap_or_default();
            let message = format!("no action handles this object in phase {phase}");
            step.wait = Some(Wait { needs_user: true, ..Wait::new("Unhandled", message, Duration::ZERO) });
            return;
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
        step.result = run_bounded(action, &cx, step.cr.clone()).await;
        let said = cx.notes.take();
        let usual = action.recheck(&step.cr).map(|usual| status::jitter(usual, step.cr.uid()));
        step.recheck = match (said.requeue_after, usual) {
            (Some(said), Some(usual)) => Some(said.min(usual)),
            (said, usual) => said.or(usual),
        };
        step.facts = said.facts.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ");
        step.wait = said.wait;
        step.reason = said.reason;
    }
}

/// A digest of what others may change of the object itself.
pub fn external_digest(meta: &ObjectMeta) -> u64 {
    let ours = meta.annotations.iter().flatten().filter(|(name, _)| name.starts_with(meta::ANNOTATION_PREFIX));
    let mut digest = DefaultHasher::new();
    (meta.generation, &meta.labels, ours.collect::<Vec<_>>(), meta.deletion_timestamp.is_some()).hash(&mut digest);
    digest.finish()
}

/// Runs an action under its deadline, with panics caught.
async fn run_bounded<K: PhasedObject, D: Sync>(
    action: &dyn Action<K, D>,
    cx: &Context<D>,
    cr: Arc<K>,
) -> Result<Option<K>, ActionError> {
    let run = AssertUnwindSafe(action.handle(cx, cr)).catch_unwind();
    match tokio::time::timeout(action.deadline(), run).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => {
            let said = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            Err(ActionError::retry("Panic", format!("{} panicked: {said}; please report it", action.name())))
        }
        Err(_) => {
            let message = format!("{} took longer than {} s", action.name(), action.deadline().as_secs());
            Err(ApiError::Transient { message, after: None }.into())
        }
    }
}
