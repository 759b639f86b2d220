//! Credentials that are added to each request when it is sent: tokens that expire, and signatures.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::{
    Response,
    header::{AUTHORIZATION, HeaderMap, HeaderValue},
};

use super::{
    credential_cache::CredentialCache,
    error::ModelError,
    http::{Http, ProviderRequest, silent},
};

/// Source of the credentials of requests.
#[async_trait]
pub(super) trait RequestAuthorizer: Send + Sync {
    /// Adds credentials to `call`, which is not changed any more before it is sent.
    ///
    /// # Errors
    /// There are no credentials.
    async fn authorize(&self, call: &mut ProviderRequest) -> Result<(), ModelError>;

    /// Reports whether the provider refuses the credentials of a request, so that it is sent once more with new ones.
    fn renews(&self, error: &ModelError) -> bool {
        error.status == Some(401)
    }

    /// Forgets the credentials in `call`, which the provider has refused.
    fn forget(&self, call: &ProviderRequest);
}

/// Bearer token that expires.
pub(super) struct BearerAuthorizer(pub(super) CredentialCache<HeaderValue>);

#[async_trait]
impl RequestAuthorizer for BearerAuthorizer {
    async fn authorize(&self, call: &mut ProviderRequest) -> Result<(), ModelError> {
        let token = self.0.current().await?;
        call.headers.insert(AUTHORIZATION, token);
        Ok(())
    }

    fn forget(&self, call: &ProviderRequest) {
        if let Some(token) = call.headers.get(AUTHORIZATION) {
            self.0.forget(|known| known == token);
        }
    }
}

/// Sends `call` with credentials and returns the response, and the headers that were sent. Credentials that the provider does not
/// take any more are renewed once. All of it must end within `silence`.
///
/// # Errors
/// As for [`Http::send`], or there are no credentials.
pub(super) async fn send(
    http: &Http,
    authorizer: Option<&dyn RequestAuthorizer>,
    call: &ProviderRequest,
    silence: Duration,
) -> Result<(Response, HeaderMap), ModelError> {
    let Some(authorizer) = authorizer else {
        return Ok((http.send(call, silence).await?, call.headers.clone()));
    };
    let exchange = send_authorized(http, authorizer, call, silence);
    tokio::time::timeout(silence, exchange).await.unwrap_or_else(|_| Err(silent(silence)))
}

async fn send_authorized(
    http: &Http,
    authorizer: &dyn RequestAuthorizer,
    call: &ProviderRequest,
    silence: Duration,
) -> Result<(Response, HeaderMap), ModelError> {
    let mut signed = call.clone();
    authorizer.authorize(&mut signed).await?;
    let sent = http.send(&signed, silence).await;
    match sent {
        Err(error) if authorizer.renews(&error) => {
            authorizer.forget(&signed);
            signed = call.clone();
            authorizer.authorize(&mut signed).await?;
            Ok((http.send(&signed, silence).await?, signed.headers))
        }
        sent => Ok((sent?, signed.headers)),
    }
}
