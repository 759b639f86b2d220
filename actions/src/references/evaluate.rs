//! Evaluates one reference, together with the references behind it.

use std::{collections::BTreeMap, sync::Arc};

use crds::{
    HasReferences, Model, RefKind, Reference, ReferencePhase, WorkloadPhase, WorkloadStatus, cycle::Node, digest,
    tool_server::AllowedNamespaces,
};
use meta::{Phase, PhasedObject, condition_type};
use serde::Serialize;
use serde_json::{Value, json};

use super::{inputs::Resolution, uncallable::Uncallable};
use crate::{
    allowed_namespaces::{admits, refusal},
    deps::Deps,
    discovery::{ChosenState, ToolState, chosen_state, tool_state, unmatched_words},
    ports::{CacheReader, Cached, CachedChild, ChildKind, ChildRef},
};

/// Usage of an object for which references of it count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usage {
    /// Secrets and ConfigMaps that are read when it is used.
    Data,
    /// Objects that are called when it is called.
    Calls,
}

/// Resolver of the references of the objects in one namespace.
#[derive(Clone, Copy)]
pub struct Resolver<'a> {
    pub(super) cache: &'a dyn CacheReader,
    pub(super) namespace: &'a str,
}

impl std::fmt::Debug for Resolver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Kind that other objects refer to. The file of each kind implements it; [`crds::for_each_kind`] finds it by the reference's kind.
pub(crate) trait Referable: PhasedObject + HasReferences {
    /// Evaluates a reference to an object of this kind.
    fn evaluate(query: &Query<'_>) -> Evaluation;

    /// Returns the references that count for this usage of the object.
    fn references_for(&self, _: Usage) -> Vec<Reference> {
        if Self::IS_TRANSITIVE { self.references() } else { Vec::new() }
    }

    /// Returns why no Pod can call it, if none can.
    fn uncallable(&self) -> Option<Uncallable> {
        None
    }
}

/// Finds the object of a reference by its kind.
macro_rules! by_kind {
    ($($kind:ident $module:ident $plural:literal $short:literal $role:ident $children:ident $($rank:literal)?;)+) => {
        /// Evaluates a reference by its kind.
        pub(super) fn evaluate(query: &Query<'_>) -> Evaluation {
            if let Some(found) = query.resolver.uncallable(query.reference) {
                return query.missing(found.what);
            }
            match query.reference.kind {
                $($(by_kind!(kind $kind $rank) => <crds::$module::$kind as Referable>::evaluate(query),)?)+
                RefKind::Secret | RefKind::ConfigMap => query.evaluate_data(),
            }
        }

        /// Returns the references that count for this usage of the named object; none where it is missing.
        pub(super) fn references_for(
            cache: &dyn CacheReader,
            (kind, namespace, name): (RefKind, &str, &str),
            usage: Usage,
        ) -> Vec<Reference> {
            let references = match kind {
                $($(by_kind!(kind $kind $rank) => {
                    cache.get::<crds::$module::$kind>(namespace, name).map(|found| found.references_for(usage))
                })?)+
                RefKind::Secret | RefKind::ConfigMap => None,
            };
            references.unwrap_or_default()
        }

        impl Resolver<'_> {
            /// Returns why no Pod can call the workload of the reference, if none can. Nothing is said of one that may not be used.
            pub(crate) fn uncallable(&self, reference: &Reference) -> Option<Uncallable> {
                let (namespace, name) = (reference.namespace.as_deref().unwrap_or(self.namespace), &reference.name);
                if !admits(self.cache, reference, self.namespace) {
                    return None;
                }
                match reference.kind {
                    $($(by_kind!(kind $kind $rank) => {
                        self.cache.get::<crds::$module::$kind>(namespace, name)?.uncallable()
                    })?)+
                    RefKind::Secret | RefKind::ConfigMap => None,
                }
            }
        }
    };
    (kind $kind:ident $rank:literal) => { RefKind::$kind };
}
crds::for_each_kind!(by_kind);

/// Result of the evaluation of a reference and of the references behind it.
#[derive(Debug, Default)]
pub(crate) struct Evaluation {
    /// Digest of what is used of it, if it can be used.
    digest: Option<String>,
    /// Problems that a user has to solve, as sentences.
    missing: Vec<String>,
    /// Pending references, as sentences.
    pending: Vec<String>,
}

