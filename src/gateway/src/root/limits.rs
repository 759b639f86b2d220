//! Bounds on what requests at the root hold in memory, and on what they ask of the API server.

use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::super::{
    clients::{ClientId, ClientLimiter, ClientPermit},
    local_response::LocalResponse,
};

/// Most large bodies that are held at a time, of all clients.
pub(crate) const MAX_LARGE: usize = 64;
/// Most large bodies of one client.
pub(crate) const MAX_LARGE_PER_CLIENT: u32 = 8;
/// Most calls of tools at a time: each may hold an answer of the largest size.
pub(crate) const MAX_CALLS: usize = 64;
/// Most long lists at a time whose agents are reviewed one by one.
pub(crate) const MAX_LISTS: usize = 2;

/// Limits of the requests at the root.
#[derive(Debug)]
pub(crate) struct RootLimits {
    /// Permits for large bodies.
    pub(crate) large_bodies: Semaphore,
    /// Limiter of large bodies per client.
    large_of_client: ClientLimiter,
    /// Permits for calls of tools.
    pub(crate) calls: Semaphore,
    /// Permits for lists whose agents are reviewed one by one.
    pub(crate) lists: Semaphore,
}

impl Default for RootLimits {
    fn default() -> Self {
        Self {
            large_bodies: Semaphore::new(MAX_LARGE),
            large_of_client: ClientLimiter::new(MAX_LARGE_PER_CLIENT),
            calls: Semaphore::new(MAX_CALLS),
            lists: Semaphore::new(MAX_LISTS),
        }
    }
}

/// Permit to hold a large body. Dropping it releases it.
pub(crate) struct LargeBody<'a> {
    _place: SemaphorePermit<'a>,
    _share: ClientPermit<'a>,
}

impl RootLimits {
    /// Acquires a permit for a large body of this client.
    ///
    /// # Errors
    /// The refusal, if the client holds its share already, or all clients hold all.
    pub(super) fn large_body(&self, client: ClientId) -> Result<LargeBody<'_>, LocalResponse> {
        match (self.large_of_client.acquire(|| client), self.large_bodies.try_acquire()) {
            (Some(share), Ok(place)) => Ok(LargeBody { _place: place, _share: share }),
            _ => Err(LocalResponse::new(503, "queue-full", "too many requests with large bodies arrive: try again")),
        }
    }
}

/// Permit of a request's body, if it has one, which may be released before the request ends.
#[derive(Default)]
pub(crate) struct HeldBody<'a>(Mutex<Option<Box<LargeBody<'a>>>>);

impl<'a> HeldBody<'a> {
    /// Holds a permit.
    pub(super) fn new(large: Option<LargeBody<'a>>) -> Self {
        // Boxed, because few requests have one and every connection has room for it.
        Self(Mutex::new(large.map(Box::new)))
    }

    /// Releases the permit.
    pub(crate) fn release(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
