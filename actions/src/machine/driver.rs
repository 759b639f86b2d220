//! The driver: one step of one object, for any kind.
//!
//! newest object → rules → first matching action → run under its deadline, panics caught → check the edge → one write
//! → sinks. A step that changes nothing sends nothing. Whatever is remembered between steps (how long a wait has lasted,
//! how often the API server was away) only delays; losing it in a restart changes no decision.

use std::{
    collections::HashMap,
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crds::{Phase, Standing};
use futures::FutureExt;

use super::{
    Action, ActionError, ApiError, By, Clock, Context, Key, Machine, Notes, Objects, Registry, Rule, Sink, StepOutcome,
    StepRecord, Wait,
    patch::{metadata_patch, status_patch},
    sinks::Announcement,
    step::{self, Decision, Failed},
};

/// When to look at an object again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// At once: it moved.
    Again,
    /// After this long, unless something wakes it before.
    After(Duration),
    /// When something wakes it.
    Idle,
}

/// Takes the objects of one kind through their life.
pub struct Driver<K: Machine> {
    registry: Registry<K>,
    world: Arc<K::World>,
    objects: Arc<dyn Objects<K>>,
    clock: Arc<dyn Clock>,
    sinks: Vec<Arc<dyn Sink>>,
    memory: Mutex<HashMap<Key, Memory>>,
}

/// What the driver remembers of an object between steps.
#[derive(Debug, Clone, Default, PartialEq)]
struct Memory {
    uid: String,
    /// Reason and message of the wait, and since when it lasts.
    wait: Option<(String, Duration)>,
    /// Failed requests in a row.
    refusals: i32,
}

/// What was picked to decide this step, and what it decided.
struct Picked<K: Machine> {
    by: By,
    passed_over: Vec<&'static str>,
    recheck: Option<Duration>,
    result: Result<Option<K>, ActionError>,
    wait: Option<Wait>,
    because: Option<String>,
    facts: String,
}

impl<K: Machine> fmt::Debug for Driver<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("kind", &K::KIND).field("actions", &self.registry).finish_non_exhaustive()
    }
}

impl<K: Machine> Driver<K> {
    /// A driver over these actions and ports.
    pub fn new(
        registry: Registry<K>,
        world: Arc<K::World>,
        objects: Arc<dyn Objects<K>>,
        clock: Arc<dyn Clock>,
        sinks: Vec<Arc<dyn Sink>>,
    ) -> Self {
        Self { registry, world, objects, clock, sinks, memory: Mutex::default() }
    }

    /// Takes one step of one object.
    pub async fn step(&self, key: &Key) -> Next {
        let Some(cr) = self.objects.newest(key) else {
            self.memory().remove(key);
            return Next::Idle;
        };
        if cr.is_deleting() && !cr.has_finalizer() {
            return Next::Idle;
        }
        let started = self.clock.elapsed();
        let picked = match self.rule(&cr) {
            Some((rule, next)) => Picked {
                by: By::Rule(rule),
                passed_over: Vec::new(),
                recheck: None,
                result: Ok(Some(next)),
                wait: None,
                because: None,
                facts: String::new(),
            },
            None => self.run(&cr).await,
        };
        self.conclude(key, &cr, picked, started).await
    }

    /// What the driver itself decides, before any action is asked.
    fn rule(&self, cr: &Arc<K>) -> Option<(Rule, K)> {
        let phase = cr.phase();
        if cr.is_deleting() {
            let terminating = K::Phase::TERMINATING?;
            return (phase != Some(terminating)).then(|| (Rule::Delete, cr.moved_to(terminating)));
        }
        if phase.is_none() {
            let mut next = admitted(cr.as_ref());
            if let Some(ours) = K::FINALIZER.filter(|_| !cr.has_finalizer()) {
                next.meta_mut().finalizers.get_or_insert_default().push(ours.to_owned());
            }
            return Some((Rule::Admit, next));
        }
        let machine = cr.machine()?;
        let moved = machine.observed_generation != Some(cr.generation());
        let older = machine.render_version.is_none_or(|version| version < K::RENDER_VERSION);
        let changed = older || (moved && machine.spec_digest.as_deref() != Some(cr.spec_digest().as_str()));
        changed.then(|| {
            let mut next = admitted(cr.as_ref());
            next.machine_mut().failure = None;
            (Rule::SpecChanged, next)
        })
    }

