//! What happened between two moments, written once for everybody.
//!
//! Those who follow are at the same place nearly always, so what one of them reads next the others do as well. Who sees
//! everything in it gets the very same bytes; who does not gets those of the events that he may see.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    api::types::{Step, Transition},
    fleet::{Batch, ChangedObject, FleetCache, Record},
    stream_body::BodyChunk,
};

/// The most changes in one portion.
const MAX_CHANGES: usize = 256;
/// How many portions are remembered: for those who are at another place than most, because they came late or are slow.
const CACHED_BATCHES: usize = 4;

/// What is told next to one who was told everything up to some stamp.
#[derive(Debug)]
pub(super) struct SseBatch {
    from: u64,
    last: u64,
    to: u64,
    /// All of it; `None`: nothing happened.
    whole: Option<BodyChunk>,
    events: Box<[SseEventSpan]>,
}

/// Whom an event is about, and where in the data of the whole it stands.
#[derive(Debug)]
struct SseEventSpan {
    record: Arc<Record>,
    range: Range<usize>,
}

impl SseBatch {
    /// Up to which stamp everything is told after this.
    pub(super) fn to(&self) -> u64 {
        self.to
    }

    /// Whom it is about.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.events.iter().map(|event| &*event.record)
    }

    /// What somebody who sees only some objects is told; `None`: nothing.
    pub(super) fn visible_to(&self, mut sees: impl FnMut(&Record) -> bool) -> Option<BodyChunk> {
        let seen: Vec<_> = self.events.iter().filter(|event| sees(&event.record)).collect();
        if seen.is_empty() || seen.len() == self.events.len() {
            return self.whole.clone().filter(|_| !seen.is_empty());
        }
        let text = self.whole.as_ref()?.data();
        let parts: Vec<&[u8]> = seen.iter().filter_map(|event| text.get(event.range.clone())).collect();
        Some(BodyChunk::new(&parts.concat()))
    }

    /// All of it; `None`: nothing happened.
    pub(super) fn whole(&self) -> Option<BodyChunk> {
        self.whole.clone()
    }

    /// What happened after `from`; at `last` there may be more. `None`: some of it was forgotten.
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
            // In the order in which they happened, each before the change that tells where it led.
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
    let told = Transition {
        kind: record.kind.name.to_owned(),
        namespace: record.key.namespace.clone(),
        name: record.key.name.clone(),
        uid: record.uid.to_string(),
        step: Step::from(entry),
    };
    text.extend_from_slice(b"event: transition\ndata: ");
    // Texts and numbers: this cannot fail.
    text.extend_from_slice(&serde_json::to_vec(&told).unwrap_or_default());
    text.extend_from_slice(b"\n\n");
}

/// The portions that somebody read a moment ago.
#[derive(Debug, Default)]
pub(super) struct SseBatchCache(Mutex<VecDeque<Arc<SseBatch>>>);

impl SseBatchCache {
    /// What happened after the stamp `from`, read by those who know of the changes up to `last`. `None`: some of it was
    /// forgotten.
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
