//! Verifies a token: its signature, its audience and its expiry.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use serde::Deserialize;

use super::{
    claims::{Claims, ISSUER},
    keys::PublicKey,
};

/// Largest difference of the clocks of two nodes, in seconds.
const LEEWAY: u64 = 60;
/// Longest token that is read.
const MAX_TOKEN_LENGTH: usize = 4096;

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: String,
    /// Extensions that must be understood (RFC 7515, section 4.1.11); none is supported.
    crit: Option<serde_json::Value>,
}

/// Caller whose name a gateway has signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedCaller {
    /// Name of the caller, fit for a header; `None` for one who came in by an anonymous path.
    pub user: Option<String>,
    /// Set if this user has the right to approve calls of the workload's tools.
    pub is_approver: bool,
    /// Expiry of the name, in seconds since 1970.
    pub until: u64,
}

/// Reason for which a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not a token.
    #[error("it is not a JSON Web Token with alg EdDSA")]
    Malformed,
    /// No key of its `kid` is known here.
    #[error("its key is not known here")]
    UnknownKey,
    /// Signed by another key, or altered.
    #[error("its signature is wrong")]
    Signature,
    /// Issued for another workload.
    #[error("it is for another workload")]
    Audience,
    /// No longer valid.
    #[error("it has expired")]
    Expired,
}

/// Verifier of tokens for one workload.
#[derive(Debug, Clone)]
pub struct Verifier {
    keys: Vec<PublicKey>,
    audience: String,
}

impl Verifier {
    /// Returns a verifier that accepts tokens signed by these keys for this [`super::audience`].
    pub fn new(keys: Vec<PublicKey>, audience: String) -> Self {
        Self { keys, audience }
    }

    /// Reports whether there is any key.
    pub fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Verifies a token and returns its caller; `now` is in seconds since 1970.
    ///
    /// # Errors
    /// The reason for which the token is refused.
    pub fn verify(&self, token: &[u8], now: u64) -> Result<VerifiedCaller, TokenError> {
        let token =
            str::from_utf8(token).ok().filter(|token| token.len() <= MAX_TOKEN_LENGTH).ok_or(TokenError::Malformed)?;
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        let decode = |part| BASE64.decode(part).map_err(|_| TokenError::Malformed);
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| TokenError::Malformed)?;
        if header.alg != "EdDSA" || header.crit.is_some() {
            return Err(TokenError::Malformed);
        }
        let key = self.keys.iter().find(|key| key.id == header.kid).ok_or(TokenError::UnknownKey)?;
        if !key.verifies(signed.as_bytes(), &decode(signature)?) {
            return Err(TokenError::Signature);
        }
        let claims = decode(claims)?;
        let claims: Claims<'_> = serde_json::from_slice(&claims).map_err(|_| TokenError::Malformed)?;
        if claims.iss != ISSUER || claims.aud != self.audience {
            return Err(TokenError::Audience);
        }
        let until = claims.exp.saturating_add(LEEWAY);
        if now >= until {
            return Err(TokenError::Expired);
        }
        let user = claims.sub;
        let is_approver = claims.approver && user.is_some();
        match user.as_deref().is_none_or(|user| !user.is_empty() && user.bytes().all(is_header_safe)) {
            true => Ok(VerifiedCaller { user, is_approver, until }),
            false => Err(TokenError::Malformed),
        }
    }
}

/// Reports whether a byte may occur in a header's value.
fn is_header_safe(byte: u8) -> bool {
    byte >= b' ' && byte != 0x7f
}