    /// Runs the first action that takes the object.
    async fn run(&self, cr: &Arc<K>) -> Picked<K> {
        let (action, passed_over) = self.registry.pick(cr);
        let Some(action) = action else {
            let phase = cr.raw_phase().unwrap_or_default();
            let wait = Wait {
                reason: "Unhandled",
                message: format!("no action handles this object in phase {phase}"),
                missing: true,
                patience: Duration::ZERO,
            };
            return Picked {
                by: By::Action(""),
                passed_over,
                recheck: None,
                result: Ok(None),
                wait: Some(wait),
                because: None,
                facts: String::new(),
            };
        };
        let cx = Context { world: self.world.clone(), clock: self.clock.clone(), notes: Notes::default() };
        let result = bounded(action.as_ref(), &cx, cr.clone()).await;
        let said = cx.notes.take();
        let recheck = match (said.look_again, action.recheck(cr)) {
            (Some(said), Some(usual)) => Some(said.min(usual)),
            (said, usual) => said.or(usual),
        };
        let facts = said.facts.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ");
        Picked {
            by: By::Action(action.name()),
            passed_over,
            recheck,
            result,
            wait: said.wait,
            because: said.because,
            facts,
        }
    }

    /// Checks what was decided, writes it, tells the sinks and says when to look again.
    async fn conclude(&self, key: &Key, cr: &Arc<K>, mut picked: Picked<K>, started: Duration) -> Next {
        let from = cr.phase();
        let took = self.clock.elapsed().saturating_sub(started);
        let mut retry_at = None;
        let mut failure = None;
        let mut next = None;
        let mut outcome = StepOutcome::Idle;
        match std::mem::replace(&mut picked.result, Ok(None)) {
            Ok(Some(changed)) => match self.illegal(cr, &changed, picked.by) {
                None => {
                    outcome = if changed.phase() == from { StepOutcome::Acted } else { StepOutcome::Moved };
                    next = Some(changed);
                }
                Some(defect) => failure = Some(defect),
            },
            Ok(None) => {}
            Err(ActionError::Retry { reason, message, after }) => {
                failure = Some(Failed { reason, message, retryable: true, after });
            }
            Err(ActionError::Terminal { reason, message }) => {
                let retryable = !K::NOT_BY_TIME.contains(&reason);
                return self.fail(key, cr, picked, Failed { reason, message, retryable, after: None }, started).await;
            }
            Err(ActionError::Api(error)) => match sorted(error) {
                Sorted::Later { wait, after, most } => {
                    let refusals = self.refused(key, cr);
                    retry_at = Some(after.unwrap_or_else(|| step::backoff(refusals, cr.uid(), most) / 2));
                    picked.wait = Some(wait);
                    outcome = StepOutcome::Retry;
                }
                Sorted::Now => {
                    return self.told(cr, &picked, StepOutcome::Stale, took, Next::After(self.stale(key, cr)));
                }
                Sorted::Terminal { reason, message } => {
                    let retryable = !K::NOT_BY_TIME.contains(&reason);
                    let failed = Failed { reason, message, retryable, after: None };
                    return self.fail(key, cr, picked, failed, started).await;
                }
            },
        }
        if let Some(failed) = failure {
            let attempts = cr.machine().and_then(|machine| machine.failure.as_ref()).map_or(0, |old| old.attempts) + 1;
            if attempts >= step::ATTEMPTS && from != Some(K::Phase::FAILED) {
                return self.fail(key, cr, picked, failed, started).await;
            }
            let decision = Decision {
                next: cr.as_ref().clone(),
                by: picked.by.as_str(),
                reason: failed.message.clone(),
                wait: None,
                failure: Some(failed),
            };
            let done = step::complete(cr.as_ref(), decision, self.clock.now(), took);
            return self.write(key, cr, done, &picked, StepOutcome::Retry, took).await;
        }
        if retry_at.is_none() {
            self.memory().entry(key.clone()).or_default().refusals = 0;
        }
        if next.is_none() && picked.wait.is_some() && outcome == StepOutcome::Idle {
            outcome = StepOutcome::Waiting;
        }
        let quiet = match (&next, &picked.wait) {
            (None, Some(wait)) => self.patience_left(key, cr, wait),
            _ => {
                self.forget_wait(key);
                Duration::ZERO
            }
        };
        let recheck = retry_at.or_else(|| self.look_again(cr, &picked));
        let moved = cr.machine().and_then(|machine| machine.observed_generation) != Some(cr.generation());
        if !quiet.is_zero() && !moved {
            let until = recheck.map_or(quiet, |recheck| recheck.min(quiet));
            return self.told(cr, &picked, outcome, took, Next::After(until));
        }
        let decision = Decision {
            reason: self.reason(cr, next.as_ref(), &picked),
            next: next.unwrap_or_else(|| cr.as_ref().clone()),
            by: picked.by.as_str(),
            wait: picked.wait.clone(),
            failure: None,
        };
        let done = step::complete(cr.as_ref(), decision, self.clock.now(), took);
        match self.write(key, cr, done, &picked, outcome, took).await {
            Next::Idle => recheck.map_or(Next::Idle, Next::After),
            other => other,
        }
    }

