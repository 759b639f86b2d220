//! Concurrency limits per client, for requests in flight and for connections, so that one client cannot take the whole
//! gateway.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Number of locks: clients are spread over them, so they rarely contend.
const SHARDS: usize = 16;

/// Client for which requests or connections are counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ClientId {
    /// Authenticated caller, by name.
    User(Arc<str>),
    /// Unauthenticated caller, by IP address.
    Address(IpAddr),
}

/// Concurrency limiter per client.
///
/// Invariant: a client has an entry only while it holds at least one permit, and the entry's count is the number of its
/// permits.
#[derive(Debug)]
pub(super) struct ClientLimiter {
    /// Most permits of one client; 0 for no limit.
    limit: u32,
    hasher: RandomState,
    shards: [Mutex<HashMap<ClientId, u32>>; SHARDS],
}

/// Permit for one request or connection of a client. Dropping it releases it.
pub(super) struct ClientPermit<'a> {
    /// `None` if there is no limit and nothing is counted.
    counted: Option<(&'a ClientLimiter, ClientId)>,
}

impl ClientLimiter {
    /// Creates a limiter without permits in use. Each client may hold up to `most`; 0 for any number.
    pub(super) fn new(most: u32) -> Self {
        Self { limit: most, hasher: RandomState::new(), shards: Default::default() }
    }

    /// Acquires a permit for a client. Returns `None` if the client is at its limit.
    pub(super) fn acquire(&self, client: impl FnOnce() -> ClientId) -> Option<ClientPermit<'_>> {
        if self.limit == 0 {
            return Some(ClientPermit { counted: None });
        }
        let client = client();
        {
            let mut shard = self.shard(&client);
            let count = shard.entry(client.clone()).or_default();
            if *count >= self.limit {
                return None;
            }
            *count += 1;
        }
        Some(ClientPermit { counted: Some((self, client)) })
    }

    fn shard(&self, client: &ClientId) -> MutexGuard<'_, HashMap<ClientId, u32>> {
        let at = self.hasher.hash_one(client) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ClientPermit<'_> {
    fn drop(&mut self) {
        let Some((clients, client)) = &self.counted else { return };
        let mut shard = clients.shard(client);
        if let Some(count) = shard.get_mut(client) {
            *count -= 1;
            if *count == 0 {
                shard.remove(client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_own_bound_and_nothing_is_kept_of_one_that_left() {
        let clients = ClientLimiter::new(2);
        let address = || ClientId::Address(IpAddr::from([192, 0, 2, 1]));
        let user = || ClientId::User("u".into());
        let held = (clients.acquire(address).unwrap(), clients.acquire(address).unwrap());
        assert!(clients.acquire(address).is_none());
        assert!(clients.acquire(user).is_some());
        drop(held);
        assert!(clients.acquire(address).is_some());
        assert!(clients.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
        let unbounded = ClientLimiter::new(0);
        assert!((0..100).map(|_| unbounded.acquire(user)).all(|ticket| ticket.is_some()));
    }
}
