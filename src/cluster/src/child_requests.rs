//! Holds what requests about children have in common.

use actions::ports::{CachedChild, ChildKind};

use super::{decode, store::Versioned};

pub(super) const APPLY: Option<&str> = Some("application/apply-patch+yaml");

pub(super) fn read(kind: ChildKind, body: &[u8]) -> Result<Versioned<CachedChild>, serde_json::Error> {
    let text = str::from_utf8(body).map_err(serde::de::Error::custom)?;
    let head = decode::object_version(text)?;
    let child = decode::child(kind, &head, text)?;
    Ok(Versioned::new(head, child))
}
