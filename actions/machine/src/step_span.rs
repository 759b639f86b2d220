//! Spans of history entries. All from the one by which an object leaves a settled phase to the one by which it reaches a settled phase again
//! are of one trace: a convergence.
//!
//! The id of an entry holds its number and that of the convergence's first entry, masked by a digest of the uid. So any entry tells its
//! trace, also when the history has dropped the first one, and after a restart of the operator.

use meta::{HistoryEntry, Phase, PhasedObject};
use sha2::{Digest, Sha256};

/// Span of a history entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepSpan {
    /// Id of the trace: that of the convergence.
    pub trace_id: [u8; 16],
    /// Id of the span: the entry's `traceId`.
    pub span_id: [u8; 8],
    /// Span of the convergence's first entry; `None` for that entry.
    pub parent: Option<[u8; 8]>,
}

impl StepSpan {
    /// Returns the span of an entry of the object with this uid; `None` for an entry of an older version, which is in no trace.
    pub fn of(uid: &str, entry: &HistoryEntry) -> Option<Self> {
        let first = first_of(uid, entry)?;
        let mut trace_id = [0; 16];
        trace_id.copy_from_slice(&Sha256::digest(format!("{uid}/{first}"))[..16]);
        let parent = (entry.seq != first).then(|| span_id(uid, first, first));
        Some(Self { trace_id, span_id: span_id(uid, entry.seq, first), parent })
    }

    /// Returns the id of the trace as 32 hexadecimal digits.
    pub fn trace_text(&self) -> String {
        hex::encode(self.trace_id)
    }
}

/// Returns the `traceId` of the entry with this number that is added to this history of the object `before`.
pub(super) fn trace_id<K: PhasedObject>(before: &K, history: &[HistoryEntry], seq: i64) -> String {
    hex::encode(span_id(before.uid(), seq, first_entry(before, history, seq)))
}

/// Returns the number of the first entry of the convergence that the entry with this number belongs to.
fn first_entry<K: PhasedObject>(before: &K, history: &[HistoryEntry], seq: i64) -> i64 {
    if before.phase().is_some_and(Phase::is_settled) {
        return seq;
    }
    for entry in history.iter().rev() {
        if let Some(first) = first_of(before.uid(), entry) {
            return first;
        }
        // Entries of an older version tell by their phases where the convergence began.
        if entry.from.is_empty() || K::Phase::parse(&entry.from).is_some_and(Phase::is_settled) {
            return entry.seq;
        }
    }
    history.first().map_or(seq, |oldest| oldest.seq)
}

/// Reads the number of the convergence's first entry; `None` for an entry of an older version.
fn first_of(uid: &str, entry: &HistoryEntry) -> Option<i64> {
    let mut id = [0; 8];
    hex::decode_to_slice(&entry.trace_id, &mut id).ok()?;
    let numbers = u64::from_be_bytes(id) ^ mask(uid);
    let (seq, first) = (numbers >> 32, numbers & u64::from(u32::MAX));
    let is_ours = u64::try_from(entry.seq) == Ok(seq) && (1..=seq).contains(&first);
    i64::try_from(first).ok().filter(|_| is_ours)
}

fn span_id(uid: &str, seq: i64, first: i64) -> [u8; 8] {
    let [seq, first] = [seq, first].map(|number| u64::from(u32::try_from(number).unwrap_or(u32::MAX)));
    ((seq << 32 | first) ^ mask(uid)).to_be_bytes()
}

fn mask(uid: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&Sha256::digest(uid)[..8]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;
    use crate::example::{Lamp, LampPhase};

    const UID: &str = "3c3b7e0a-7d11-4b8e-9a5c-0d6f6a1f2b3c";

    fn entry(seq: i64, from: &str, trace_id: String) -> HistoryEntry {
        HistoryEntry {
            seq,
            at: MicroTime(Timestamp::UNIX_EPOCH),
            from: from.to_owned(),
            to: String::new(),
            action: String::new(),
            reason: String::new(),
            took_ms: 0,
            trace_id,
        }
    }

    fn lamp(phase: LampPhase) -> Lamp {
        let mut lamp = Lamp::new("desk", 40).moved_to(phase);
        lamp.meta_mut().uid = Some(UID.to_owned());
        lamp
    }

    /// Adds the entry of a step in this phase to the history, of which only the last two are kept.
    fn add(history: &mut Vec<HistoryEntry>, phase: LampPhase) -> StepSpan {
        let seq = history.last().map_or(0, |entry| entry.seq) + 1;
        let entry = entry(seq, phase.as_str(), trace_id(&lamp(phase), history, seq));
        let span = StepSpan::of(UID, &entry).unwrap();
        assert_eq!(hex::encode(span.span_id), entry.trace_id);
        history.push(entry);
        history.drain(..history.len().saturating_sub(2));
        span
    }

    #[test]
    fn a_convergence_is_one_trace_though_its_first_entry_is_dropped() {
        let mut history = Vec::new();
        let spans: Vec<_> = [LampPhase::Pending; 5].into_iter().map(|phase| add(&mut history, phase)).collect();
        let (first, others) = spans.split_first().unwrap();
        assert_eq!(first.parent, None);
        for span in others {
            assert_eq!((span.trace_id, span.parent), (first.trace_id, Some(first.span_id)));
        }
        let mut ids: Vec<_> = spans.iter().map(|span| span.span_id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 5);

        let left = add(&mut history, LampPhase::Lit);
        assert!(left.trace_id != first.trace_id && left.parent.is_none(), "the lamp was lit: a new one begins");
        let next = add(&mut history, LampPhase::Pending);
        assert_eq!((next.trace_id, next.parent), (left.trace_id, Some(left.span_id)));
        let broken = add(&mut history, LampPhase::Broken);
        assert_eq!(broken.parent, None, "a failure is settled, too");
    }

    #[test]
    fn entries_of_an_older_version_are_in_no_trace_and_tell_where_the_next_one_began() {
        let old = |seq, from| entry(seq, from, "0123456789abcdef".to_owned());
        let first = |history: &[HistoryEntry]| first_entry(&lamp(LampPhase::Pending), history, 9);
        assert_eq!(first(&[old(6, "Pending"), old(7, "Lit"), old(8, "Pending")]), 7);
        assert_eq!(first(&[old(1, ""), old(8, "Pending")]), 1);
        assert_eq!(first(&[old(7, "Pending"), old(8, "Pending")]), 7, "the oldest that is left");
        assert_eq!(first(&[]), 9);
        for bad in ["", "x", "0123456789abcdef", "0123456789abcdef00"] {
            assert_eq!(StepSpan::of(UID, &entry(3, "", bad.to_owned())), None, "{bad}");
        }
        let of_another = entry(3, "", hex::encode(span_id("another", 3, 3)));
        assert_eq!(StepSpan::of(UID, &of_another), None);
    }
}
