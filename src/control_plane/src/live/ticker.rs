//! Tells all who follow, at the same moment, that something changed.
//!
//! What changes within a short time is told together. One timer counts that time for everybody: so each is woken once for
//! many changes, and all go on from the same place.

use std::{sync::OnceLock, time::Duration};

use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::fleet::FleetCache;

/// What changes within this time after something was told is told together.
const TICK_INTERVAL: Duration = Duration::from_millis(50);

/// The last change that is to be told; `None`: nothing is told any more.
pub(super) type Tick = Option<u64>;

/// Tells all who follow that something changed.
#[derive(Debug, Default)]
pub(super) struct Ticker(OnceLock<watch::Sender<Tick>>);

impl Ticker {
    /// The changes of this fleet until `stop`. The first one to ask begins it.
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
    let told = async {
        // Once the fleet is gone, nothing changes any more.
        while stamps.changed().await.is_ok() {
            beats.send_replace(Some(*stamps.borrow_and_update()));
            sleep(TICK_INTERVAL).await;
        }
    };
    tokio::select! {
        () = told => {}
        () = stop.cancelled() => {}
    }
    beats.send_replace(None);
}
