//! Judging a token: of whom it is, for whom, and until when.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use serde::{Deserialize, Serialize};

use super::{ISSUER, PublicKey};

/// By how many seconds the clocks of two nodes may differ.
const LEEWAY: u64 = 60;
/// The longest token that is looked at.
const MAX_TOKEN_LENGTH: usize = 4096;

/// What a token says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Claims<'a> {
    #[serde(borrow)]
    pub(super) iss: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) aud: Cow<'a, str>,
    /// The caller; absent: one who was let in by an anonymous path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sub: Option<String>,
    pub(super) exp: u64,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: String,
    /// Extensions that must be understood (RFC 7515, section 4.1.11): none is.
    crit: Option<serde_json::Value>,
}

/// A caller that a gateway vouches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedCaller {
    /// The name, fit for a header; `None`: let in by an anonymous path.
    pub user: Option<String>,
    /// Until when that may be believed, in seconds since 1970.
    pub until: u64,
}

/// Why a token is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is no token.
    #[error("it is no JSON Web Token with alg EdDSA")]
    Malformed,
    /// No key of its `kid` is known here.
    #[error("its key is not known here")]
    UnknownKey,
    /// Somebody else made it, or changed it.
    #[error("its signature is wrong")]
    Signature,
    /// It is for another workload.
    #[error("it is for another workload")]
    Audience,
    /// It was valid once.
    #[error("it has expired")]
    Expired,
}

/// Judges tokens for one workload.
#[derive(Debug, Clone)]
pub struct Verifier {
    keys: Vec<PublicKey>,
    audience: String,
}

impl Verifier {
    /// Believes what these keys signed for this [`super::audience`].
    pub fn new(keys: Vec<PublicKey>, audience: String) -> Self {
        Self { keys, audience }
    }

    /// Whether there is any key.
    pub fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whose request it is that carries this token, `now` being seconds since 1970.
    ///
    /// # Errors
    /// Why it is not believed.
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
        match user.as_deref().is_none_or(|user| !user.is_empty() && user.bytes().all(is_header_safe)) {
            true => Ok(VerifiedCaller { user, until }),
            false => Err(TokenError::Malformed),
        }
    }
}

/// Whether a byte may stand in a header's value.
fn is_header_safe(byte: u8) -> bool {
    byte >= b' ' && byte != 0x7f
}