impl Evaluation {
    /// Returns the result for a reference whose object can be used.
    pub(crate) fn resolved(digest: impl Into<String>) -> Self {
        Self { digest: Some(digest.into()), ..Self::default() }
    }

    /// Returns the resolution, with all problems in one sentence.
    pub(super) fn into_resolution(self) -> Resolution {
        let Self { digest, mut missing, pending } = self;
        match digest {
            Some(digest) => Resolution::Resolved(digest),
            None if missing.is_empty() => Resolution::Pending(pending.join("; ")),
            None => {
                missing.extend(pending);
                Resolution::Missing(missing.join("; "))
            }
        }
    }
}

/// Evaluation of one reference.
#[derive(Clone, Copy)]
pub(crate) struct Query<'a> {
    /// Resolver that reads the objects.
    pub(super) resolver: &'a Resolver<'a>,
    /// Reference to evaluate.
    pub(super) reference: &'a Reference,
    /// Kind and name of the object that refers to it, unless that is the object itself.
    pub(super) by: Option<(RefKind, &'a str)>,
    /// True if the object is on a dependency cycle, which is to be named only once.
    pub(super) on_cycle: bool,
}

impl Query<'_> {
    /// Returns the name in the reference.
    pub(crate) fn name(&self) -> &str {
        &self.reference.name
    }

    /// Reports whether the object itself has the reference, and not an object behind it.
    pub(crate) fn is_direct(&self) -> bool {
        self.by.is_none()
    }

    /// Returns the object of the reference.
    pub(crate) fn object<K>(&self) -> Option<Arc<K>>
    where
        for<'c> dyn CacheReader + 'c: Cached<K>,
    {
        self.named(self.reference.namespace.as_deref(), self.name())
    }

    /// Returns another object, from the resolver's namespace unless another one is given.
    pub(crate) fn named<K>(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>>
    where
        for<'c> dyn CacheReader + 'c: Cached<K>,
    {
        self.resolver.cache.get::<K>(namespace.unwrap_or(self.resolver.namespace), name)
    }

    /// Returns the result for an object of another namespace that does not admit the resolver's, if so.
    pub(crate) fn refusal(&self, allowed: Option<&AllowedNamespaces>) -> Option<Evaluation> {
        let Resolver { cache, namespace: from } = *self.resolver;
        let namespace = self.reference.namespace.as_deref().unwrap_or(from);
        refusal(cache, allowed, namespace, from).map(|what| self.missing(&what))
    }

    /// Returns `tool "weather" is Resolving (referenced by flow "f")`, from `is Resolving`.
    fn sentence(&self, what: &str) -> String {
        let by = self.by.map(|(kind, name)| format!(" (referenced by {} \"{name}\")", lowercase_kind(kind)));
        format!("{} {what}{}", self.subject(), by.unwrap_or_default())
    }

    /// Returns `tool "weather"`.
    fn subject(&self) -> String {
        let Reference { kind, namespace, name, .. } = self.reference;
        let namespace = namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        format!("{} \"{namespace}{name}\"", lowercase_kind(*kind))
    }

    pub(crate) fn missing(&self, what: &str) -> Evaluation {
        Evaluation { missing: vec![self.sentence(what)], ..Evaluation::default() }
    }

    fn pending(&self, what: &str) -> Evaluation {
        Evaluation { pending: vec![self.sentence(what)], ..Evaluation::default() }
    }

    /// Returns the result for a missing object. Without its CustomResourceDefinition it cannot be created.
    fn absent(&self) -> Evaluation {
        match self.resolver.cache.is_defined(self.reference.kind) {
            true => self.missing("not found"),
            false => self.missing("not found: its CustomResourceDefinition is missing, apply config/crd"),
        }
    }

    /// Returns the result for an object that depends on itself, if it does.
    pub(crate) fn on_own_cycle(&self) -> Option<Evaluation> {
        if self.on_cycle {
            return None;
        }
        let cycle = self.resolver.cycle(&Node::new(self.reference.kind, self.name()))?;
        Some(self.missing(&format!("waits for itself, {cycle}")))
    }

    /// Evaluates an object of a reference kind: it must be Available in its current generation, and so must be the references
    /// behind it. `used` returns the digest of what is used of the object.
    pub(crate) fn evaluate_reference<K: PhasedObject<Phase = ReferencePhase> + HasReferences>(
        &self,
        object: Option<Arc<K>>,
        used: impl FnOnce(&K) -> String,
    ) -> Evaluation {
        let Some(object) = object else { return self.absent() };
        let (behind, digests) = self.behind(&object.references());
        if !behind.missing.is_empty() {
            return behind;
        }
        let common = object.common();
        let current = common.and_then(|common| common.observed_generation) == Some(object.generation());
        match object.phase() {
            Some(ReferencePhase::Error) if current => {
                let ready = common.and_then(|common| common.condition(condition_type::READY));
                let why = ready.map_or("", |ready| &ready.message);
                self.missing(&format!("is in phase Error: {why}"))
            }
            _ if !behind.pending.is_empty() => behind,
            Some(ReferencePhase::Available) if current => match digests.is_empty() {
                true => Evaluation::resolved(used(object.as_ref())),
                false => {
                    Evaluation::resolved(digest::digest(&json!({ "own": used(object.as_ref()), "behind": digests })))
                }
            },
            phase => {
                let seen = phase.filter(|_| common.is_some_and(|common| common.written_phase().is_some()));
                let phase = seen.map_or("not yet seen by the operator", Phase::as_str);
                self.pending(&format!("is {phase}"))
            }
        }
    }

    /// Evaluates a Model that stands in for another one, by its PluginConfig alone: its own fallbacks are not followed, and its
    /// phase does not count, so that two Models can stand in for each other.
    pub(crate) fn evaluate_fallback(&self, model: Option<Arc<Model>>) -> Evaluation {
        let Some(model) = model else { return self.absent() };
        let (behind, digests) = self.behind(&without_fallbacks(model.references()));
        if !behind.missing.is_empty() || !behind.pending.is_empty() {
            return behind;
        }
        let own = used_digest(&model.spec, &["fallbackRefs", "price"]);
        Evaluation::resolved(digest::digest(&json!({ "own": own, "behind": digests })))
    }

    /// Reports whether the reference is to a Model that stands in for another one.
    pub(crate) fn is_fallback(&self) -> bool {
        self.reference.is_fallback()
    }

    /// Evaluates the references of this query's object: their problems, and the digest of each.
    fn behind(&self, references: &[Reference]) -> (Evaluation, BTreeMap<String, Option<String>>) {
        let mut behind = Evaluation::default();
        let mut digests = BTreeMap::new();
        for reference in references {
            let query = Query { reference, by: Some((self.reference.kind, self.name())), ..*self };
            let found = evaluate(&query);
            behind.missing.extend(found.missing);
            behind.pending.extend(found.pending);
            digests.insert(reference.to_string(), found.digest);
        }
        (behind, digests)
    }

    /// Evaluates a workload that is called. Pods of an older configuration serve as well, so its phase is only reported.
    pub(crate) fn evaluate_workload<K: PhasedObject>(
        &self,
        object: Option<Arc<K>>,
        status: impl FnOnce(&K) -> Option<&WorkloadStatus>,
    ) -> Evaluation {
        let Some(object) = object else { return self.absent() };
        let initial = WorkloadStatus::default();
        let WorkloadStatus { machine, endpoint, .. } = status(&object).unwrap_or(&initial);
        let available = machine.condition(condition_type::AVAILABLE).is_some_and(|found| found.status == "True");
        let phase = machine.written_phase().and_then(WorkloadPhase::parse);
        match (endpoint, phase) {
            (Some(endpoint), _) if available => Evaluation::resolved(endpoint),
            (_, Some(WorkloadPhase::Failed)) if machine.observed_generation == object.meta().generation => {
                let why = machine.condition(condition_type::READY).map_or("", |ready| ready.message.as_str());
                self.missing(&format!("is in phase Failed: {why}"))
            }
            (_, Some(phase)) => self.pending(&format!("is {phase}, not available")),
            (_, None) => self.pending("is not yet seen by the operator"),
        }
    }

    /// Evaluates a server, of which tools are used.
    pub(crate) fn evaluate_server(&self) -> Evaluation {
        let mut all = Evaluation::default();
        let mut digests = Vec::new();
        for tool in &self.reference.keys {
            match tool_state(self.resolver.cache, self.reference, self.resolver.namespace, tool) {
                ToolState::Known { digest, .. } => digests.push(digest),
                ToolState::Pending(what) => all.pending.push(self.sentence(&what)),
                ToolState::Missing(what) | ToolState::NoSuchTool(what) | ToolState::NotAccepted { what, .. } => {
                    all.missing.push(self.sentence(&what));
                }
            }
        }
        for choice in &self.reference.choices {
            match chosen_state(self.resolver.cache, self.reference, self.resolver.namespace, choice) {
                ChosenState::Known(digest) => digests.push(digest),
                ChosenState::Pending(what) => all.pending.push(self.sentence(&what)),
                ChosenState::Missing(what) => all.missing.push(self.sentence(&what)),
                ChosenState::NoneChosen if choice.include.is_empty() => {
                    all.missing.push(format!("every tool of {} is in exclude", self.subject()));
                }
                ChosenState::NoneChosen => all.missing.push(format!("no tool of {} is in include", self.subject())),
                ChosenState::Unmatched(names) => all.missing.push(unmatched_words(&self.subject(), &names)),
            }
        }
        // Several choices of one server wait for the same.
        all.missing.dedup();
        all.pending.dedup();
        all.digest = (all.missing.is_empty() && all.pending.is_empty()).then(|| digest::digest(&json!(digests)));
        all
    }

    /// Evaluates a Secret or ConfigMap: it must have the keys that are read.
    fn evaluate_data(&self) -> Evaluation {
        let Some(data) = self.resolver.data_of(self.reference) else {
            return if self.reference.optional { Evaluation::resolved("absent") } else { self.missing("not found") };
        };
        let missing = self.reference.keys.iter().filter(|key| !data.data.contains_key(*key));
        let missing: Vec<_> = missing.map(|key| self.sentence(&format!("has no key \"{key}\""))).collect();
        match missing.is_empty() {
            true => Evaluation::resolved(data_digest(self.reference, &data)),
            false => Evaluation { missing, ..Evaluation::default() },
        }
    }
}

