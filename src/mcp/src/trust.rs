//! Verification of a server's certificate, as its object asks for it.

use reqwest::{Certificate, ClientBuilder};

/// Reason why no HTTP client can be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientBuildError {
    /// The certificates cannot be read.
    #[error("the certificates cannot be read: {0}")]
    Certificates(String),
    /// Anything else.
    #[error("no HTTP client: {0}")]
    Other(String),
}

/// Verification of a server's certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Trust {
    /// By the system's certificate authorities.
    #[default]
    System,
    /// By these, in PEM, besides the system's.
    Additional(Vec<u8>),
    /// By these alone, in PEM.
    Only(Vec<u8>),
    /// No verification.
    Unverified,
}

impl Trust {
    /// Returns a function that configures a client for this verification.
    ///
    /// # Errors
    /// [`ClientBuildError::Certificates`].
    pub fn client_config(&self) -> Result<impl Fn(ClientBuilder) -> ClientBuilder + use<>, ClientBuildError> {
        let unread = |error: reqwest::Error| ClientBuildError::Certificates(super::error_text::causes(&error));
        let certificates = match self {
            Self::Additional(pem) | Self::Only(pem) => Certificate::from_pem_bundle(pem).map_err(unread)?,
            Self::System | Self::Unverified => Vec::new(),
        };
        if certificates.is_empty() && matches!(self, Self::Additional(_) | Self::Only(_)) {
            return Err(ClientBuildError::Certificates("it holds no certificate in PEM form".into()));
        }
        let (anyone, alone) = (*self == Self::Unverified, matches!(self, Self::Only(_)));
        Ok(move |builder: ClientBuilder| match certificates.is_empty() {
            true => builder.tls_danger_accept_invalid_certs(anyone),
            false if alone => builder.tls_certs_only(certificates.clone()),
            false => builder.tls_certs_merge(certificates.clone()),
        })
    }
}
