//! Rate limit for guessed tokens: an address that sent many invalid tokens gets no further unknown token reviewed for a while.
//!
//! Every unknown token costs a review by the API server, so a client that makes up tokens would make other callers wait. Only refused
//! tokens count, each token once. The address of a known caller is never checked, and valid tokens cost nothing, so that one bad client
//! behind an ingress or a NAT affects only callers that are new there.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Number of refused tokens at which an address is blocked.
const MAX_REFUSED: usize = 20;
/// Window in which refused tokens count, and duration of the block that follows.
const WINDOW: Duration = Duration::from_secs(10);
/// Most addresses that are tracked.
const MAX_ADDRESSES: usize = 10_000;

/// Refused tokens by address, and thereby the blocked addresses.
///
/// Invariant: at most [`MAX_ADDRESSES`] addresses, with at most [`MAX_REFUSED`] distinct tokens each.
#[derive(Debug, Default)]
pub struct Penalties {
    hasher: RandomState,
    refused: Mutex<HashMap<IpAddr, RefusedTokens>>,
}

/// Refused tokens of one address.
#[derive(Debug)]
struct RefusedTokens {
    since: Instant,
    /// Hashes of the distinct tokens.
    tokens: Vec<u64>,
}

impl Penalties {
    /// Reports whether unknown tokens of this address are blocked from review.
    pub fn is_blocked(&self, address: IpAddr) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused
            .get(&network(address))
            .is_some_and(|found| found.tokens.len() >= MAX_REFUSED && found.since.elapsed() < WINDOW)
    }

    /// Counts a token that was reviewed and refused.
    pub fn record_refusal(&self, address: IpAddr, token: &str) {
        let (hash, now) = (self.hasher.hash_one(token), Instant::now());
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() >= MAX_ADDRESSES {
            refused.retain(|_, found| now - found.since < WINDOW);
        }
        if refused.len() >= MAX_ADDRESSES {
            return;
        }
        let found = refused.entry(network(address)).or_insert_with(|| RefusedTokens { since: now, tokens: Vec::new() });
        if now - found.since >= WINDOW {
            *found = RefusedTokens { since: now, tokens: Vec::new() };
        }
        if found.tokens.len() < MAX_REFUSED && !found.tokens.contains(&hash) {
            found.tokens.push(hash);
            if found.tokens.len() == MAX_REFUSED {
                // The block begins here.
                found.since = now;
            }
        }
    }
}

/// Returns the address under which a client is counted: the /64 network of an IPv6 address, because its owner has 2⁶⁴ of them.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_pays_for_twenty_different_tokens_in_ten_seconds_and_for_ten_seconds() {
        let penalties = Penalties::default();
        let (here, there) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        for _ in 0..100 {
            penalties.record_refusal(here, "the same");
        }
        (0..18).for_each(|number| penalties.record_refusal(here, &number.to_string()));
        assert!(!penalties.is_blocked(here));
        penalties.record_refusal(here, "one more");
        assert!(penalties.is_blocked(here) && !penalties.is_blocked(there));
        advance(Duration::from_secs(9)).await;
        assert!(penalties.is_blocked(here));
        advance(Duration::from_secs(1)).await;
        assert!(!penalties.is_blocked(here));
        for number in 0..60 {
            penalties.record_refusal(there, &number.to_string());
            advance(Duration::from_secs(1)).await;
        }
        assert!(!penalties.is_blocked(there), "one a second is not many");
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let penalties = Penalties::default();
        let at = |host: u16| IpAddr::from([0xfd00, 0, 0, 1, 0, 0, 0, host]);
        (0..20).for_each(|number| penalties.record_refusal(at(number), &number.to_string()));
        assert!(penalties.is_blocked(at(99)) && !penalties.is_blocked("fd00:0:0:2::1".parse().unwrap()));
    }
}
