//! Claims of a token.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// `iss` of every token.
pub const ISSUER: &str = "recif";

/// Claims of a token.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Claims<'a> {
    #[serde(borrow)]
    pub(super) iss: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) aud: Cow<'a, str>,
    /// Caller; absent for one who came in by an anonymous path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sub: Option<String>,
    /// Set for a caller with the right to approve calls of the workload's tools. Verifiers of older versions leave it unread.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) approver: bool,
    pub(super) exp: u64,
}

/// Returns the `aud` of tokens for the workload of this kind (`Agent`), namespace and name.
pub fn audience(kind: &str, namespace: &str, name: &str) -> String {
    format!("{}/{namespace}/{name}", kind.to_lowercase())
}
