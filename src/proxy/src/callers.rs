//! Verification of callers: trusts only tokens that a gateway signed for this workload. Each token is verified once,
//! and cached until it expires.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http1::RequestHead;
use identity::{TokenError, Verifier, unix_now};
use tokio::time::Instant;

use super::{config::ProxyConfig, local_response::SidecarResponse};

/// Most tokens in the cache.
const MAX_TOKENS: usize = 256;

/// User that is forwarded to the workload in `X-Recif-User`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ForwardedUser {
    /// The field as sent by the client: no keys are configured.
    AsSent,
    /// No user, and no gateway vouches for the request: the field is removed.
    Unknown,
    /// No user, by the word of a gateway.
    Nameless,
    /// This user.
    Named {
        /// Name of the user.
        name: Arc<str>,
        /// Set if the user may approve calls of the workload's tools, which the workload gets to know by `X-Recif-Approver`.
        is_approver: bool,
    },
}

impl ForwardedUser {
    /// Reports whether a gateway vouches for the request.
    pub(super) fn is_vouched_for(&self) -> bool {
        matches!(self, Self::Nameless | Self::Named { .. })
    }

    /// Returns the name that the workload gets with a request; `None` if it gets none.
    pub(super) fn name(&self, head: &RequestHead<'_>) -> Option<Arc<str>> {
        match self {
            Self::Named { name, .. } => Some(name.clone()),
            Self::AsSent => head.value("x-recif-user").and_then(|name| str::from_utf8(name).ok()).map(Arc::from),
            Self::Unknown | Self::Nameless => None,
        }
    }
}

/// Verifier of callers' tokens.
///
/// Invariant: `verified` holds only tokens whose signature was valid, and at most [`MAX_TOKENS`].
#[derive(Debug)]
pub(super) struct CallerVerifier {
    verifier: Verifier,
    /// Set if requests without a valid token are refused.
    required: bool,
    verified: Mutex<VerifiedTokens>,
}

/// Tokens by a part of their signature.
type VerifiedTokens = HashMap<u64, VerifiedToken, BuildHasherDefault<SignatureHasher>>;

/// Token whose signature was valid.
#[derive(Debug)]
struct VerifiedToken {
    token: Box<[u8]>,
    user: ForwardedUser,
    expires: Instant,
}

/// Hasher that only multiplies: the bytes of a signature are random already, and only valid signatures are cached.
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
    /// Creates the verifier from the configuration.
    pub(super) fn new(config: &ProxyConfig) -> Self {
        Self { verifier: config.verifier.clone(), required: config.require_identity, verified: Mutex::default() }
    }

    /// Identifies the caller of a request.
    ///
    /// # Errors
    /// The refusal, if a token is required and the request has no valid one.
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

    /// Returns the number of cached tokens.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.verified().len()
    }

    fn verified(&self) -> MutexGuard<'_, VerifiedTokens> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn verify(&self, token: &[u8], now: Instant) -> Result<ForwardedUser, TokenError> {
        let key = cache_key(token).ok_or(TokenError::Malformed)?;
        let is_it = |known: &&VerifiedToken| *known.token == *token && now < known.expires;
        if let Some(user) = self.verified().get(&key).filter(is_it).map(|known| known.user.clone()) {
            return Ok(user);
        }
        let unix = unix_now();
        // Without the lock, so that other requests do not wait for a signature.
        let caller = self.verifier.verify(token, unix)?;
        let is_approver = caller.is_approver;
        let named = |user: String| ForwardedUser::Named { name: user.into(), is_approver };
        let user = caller.user.map_or(ForwardedUser::Nameless, named);
        let mut known = self.verified();
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

/// Returns the cache key of a token: eight bytes within its signature. The last character is left out, since it holds
/// few bits.
fn cache_key(token: &[u8]) -> Option<u64> {
    let end = token.len().checked_sub(8)?;
    token.get(end.checked_sub(8)?..end)?.try_into().ok().map(u64::from_ne_bytes)
}
