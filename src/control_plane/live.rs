//! `/v1/events`: every change as it happens, as server-sent events.
//!
//! A client is a place in the journal and nothing else. What it has not read yet is not queued for it: when it reads on, it
//! gets the newest state of whatever changed. So a slow client costs no more than a quick one, and the connection of one that
//! takes nothing any more breaks after a while.

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use crds::KINDS;
use futures::{StreamExt as _, stream};
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
    auth::{AT_A_TIME, Caller},
    fleet::{Batch, Changed, Feed, Fleet, Transition as Told},
};

/// The most clients at a time.
const CLIENTS: usize = 5000;
/// The most clients of one caller, where callers are told apart.
const CLIENTS_OF_ONE: usize = 50;
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
    /// How many places each caller has.
    taken: Arc<Mutex<HashMap<String, usize>>>,
    stop: CancellationToken,
}

impl Clients {
    /// Nobody follows yet; all are let go at `stop`.
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self { places: Arc::new(Semaphore::new(CLIENTS)), taken: Arc::default(), stop }
    }

    /// How many follow.
    pub(super) fn count(&self) -> usize {
        CLIENTS - self.places.available_permits()
    }

    /// A place for a client of this caller.
    fn place(&self, account: Option<String>) -> Result<Place, Problem> {
        let full = |detail: String| Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        let permit = self.places.clone().try_acquire_owned();
        let permit = permit.map_err(|_| full("too many follow the changes: try again later".into()))?;
        if let Some(name) = &account {
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            let count = taken.entry(name.clone()).or_default();
            if *count >= CLIENTS_OF_ONE {
                return Err(full(format!("you follow the changes {CLIENTS_OF_ONE} times: end one of these streams")));
            }
            *count += 1;
        }
        Ok(Place { account, taken: self.taken.clone(), _permit: permit })
    }
}

/// The place of one who follows, until it is dropped.
struct Place {
    account: Option<String>,
    taken: Arc<Mutex<HashMap<String, usize>>>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(account) = &self.account else { return };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(account) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(account)),
        }
    }
}

/// What a client may list and what not, as far as it was asked: in each namespace, of each of [`KINDS`]. The empty namespace
/// stands for the whole cluster.
#[derive(Debug, Clone, Default)]
struct Rights(HashMap<String, [Option<bool>; KINDS.len()]>);

impl Rights {
    fn get(&self, row: u8, namespace: &str) -> Option<bool> {
        self.asked(row, "").filter(|whole| *whole).or_else(|| self.asked(row, namespace))
    }

    fn asked(&self, row: u8, namespace: &str) -> Option<bool> {
        *self.0.get(namespace)?.get(usize::from(row))?
    }

    fn places(&self) -> impl Iterator<Item = (u8, String)> {
        let of = |(name, answers): (&String, &[Option<bool>; KINDS.len()])| {
            let rows = (0_u8..).zip(*answers).filter(|(_, answer)| answer.is_some());
            let name = name.clone();
            rows.map(move |(row, _)| (row, name.clone()))
        };
        self.0.iter().flat_map(of)
    }

    /// Whether something that both know is another now.
    fn differs(&self, other: &Self) -> bool {
        self.places().any(|(row, name)| other.asked(row, &name).is_some_and(|now| Some(now) != self.asked(row, &name)))
    }

    /// Forgets what was answered about other places.
    fn keep(&mut self, places: &BTreeSet<(u8, String)>) {
        self.0.retain(|name, answers| {
            for (row, answer) in (0_u8..).zip(answers.iter_mut()) {
                *answer = answer.filter(|_| places.contains(&(row, name.clone())));
            }
            answers.iter().any(Option::is_some)
        });
    }

    /// Asks about places of which nothing is known.
    async fn ask(&mut self, app: &App, caller: &Caller, places: BTreeSet<(u8, String)>) -> Result<(), Problem> {
        let rows: BTreeSet<u8> = places.iter().map(|(row, _)| *row).collect();
        self.answer(app, caller, rows.into_iter().map(|row| (row, String::new())).collect()).await?;
        self.answer(app, caller, places.into_iter().collect()).await
    }

