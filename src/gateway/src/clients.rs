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
pub(super) enum Client {
    /// A caller that proved its name.
    User(Arc<str>),
    /// Whoever is at this address.
    Address(IpAddr),
}

/// What each client has in flight.
#[derive(Debug)]
pub(super) struct Clients {
    /// 0: any number.
    most: u32,
    hasher: RandomState,
    shards: [Mutex<HashMap<Client, u32>>; SHARDS],
}

/// A client's request. Dropping it ends it.
pub(super) struct Ticket<'a> {
    /// `None`: nobody counts.
    of: Option<(&'a Clients, Client)>,
}

impl Clients {
    /// Nobody has anything in flight; each may have `most` requests, 0 for any number.
    pub(super) fn new(most: u32) -> Self {
        Self { most, hasher: RandomState::new(), shards: Default::default() }
    }

    /// One more request of a client; `None`: it has as many as it may.
    pub(super) fn begin(&self, client: impl FnOnce() -> Client) -> Option<Ticket<'_>> {
        if self.most == 0 {
            return Some(Ticket { of: None });
        }
        let client = client();
        {
            let mut shard = self.shard(&client);
            let count = shard.entry(client.clone()).or_default();
            if *count >= self.most {
                return None;
            }
            *count += 1;
        }
        Some(Ticket { of: Some((self, client)) })
    }

    fn shard(&self, client: &Client) -> MutexGuard<'_, HashMap<Client, u32>> {
        let at = self.hasher.hash_one(client) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let Some((clients, client)) = &self.of else { return };
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
        let clients = Clients::new(2);
        let address = || Client::Address(IpAddr::from([192, 0, 2, 1]));
        let user = || Client::User("u".into());
        let held = (clients.begin(address).unwrap(), clients.begin(address).unwrap());
        assert!(clients.begin(address).is_none());
        assert!(clients.begin(user).is_some());
        drop(held);
        assert!(clients.begin(address).is_some());
        assert!(clients.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
        let unbounded = Clients::new(0);
        assert!((0..100).map(|_| unbounded.begin(user)).all(|ticket| ticket.is_some()));
    }
}
