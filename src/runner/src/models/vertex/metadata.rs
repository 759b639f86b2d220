//! Metadata server of Google Cloud: tokens and project of the Pod's own identity.
//!
//! Source: <https://cloud.google.com/compute/docs/metadata/overview>.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, header::HeaderValue};
use url::Url;

use crate::models::{
    Http,
    credential_cache::{CredentialCache, FetchedCredential},
    credential_server::{ask_known, bearer, unreadable},
    error::ModelError,
};

/// Settings to check when it fails, for errors.
const SETTINGS: &str = "GOOGLE_APPLICATION_CREDENTIALS, or the identity that the Pod has at Google Cloud";
/// Token of the default account for all of Google Cloud.
const TOKEN: &str = "instance/service-accounts/default/token?scopes=https://www.googleapis.com/auth/cloud-platform";
const PATH: &str = "/computeMetadata/v1/";
const PROJECT: &str = "project/project-id";
/// Header of requests and answers.
const FLAVOR: &str = "metadata-flavor";
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
        let base = Url::parse(&format!("http://{host}{PATH}")).ok().filter(has_host_alone);
        let base = base.ok_or_else(|| "GCE_METADATA_HOST is not a host, such as 169.254.169.254".to_owned())?;
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
        let build = |client: &Client| client.get(url).header(FLAVOR, "Google");
        // Another server in its place has no such header.
        ask_known(&self.http, SETTINGS, build, |headers| headers.get(FLAVOR).is_some_and(|it| it == "Google")).await
    }
}

/// Reports whether a URL consists of a host, a port and [`PATH`].
fn has_host_alone(url: &Url) -> bool {
    url.path() == PATH
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().or(url.fragment()).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_a_host() {
        let http = Http::default();
        for (host, is_good) in [
            ("169.254.169.254", true),
            ("metadata:8080", true),
            ("[fd20:ce::254]", true),
            ("http://metadata", false),
            ("user@metadata", false),
            ("metadata/x", false),
            ("metadata/?x=", false),
            ("metadata#", false),
            ("", false),
        ] {
            assert_eq!(MetadataServer::new(Some(host.into()), &http).is_ok(), is_good, "{host}");
        }
    }
}
