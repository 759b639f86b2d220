//! Trait of the objects that a state machine drives: [`PhasedObject`].

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::{CommonStatus, Key, Phase};

/// Object with a phase, which a state machine takes through its life cycle. Generic code reads and changes it through
/// this trait.
pub trait PhasedObject: Clone + fmt::Debug + Send + Sync + 'static {
    /// Phases of its life cycle.
    type Phase: Phase;

    /// Name of the kind, such as `Agent`.
    const KIND: &'static str;
    /// Name of its CustomResourceDefinition, such as `agents.agents.recif.dev`.
    const CRD: &'static str;
    /// Finalizer that its objects get before they have children to drain.
    const FINALIZER: Option<&'static str>;

    /// Returns the metadata.
    fn meta(&self) -> &ObjectMeta;
    /// Returns the metadata for an action that changes labels, annotations or finalizers.
    fn meta_mut(&mut self) -> &mut ObjectMeta;
    /// Returns the common part of the status; `None` without a status.
    fn common(&self) -> Option<&CommonStatus>;
    /// Returns the common part of the status for changes; creates it if it is missing.
    fn common_mut(&mut self) -> &mut CommonStatus;
    /// Returns the whole status as JSON; `Null` without a status.
    fn status_json(&self) -> Value;
    /// Returns the SHA-256 (hex) of the spec, without the fields that only change the number of replicas.
    fn spec_digest(&self) -> String;
    /// Reports whether both have the same spec.
    fn same_spec(&self, other: &Self) -> bool;

    /// Returns digests of what the object publishes to its referrers, besides its spec and its availability.
    fn published_digests(&self) -> Vec<Option<&str>> {
        Vec::new()
    }
    /// Returns the SHA-256 (hex) of the rendered configuration, for the trace.
    fn content_hash(&self) -> Option<&str> {
        None
    }
    /// Returns the phase, if this version knows it.
    fn phase(&self) -> Option<Self::Phase> {
        Self::Phase::parse(self.raw_phase()?)
    }
    /// Returns the phase as stored.
    fn raw_phase(&self) -> Option<&str> {
        self.common()?.phase.as_deref()
    }
    /// Moves the object to another phase.
    fn set_phase(&mut self, phase: Self::Phase) {
        self.common_mut().phase = Some(phase.as_str().to_owned());
    }
    /// Returns a copy of the object in that phase, which is the result of an action that moves it.
    #[must_use]
    fn moved_to(&self, phase: Self::Phase) -> Self {
        let mut next = self.clone();
        next.set_phase(phase);
        next
    }
    /// Adds the operator's finalizer, if the kind has one.
    fn add_finalizer(&mut self) {
        if let Some(ours) = Self::FINALIZER.filter(|_| !self.has_finalizer()) {
            self.meta_mut().finalizers.get_or_insert_default().push(ours.to_owned());
        }
    }
    /// Returns namespace and name.
    fn key(&self) -> Key {
        let meta = self.meta();
        Key::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }
    /// Returns the uid; empty for an object that was never stored.
    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }
    /// Returns the resource version, if the API server gave it a number.
    fn version(&self) -> Option<u64> {
        self.meta().resource_version.as_deref()?.parse().ok()
    }
    /// Returns the generation of the spec; 0 for an object that was never stored.
    fn generation(&self) -> i64 {
        self.meta().generation.unwrap_or_default()
    }
    /// Reports whether the object is being deleted, that is, has a `deletionTimestamp`.
    fn is_deleting(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }
    /// Reports whether the object has the operator's finalizer.
    fn has_finalizer(&self) -> bool {
        Self::FINALIZER.is_some_and(|ours| self.meta().finalizers.iter().flatten().any(|found| found == ours))
    }
}
