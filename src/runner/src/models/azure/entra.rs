//! Tokens of Microsoft Entra ID, by a workload identity or the secret of an application.
//!
//! Source: <https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow>.

use std::sync::Arc;

use reqwest::{
    Client,
    header::{CONTENT_TYPE, HeaderValue},
};
use url::{Url, form_urlencoded::Serializer};

use crate::models::{
    Credentials, Http, ModelRef,
    authorizer::BearerAuthorizer,
    credential_cache::{CredentialCache, FetchedCredential},
    credential_server::{FORM, ask, bearer, is_loopback, safe_url},
    credentials::value_of,
    error::{ModelError, ModelErrorKind},
};

/// Variables of an application, for errors.
pub(super) const VARIABLES: &str =
    "AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_FEDERATED_TOKEN_FILE or AZURE_CLIENT_SECRET";
const SECRET: &str = "AZURE_CLIENT_SECRET";
const TOKEN_FILE: &str = "AZURE_FEDERATED_TOKEN_FILE";
const AUTHORITY: &str = "AZURE_AUTHORITY_HOST";
/// Kind of a token that proves who asks (RFC 7523, section 2.2).
const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Authorities of the clouds of Azure.
const AUTHORITIES: [&str; 5] = [
    "login.microsoftonline.com",
    "login.microsoft.com",
    "login.microsoftonline.us",
    "login.partner.microsoftonline.cn",
    "login.chinacloudapi.cn",
];

/// Application that asks for tokens.
pub(super) struct Entra {
    url: Url,
    client: String,
    proof: EntraProof,
    scope: &'static str,
    http: Http,
}

/// Proof of the application.
enum EntraProof {
    /// File with a token of the cluster, read each time because it is replaced.
    File(String),
    Secret(String),
}

/// Reports whether tokens are of the Pod's own identity: a PluginConfig that brings the secret of an application declares it.
pub(super) fn is_of_pod(reference: &ModelRef, credentials: &Credentials<'_>) -> bool {
    value_of(credentials, TOKEN_FILE).is_some() || !reference.credential_keys.iter().any(|key| key == SECRET)
}

/// Reports whether a URL is that of an authority, the only one that gets the Pod's token; one on loopback is the Pod's own.
fn is_authority(url: &Url) -> bool {
    is_loopback(url) || url.host_str().is_some_and(|host| AUTHORITIES.contains(&host))
}

impl Entra {
    /// Returns the tokens of the application that the variables name, if they name one. `is_dated` tells the older API, whose
    /// tokens are for another audience.
    ///
    /// # Errors
    /// The variable that is missing or invalid, without its value.
    pub(super) fn find(
        credentials: &Credentials<'_>,
        is_dated: bool,
        http: &Http,
    ) -> Result<Option<BearerAuthorizer>, String> {
        let set = |name: &str| value_of(credentials, name);
        let proof = match (set(TOKEN_FILE), set(SECRET)) {
            (Some(file), _) => EntraProof::File(file),
            (None, Some(secret)) => EntraProof::Secret(secret),
            (None, None) => return Ok(None),
        };
        let (Some(tenant), Some(client)) = (set("AZURE_TENANT_ID"), set("AZURE_CLIENT_ID")) else {
            return Err(format!("Microsoft Entra ID needs {VARIABLES}"));
        };
        let authority = set(AUTHORITY).unwrap_or_else(|| "https://login.microsoftonline.com".to_owned());
        let wrong = || format!("{AUTHORITY} is not the https URL of an authority of Microsoft Entra ID");
        let mut url = safe_url(&authority).filter(is_authority).ok_or_else(wrong)?;
        url.path_segments_mut().map_err(|()| wrong())?.pop_if_empty().extend([&*tenant, "oauth2", "v2.0", "token"]);
        let scope = match is_dated {
            true => "https://cognitiveservices.azure.com/.default",
            false => "https://ai.azure.com/.default",
        };
        let entra = Arc::new(Self { url, client, proof, scope, http: http.clone() });
        Ok(Some(BearerAuthorizer(CredentialCache::new(move || entra.clone().fetch()))))
    }

    async fn fetch(self: Arc<Self>) -> Result<FetchedCredential<HeaderValue>, ModelError> {
        let body = self.form()?;
        let settings = format!("{VARIABLES}, {AUTHORITY}");
        let build = |client: &Client| client.post(self.url.clone()).header(CONTENT_TYPE, FORM).body(body);
        bearer(&ask(&self.http, &settings, build).await?, &settings)
    }

    /// Returns the form that asks for a token.
    fn form(&self) -> Result<String, ModelError> {
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        form.append_pair("client_id", &self.client).append_pair("scope", self.scope);
        match &self.proof {
            EntraProof::Secret(secret) => form.append_pair("client_secret", secret),
            EntraProof::File(file) => {
                let token = std::fs::read_to_string(file).map_err(|_| {
                    let text = format!("the file that {TOKEN_FILE} names cannot be read");
                    ModelError::no_credentials(ModelErrorKind::Refused, text)
                })?;
                form.append_pair("client_assertion_type", ASSERTION).append_pair("client_assertion", token.trim())
            }
        };
        Ok(form.finish())
    }
}
