//! Graceful termination of the Pod: [lame duck](https://sre.google/sre-book/load-balancing-datacenter/), then drain.
//!
//! On deletion of the Pod, the preStop hooks of both containers are called at once, and the endpoint becomes
//! `terminating`. The workload gets SIGTERM when its hook returns, and the proxy only when the workload has exited. So
//! the proxy's hook (`lame-duck`) only announces the termination, and the workload's hook (`drain`) returns when no
//! request is in flight:
//!
//! - **lame duck**: every request is served as before, because requests are still sent here. Responses close the
//!   connection, so clients open the next one elsewhere. The Pod stays ready: an unready Pod would no longer be a
//!   fallback of its Service.
//! - **draining**: new requests are refused. Those in flight end, or are aborted after the shutdown timeout.
//!
//! A drain without a lame duck before it comes from a restart of the workload's container alone, or from a client that
//! may read the Pod's template. It only waits. Requests are refused while the workload's port is closed.

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

/// Longest wait of a drain for the lame-duck hook of the other container, which is called at the same time.
const HOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest drain for a restart of the workload's container, which is dead already or nearly so.
const RESTART_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after lame duck and shutdown timeout when a Pod that still runs serves again.
const GRACE: Duration = Duration::from_secs(15);
/// Interval at which the port of a restarting workload is tried.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Stage of the termination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DrainStage {
    /// Requests are served.
    Serving,
    /// Requests are served, and the Pod is terminating.
    LameDuck,
    /// New requests are refused, and the Pod is terminating.
    Draining,
    /// New requests are refused while the workload's container restarts.
    Restarting,
}

/// State machine of the termination.
///
/// Invariant: the stage leaves `Serving` for `LameDuck`, `Draining` and back to `Serving` after [`GRACE`], or for
/// `Restarting` and back. A lame duck overrides a restart.
#[derive(Debug)]
pub(super) struct DrainState {
    stage: watch::Sender<DrainStage>,
    /// Number of times that everything in flight was aborted.
    aborts: AtomicU32,
    aborted: Notify,
    load: Arc<LoadTracker>,
    upstream: Arc<Upstream>,
    lame_duck: Duration,
    shutdown: Duration,
    /// Set while a task waits for the workload to restart.
    awaiting_restart: AtomicBool,
}

impl DrainState {
    /// Creates the state machine in stage `Serving`.
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

    /// Returns the current stage.
    pub(super) fn stage(&self) -> DrainStage {
        *self.stage.borrow()
    }

    /// Polls `work` to its end. Returns `None` if everything in flight is aborted while `busy` is true.
    ///
    /// It registers for the notification once per connection, not per request: registering costs more than a look at a
    /// counter.
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

    /// Begins the lame duck phase, and schedules the stages that follow. Does nothing if the Pod is already
    /// terminating.
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
        tracing::info!(in_flight = self.load.in_flight(), "the Pod is terminating: lame duck");
        let life = self.clone();
        tokio::spawn(async move {
            sleep(life.lame_duck).await;
            life.stage.send_replace(DrainStage::Draining);
            tracing::info!(in_flight = life.load.in_flight(), "draining");
            sleep(life.shutdown).await;
            life.abort_all();
            sleep(GRACE).await;
            tracing::warn!("the Pod was not terminated after all: serving again");
            life.stage.send_replace(DrainStage::Serving);
        });
    }

    /// Waits until the workload may be stopped: no request is in flight, or the time is up.
    pub(super) async fn drain(self: &Arc<Self>) {
        let mut stage = self.stage.subscribe();
        let going = stage.wait_for(|stage| matches!(stage, DrainStage::LameDuck | DrainStage::Draining));
        if timeout(HOOK_TIMEOUT, going).await.is_ok() {
            let empty = async {
                // The sender lives as long as `self`.
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

    /// Refuses requests while the workload's port is closed, if it closes at all, until it accepts connections again.
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
