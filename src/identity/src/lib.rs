//! Who calls, signed: JSON Web Tokens (RFC 7519, RFC 8037) by which the sidecar of a Pod knows that a gateway vouches for the name
//! it sends. Keys, signing and judging; no I/O.
//!
//! There are two key pairs. The first, `current`, signs. The second, `next`, is published beside it long before it signs, in the
//! templates of Pods, so that a rotation makes no Pod start anew: those that run know the key which signs from then on.

mod keys;
mod tokens;
mod verifier;

#[cfg(test)]
mod tests;

use std::time::{SystemTime, UNIX_EPOCH};

pub use keys::{KeyError, KeyPair, KeySet, PublicKey, public_keys};
pub use tokens::TokenCache;
pub use verifier::{TokenError, VerifiedCaller, Verifier};

/// The request header that carries a token.
pub const CALLER_HEADER: &str = "X-Recif-Caller";
/// `iss` of every token.
pub const ISSUER: &str = "recif";
/// `aud` of the tokens by which the operator asks gateways for [`DEMAND`].
pub const DEMAND_AUDIENCE: &str = "gateway/demand";
/// The path at which a gateway names every workload that is asked for.
pub const DEMAND_PATH: &str = "/_recif/demand";
/// The path at which a gateway answers as soon as requests begin to wait for a workload without a ready Pod (long polling).
pub const COLD_DEMAND_PATH: &str = "/_recif/demand/cold";

/// For whom a token is: `aud` of the workload of this kind (`Agent`).
pub fn audience(kind: &str, namespace: &str, name: &str) -> String {
    format!("{}/{namespace}/{name}", kind.to_lowercase())
}

/// Seconds since 1970.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map(|since| since.as_secs()).unwrap_or_default()
}