    /// The rule Fail: to the failed phase if an edge allows it, else a retry where it stands.
    async fn fail(&self, key: &Key, cr: &Arc<K>, picked: Picked<K>, failed: Failed, started: Duration) -> Next {
        let took = self.clock.elapsed().saturating_sub(started);
        let allowed = K::EDGES.iter().any(|edge| {
            edge.allows(cr.phase(), K::Phase::FAILED, By::Rule(Rule::Fail))
                || edge.allows(cr.phase(), K::Phase::FAILED, picked.by)
        });
        let next = if allowed { cr.moved_to(K::Phase::FAILED) } else { cr.as_ref().clone() };
        let outcome = if allowed { StepOutcome::Failed } else { StepOutcome::Retry };
        let decision = Decision {
            next,
            by: picked.by.as_str(),
            reason: failed.message.clone(),
            wait: None,
            failure: Some(failed),
        };
        let done = step::complete(cr.as_ref(), decision, self.clock.now(), took);
        self.write(key, cr, done, &picked, outcome, took).await
    }

    /// What is wrong with what an action returned, if anything.
    fn illegal(&self, cr: &K, next: &K, by: By) -> Option<Failed> {
        let defect = |reason, message: String| Some(Failed { reason, message, retryable: true, after: None });
        if !cr.same_spec(next) {
            return defect(
                "SpecChangedByAction",
                format!("{by} changed the spec, which is the user's; please report it"),
            );
        }
        let Some(to) = next.phase() else {
            return defect("IllegalEdge", format!("{by} returned an object without a phase; please report it"));
        };
        let same = cr.phase() == Some(to);
        if same || K::EDGES.iter().any(|edge| edge.allows(cr.phase(), to, by)) {
            return None;
        }
        let from = cr.raw_phase().unwrap_or("nothing");
        defect("IllegalEdge", format!("{by} may not move from {from} to {to}; please report it"))
    }

    /// Sends what differs, metadata first, and tells the sinks.
    async fn write(
        &self,
        key: &Key,
        cr: &Arc<K>,
        done: K,
        picked: &Picked<K>,
        outcome: StepOutcome,
        took: Duration,
    ) -> Next {
        let mut record = self.describe(cr, picked, outcome, took);
        match self.send(key, cr, &done).await {
            Ok(Sent::Nothing) => {
                self.tell(&record);
                if done.phase() == cr.phase() { Next::Idle } else { Next::Again }
            }
            Ok(Sent::Gone) => {
                record.to = "gone".to_owned();
                self.tell(&record);
                Next::Idle
            }
            Ok(Sent::Written(answer)) => {
                record.rv_after = answer.meta().resource_version.clone().unwrap_or_default();
                record.to = done.raw_phase().unwrap_or_default().to_owned();
                if let Some(entry) = done.machine().and_then(|machine| machine.history.last()) {
                    record.seq = entry.seq;
                    record.trace_id = entry.trace_id.clone();
                }
                record.announce = announcement(cr.as_ref(), &done, picked.wait.as_ref());
                self.tell(&record);
                let stays = done.phase() == cr.phase() && matches!(picked.by, By::Action(_));
                if stays { self.rest(&done) } else { Next::Again }
            }
            Err(ApiError::Stale | ApiError::WrongUid(_)) => {
                record.outcome = StepOutcome::Stale;
                self.tell(&record);
                Next::After(self.stale(key, cr))
            }
            Err(ApiError::NotFound) => Next::Idle,
            Err(error) => {
                let defect = matches!(error, ApiError::Invalid(_) | ApiError::SelectorImmutable(_));
                record.outcome = if defect { StepOutcome::Defect } else { StepOutcome::Retry };
                record.reason = format!("the status could not be written: {error}");
                self.tell(&record);
                let most = if defect { step::LONGEST_BACKOFF } else { Duration::from_secs(5) };
                let after = if let ApiError::Transient { after, .. } = error { after } else { None };
                let refusals = self.refused(key, cr);
                Next::After(after.unwrap_or_else(|| step::backoff(refusals, cr.uid(), most) / 2))
            }
        }
    }

