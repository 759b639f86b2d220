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
pub struct TokenCache(Mutex<HashMap<Option<Arc<str>>, CachedToken>>);

#[derive(Debug)]
struct CachedToken {
    token: Arc<str>,
    keys: Arc<KeySet>,
    /// Time at which another token is made.
    until: Instant,
}

impl TokenCache {
    /// Returns the token of this caller, signed by `keys` for `audience`, from the cache if it still may be sent.
    pub fn get_or_sign(
        &self,
        user: Option<&Arc<str>>,
        keys: &Arc<KeySet>,
        now: Instant,
        audience: impl FnOnce() -> String,
    ) -> Arc<str> {
        let user = user.cloned();
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let valid = |made: &CachedToken| now < made.until && Arc::ptr_eq(&made.keys, keys);
        if let Some(made) = made.get(&user).filter(|made| valid(made)) {
            return made.token.clone();
        }
        if made.len() >= MAX_CACHED_CALLERS {
            made.retain(|_, made| valid(made));
        }
        if made.len() >= MAX_CACHED_CALLERS {
            made.clear();
        }
        let token: Arc<str> = keys.token(&audience(), user.as_deref(), unix_now() + TOKEN_LIFETIME.as_secs()).into();
        made.insert(user, CachedToken { token: token.clone(), keys: keys.clone(), until: now + REUSE_PERIOD });
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
        let sub = user.map(str::to_owned);
        self.sign(&Claims { iss: Cow::Borrowed(ISSUER), aud: Cow::Borrowed(audience), sub, exp: expires })
    }
}
