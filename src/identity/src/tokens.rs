//! Cache of signed tokens, kept for as long as they may be sent: a signature costs as much as the rest of a request.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    claims::{Claims, ISSUER},
    keys::KeySet,
    unix_now,
    verifier::Verifier,
};

/// Validity of a token.
const TOKEN_LIFETIME: Duration = Duration::from_secs(300);
/// Time for which a token is sent: all but its last minute.
const REUSE_PERIOD: Duration = Duration::from_secs(240);
/// Most callers whose tokens for one workload are cached.
const MAX_CACHED_CALLERS: usize = 1000;

/// Cache of the tokens of one workload, by caller.
///
/// Invariant: at most `MAX_CACHED_CALLERS` tokens.
#[derive(Debug, Default)]
pub struct TokenCache(Mutex<HashMap<CachedCaller, CachedToken>>);

/// Caller, and whether it has the right to approve calls.
type CachedCaller = (Option<Arc<str>>, bool);

#[derive(Debug)]
struct CachedToken {
    token: Arc<str>,
    keys: Arc<KeySet>,
    /// Time at which another token is made.
    until: Instant,
}

impl TokenCache {
    /// Returns the token of this caller, signed by `keys` for `audience`, from the cache if it still may be sent. `is_approver`: the
    /// caller has the right to approve calls.
    pub fn get_or_sign(
        &self,
        user: Option<&Arc<str>>,
        is_approver: bool,
        keys: &Arc<KeySet>,
        now: Instant,
        audience: impl FnOnce() -> String,
    ) -> Arc<str> {
        let caller = (user.cloned(), is_approver);
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let valid = |made: &CachedToken| now < made.until && Arc::ptr_eq(&made.keys, keys);
        if let Some(made) = made.get(&caller).filter(|made| valid(made)) {
            return made.token.clone();
        }
        if made.len() >= MAX_CACHED_CALLERS {
            made.retain(|_, made| valid(made));
        }
        if made.len() >= MAX_CACHED_CALLERS {
            made.clear();
        }
        let expires = unix_now() + TOKEN_LIFETIME.as_secs();
        let token: Arc<str> = keys.signed(&audience(), caller.0.as_deref(), is_approver, expires).into();
        made.insert(caller, CachedToken { token: token.clone(), keys: keys.clone(), until: now + REUSE_PERIOD });
        token
    }
}

impl KeySet {
    /// Returns a verifier of tokens for `audience` that were signed by these keys, including those that sign next.
    pub fn verifier(&self, audience: &str) -> Verifier {
        Verifier::new(vec![self.current.public.clone(), self.next.public.clone()], audience.to_owned())
    }

    /// Returns a token for `audience` that names the caller and is valid until `expires`, in seconds since 1970.
    pub fn token(&self, audience: &str, user: Option<&str>, expires: u64) -> String {
        self.signed(audience, user, false, expires)
    }

    /// Returns the same for a caller with the right to approve calls.
    pub fn approver_token(&self, audience: &str, user: &str, expires: u64) -> String {
        self.signed(audience, Some(user), true, expires)
    }

    pub(super) fn signed(&self, audience: &str, user: Option<&str>, approver: bool, expires: u64) -> String {
        let (iss, aud) = (Cow::Borrowed(ISSUER), Cow::Borrowed(audience));
        self.sign(&Claims { iss, aud, sub: user.map(str::to_owned), approver, exp: expires })
    }
}
