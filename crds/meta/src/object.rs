//! Says what a state machine needs of an object: [`PhasedObject`].

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::{CommonStatus, Key, Phase};

/// An object with a phase, which a state machine takes through its life. Generic code reads and changes it through this trait.
pub trait PhasedObject: Clone + fmt::Debug + Send + Sync + 'static {
    /// The phases of its life.
    type Phase: Phase;

    /// The kind's name, such as `Agent`.
    const KIND: &'static str;
    /// The name of its CustomResourceDefinition, such as `agents.agents.recif.dev`.
    const CRD: &'static str;
    /// The finalizer its objects get before they have children that are to be drained.
    const FINALIZER: Option<&'static str>;

    /// The metadata.
    fn meta(&self) -> &ObjectMeta;
    /// The metadata, for an action that changes labels, annotations or finalizers.
    fn meta_mut(&mut self) -> &mut ObjectMeta;
    /// The machine's part of the status; `None` when there is no status at all.
    fn common(&self) -> Option<&CommonStatus>;
    /// The machine's part of the status, made if there is none.
    fn common_mut(&mut self) -> &mut CommonStatus;
    /// The whole status as JSON; `Null` when there is none.
    fn status_json(&self) -> Value;
    /// SHA-256 (hex) of the spec, without what only moves the replica count.
    fn spec_digest(&self) -> String;
    /// Whether both have the same spec.
    fn same_spec(&self, other: &Self) -> bool;

    /// A digest of what it offers to those that refer to it, beside its spec and whether it is available.
    fn published_digest(&self) -> Option<&str> {
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
        self.common()?.phase.as_deref()
    }
    /// Moves the object to another phase.
    fn set_phase(&mut self, phase: Self::Phase) {
        self.common_mut().phase = Some(phase.as_str().to_owned());
    }
    /// This object in that phase: what an action that moves returns.
    #[must_use]
    fn moved_to(&self, phase: Self::Phase) -> Self {
        let mut next = self.clone();
        next.set_phase(phase);
        next
    }
    /// Puts our finalizer on it, if the kind has one.
    fn add_finalizer(&mut self) {
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
