//! `/v1/events`: every change as it happens, as server-sent events.
//!
//! A client is a place in the journal and nothing else. What it has not read yet is not queued for it: when it reads on, it
//! gets the newest state of whatever changed. So a slow client costs no more than a quick one, and the connection of one that
//! takes nothing any more breaks after a while. All are told at the same moments, and what they are told is written once.

mod batch;
mod rights;
mod ticker;

use crate::live::subscribers::SubscriberPermit;
use std::{collections::BTreeSet, pin::Pin, sync::Arc, time::Duration};

use batch::SseBatch;
use futures::stream;
use rights::SubscriberVisibility;
use ticker::Tick;
use tokio::{
    sync::watch,
    time::{Instant, Sleep, sleep},
};

use super::{
    api::problem::Problem,
    app::SharedAppState,
    auth::ApiCaller,
    stream_body::{BodyChunk, BodyChunks},
};

/// How often a comment is sent when nothing else is, so that nobody on the way takes the connection for dead.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// How often it is asked again what a client may see.
const REVIEW_INTERVAL: Duration = Duration::from_secs(30);

/// One who follows.
struct EventSubscriber {
    app: SharedAppState,
    caller: ApiCaller,
    /// Up to which stamp it was told everything.
    position: u64,
    ticks: watch::Receiver<Tick>,
    visibility: SubscriberVisibility,
    reviewed_at: Instant,
    /// When the last piece was sent.
    sent_at: Instant,
    /// Ends when nothing has been sent for a while, or before: it is not set again for each piece.
    keepalive: Pin<Box<Sleep>>,
    /// What is to be said first.
    first: Option<BodyChunk>,
    _permit: SubscriberPermit,
}

/// All changes after the event of this id; from now on, if there is no id.
///
/// # Errors
/// There are too many clients, or too many of this caller, or he cannot be reviewed.
pub(super) async fn subscribe(
    app: SharedAppState,
    caller: ApiCaller,
    last: Option<&str>,
) -> Result<BodyChunks, Problem> {
    let place = app.subscribers.acquire(app.auth.account(&caller).await?)?;
    let sight = SubscriberVisibility::of(&app, &caller).await?;
    let epoch = app.fleet.epoch();
    let known = last.map(|id| parse_event_id(epoch, id).filter(|stamp| app.fleet.knows(*stamp)));
    let lost = matches!(known, Some(None));
    let told = known.flatten().unwrap_or_else(|| app.fleet.last());
    let first = if lost { reset(epoch, told) } else { id(epoch, told) };
    let now = Instant::now();
    let client = EventSubscriber {
        ticks: app.subscribers.ticker.subscribe(&app.fleet, &app.subscribers.stop),
        app,
        caller,
        position: told,
        visibility: sight,
        reviewed_at: now,
        sent_at: now,
        keepalive: Box::pin(sleep(KEEPALIVE_INTERVAL)),
        first: Some(first),
        _permit: place,
    };
    Ok(Box::pin(stream::unfold(client, |mut client| async move {
        let piece = client.next().await?;
        Some((piece, client))
    })))
}

impl EventSubscriber {
    /// The next piece; `None`: the stream ends.
    async fn next(&mut self) -> Option<BodyChunk> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            let last = (*self.ticks.borrow_and_update())?;
            if self.position < last {
                let portion = self.app.subscribers.batches.after(&self.app.fleet, self.position, last);
                // What the client may not see is passed over in silence.
                let Some(piece) = self.read(portion).await? else { continue };
                self.sent_at = Instant::now();
                return Some(piece);
            }
            tokio::select! {
                biased;
                beat = self.ticks.changed() => beat.ok()?,
                () = self.keepalive.as_mut() => {
                    let now = Instant::now();
                    let due = self.sent_at + KEEPALIVE_INTERVAL;
                    if due > now {
                        self.keepalive.as_mut().reset(due);
                        continue;
                    }
                    self.keepalive.as_mut().reset(now + KEEPALIVE_INTERVAL);
                    self.sent_at = now;
                    return Some(if self.review().await? { self.reset() } else { BodyChunk::new(b":\n\n") });
                }
            }
        }
    }

    /// What the client is told of a portion, if anything; of one that was forgotten, that it has to begin anew. `None`: the
    /// stream ends.
    async fn read(&mut self, portion: Option<Arc<SseBatch>>) -> Option<Option<BodyChunk>> {
        let changed = self.review().await?;
        let Some(portion) = portion.filter(|_| !changed) else { return Some(Some(self.reset())) };
        self.position = portion.to();
        if matches!(self.visibility, SubscriberVisibility::Unrestricted) {
            return Some(portion.whole());
        }
        let new = portion.records().filter(|record| self.visibility.sees(record).is_none());
        let new: BTreeSet<_> = new.map(|record| (record.row, record.key.namespace.clone())).collect();
        if !new.is_empty() {
            // Rare, and large: not a part of every client.
            Box::pin(self.visibility.query(&self.app, &self.caller, new)).await.ok()?;
        }
        Some(portion.visible_to(|record| self.visibility.sees(record) == Some(true)))
    }

    /// Asks from time to time whether the client may still see what it saw, and what it could not see. Returns whether
    /// something changed; `None`: it is nobody's any more, or nobody can be asked.
    async fn review(&mut self) -> Option<bool> {
        if self.reviewed_at.elapsed() < REVIEW_INTERVAL {
            return Some(false);
        }
        // Rare, and large: not a part of every client.
        let changed = Box::pin(self.visibility.review(&self.app, &self.caller)).await.ok()?;
        self.reviewed_at = Instant::now();
        Some(changed)
    }

    /// Goes on from here, and has the client read its lists again.
    fn reset(&mut self) -> BodyChunk {
        self.position = self.app.fleet.last();
        reset(self.app.fleet.epoch(), self.position)
    }
}

/// Where the stream begins: an id and no event, which a client remembers and does not show.
fn id(epoch: &str, stamp: u64) -> BodyChunk {
    BodyChunk::new(format!("id: {epoch}-{stamp}\n\n").as_bytes())
}

/// Word that the client has to read its lists again.
fn reset(epoch: &str, stamp: u64) -> BodyChunk {
    BodyChunk::new(format!("event: reset\nid: {epoch}-{stamp}\ndata: {{}}\n\n").as_bytes())
}

/// The stamp of an id of this epoch.
fn parse_event_id(epoch: &str, id: &str) -> Option<u64> {
    id.strip_prefix(epoch)?.strip_prefix('-')?.parse().ok()
}

pub(crate) mod subscribers;
#[cfg(test)]
mod tests;
