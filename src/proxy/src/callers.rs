//! Who calls: only what a gateway signed for this workload is believed, and each token is judged once, until it expires.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http1::RequestHead;
use identity::{TokenError, Verifier, unix_now};
use tokio::time::Instant;

use super::{config::ProxyConfig, local_response::SidecarResponse};

/// Tokens that are remembered at most.
const MAX_TOKENS: usize = 256;

/// What the workload is told of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ForwardedUser {
    /// Whatever the request says: no key is known here.
    AsSent,
    /// Nothing.
    Unknown,
    /// This name.
    Named(Arc<str>),
}

/// Judges callers.
#[derive(Debug)]
pub(super) struct CallerVerifier {
    verifier: Verifier,
    /// Whether only gateways may call.
    required: bool,
    verified: Mutex<HashMap<u64, VerifiedToken, BuildHasherDefault<SignatureHasher>>>,
}

/// A token that was found good.
#[derive(Debug)]
struct VerifiedToken {
    token: Box<[u8]>,
    user: ForwardedUser,
    expires: Instant,
}

/// Hashes nothing: the bytes of a signature are random, and only those of good ones are kept.
#[derive(Debug, Default)]
struct SignatureHasher(u64);

impl Hasher for SignatureHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl CallerVerifier {
    /// As configured.
    pub(super) fn new(config: &ProxyConfig) -> Self {
        Self { verifier: config.verifier.clone(), required: config.require_identity, verified: Mutex::default() }
    }

    /// Who sends this request.
    ///
    /// # Errors
    /// The refusal, where only gateways may call and none vouches for it.
    pub(super) fn identify(&self, head: &RequestHead<'_>, now: Instant) -> Result<ForwardedUser, SidecarResponse> {
        if !self.verifier.has_keys() && !self.required {
            return Ok(ForwardedUser::AsSent);
        }
        let mut tokens = head.fields.values(head.bytes, "x-recif-caller");
        let refused = match (tokens.next(), tokens.next()) {
            (Some(token), None) => match self.verify(token, now) {
                Ok(user) => return Ok(user),
                Err(refused) => Some(refused),
            },
            (Some(_), Some(_)) => Some(TokenError::Malformed),
            (None, _) => None,
        };
        match (self.required, refused) {
            (false, _) => Ok(ForwardedUser::Unknown),
            (true, None) => {
                Err(SidecarResponse::refusal(401, "only requests through the gateway are answered here", "identity"))
            }
            (true, Some(why)) => {
                let error = format!("no gateway known here vouches for this request: of X-Recif-Caller, {why}");
                Err(SidecarResponse::refusal(401, &error, "identity"))
            }
        }
    }

    /// How many tokens are remembered.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn verify(&self, token: &[u8], now: Instant) -> Result<ForwardedUser, TokenError> {
        let key = cache_key(token).ok_or(TokenError::Malformed)?;
        let mut known = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&key).filter(|known| *known.token == *token && now < known.expires) {
            return Ok(known.user.clone());
        }
        let unix = unix_now();
        let caller = self.verifier.verify(token, unix)?;
        let user = caller.user.map_or(ForwardedUser::Unknown, |user| ForwardedUser::Named(user.into()));
        if known.len() >= MAX_TOKENS {
            known.retain(|_, known| now < known.expires);
        }
        if known.len() >= MAX_TOKENS
            && let Some(first) = known.iter().min_by_key(|(_, known)| known.expires).map(|(key, _)| *key)
        {
            known.remove(&first);
        }
        let until = now + Duration::from_secs(caller.until.saturating_sub(unix));
        known.insert(key, VerifiedToken { token: token.into(), user: user.clone(), expires: until });
        Ok(user)
    }
}

/// Eight bytes within the signature, by which tokens are told apart. Its last character holds few bits.
fn cache_key(token: &[u8]) -> Option<u64> {
    let end = token.len().checked_sub(8)?;
    token.get(end.checked_sub(8)?..end)?.try_into().ok().map(u64::from_ne_bytes)
}
