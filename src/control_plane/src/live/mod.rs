//! `/v1/events`: every change as it happens, as server-sent events.
//!
//! A client is a place in the journal and nothing else. What it has not read yet is not queued for it: when it reads on, it
//! gets the newest state of whatever changed. So a slow client costs no more than a quick one, and the connection of one that
//! takes nothing any more breaks after a while. All are told at the same moments, and what they are told is written once.

mod portion;
mod pulse;
mod rights;

use crate::live::subscribers::Place;
use std::{collections::BTreeSet, pin::Pin, sync::Arc, time::Duration};

use futures::stream;
use portion::Portion;
use pulse::Beat;
use rights::Sight;
use tokio::{
    sync::watch,
    time::{Instant, Sleep, sleep},
};

use super::{
    api::problem::Problem,
    app::App,
    auth::Caller,
    endless::{Piece, Pieces},
};

/// How often a comment is sent when nothing else is, so that nobody on the way takes the connection for dead.
const QUIET: Duration = Duration::from_secs(15);
/// How often it is asked again what a client may see.
const REVIEW: Duration = Duration::from_secs(30);

/// One who follows.
struct Client {
    app: App,
    caller: Caller,
    /// Up to which stamp it was told everything.
    told: u64,
    pulse: watch::Receiver<Beat>,
    sight: Sight,
    reviewed: Instant,
    /// When the last piece was sent.
    sent: Instant,
    /// Ends when nothing has been sent for a while, or before: it is not set again for each piece.
    quiet: Pin<Box<Sleep>>,
    /// What is to be said first.
    first: Option<Piece>,
    _place: Place,
}

/// All changes after the event of this id; from now on, if there is no id.
///
/// # Errors
/// There are too many clients, or too many of this caller, or he cannot be reviewed.
pub(super) async fn follow(app: App, caller: Caller, last: Option<&str>) -> Result<Pieces, Problem> {
    let place = app.clients.place(app.auth.account(&caller).await?)?;
    let sight = Sight::of(&app, &caller).await?;
    let epoch = app.fleet.epoch();
    let known = last.map(|id| place_of(epoch, id).filter(|stamp| app.fleet.knows(*stamp)));
    let lost = matches!(known, Some(None));
    let told = known.flatten().unwrap_or_else(|| app.fleet.last());
    let first = if lost { reset(epoch, told) } else { id(epoch, told) };
    let now = Instant::now();
    let client = Client {
        pulse: app.clients.pulse.follow(&app.fleet, &app.clients.stop),
        app,
        caller,
        told,
        sight,
        reviewed: now,
        sent: now,
        quiet: Box::pin(sleep(QUIET)),
        first: Some(first),
        _place: place,
    };
    Ok(Box::pin(stream::unfold(client, |mut client| async move {
        let piece = client.next().await?;
        Some((piece, client))
    })))
}

impl Client {
    /// The next piece; `None`: the stream ends.
    async fn next(&mut self) -> Option<Piece> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            let last = (*self.pulse.borrow_and_update())?;
            if self.told < last {
                let portion = self.app.clients.portions.after(&self.app.fleet, self.told, last);
                // What the client may not see is passed over in silence.
                let Some(piece) = self.read(portion).await? else { continue };
                self.sent = Instant::now();
                return Some(piece);
            }
            tokio::select! {
                biased;
                beat = self.pulse.changed() => beat.ok()?,
                () = self.quiet.as_mut() => {
                    let now = Instant::now();
                    let due = self.sent + QUIET;
                    if due > now {
                        self.quiet.as_mut().reset(due);
                        continue;
                    }
                    self.quiet.as_mut().reset(now + QUIET);
                    self.sent = now;
                    return Some(if self.review().await? { self.reset() } else { Piece::new(b":\n\n") });
                }
            }
        }
    }

    /// What the client is told of a portion, if anything; of one that was forgotten, that it has to begin anew. `None`: the
    /// stream ends.
    async fn read(&mut self, portion: Option<Arc<Portion>>) -> Option<Option<Piece>> {
        let changed = self.review().await?;
        let Some(portion) = portion.filter(|_| !changed) else { return Some(Some(self.reset())) };
        self.told = portion.to();
        if matches!(self.sight, Sight::Everything) {
            return Some(portion.whole());
        }
        let new = portion.records().filter(|record| self.sight.sees(record).is_none());
        let new: BTreeSet<_> = new.map(|record| (record.row, record.key.namespace.clone())).collect();
        if !new.is_empty() {
            // Rare, and large: not a part of every client.
            Box::pin(self.sight.ask(&self.app, &self.caller, new)).await.ok()?;
        }
        Some(portion.told(|record| self.sight.sees(record) == Some(true)))
    }

    /// Asks from time to time whether the client may still see what it saw, and what it could not see. Returns whether
    /// something changed; `None`: it is nobody's any more, or nobody can be asked.
    async fn review(&mut self) -> Option<bool> {
        if self.reviewed.elapsed() < REVIEW {
            return Some(false);
        }
        // Rare, and large: not a part of every client.
        let changed = Box::pin(self.sight.review(&self.app, &self.caller)).await.ok()?;
        self.reviewed = Instant::now();
        Some(changed)
    }

    /// Goes on from here, and has the client read its lists again.
    fn reset(&mut self) -> Piece {
        self.told = self.app.fleet.last();
        reset(self.app.fleet.epoch(), self.told)
    }
}

/// Where the stream begins: an id and no event, which a client remembers and does not show.
fn id(epoch: &str, stamp: u64) -> Piece {
    Piece::new(format!("id: {epoch}-{stamp}\n\n").as_bytes())
}

/// Word that the client has to read its lists again.
fn reset(epoch: &str, stamp: u64) -> Piece {
    Piece::new(format!("event: reset\nid: {epoch}-{stamp}\ndata: {{}}\n\n").as_bytes())
}

/// The stamp of an id of this epoch.
fn place_of(epoch: &str, id: &str) -> Option<u64> {
    id.strip_prefix(epoch)?.strip_prefix('-')?.parse().ok()
}

pub(crate) mod subscribers;
#[cfg(test)]
mod tests;
