//! Credentials of Google Cloud: the key of a service account, an identity of another issuer, or the identity of the Pod, which the
//! metadata server knows.
//!
//! Source: <https://google.aip.dev/auth/4110>.

use async_trait::async_trait;
use crds::provider::GEMINI_VERTEX;
use serde_json::Value;

use super::{
    external_account::ExternalAccount, metadata::MetadataServer, names::CREDENTIALS, service_account::ServiceAccount,
};
use crate::models::{
    Credentials, Http, ModelRef,
    authorizer::{BearerAuthorizer, RequestAuthorizer},
    credential_cache::CredentialCache,
    credentials::value_of,
    endpoint::ModelEndpoint,
    error::ModelError,
    http::ProviderRequest,
};

/// Stands for the project in an address until the credentials tell it.
pub(super) const PROJECT_OF_CREDENTIALS: &str = "-";

/// Credentials of requests to Google Cloud.
pub(super) struct GoogleAuthorizer {
    tokens: BearerAuthorizer,
    /// Project of the service account's key.
    pub(super) project_of_key: Option<String>,
    /// Project that the metadata server names.
    project: Option<CredentialCache<String>>,
    /// Set unless a PluginConfig brings the credentials.
    pub(super) is_of_pod: bool,
}

impl GoogleAuthorizer {
    /// Finds the credentials of `reference`, which has this endpoint.
    ///
    /// # Errors
    /// They cannot be used, without their values.
    pub(super) fn find(
        reference: &ModelRef,
        endpoint: &ModelEndpoint,
        credentials: &Credentials<'_>,
        http: &Http,
    ) -> Result<Option<Self>, String> {
        // A gateway with configured headers needs no credentials of Google Cloud.
        let has_own = endpoint.is_custom && !reference.headers.is_empty();
        let declared = match &*reference.credential_keys {
            [only] if !GEMINI_VERTEX.identity.contains(&only.as_str()) => value_of(credentials, only),
            _ => None,
        };
        let named = value_of(credentials, CREDENTIALS);
        let is_own = match named {
            Some(_) => reference.credential_keys.iter().any(|key| key == CREDENTIALS),
            None => declared.is_some(),
        };
        let Some(value) = named.or(declared) else {
            return match (has_own, reference.lacks_identity) {
                (true, _) => Ok(None),
                (false, false) => Self::of_pod(value_of(credentials, "GCE_METADATA_HOST"), http).map(Some),
                (false, true) => Err(format!(
                    "a fallback with another PluginConfig than the first model does not get the Pod's own identity: give its \
                     PluginConfig a credentialsRef with {CREDENTIALS}, or baseUrl and headersFrom of a gateway"
                )),
            };
        };
        let is_file = !value.starts_with('{');
        let text = match (is_file, is_own) {
            (false, _) => value,
            (true, false) => std::fs::read_to_string(value)
                .map_err(|_| format!("the file that {CREDENTIALS} names cannot be read"))?,
            // The author of a PluginConfig must not choose among the Pod's files.
            (true, true) => {
                return Err(format!("{CREDENTIALS} of a PluginConfig is the JSON of a service account, not a file"));
            }
        };
        let json: Value = serde_json::from_str(&text).map_err(|_| format!("{CREDENTIALS} is not JSON"))?;
        match json["type"].as_str() {
            Some("service_account") => {
                let (account, project) = ServiceAccount::read(json, endpoint.custom_host(), http)?;
                let tokens = BearerAuthorizer(account.tokens());
                Ok(Some(Self { tokens, project_of_key: project, project: None, is_of_pod: !is_own }))
            }
            Some("external_account") if is_file => {
                let tokens = BearerAuthorizer(ExternalAccount::read(json, http)?.tokens());
                Ok(Some(Self { tokens, project_of_key: None, project: None, is_of_pod: true }))
            }
            // It names a file of the Pod, as only the Pod's own configuration may.
            Some("external_account") => Err(format!(
                "{CREDENTIALS} of type external_account must be a file of the Pod: let the variable name it, or use the JSON of a \
                 service account"
            )),
            _ => Err(format!("{CREDENTIALS} is neither the key of a service account nor of type external_account")),
        }
    }

    fn of_pod(host: Option<String>, http: &Http) -> Result<Self, String> {
        let server = MetadataServer::new(host, http)?;
        let (tokens, project) = (BearerAuthorizer(server.tokens()), Some(server.project()));
        Ok(Self { tokens, project_of_key: None, project, is_of_pod: true })
    }

    /// Reports whether the credentials tell their project when a request is sent.
    pub(super) fn knows_project(&self) -> bool {
        self.project.is_some()
    }
}

#[async_trait]
impl RequestAuthorizer for GoogleAuthorizer {
    async fn authorize(&self, call: &mut ProviderRequest) -> Result<(), ModelError> {
        self.tokens.authorize(call).await?;
        let unknown = format!("/projects/{PROJECT_OF_CREDENTIALS}/");
        if let Some(project) = &self.project
            && call.url.path().contains(&unknown)
        {
            let project = project.current().await?;
            let path = call.url.path().replacen(&unknown, &format!("/projects/{project}/"), 1);
            call.url.set_path(&path);
        }
        Ok(())
    }

    fn forget(&self, call: &ProviderRequest) {
        self.tokens.forget(call);
    }
}
