//! Object as it is kept: the fields for sorting and filtering, and the JSON that is sent.

use cluster::ObjectVersion;
use crds::{ApiKind, RefKind, why::why};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use meta::{CommonStatus, HistoryEntry, Key};
use serde::Deserialize;
use serde_json::Value;

use super::{
    columns::Column,
    mask,
    packed::Packed,
    summary::{Ready, ServerFacts, Summary},
};

/// Reference to an object: kind, namespace, name.
#[derive(Debug, Clone)]
pub struct RecordReference {
    /// Its kind, one of ours.
    pub kind: &'static ApiKind,
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

/// One version of an object, masked. Immutable.
#[derive(Debug)]
pub struct Record {
    /// Its kind.
    pub kind: &'static ApiKind,
    /// Index of its kind in [`crds::KINDS`].
    pub row: u8,
    /// Namespace and name.
    pub key: Key,
    /// The uid.
    pub uid: Box<str>,
    /// The resource version, as a number.
    pub version: u64,
    /// The generation of its spec.
    pub generation: i64,
    /// The phase, if it has one yet.
    pub phase: Option<Box<str>>,
    /// Status of its `Ready` condition.
    pub ready: Ready,
    /// The reason of that condition.
    pub reason: Box<str>,
    /// Time of its creation, RFC 3339.
    pub created: Box<str>,
    /// Time of its last change of phase, RFC 3339; empty: not known.
    pub since: Box<str>,
    /// True if it needs attention: it is not ready, is being deleted, has a spec that the operator has not observed yet, or its
    /// phase is neither settled nor stopped as its spec asks.
    pub attention: bool,
    /// The uid of its controller, if it has one.
    pub owner: Option<Box<str>>,
    /// Its references to objects of our kinds.
    pub references: Box<[RecordReference]>,
    /// The number of its last history entry; 0: it has none.
    pub seq: i64,
    /// Its [`Summary`] as JSON.
    pub summary: Box<[u8]>,
    /// The [`ServerFacts`] of a server as JSON; `None` for other kinds.
    pub server: Option<Box<[u8]>>,
    /// Text that a search looks through, in lower case.
    pub haystack: Box<str>,
    object: Packed,
}

impl Record {
    /// Decodes one version of an object from JSON.
    ///
    /// # Errors
    /// The JSON is invalid.
    pub fn read(row: u8, columns: &[Column], head: &ObjectVersion, json: &str) -> Result<Self, serde_json::Error> {
        let kind = crds::KINDS.get(usize::from(row)).ok_or_else(|| serde::de::Error::custom("no such kind"))?;
        let mut object: Value = serde_json::from_str(json)?;
        let links = references(kind, &head.key, &object);
        mask::mask_object(&mut object);
        object["apiVersion"] = kind.api_version().into();
        object["kind"] = kind.name.into();
        let metadata = ObjectMeta::deserialize(&object["metadata"]).unwrap_or_default();
        let stored = object.get("status").filter(|status| status.is_object());
        let status = stored.map(|status| CommonStatus::deserialize(status).unwrap_or_default());
        let why = why(kind.name, &metadata, status.as_ref());
        let status = status.unwrap_or_default();
        let summary = Summary::new(kind, head, &metadata, &status, &object, columns, &why);
        let server = ServerFacts::read(kind, &object).map(|facts| facts.json()).transpose()?;
        Ok(Self {
            kind,
            row,
            key: head.key.clone(),
            uid: head.uid.as_str().into(),
            version: head.resource_version,
            generation: metadata.generation.unwrap_or_default(),
            phase: summary.phase.as_deref().map(Box::from),
            ready: summary.ready,
            reason: summary.reason.as_str().into(),
            created: summary.created_at.as_str().into(),
            since: summary.since.as_deref().unwrap_or_default().into(),
            attention: summary.why.is_some(),
            owner: controller(&metadata),
            references: links,
            seq: status.history.iter().map(|entry| entry.seq).max().unwrap_or_default(),
            summary: serde_json::to_vec(&summary)?.into(),
            server: server.map(Vec::into),
            haystack: summary.haystack().into(),
            object: Packed::new(&serde_json::to_vec(&object)?),
        })
    }

    /// Returns the whole object as JSON, masked.
    pub fn json(&self) -> Vec<u8> {
        self.object.unpack()
    }

    /// Returns the whole object, masked.
    pub fn object(&self) -> Value {
        serde_json::from_slice(&self.json()).unwrap_or_default()
    }

    /// Returns the part of its status that the state machine maintains; `None`: it has no status.
    pub fn status(&self) -> Option<CommonStatus> {
        let object = self.object();
        let stored = object.get("status").filter(|status| status.is_object())?;
        Some(CommonStatus::deserialize(stored).unwrap_or_default())
    }

    /// Returns the entries of its history after the entry of that number, oldest first.
    pub fn history_after(&self, seq: i64) -> Vec<HistoryEntry> {
        if self.seq <= seq {
            return Vec::new();
        }
        let mut entries = self.status().unwrap_or_default().history;
        entries.retain(|entry| entry.seq > seq);
        entries.sort_by_key(|entry| entry.seq);
        entries
    }
}

fn controller(metadata: &ObjectMeta) -> Option<Box<str>> {
    let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    Some(owner.uid.as_str().into())
}

/// Returns the references to objects of our kinds, in order.
fn references(kind: &ApiKind, key: &Key, object: &Value) -> Box<[RecordReference]> {
    let ours = |kind: RefKind| ApiKind::find(kind.as_str());
    let found = kind.references(object).into_iter().filter_map(|reference| {
        let namespace = reference.namespace.unwrap_or_else(|| key.namespace.clone());
        Some(RecordReference { kind: ours(reference.kind)?, namespace: namespace.into(), name: reference.name.into() })
    });
    found.collect()
}
