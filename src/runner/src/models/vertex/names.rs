//! Names of Google Cloud.

/// Variable with a file of credentials, or with its text.
pub(super) const CREDENTIALS: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// What a token may be used for: all of Google Cloud that the account may.
pub(super) const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
