//! Permits for clients of the stream, limited in total and per caller.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::{batch::SseBatchCache, ticker::Ticker};
use crate::api::problem::Problem;

/// Clients of the stream, with what they share.
///
/// Invariant: a caller's count in `per_account` is the number of its live [`SubscriberPermit`]s, and never zero.
#[derive(Debug)]
pub(crate) struct Subscribers {
    pub(crate) permits: Arc<Semaphore>,
    /// Permits held by each caller.
    pub(crate) per_account: Arc<Mutex<HashMap<String, usize>>>,
    pub(super) ticker: Ticker,
    pub(super) batches: SseBatchCache,
    pub(crate) stop: CancellationToken,
}

impl Subscribers {
    /// Creates the set without clients; all streams end at `stop`.
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(MAX_SUBSCRIBERS)),
            per_account: Arc::default(),
            ticker: Ticker::default(),
            batches: SseBatchCache::default(),
            stop,
        }
    }

    /// Returns the number of clients.
    pub(crate) fn count(&self) -> usize {
        MAX_SUBSCRIBERS - self.permits.available_permits()
    }

    /// Acquires a permit for a client of this caller; a 503 problem if the limit is reached.
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

/// Permit of a client, released when it is dropped.
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

/// Limit of clients.
pub(crate) const MAX_SUBSCRIBERS: usize = 5000;

/// Limit of clients of one caller, where callers are authenticated.
pub(crate) const MAX_SUBSCRIBERS_PER_ACCOUNT: usize = 50;