    async fn answer(&mut self, app: &App, caller: &Caller, mut places: Vec<(u8, String)>) -> Result<(), Problem> {
        places.retain(|(row, namespace)| self.get(*row, namespace).is_none());
        let ask = async |(row, namespace): (u8, String)| {
            let Some(kind) = KINDS.get(usize::from(row)) else { return Ok((row, namespace, false)) };
            let may = app.auth.may_list(caller, kind, &namespace).await?;
            Ok((row, namespace, may))
        };
        let answers: Vec<_> = stream::iter(places).map(ask).buffer_unordered(AT_A_TIME).collect().await;
        for answer in answers {
            let (row, namespace, may) = answer?;
            if let Some(known) = self.0.entry(namespace).or_default().get_mut(usize::from(row)) {
                *known = Some(may);
            }
        }
        Ok(())
    }
}

/// Every kind with each namespace that has objects of it, and with none.
fn places(fleet: &Fleet) -> BTreeSet<(u8, String)> {
    let rows = (0_u8..).zip(KINDS).map(|(row, _)| row);
    let of = |row| fleet.namespaces(row).into_iter().chain([String::new()]).map(move |name| (row, name));
    rows.flat_map(of).collect()
}

/// One who follows.
struct Client {
    app: App,
    caller: Caller,
    feed: Feed,
    rights: Rights,
    reviewed: Instant,
    /// When the last piece was sent.
    sent: Instant,
    /// What is to be said first.
    first: Option<Bytes>,
    stop: CancellationToken,
    _place: Place,
}

/// A stream of all changes after the event of this id; from now on, if there is no id.
///
/// # Errors
/// There are too many clients, or too many of this caller, or he cannot be reviewed.
pub(super) async fn follow(app: App, caller: Caller, last: Option<&str>) -> Result<Body, Problem> {
    let place = app.clients.place(app.auth.account(&caller).await?)?;
    let mut rights = Rights::default();
    rights.ask(&app, &caller, places(&app.fleet)).await?;
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
        rights,
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
                    let changed = self.review().await?;
                    return Some(if changed { self.reset().into() } else { Bytes::from_static(b":\n\n") });
                }
                () = stop.cancelled() => return None,
            };
            self.sent = Instant::now();
            let changed = self.review().await?;
            let piece = match batch {
                Batch::Changes(changes) if !changed => {
                    let steps = self.feed.transitions_after(before);
                    let told = changes.iter().map(|change| &change.record);
                    let told = told.chain(steps.iter().map(|step| &step.record));
                    let new = told.filter(|record| self.rights.get(record.row, &record.key.namespace).is_none());
                    let new: BTreeSet<_> = new.map(|record| (record.row, record.key.namespace.clone())).collect();
                    if !new.is_empty() {
                        self.rights.ask(&self.app, &self.caller, new).await.ok()?;
                    }
                    self.piece(steps, &changes)
                }
                _ => self.reset(),
            };
            // What the client may not see is passed over in silence.
            if !piece.is_empty() {
                return Some(piece.into());
            }
        }
    }

    /// Asks from time to time whether the client may still see what it saw, and what it could not see. Returns whether
    /// something changed; `None`: it is nobody's any more, or nobody can be asked.
    async fn review(&mut self) -> Option<bool> {
        if self.reviewed.elapsed() < REVIEW {
            return Some(false);
        }
        let there = places(&self.app.fleet);
        let mut rights = Rights::default();
        let asked = there.iter().cloned().chain(self.rights.places()).collect();
        rights.ask(&self.app, &self.caller, asked).await.ok()?;
        let changed = self.rights.differs(&rights);
        // What has no objects any more is asked about again when it has some.
        rights.keep(&there);
        self.rights = rights;
        self.reviewed = Instant::now();
        Some(changed)
    }

    /// Goes on from here, and has the client read its lists again.
    fn reset(&mut self) -> Vec<u8> {
        self.feed = self.app.fleet.feed_from_now();
        reset(self.app.fleet.epoch(), self.feed.position())
    }

    /// What the client may see of these steps and changes.
    fn piece(&self, steps: Vec<Told>, changes: &[Changed]) -> Vec<u8> {
        let epoch = self.app.fleet.epoch();
        let mut transitions = steps.into_iter().peekable();
        let seen = |record: &super::fleet::Record| self.rights.get(record.row, &record.key.namespace) == Some(true);
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
