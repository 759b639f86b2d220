//! Counts the clients that listen, and those of each caller.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::{batch::SseBatchCache, ticker::Ticker};
use crate::api::problem::Problem;

/// Those who follow.
#[derive(Debug)]
pub(crate) struct Subscribers {
    pub(crate) permits: Arc<Semaphore>,
    /// How many places each caller has.
    pub(crate) per_account: Arc<Mutex<HashMap<String, usize>>>,
    pub(super) ticker: Ticker,
    pub(super) batches: SseBatchCache,
    pub(crate) stop: CancellationToken,
}

impl Subscribers {
    /// Nobody follows yet; all are let go at `stop`.
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(MAX_SUBSCRIBERS)),
            per_account: Arc::default(),
            ticker: Ticker::default(),
            batches: SseBatchCache::default(),
            stop,
        }
    }

    /// How many follow.
    pub(crate) fn count(&self) -> usize {
        MAX_SUBSCRIBERS - self.permits.available_permits()
    }

    /// A place for a client of this caller.
    pub(crate) fn acquire(&self, account: Option<String>) -> Result<SubscriberPermit, Problem> {
        let full = |detail: String| Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        let permit = self.permits.clone().try_acquire_owned();
        let permit = permit.map_err(|_| full("too many follow the changes: try again later".into()))?;
        if let Some(name) = &account {
            let mut taken = self.per_account.lock().unwrap_or_else(PoisonError::into_inner);
            let count = taken.entry(name.clone()).or_default();
            if *count >= MAX_SUBSCRIBERS_PER_ACCOUNT {
                return Err(full(format!(
                    "you follow the changes {MAX_SUBSCRIBERS_PER_ACCOUNT} times: end one of these streams"
                )));
            }
            *count += 1;
        }
        Ok(SubscriberPermit { account, per_account: self.per_account.clone(), _permit: permit })
    }
}

/// The place of one who follows, until it is dropped.
pub(crate) struct SubscriberPermit {
    pub(crate) account: Option<String>,
    pub(crate) per_account: Arc<Mutex<HashMap<String, usize>>>,
    pub(crate) _permit: OwnedSemaphorePermit,
}

impl Drop for SubscriberPermit {
    fn drop(&mut self) {
        let Some(account) = &self.account else { return };
        let mut taken = self.per_account.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(account) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(account)),
        }
    }
}

/// The most clients at a time.
pub(crate) const MAX_SUBSCRIBERS: usize = 5000;

/// The most clients of one caller, where callers are told apart.
pub(crate) const MAX_SUBSCRIBERS_PER_ACCOUNT: usize = 50;
