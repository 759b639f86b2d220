//! Batches of server-sent events, serialized once for all clients.
//!
//! Clients are nearly always at the same position, so they read the same batches. A client that may see all of a batch gets the
//! same bytes as the others; any other client gets a copy of the events that it may see.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    api::step_types::{Step, Transition},
    fleet::{Batch, ChangedObject, FleetCache, Record},
    stream_body::BodyChunk,
};

/// Limit of the changes in one batch.
const MAX_CHANGES: usize = 256;
/// Number of cached batches; more than one for clients at another position than most, because they came late or are slow.
const CACHED_BATCHES: usize = 4;

/// Serialized events of the changes after the stamp `from`, up to the stamp `to`.
#[derive(Debug)]
pub(super) struct SseBatch {
    from: u64,
    last: u64,
    to: u64,
    /// All events; `None`: there are none.
    whole: Option<BodyChunk>,
    events: Box<[SseEventSpan]>,
}

/// Object of an event, and the event's range in the serialized batch.
#[derive(Debug)]
struct SseEventSpan {
    record: Arc<Record>,
    range: Range<usize>,
}

impl SseBatch {
    /// Returns the stamp up to which a client has everything after this batch.
    pub(super) fn to(&self) -> u64 {
        self.to
    }

    /// Returns the objects of its events.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.events.iter().map(|event| &*event.record)
    }

    /// Returns the events of the objects that a client may see; `None`: there are none.
    pub(super) fn visible_to(&self, mut sees: impl FnMut(&Record) -> bool) -> Option<BodyChunk> {
        let seen: Vec<_> = self.events.iter().filter(|event| sees(&event.record)).collect();
        if seen.is_empty() || seen.len() == self.events.len() {
            return self.whole.clone().filter(|_| !seen.is_empty());
        }
        let text = self.whole.as_ref()?.data();
        let parts: Vec<&[u8]> = seen.iter().filter_map(|event| text.get(event.range.clone())).collect();
        Some(BodyChunk::new(&parts.concat()))
    }

    /// Returns all events; `None`: there are none.
    pub(super) fn whole(&self) -> Option<BodyChunk> {
        self.whole.clone()
    }

    /// Reads and serializes at most [`MAX_CHANGES`] changes after `from`; the batch may end before or behind `last`. `None`:
    /// tombstones after `from` were evicted.
    fn read(fleet: &Arc<FleetCache>, from: u64, last: u64) -> Option<Self> {
        let mut feed = fleet.feed_after(from)?;
        let changes = match feed.read(MAX_CHANGES) {
            Some(Batch::Changes(changes)) => changes,
            Some(Batch::Reset) => return None,
            None => Vec::new(),
        };
        let to = if changes.is_empty() { last } else { feed.position() };
        let mut steps = feed.transitions_after(from).into_iter().peekable();
        let (mut text, mut events) = (Vec::new(), Vec::new());
        let mut event = |record: &Arc<Record>, write: &dyn Fn(&mut Vec<u8>)| {
            let begin = text.len();
            write(&mut text);
            events.push(SseEventSpan { record: record.clone(), range: begin..text.len() });
        };
        for change in changes {
            // In the order in which they happened, each before the change to which it led.
            while let Some(step) = steps.next_if(|step| step.stamp <= change.stamp) {
                event(&step.record, &|text| transition(&step.record, &step.entry, text));
            }
            event(&change.record, &|text| applied(fleet.epoch(), &change, text));
        }
        let whole = (!text.is_empty()).then(|| BodyChunk::new(&text));
        Some(Self { from, last, to, whole, events: events.into() })
    }
}

fn applied(epoch: &str, change: &ChangedObject, text: &mut Vec<u8>) {
    let type_ = if change.deleted { "deleted" } else { "applied" };
    let stamp = change.stamp;
    let begin = format!("event: change\nid: {epoch}-{stamp}\ndata: {{\"type\":\"{type_}\",\"object\":");
    text.extend_from_slice(begin.as_bytes());
    text.extend_from_slice(&change.record.summary);
    text.extend_from_slice(b"}\n\n");
}

fn transition(record: &Record, entry: &meta::HistoryEntry, text: &mut Vec<u8>) {
    let transition = Transition {
        kind: record.kind.name.to_owned(),
        namespace: record.key.namespace.clone(),
        name: record.key.name.clone(),
        uid: record.uid.to_string(),
        step: Step::from(entry),
    };
    text.extend_from_slice(b"event: transition\ndata: ");
    // Serializing strings and numbers cannot fail.
    text.extend_from_slice(&serde_json::to_vec(&transition).unwrap_or_default());
    text.extend_from_slice(b"\n\n");
}

/// Cache of the last batches.
///
/// Invariant: it holds at most [`CACHED_BATCHES`], the newest first. The lock is held while a batch is serialized, so clients
/// that need the same batch share one serialization.
#[derive(Debug, Default)]
pub(super) struct SseBatchCache(Mutex<VecDeque<Arc<SseBatch>>>);

impl SseBatchCache {
    /// Returns the batch after the stamp `from` for clients that know of the changes up to `last`. `None`: tombstones after
    /// `from` were evicted.
    pub(super) fn after(&self, fleet: &Arc<FleetCache>, from: u64, last: u64) -> Option<Arc<SseBatch>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(portion) = known.iter().find(|portion| portion.from == from && portion.last == last) {
            return Some(portion.clone());
        }
        let portion = Arc::new(SseBatch::read(fleet, from, last)?);
        known.truncate(CACHED_BATCHES - 1);
        known.push_front(portion.clone());
        Some(portion)
    }
}
