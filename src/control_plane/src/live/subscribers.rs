//! Counts the clients that listen, and those of each caller.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::{portion::Portions, pulse::Pulse};
use crate::api::problem::Problem;

/// Those who follow.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) places: Arc<Semaphore>,
    /// How many places each caller has.
    pub(crate) taken: Arc<Mutex<HashMap<String, usize>>>,
    pub(super) pulse: Pulse,
    pub(super) portions: Portions,
    pub(crate) stop: CancellationToken,
}

impl Clients {
    /// Nobody follows yet; all are let go at `stop`.
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self {
            places: Arc::new(Semaphore::new(CLIENTS)),
            taken: Arc::default(),
            pulse: Pulse::default(),
            portions: Portions::default(),
            stop,
        }
    }

    /// How many follow.
    pub(crate) fn count(&self) -> usize {
        CLIENTS - self.places.available_permits()
    }

    /// A place for a client of this caller.
    pub(crate) fn place(&self, account: Option<String>) -> Result<Place, Problem> {
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
pub(crate) struct Place {
    pub(crate) account: Option<String>,
    pub(crate) taken: Arc<Mutex<HashMap<String, usize>>>,
    pub(crate) _permit: OwnedSemaphorePermit,
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

/// The most clients at a time.
pub(crate) const CLIENTS: usize = 5000;

/// The most clients of one caller, where callers are told apart.
pub(crate) const CLIENTS_OF_ONE: usize = 50;
