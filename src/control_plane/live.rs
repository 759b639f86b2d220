//! `/v1/events`: every change as it happens, as server-sent events.
//!
//! A client is a place in the journal and nothing else. What it has not read yet is not queued for it: when it reads on, it
//! gets the newest state of whatever changed. So a slow client costs no more than a quick one, and the connection of one that
//! takes nothing any more breaks after a while.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    api::{
        App,
        problem::Problem,
        types::{Step, Transition},
    },
    auth::Caller,
    fleet::{Batch, Changed, Feed, Visible},
};

/// The most clients at a time.
const CLIENTS: usize = 5000;
/// The most changes in one piece.
const PIECE: usize = 256;
/// What happens within this time after a piece is told in the next one.
const GAP: Duration = Duration::from_millis(50);
/// How often a comment is sent when nothing else is, so that nobody on the way takes the connection for dead.
const QUIET: Duration = Duration::from_secs(15);
/// How often it is asked again what a client may see.
const REVIEW: Duration = Duration::from_secs(30);

/// Those who follow.
#[derive(Debug)]
pub(super) struct Clients {
    places: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Clients {
    /// Nobody follows yet; all are let go at `stop`.
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self { places: Arc::new(Semaphore::new(CLIENTS)), stop }
    }

    /// How many follow.
    pub(super) fn count(&self) -> usize {
        CLIENTS - self.places.available_permits()
    }
}

/// One who follows.
struct Client {
    app: App,
    caller: Caller,
    feed: Feed,
    visible: Visible,
    reviewed: Instant,
    /// When the last piece was sent.
    sent: Instant,
    /// What is to be said first.
    first: Option<Bytes>,
    stop: CancellationToken,
    _place: OwnedSemaphorePermit,
}

/// A stream of all changes after the event of this id; from now on, if there is no id.
///
/// # Errors
/// There are too many clients, or the caller cannot be reviewed.
pub(super) async fn follow(app: App, caller: Caller, last: Option<&str>) -> Result<Body, Problem> {
    let place = app.clients.places.clone().try_acquire_owned();
    let place = place
        .map_err(|_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too many follow the changes: try again later"))?;
    let visible = app.auth.visible(&caller, &app.fleet, &[], &[]).await?;
    let epoch = app.fleet.epoch().to_owned();
    let known = last.map(|id| place_of(&epoch, id).and_then(|stamp| app.fleet.feed_after(stamp)));
    let lost = matches!(known, Some(None));
    let feed = known.flatten().unwrap_or_else(|| app.fleet.feed_from_now());
    let first = if lost { reset(&epoch, feed.position()) } else { id(&epoch, feed.position()) };
    let now = Instant::now();
    let client = Client {
        stop: app.clients.stop.clone(),
        app,
        caller,
        feed,
        visible,
        reviewed: now,
        // The first change is not waited for.
        sent: now.checked_sub(GAP).unwrap_or(now),
        first: Some(first.into()),
        _place: place,
    };
    Ok(Body::from_stream(stream::unfold(client, |mut client| async move {
        let piece = client.next().await?;
        Some((Ok::<_, Infallible>(piece), client))
    })))
}

impl Client {
    /// The next piece; `None`: the stream ends.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let quiet = Instant::now() + QUIET;
        let stop = self.stop.clone();
        loop {
            let before = self.feed.position();
            let gap = sleep_until(self.sent + GAP);
            let changes = async {
                gap.await;
                self.feed.next(PIECE).await
            };
            let batch = tokio::select! {
                batch = changes => batch,
                () = sleep_until(quiet) => {
                    self.review().await?;
                    return Some(Bytes::from_static(b":\n\n"));
                }
                () = stop.cancelled() => return None,
            };
            self.sent = Instant::now();
            self.review().await?;
            let piece = match batch {
                Batch::Reset => {
                    self.feed = self.app.fleet.feed_from_now();
                    reset(self.app.fleet.epoch(), self.feed.position())
                }
                Batch::Changes(changes) => self.piece(before, &changes),
            };
            // What the client may not see is passed over in silence.
            if !piece.is_empty() {
                return Some(piece.into());
            }
        }
    }

    /// Asks from time to time what the client may see; `None`: nothing any more.
    async fn review(&mut self) -> Option<()> {
        if self.reviewed.elapsed() < REVIEW {
            return Some(());
        }
        self.visible = self.app.auth.visible(&self.caller, &self.app.fleet, &[], &[]).await.ok()?;
        self.reviewed = Instant::now();
        Some(())
    }

    fn piece(&self, before: u64, changes: &[Changed]) -> Vec<u8> {
        let epoch = self.app.fleet.epoch();
        let mut transitions = self.feed.transitions_after(before).into_iter().peekable();
        let seen = |record: &super::fleet::Record| self.visible.sees(record.row, &record.key.namespace);
        let mut piece = Vec::new();
        for change in changes {
            // In the order in which they happened, each before the change that tells where it led.
            while let Some(found) = transitions.next_if(|found| found.stamp <= change.stamp) {
                if seen(&found.record) {
                    transition(&found.record, &found.entry, &mut piece);
                }
            }
            if seen(&change.record) {
                let type_ = if change.deleted { "deleted" } else { "applied" };
                piece.extend_from_slice(
                    format!("event: change\nid: {epoch}-{}\ndata: {{\"type\":\"{type_}\",\"object\":", change.stamp)
                        .as_bytes(),
                );
                piece.extend_from_slice(&change.record.summary);
                piece.extend_from_slice(b"}\n\n");
            }
        }
        piece
    }
}

fn transition(record: &super::fleet::Record, entry: &crds::HistoryEntry, piece: &mut Vec<u8>) {
    let told = Transition {
        kind: record.kind.name.to_owned(),
        namespace: record.key.namespace.clone(),
        name: record.key.name.clone(),
        uid: record.uid.to_string(),
        step: Step::from(entry),
    };
    piece.extend_from_slice(b"event: transition\ndata: ");
    // Texts and numbers: this cannot fail.
    piece.extend_from_slice(&serde_json::to_vec(&told).unwrap_or_default());
    piece.extend_from_slice(b"\n\n");
}

/// Where the stream begins: an id and no event, which a client remembers and does not show.
fn id(epoch: &str, stamp: u64) -> Vec<u8> {
    format!("id: {epoch}-{stamp}\n\n").into_bytes()
}

/// Word that the client has to read its lists again.
fn reset(epoch: &str, stamp: u64) -> Vec<u8> {
    format!("event: reset\nid: {epoch}-{stamp}\ndata: {{}}\n\n").into_bytes()
}

/// The stamp of an id of this epoch.
fn place_of(epoch: &str, id: &str) -> Option<u64> {
    id.strip_prefix(epoch)?.strip_prefix('-')?.parse().ok()
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
