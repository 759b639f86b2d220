//! Who calls: only what a gateway signed for this workload is believed, and each token is judged once, until it expires.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http1::RequestHead;
use identity::{Refused, Verifier, unix_now};
use tokio::time::Instant;

use super::{config::Config, local_response::Answer};

/// Tokens that are remembered at most.
const MOST: usize = 256;

/// What the workload is told of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum User {
    /// Whatever the request says: no key is known here.
    AsSent,
    /// Nothing.
    Unknown,
    /// This name.
    Named(Arc<str>),
}

/// Judges callers.
#[derive(Debug)]
pub(super) struct Callers {
    verifier: Verifier,
    /// Whether only gateways may call.
    required: bool,
    known: Mutex<HashMap<u64, Known, BuildHasherDefault<Random>>>,
}

/// A token that was found good.
#[derive(Debug)]
struct Known {
    token: Box<[u8]>,
    user: User,
    until: Instant,
}

/// Hashes nothing: the bytes of a signature are random, and only those of good ones are kept.
#[derive(Debug, Default)]
struct Random(u64);

impl Hasher for Random {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Callers {
    /// As configured.
    pub(super) fn new(config: &Config) -> Self {
        Self { verifier: config.verifier.clone(), required: config.require_identity, known: Mutex::default() }
    }

    /// Who sends this request.
    ///
    /// # Errors
    /// The refusal, where only gateways may call and none vouches for it.
    pub(super) fn of(&self, head: &RequestHead<'_>, now: Instant) -> Result<User, Answer> {
        if !self.verifier.has_keys() && !self.required {
            return Ok(User::AsSent);
        }
        let mut tokens = head.fields.values(head.bytes, "x-recif-caller");
        let refused = match (tokens.next(), tokens.next()) {
            (Some(token), None) => match self.user(token, now) {
                Ok(user) => return Ok(user),
                Err(refused) => Some(refused),
            },
            (Some(_), Some(_)) => Some(Refused::Malformed),
            (None, _) => None,
        };
        match (self.required, refused) {
            (false, _) => Ok(User::Unknown),
            (true, None) => {
                Err(Answer::refusal(401, "only requests through the gateway are answered here", "identity"))
            }
            (true, Some(why)) => {
                let error = format!("no gateway known here vouches for this request: of X-Recif-Caller, {why}");
                Err(Answer::refusal(401, &error, "identity"))
            }
        }
    }

    /// How many tokens are remembered.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn user(&self, token: &[u8], now: Instant) -> Result<User, Refused> {
        let key = number(token).ok_or(Refused::Malformed)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&key).filter(|known| *known.token == *token && now < known.until) {
            return Ok(known.user.clone());
        }
        let unix = unix_now();
        let caller = self.verifier.verify(token, unix)?;
        let user = caller.user.map_or(User::Unknown, |user| User::Named(user.into()));
        if known.len() >= MOST {
            known.retain(|_, known| now < known.until);
        }
        if known.len() >= MOST
            && let Some(first) = known.iter().min_by_key(|(_, known)| known.until).map(|(key, _)| *key)
        {
            known.remove(&first);
        }
        let until = now + Duration::from_secs(caller.until.saturating_sub(unix));
        known.insert(key, Known { token: token.into(), user: user.clone(), until });
        Ok(user)
    }
}

/// Eight bytes within the signature, by which tokens are told apart. Its last character holds few bits.
fn number(token: &[u8]) -> Option<u64> {
    let end = token.len().checked_sub(8)?;
    token.get(end.checked_sub(8)?..end)?.try_into().ok().map(u64::from_ne_bytes)
}
