//! How the Pod goes without losing a request.
//!
//! On deletion the preStop hooks of both containers are called at once and the endpoint turns `terminating`; the workload
//! gets SIGTERM when its hook returns, the proxy only when the workload has exited. So the proxy's hook (`lame-duck`) only
//! says that the Pod is going, and the workload's (`drain`) returns when it is empty:
//!
//! - **lame duck**: everything is served as before, because requests are still sent here; answers ask for another
//!   connection next time. It stays ready: an unready Pod would no longer be a fallback of its Service.
//! - **draining**: new requests are refused; those in flight end, or are aborted after the shutdown timeout.
//!
//! A drain that no lame duck came before is a restart of the workload's container alone, or somebody's who may read the Pod's
//! template. It only waits; requests are refused from when the workload's port has closed until it is open again.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::Poll,
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};

use super::{config::ProxyConfig, load::LoadTracker, upstream::Upstream};

/// How long a drain waits for the hook of the other container, which is called at the same time.
const HOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest drain for a restart of the workload's container: it is dead already, or nearly.
const RESTART_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// After this much longer than a shutdown may take, there was none.
const GRACE: Duration = Duration::from_secs(15);
/// How often a workload that restarts is tried.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// What is done with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DrainStage {
    /// They are served.
    Serving,
    /// They are served; the Pod is going.
    LameDuck,
    /// New ones are refused; the Pod is going.
    Draining,
    /// New ones are refused; the workload's container restarts.
    Restarting,
}

/// The stage, and who moves it.
#[derive(Debug)]
pub(super) struct DrainState {
    stage: watch::Sender<DrainStage>,
    /// How often everything in flight was aborted.
    aborts: AtomicU32,
    aborted: Notify,
    load: Arc<LoadTracker>,
    upstream: Arc<Upstream>,
    lame_duck: Duration,
    shutdown: Duration,
    /// Whether a restart is waited for.
    awaiting_restart: AtomicBool,
}

impl DrainState {
    /// Serving.
    pub(super) fn new(config: &ProxyConfig, load: Arc<LoadTracker>, upstream: Arc<Upstream>) -> Arc<Self> {
        Arc::new(Self {
            stage: watch::Sender::new(DrainStage::Serving),
            aborts: AtomicU32::new(0),
            aborted: Notify::new(),
            load,
            upstream,
            lame_duck: config.lame_duck,
            shutdown: config.shutdown_timeout,
            awaiting_restart: AtomicBool::new(false),
        })
    }

    /// The stage now.
    pub(super) fn stage(&self) -> DrainStage {
        *self.stage.borrow()
    }

    /// What `work` gives, or `None` if everything in flight is to be aborted while it is `busy`.
    ///
    /// It waits for the call once per connection, not per request: registering for it costs more than a look at a counter.
    pub(super) async fn run_until_aborted<T>(
        &self,
        busy: &AtomicBool,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        let mut seen = self.aborts.load(Ordering::Acquire);
        let mut call = pin!(self.aborted.notified());
        let mut waits = false;
        poll_fn(|cx| {
            loop {
                let aborts = self.aborts.load(Ordering::Acquire);
                if std::mem::replace(&mut seen, aborts) != aborts {
                    if busy.load(Ordering::Relaxed) {
                        return Poll::Ready(None);
                    }
                    call.set(self.aborted.notified());
                    waits = false;
                } else if waits {
                    return work.as_mut().poll(cx).map(Some);
                } else if call.as_mut().poll(cx).is_ready() {
                    call.set(self.aborted.notified());
                } else {
                    waits = true;
                }
            }
        })
        .await
    }

    /// The Pod is going.
    pub(super) fn begin_lame_duck(self: &Arc<Self>) {
        let begun = self.stage.send_if_modified(|stage| {
            let begins = matches!(stage, DrainStage::Serving | DrainStage::Restarting);
            if begins {
                *stage = DrainStage::LameDuck;
            }
            begins
        });
        if !begun {
            return;
        }
        tracing::info!(in_flight = self.load.in_flight(), "the Pod is going: lame duck");
        let life = self.clone();
        tokio::spawn(async move {
            sleep(life.lame_duck).await;
            life.stage.send_replace(DrainStage::Draining);
            tracing::info!(in_flight = life.load.in_flight(), "draining");
            sleep(life.shutdown).await;
            life.abort_all();
            sleep(GRACE).await;
            tracing::warn!("the Pod did not go after all: serving again");
            life.stage.send_replace(DrainStage::Serving);
        });
    }

    /// Returns when the workload may be stopped: nothing is in flight, or its time is up.
    pub(super) async fn drain(self: &Arc<Self>) {
        let mut stage = self.stage.subscribe();
        let going = stage.wait_for(|stage| matches!(stage, DrainStage::LameDuck | DrainStage::Draining));
        if timeout(HOOK_TIMEOUT, going).await.is_ok() {
            let empty = async {
                // The sender lives as long as this does.
                let _ = stage.wait_for(|stage| *stage == DrainStage::Draining).await;
                self.load.wait_until_empty().await;
            };
            let _ = timeout(self.lame_duck + self.shutdown, empty).await;
            return;
        }
        tracing::info!(
            in_flight = self.load.in_flight(),
            "the workload's container restarts: waiting for what is in flight"
        );
        if !self.awaiting_restart.swap(true, Ordering::AcqRel) {
            let life = self.clone();
            tokio::spawn(async move { life.await_restart().await });
        }
        let _ = timeout(RESTART_DRAIN_TIMEOUT, self.load.wait_until_empty()).await;
    }

    /// Refuses requests from when the workload's port has closed until it accepts again, if anything of that kind happens.
    async fn await_restart(self: Arc<Self>) {
        let change = |from, to| {
            self.stage.send_if_modified(|stage| {
                let changes = *stage == from;
                if changes {
                    *stage = to;
                }
                changes
            })
        };
        let restarted = async {
            while self.upstream.accepts().await {
                sleep(RETRY_INTERVAL).await;
            }
            change(DrainStage::Serving, DrainStage::Restarting);
            self.upstream.close_idle();
            while !self.upstream.accepts().await {
                sleep(RETRY_INTERVAL).await;
            }
        };
        let _ = timeout(self.lame_duck + self.shutdown + GRACE, restarted).await;
        change(DrainStage::Restarting, DrainStage::Serving);
        self.awaiting_restart.store(false, Ordering::Release);
    }

    fn abort_all(&self) {
        let left = self.load.in_flight();
        if left > 0 {
            tracing::warn!(in_flight = left, "requests are cut off: they did not end in time");
        }
        self.aborts.fetch_add(1, Ordering::Release);
        self.aborted.notify_waiters();
    }
}
