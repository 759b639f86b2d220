//! Metadata server of Google Cloud: tokens and project of the Pod's own identity.
//!
//! Source: <https://cloud.google.com/compute/docs/metadata/overview>.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, header::HeaderValue};
use url::Url;

use crate::models::{
    Http,
    credential_cache::{CredentialCache, FetchedCredential},
    credential_server::{ask, bearer, unreadable},
    error::ModelError,
};

/// Where to look when it fails, for errors.
const SETTINGS: &str = "GOOGLE_APPLICATION_CREDENTIALS, or the identity that the Pod has at Google Cloud";
/// Token of the default account for all of Google Cloud.
const TOKEN: &str = "instance/service-accounts/default/token?scopes=https://www.googleapis.com/auth/cloud-platform";
const PROJECT: &str = "project/project-id";
/// Time for which the project is believed.
const PROJECT_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// Metadata server.
pub(super) struct MetadataServer {
    base: Url,
    http: Http,
}

impl MetadataServer {
    /// Creates the client; `host` replaces the usual name.
    ///
    /// # Errors
    /// It is not a host.
    pub(super) fn new(host: Option<String>, http: &Http) -> Result<Arc<Self>, String> {
        let host = host.unwrap_or_else(|| "metadata.google.internal".to_owned());
        let base = Url::parse(&format!("http://{host}/computeMetadata/v1/"));
        let base = base.map_err(|_| "GCE_METADATA_HOST is not a host, such as 169.254.169.254".to_owned())?;
        Ok(Arc::new(Self { base, http: http.clone() }))
    }

    /// Returns the tokens of the Pod's identity.
    pub(super) fn tokens(self: &Arc<Self>) -> CredentialCache<HeaderValue> {
        let server = self.clone();
        CredentialCache::new(move || {
            let server = server.clone();
            async move { bearer(&server.get(TOKEN).await?, SETTINGS) }
        })
    }

    /// Returns the project of the cluster.
    pub(super) fn project(self: &Arc<Self>) -> CredentialCache<String> {
        let server = self.clone();
        CredentialCache::new(move || {
            let server = server.clone();
            async move {
                let text = String::from_utf8(server.get(PROJECT).await?).map_err(|_| unreadable(SETTINGS))?;
                let value = text.trim().to_owned();
                let is_project = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte);
                match !value.is_empty() && value.bytes().all(is_project) {
                    true => Ok(FetchedCredential { value, life: PROJECT_LIFE }),
                    false => Err(unreadable(SETTINGS)),
                }
            }
        })
    }

    async fn get(&self, path: &str) -> Result<Vec<u8>, ModelError> {
        let url = self.base.join(path).map_err(|_| unreadable(SETTINGS))?;
        ask(&self.http, SETTINGS, |client: &Client| client.get(url).header("metadata-flavor", "Google")).await
    }
}
