//! The connection to a provider.

use std::sync::{Arc, OnceLock};

use reqwest::Client;

/// The HTTP client of all models, built at the first use: loading the system's certificates costs time and memory that
/// a stub need not pay.
#[derive(Clone, Default)]
pub(in crate::runner) struct Http {
    client: Arc<OnceLock<Result<Client, String>>>,
}
