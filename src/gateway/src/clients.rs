//! How many requests each client has in flight, or connections, so that one cannot take the whole gateway.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Locks, so that clients rarely wait for each other.
const SHARDS: usize = 16;

/// Whom requests are counted for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ClientId {
    /// A caller that proved its name.
    User(Arc<str>),
    /// Whoever is at this address.
    Address(IpAddr),
}

/// What each client has in flight.
#[derive(Debug)]
pub(super) struct ClientLimiter {
    /// 0: any number.
    limit: u32,
    hasher: RandomState,
    shards: [Mutex<HashMap<ClientId, u32>>; SHARDS],
}

/// A client's request. Dropping it ends it.
pub(super) struct ClientPermit<'a> {
    /// `None`: nobody counts.
    counted: Option<(&'a ClientLimiter, ClientId)>,
}

impl ClientLimiter {
    /// Nobody has anything in flight; each may have `most` requests, 0 for any number.
    pub(super) fn new(most: u32) -> Self {
        Self { limit: most, hasher: RandomState::new(), shards: Default::default() }
    }

    /// One more request of a client; `None`: it has as many as it may.
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