    async fn send(&self, key: &Key, cr: &Arc<K>, done: &K) -> Result<Sent<K>, ApiError> {
        let mut answer = None;
        if let Some(patch) = metadata_patch(cr.meta(), done.meta()) {
            match self.objects.patch_metadata(key, patch).await? {
                Some(stored) if !stored.is_deleting() || stored.has_finalizer() => answer = Some(stored),
                // After the last finalizer is gone no status is written.
                _ => return Ok(Sent::Gone),
            }
        }
        if let Some(patch) = status_patch(cr.meta(), &cr.status_json(), &done.status_json()) {
            answer = Some(self.objects.patch_status(key, patch).await?);
        }
        Ok(answer.map_or(Sent::Nothing, Sent::Written))
    }

    /// When an object that stays in its phase is looked at again of itself.
    fn rest(&self, cr: &K) -> Next {
        match self.due(cr) {
            Some(after) => Next::After(after),
            None => Next::Idle,
        }
    }

    /// Until the next attempt of a failure, or until old attempts are forgotten.
    fn due(&self, cr: &K) -> Option<Duration> {
        let phase = cr.phase()?;
        let failure = cr.machine()?.failure.as_ref()?;
        let at = match step::settled_since(cr, phase) {
            Some(since) => since.checked_add(step::FORGIVEN_AFTER).ok()?,
            None if phase.standing() == Standing::Settled => return None,
            None => failure.next_attempt_at.as_ref()?.0,
        };
        let left = at.duration_since(self.clock.now());
        Some(Duration::try_from(left).unwrap_or_default().max(Duration::from_millis(100)))
    }

    fn look_again(&self, cr: &K, picked: &Picked<K>) -> Option<Duration> {
        match (self.due(cr), picked.recheck) {
            (Some(due), Some(recheck)) => Some(due.min(recheck)),
            (due, recheck) => due.or(recheck),
        }
    }

    fn reason(&self, cr: &K, next: Option<&K>, picked: &Picked<K>) -> String {
        if let Some(because) = &picked.because {
            return because.clone();
        }
        let edge = next
            .and_then(Machine::phase)
            .filter(|to| Some(*to) != cr.phase())
            .and_then(|to| K::EDGES.iter().find(|edge| edge.allows(cr.phase(), to, picked.by)));
        match (edge, &picked.wait) {
            (Some(edge), _) => edge.why.to_owned(),
            (None, Some(wait)) => wait.message.clone(),
            (None, None) => String::new(),
        }
    }

    /// How long the wait is still to be kept quiet; remembers since when it lasts.
    fn patience_left(&self, key: &Key, cr: &K, wait: &Wait) -> Duration {
        let now = self.clock.elapsed();
        let mut memory = self.memory();
        let known = memory.entry(key.clone()).or_default();
        if known.uid != cr.uid() {
            *known = Memory { uid: cr.uid().to_owned(), ..Memory::default() };
        }
        // The same wait may change its words (one of three tools came) without starting anew.
        let phase = cr.raw_phase().unwrap_or_default();
        let since = match &known.wait {
            Some((waited, since)) if waited == phase => *since,
            _ => {
                known.wait = Some((phase.to_owned(), now));
                now
            }
        };
        if wait.missing { Duration::ZERO } else { wait.patience.saturating_sub(now.saturating_sub(since)) }
    }

    fn forget_wait(&self, key: &Key) {
        if let Some(known) = self.memory().get_mut(key) {
            known.wait = None;
        }
    }

    fn refused(&self, key: &Key, cr: &K) -> i32 {
        let mut memory = self.memory();
        let known = memory.entry(key.clone()).or_default();
        known.uid = cr.uid().to_owned();
        known.refusals = known.refusals.saturating_add(1);
        known.refusals
    }

    /// How long to give the watch to bring the newer object.
    fn stale(&self, key: &Key, cr: &K) -> Duration {
        Duration::from_millis(20) * u32::try_from(self.refused(key, cr).clamp(1, 50)).unwrap_or(1)
    }

    fn told(&self, cr: &K, picked: &Picked<K>, outcome: StepOutcome, took: Duration, next: Next) -> Next {
        self.tell(&self.describe(cr, picked, outcome, took));
        next
    }

