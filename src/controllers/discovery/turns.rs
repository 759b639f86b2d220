//! The turns of one server: when it is asked, and what becomes of the answer.
//!
//! After an answer the object is told, and looks. One that does not look has no use for another answer, be it stopped or
//! waiting for a Secret, and its server is left alone until it does.

use std::{fmt, sync::Arc, time::Duration};

use actions::discovery::{Discovered, Outcome, Target, Undiscovered};
use async_trait::async_trait;
use futures::FutureExt;
use tokio::time::sleep;

use super::{Shared, Told, chance};
use crate::mcp::{Changes, Era};

/// A server that fails is asked again after this, then ever more rarely up to its resync.
const SOON: Duration = Duration::from_secs(2);
/// The longest that a server may say its list holds.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Changes that a server tells are looked at this often at most.
const PAUSE: Duration = Duration::from_secs(1);

/// Asks servers.
#[async_trait]
pub(super) trait Asks: Send + Sync {
    /// One discovery; `era` is what worked the last time.
    async fn ask(&self, target: &Target, era: Option<Era>) -> Result<Said, Unasked>;
}

/// What a server said.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) discovered: Discovered,
    /// How it was talked to.
    pub(super) era: Era,
    /// How long it says that this holds.
    pub(super) holds: Duration,
    /// The way in which it tells of changes, if it does.
    pub(super) changes: Option<Box<dyn Tells>>,
}

/// A server that tells when its tools change.
#[async_trait]
pub(super) trait Tells: fmt::Debug + Send {
    /// Returns when they did.
    async fn next(&mut self);
    /// It is not listened to any more.
    async fn close(self: Box<Self>);
}

#[async_trait]
impl Tells for Changes {
    async fn next(&mut self) {
        Self::next(self).await;
    }

    async fn close(self: Box<Self>) {
        Self::close(*self).await;
    }
}

/// Why nothing is known of a server.
#[derive(Debug)]
pub(super) enum Unasked {
    /// It does not tell its tools.
    Failed(Undiscovered),
    /// It could not be asked, and that is not its own fault: what it last said stands.
    Unready(Undiscovered),
}

/// See the module.
pub(super) struct Turns {
    shared: Arc<Shared>,
    target: Target,
    told: Arc<Told>,
    era: Option<Era>,
    failures: u32,
}

impl Turns {
    pub(super) fn new(shared: Arc<Shared>, target: Target, told: Arc<Told>) -> Self {
        Self { shared, target, told, era: None, failures: 0 }
    }

    /// Asks for ever, the first time after `delay`.
    pub(super) async fn run(mut self, delay: Duration) {
        sleep(delay).await;
        loop {
            let lane = if self.failures == 0 { &self.shared.well } else { &self.shared.ailing };
            let place = lane.acquire().await;
            let answer = self.shared.asks.ask(&self.target, self.era).await;
            drop(place);
            let (holds, changes) = self.take(answer);
            let pause = pause(self.target.resync, self.failures, holds);
            pause_or_change(pause.mul_f64(0.8 + 0.4 * chance()), changes).await;
            self.told.looked.notified().await;
        }
    }

    /// Takes the answer in and tells the object; how long it holds, and how the server tells of changes.
    fn take(&mut self, answer: Result<Said, Unasked>) -> (Duration, Option<Box<dyn Tells>>) {
        let (outcome, holds, changes): (Outcome, _, _) = match answer {
            Ok(said) => {
                (self.era, self.failures) = (Some(said.era), 0);
                (Ok(said.discovered), said.holds, said.changes)
            }
            Err(unasked) => {
                // A server may come back as another one.
                (self.era, self.failures) = (None, self.failures.saturating_add(1));
                match unasked {
                    Unasked::Unready(_) if self.told.last().is_some() => {
                        self.told.looked.notify_one();
                        return (Duration::ZERO, None);
                    }
                    Unasked::Unready(why) | Unasked::Failed(why) => (Err(why), Duration::ZERO, None),
                }
            }
        };
        // Who looked before has not seen this.
        let _ = self.told.looked.notified().now_or_never();
        *self.told.last() = Some(Arc::new(outcome));
        if let Some(wake) = self.shared.wake.get() {
            wake(self.target.kind, &self.target.key);
        }
        (holds, changes)
    }
}

/// How long a server is left alone after so many failures in a row, or after an answer that holds for some time.
pub(super) fn pause(resync: Duration, failures: u32, holds: Duration) -> Duration {
    match failures.checked_sub(1) {
        None => resync.max(holds.min(LONGEST)),
        Some(before) => resync.min(SOON.saturating_mul(1 << before.min(16))),
    }
}

/// Until the next turn, or until the server says that something changed.
async fn pause_or_change(pause: Duration, changes: Option<Box<dyn Tells>>) {
    let Some(mut changes) = changes else { return sleep(pause).await };
    tokio::select! {
        () = sleep(pause) => {}
        () = changes.next() => sleep(PAUSE.min(pause)).await,
    }
    changes.close().await;
}
