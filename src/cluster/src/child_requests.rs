//! Shared parts of the requests for children. Each server-side apply is sent as a field manager: the operator's or the
//! scaler's.

use actions::ports::{CachedChild, ChildKind};

use super::{decode, store::Versioned};

/// Media type of a server-side apply.
pub(super) const APPLY: Option<&str> = Some("application/apply-patch+yaml");

/// Decodes a child and its version from a response.
pub(super) fn read(kind: ChildKind, body: &[u8]) -> Result<Versioned<CachedChild>, serde_json::Error> {
    let text = str::from_utf8(body).map_err(serde::de::Error::custom)?;
    let head = decode::object_version(text)?;
    let child = decode::child(kind, &head, text)?;
    Ok(Versioned::new(head, child))
}
