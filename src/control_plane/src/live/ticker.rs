//! Wakes all clients of the stream at the same moment when something has changed.
//!
//! A throttle with a leading edge: the first change wakes the clients at once, and those within the next 50 ms wake them
//! together afterwards. One timer serves all clients, so each is woken once for many changes, and all go on from the same
//! position.

use std::{sync::OnceLock, time::Duration};

use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::fleet::FleetCache;

/// Shortest time between two ticks.
const TICK_INTERVAL: Duration = Duration::from_millis(50);

/// Stamp of the last change to send; `None`: the streams end.
pub(super) type Tick = Option<u64>;

/// Source of ticks for all clients, started by the first subscriber.
#[derive(Debug, Default)]
pub(super) struct Ticker(OnceLock<watch::Sender<Tick>>);

impl Ticker {
    /// Subscribes to the changes of this fleet until `stop`. The first call starts the task.
    pub(super) fn subscribe(&self, fleet: &FleetCache, stop: &CancellationToken) -> watch::Receiver<Tick> {
        let begin = || {
            let mut stamps = fleet.stamps();
            let beats = watch::Sender::new(Some(*stamps.borrow_and_update()));
            tokio::spawn(send_ticks(stamps, beats.clone(), stop.clone()));
            beats
        };
        self.0.get_or_init(begin).subscribe()
    }
}

async fn send_ticks(mut stamps: watch::Receiver<u64>, beats: watch::Sender<Tick>, stop: CancellationToken) {
    let changed = async {
        // The loop ends when the fleet is dropped.
        while stamps.changed().await.is_ok() {
            beats.send_replace(Some(*stamps.borrow_and_update()));
            sleep(TICK_INTERVAL).await;
        }
    };
    tokio::select! {
        () = changed => {}
        () = stop.cancelled() => {}
    }
    beats.send_replace(None);
}