impl<'a> Resolver<'a> {
    /// Creates a resolver for the objects of this namespace.
    pub fn new(deps: &'a Deps, namespace: &'a str) -> Self {
        Self { cache: deps.cache.as_ref(), namespace }
    }

    /// Returns the Secret or ConfigMap of a reference.
    pub(super) fn data_of(&self, reference: &Reference) -> Option<Arc<CachedChild>> {
        let kind = if reference.kind == RefKind::Secret { ChildKind::Secret } else { ChildKind::ConfigMap };
        let (namespace, name) = (self.namespace.to_owned(), reference.name.clone());
        self.cache.child(&ChildRef { kind, namespace, name })
    }
}

/// Leaves out the Models that stand in for the one with these references.
pub(super) fn without_fallbacks(mut references: Vec<Reference>) -> Vec<Reference> {
    references.retain(|reference| !reference.is_fallback());
    references
}

/// Returns the digest of the keys that are read of a Secret or ConfigMap.
pub(super) fn data_digest(reference: &Reference, data: &CachedChild) -> String {
    let read = |key: &String| reference.whole || reference.keys.contains(key);
    let read: BTreeMap<_, _> = data.data.iter().filter(|(key, _)| read(key)).collect();
    digest::digest(&json!(read))
}

/// Returns the digest of a spec, without the fields by which users sort, so that an edit of those replaces no Pod.
///
/// It is pinned in the statuses, so every build must compute the same digest of the same spec, or an upgrade would make all of
/// them outdated. An added field must not be serialized if it has its default (`skip_serializing_if`); a test checks that.
pub(crate) fn used_digest(spec: &impl Serialize, without: &[&str]) -> String {
    let mut spec = serde_json::to_value(spec).unwrap_or(Value::Null);
    if let Some(fields) = spec.as_object_mut() {
        without.iter().for_each(|name| drop(fields.remove(*name)));
    }
    digest::digest(&spec)
}

fn lowercase_kind(kind: RefKind) -> String {
    kind.as_str().to_lowercase()
}
