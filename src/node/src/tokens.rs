//! Tokens of ServiceAccounts: random texts, each of which belongs to one account while its Pod is there.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// Tokens that are valid. Clones share them.
#[derive(Clone, Default)]
pub struct Tokens(Arc<Mutex<HashMap<String, String>>>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Tokens {
    /// Returns the name of the account that a token belongs to, such as `system:serviceaccount:default:shop`.
    pub fn account(&self, token: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(token).cloned()
    }

    /// Makes a token of 256 random bits for an account.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn mint(&self, namespace: &str, account: &str) -> Result<String, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        let token = hex::encode(bytes);
        let account = format!("system:serviceaccount:{namespace}:{account}");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), account);
        Ok(token)
    }

    /// Makes a token invalid.
    pub(crate) fn revoke(&self, token: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_belongs_to_its_account_until_it_is_revoked() {
        let tokens = Tokens::default();
        let [a, b] = ["a", "b"].map(|account| tokens.mint("ns", account).unwrap());
        assert_eq!(tokens.clone().account(&a).as_deref(), Some("system:serviceaccount:ns:a"));
        tokens.revoke(&a);
        assert_eq!((tokens.account(&a), tokens.account("")), (None, None));
        assert_eq!(tokens.account(&b).as_deref(), Some("system:serviceaccount:ns:b"));
    }
}
