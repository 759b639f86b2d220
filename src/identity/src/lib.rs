//! Signed identity of callers: [JSON Web Tokens](https://www.rfc-editor.org/rfc/rfc7519) (RFC 7519, RFC 8037) by which
//! the sidecar of a Pod verifies that the caller's name comes from a gateway. Keys, signing and verification; no I/O.
//!
//! There are two key pairs. The first, `current`, signs. The second, `next`, is published beside it in the templates of
//! Pods long before it signs, so that a rotation restarts no Pod: running Pods already know the key that signs from
//! then on.

mod claims;
mod keys;
mod tokens;
mod verifier;

#[cfg(test)]
mod tests;

use std::time::{SystemTime, UNIX_EPOCH};

pub use claims::{ISSUER, audience};
pub use keys::{KeyError, KeyPair, KeySet, PublicKey, public_keys};
pub use tokens::TokenCache;
pub use verifier::{TokenError, VerifiedCaller, Verifier};

/// Request header that carries a token.
pub const CALLER_HEADER: &str = "X-Recif-Caller";
/// `aud` of the tokens with which the operator requests [`DEMAND_PATH`] from gateways.
pub const DEMAND_AUDIENCE: &str = "gateway/demand";
/// Path at which a gateway lists every workload for which requests come in.
pub const DEMAND_PATH: &str = "/_recif/demand";
/// Path at which a gateway responds as soon as requests begin to wait for a workload without a ready Pod (long
/// polling).
pub const COLD_DEMAND_PATH: &str = "/_recif/demand/cold";
/// `aud` of the tokens with which gateways exchange their admissions at [`LIMITS_PATH`].
pub const LIMITS_AUDIENCE: &str = "gateway/limits";
/// Path at which a gateway takes the admissions of another one, and responds with its own.
pub const LIMITS_PATH: &str = "/_recif/limits";

/// Returns the seconds since 1970.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map(|since| since.as_secs()).unwrap_or_default()
}
