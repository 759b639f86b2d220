//! Builds the entry of an admission in `status.history`, and the ids of all entries.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use meta::{HistoryEntry, Phase, PhasedObject};
use sha2::{Digest, Sha256};

use super::{EdgeOwner, Rule, Table};

/// Returns the history entry of a new object's admission, which was no step of the operator.
pub(super) fn admission<K: PhasedObject>(cr: &K, now: Timestamp, table: &Table<K::Phase>) -> HistoryEntry {
    let (phase, by) = (K::Phase::FIRST, EdgeOwner::Rule(Rule::Admit));
    let at = cr.meta().creation_timestamp.as_ref().map_or(now, |created| created.0);
    let edge = table.edges.iter().find(|edge| edge.allows(None, phase, by));
    HistoryEntry {
        seq: 1,
        at: MicroTime(at),
        from: String::new(),
        to: phase.as_str().to_owned(),
        action: by.as_str().to_owned(),
        reason: edge.map(|edge| edge.why.to_owned()).unwrap_or_default(),
        took_ms: 0,
        trace_id: trace_id(cr.uid(), 1, at),
    }
}

/// Returns the id that joins a history entry with its trace line: 16 hex digits of SHA-256 over uid, number and time.
pub(super) fn trace_id(uid: &str, seq: i64, at: Timestamp) -> String {
    let digest = Sha256::digest(format!("{uid}/{seq}/{}", at.as_second()));
    hex::encode(&digest[..8])
}