    fn describe(&self, cr: &K, picked: &Picked<K>, outcome: StepOutcome, took: Duration) -> StepRecord {
        let meta = cr.meta();
        let machine = cr.machine();
        let phase = cr.raw_phase().unwrap_or_default().to_owned();
        StepRecord {
            kind: K::KIND,
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: cr.uid().to_owned(),
            generation: cr.generation(),
            seq: machine.and_then(|machine| machine.history.last()).map_or(0, |entry| entry.seq),
            action: picked.by.as_str(),
            from: phase.clone(),
            to: phase,
            outcome,
            reason: picked.because.clone().unwrap_or_default(),
            waiting_for: picked.wait.as_ref().map(|wait| wait.message.clone()).unwrap_or_default(),
            passed_over: picked.passed_over.clone(),
            notes: picked.facts.clone(),
            took,
            rv_before: meta.resource_version.clone().unwrap_or_default(),
            rv_after: String::new(),
            digest: machine.and_then(|machine| machine.spec_digest.clone()).unwrap_or_default(),
            content_hash: K::content_hash(cr).unwrap_or_default().to_owned(),
            trace_id: String::new(),
            announce: None,
        }
    }

    fn tell(&self, record: &StepRecord) {
        for sink in &self.sinks {
            sink.record(record);
        }
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a write.
enum Sent<K> {
    Nothing,
    Written(Arc<K>),
    Gone,
}

/// A failed request, by what follows from it.
enum Sorted {
    /// A wait; never counted.
    Later { wait: Wait, after: Option<Duration>, most: Duration },
    /// The step was based on something that is no longer so.
    Now,
    /// The API server will never take it.
    Terminal { reason: &'static str, message: String },
}

fn sorted(error: ApiError) -> Sorted {
    let short = Duration::from_secs(5);
    let later = |reason, message, missing, patience, after, most| Sorted::Later {
        wait: Wait { reason, message, missing, patience },
        after,
        most,
    };
    match error {
        ApiError::Transient { message, after } => {
            later("ApiServerUnavailable", message, false, Duration::from_secs(2), after, short)
        }
        ApiError::NamespaceTerminating => {
            let message = "the namespace is being deleted".to_owned();
            later("NamespaceTerminating", message, false, Duration::from_secs(2), None, Duration::from_secs(60))
        }
        ApiError::Forbidden(message) => {
            later("Forbidden", message, true, Duration::ZERO, None, Duration::from_secs(10))
        }
        ApiError::WrongUid(_) | ApiError::Stale | ApiError::NotFound => Sorted::Now,
        ApiError::SelectorImmutable(message) => Sorted::Terminal { reason: "SelectorImmutable", message },
        ApiError::Invalid(message) => Sorted::Terminal { reason: "InvalidSpec", message },
    }
}

/// The object as it is admitted: Pending, with what is pinned at that moment.
fn admitted<K: Machine>(cr: &K) -> K {
    let mut next = cr.moved_to(K::Phase::FIRST);
    let digest = cr.spec_digest();
    let machine = next.machine_mut();
    machine.spec_digest = Some(digest);
    machine.render_version = Some(K::RENDER_VERSION);
    next
}

/// Runs an action under its deadline, with panics caught.
async fn bounded<K: Machine>(action: &dyn Action<K>, cx: &Context<K>, cr: Arc<K>) -> Result<Option<K>, ActionError> {
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

/// What a person wants to be told about a write.
fn announcement<K: Machine>(before: &K, after: &K, wait: Option<&Wait>) -> Option<Announcement> {
    let to = after.phase()?;
    let moved = before.phase() != Some(to);
    let failure = |cr: &K| cr.machine().is_some_and(|machine| machine.failure.is_some());
    let ready = after.machine()?.conditions.iter().find(|found| found.type_ == "Ready")?;
    let say = |warning, reason: &str, message: &str| {
        Some(Announcement { warning, reason: reason.to_owned(), message: message.to_owned() })
    };
    match to.standing() {
        Standing::Failed if moved => say(true, &ready.reason, &ready.message),
        Standing::Settled if moved && failure(after) => say(false, "Recovered", "works again"),
        Standing::Settled if moved && K::FINALIZER.is_some() => say(false, to.as_str(), "ready"),
        Standing::Stopped if moved => say(false, to.as_str(), &ready.message),
        Standing::Progressing => {
            let wait = wait.filter(|wait| wait.missing)?;
            let known =
                before.machine()?.conditions.iter().any(|old| old.type_ == "Ready" && old.reason == wait.reason);
            if known { None } else { say(true, wait.reason, &wait.message) }
        }
        _ => None,
    }
}
