//! Stream of changes at `/v1/events`, as [server-sent events](https://html.spec.whatwg.org/multipage/server-sent-events.html).
//!
//! The only state of a client is its position in the journal. Changes that it has not read are not queued for it: with its next
//! read it gets the newest state of each object that changed. So a slow client costs no more than a quick one, and the
//! connection of a client that reads nothing breaks by the write timeout. All clients are woken at the same moments, and a
//! batch is serialized once for all of them.

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

/// Interval of comments on an idle stream, so that no proxy takes the connection for dead.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Interval at which the rights of a client are reviewed again.
const REVIEW_INTERVAL: Duration = Duration::from_secs(30);

/// Subscriber to the stream of changes.
///
/// Invariant: the client got everything up to `position` that it may see, or a reset that makes it read its lists again.
struct EventSubscriber {
    app: SharedAppState,
    caller: ApiCaller,
    /// Stamp up to which the client has received changes.
    position: u64,
    ticks: watch::Receiver<Tick>,
    visibility: SubscriberVisibility,
    reviewed_at: Instant,
    /// Time of the last chunk.
    sent_at: Instant,
    /// Timer for the next comment. It is not reset for each chunk, so it may fire early and is then set to the time that is
    /// left.
    keepalive: Pin<Box<Sleep>>,
    /// First chunk: the client's position, or a reset.
    first: Option<BodyChunk>,
    _permit: SubscriberPermit,
}

/// Subscribes to all changes after the event of this id; without an id, to all from now on.
///
/// # Errors
/// Too many clients follow, in total or of this caller, or the caller cannot be reviewed.
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
    let position = known.flatten().unwrap_or_else(|| app.fleet.last());
    let first = if lost { reset(epoch, position) } else { id(epoch, position) };
    let now = Instant::now();
    let client = EventSubscriber {
        ticks: app.subscribers.ticker.subscribe(&app.fleet, &app.subscribers.stop),
        app,
        caller,
        position,
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
    /// Returns the next chunk; `None`: the stream ends.
    async fn next(&mut self) -> Option<BodyChunk> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            let last = (*self.ticks.borrow_and_update())?;
            if self.position < last {
                let portion = self.app.subscribers.batches.after(&self.app.fleet, self.position, last);
                // Changes that the client may not see are skipped.
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

    /// Returns the visible part of a batch, if any; a reset if the batch is no longer known or the rights have changed. `None`:
    /// the stream ends.
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
            // Boxed: rare and large, so that not every client's future has room for it.
            Box::pin(self.visibility.query(&self.app, &self.caller, new)).await.ok()?;
        }
        Some(portion.visible_to(|record| self.visibility.sees(record) == Some(true)))
    }

    /// Reviews the client's rights if that is due, and reports whether they have changed. `None`: the token is no longer valid,
    /// or the API server cannot be queried.
    async fn review(&mut self) -> Option<bool> {
        if self.reviewed_at.elapsed() < REVIEW_INTERVAL {
            return Some(false);
        }
        // Boxed: rare and large, so that not every client's future has room for it.
        let changed = Box::pin(self.visibility.review(&self.app, &self.caller)).await.ok()?;
        self.reviewed_at = Instant::now();
        Some(changed)
    }

    /// Moves to the last change, and returns the event that makes the client read its lists again.
    fn reset(&mut self) -> BodyChunk {
        self.position = self.app.fleet.last();
        reset(self.app.fleet.epoch(), self.position)
    }
}

/// Encodes the client's position: an id without an event, which a client stores and does not dispatch.
fn id(epoch: &str, stamp: u64) -> BodyChunk {
    BodyChunk::new(format!("id: {epoch}-{stamp}\n\n").as_bytes())
}

/// Encodes the event that makes the client read its lists again.
fn reset(epoch: &str, stamp: u64) -> BodyChunk {
    BodyChunk::new(format!("event: reset\nid: {epoch}-{stamp}\ndata: {{}}\n\n").as_bytes())
}

/// Parses the stamp of an event id of this epoch.
fn parse_event_id(epoch: &str, id: &str) -> Option<u64> {
    id.strip_prefix(epoch)?.strip_prefix('-')?.parse().ok()
}

pub(crate) mod subscribers;
#[cfg(test)]
mod tests;
