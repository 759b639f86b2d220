//! Tokens of Google Cloud for an identity of another issuer, such as a cluster elsewhere (workload identity federation).
//!
//! Source: <https://google.aip.dev/auth/4117>.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use reqwest::{
    Client,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use serde::Deserialize;
use serde_json::{Value, json};
use url::{Url, form_urlencoded::Serializer};

use super::names::{CREDENTIALS, SCOPE};
use crate::models::{
    Http,
    credential_cache::{CredentialCache, FetchedCredential},
    credential_server::{FORM, ask, bearer, bearer_header, is_loopback, safe_url, unreadable},
    error::{ModelError, ModelErrorKind},
};

/// Kind of the grant (RFC 8693, section 2.1).
const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
/// Kind of the token that is asked for.
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// Identity of another issuer.
pub(super) struct ExternalAccount {
    audience: String,
    subject_token_type: String,
    /// File with the token of the issuer, read each time because it is replaced.
    file: String,
    /// Field of the token, in a file that is JSON.
    field: Option<String>,
    exchange: Url,
    /// URL at which the service account is impersonated, if one is.
    impersonation: Option<Url>,
    http: Http,
}

/// File that describes the identity.
#[derive(Deserialize)]
struct ExternalAccountFile {
    audience: String,
    subject_token_type: String,
    token_url: String,
    service_account_impersonation_url: Option<String>,
    credential_source: CredentialFile,
}

/// File with the token of the issuer.
#[derive(Deserialize)]
struct CredentialFile {
    file: String,
    format: Option<CredentialFormat>,
}

/// Form of that file.
#[derive(Deserialize)]
struct CredentialFormat {
    subject_token_field_name: Option<String>,
}

/// Answer with the token of a service account.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImpersonationAnswer {
    access_token: String,
    expire_time: Timestamp,
}

impl ExternalAccount {
    /// Reads the file of an identity.
    ///
    /// # Errors
    /// The part that cannot be used, without its value.
    pub(super) fn read(file: Value, http: &Http) -> Result<Arc<Self>, String> {
        let file: ExternalAccountFile = serde_json::from_value(file).map_err(|_| {
            format!(
                "{CREDENTIALS} of type external_account needs audience, subject_token_type, token_url and credential_source \
                 with a file"
            )
        })?;
        let impersonation = file.service_account_impersonation_url.as_deref();
        let impersonation =
            impersonation.map(|text| url("service_account_impersonation_url", text, is_impersonation)).transpose()?;
        Ok(Arc::new(Self {
            exchange: url("token_url", &file.token_url, is_exchange)?,
            impersonation,
            audience: file.audience,
            subject_token_type: file.subject_token_type,
            file: file.credential_source.file,
            field: file.credential_source.format.and_then(|format| format.subject_token_field_name),
            http: http.clone(),
        }))
    }

    /// Returns the tokens of the identity.
    pub(super) fn tokens(self: &Arc<Self>) -> CredentialCache<HeaderValue> {
        let account = self.clone();
        CredentialCache::new(move || account.clone().fetch())
    }

    async fn fetch(self: Arc<Self>) -> Result<FetchedCredential<HeaderValue>, ModelError> {
        let body = self.form()?;
        let build = |client: &Client| client.post(self.exchange.clone()).header(CONTENT_TYPE, FORM).body(body);
        let token = bearer(&ask(&self.http, CREDENTIALS, build).await?, CREDENTIALS)?;
        let Some(url) = self.impersonation.clone() else { return Ok(token) };
        let body = json!({ "scope": [SCOPE], "lifetime": "3600s" }).to_string();
        let build = |client: &Client| {
            let request = client.post(url).header(AUTHORIZATION, token.value);
            request.header(CONTENT_TYPE, "application/json").body(body)
        };
        let answer = ask(&self.http, CREDENTIALS, build).await?;
        let answer = serde_json::from_slice::<ImpersonationAnswer>(&answer).map_err(|_| unreadable(CREDENTIALS))?;
        let value = bearer_header(&answer.access_token).ok_or_else(|| unreadable(CREDENTIALS))?;
        let life = Duration::try_from(answer.expire_time.duration_since(Timestamp::now())).unwrap_or_default();
        Ok(FetchedCredential { value, life })
    }

    /// Returns the form that asks for a token for that of the issuer.
    fn form(&self) -> Result<String, ModelError> {
        let text = std::fs::read_to_string(&self.file).ok();
        let token = match &self.field {
            None => text,
            Some(field) => text.and_then(|text| {
                let json: Value = serde_json::from_str(&text).ok()?;
                json[field.as_str()].as_str().map(str::to_owned)
            }),
        };
        let token = token.ok_or_else(|| {
            let text = format!("the file of credential_source in {CREDENTIALS} has no token");
            ModelError::no_credentials(ModelErrorKind::Refused, text)
        })?;
        let form = [
            ("grant_type", GRANT),
            ("audience", self.audience.as_str()),
            ("scope", SCOPE),
            ("requested_token_type", ACCESS_TOKEN),
            ("subject_token_type", self.subject_token_type.as_str()),
            ("subject_token", token.trim()),
        ];
        Ok(Serializer::new(String::new()).extend_pairs(form).finish())
    }
}

/// Parses the URL of a service of Google Cloud, which gets the token of the issuer; one on loopback is the Pod's own.
fn url(name: &str, text: &str, is_service: impl Fn(&str) -> bool) -> Result<Url, String> {
    let is_known = |url: &Url| is_loopback(url) || url.host_str().is_some_and(&is_service);
    safe_url(text)
        .filter(is_known)
        .ok_or_else(|| format!("{name} in {CREDENTIALS} is not the https URL of this service of Google Cloud"))
}

/// Reports whether a host exchanges tokens: `sts.googleapis.com`, or that of a region.
fn is_exchange(host: &str) -> bool {
    host.starts_with("sts.") && host.ends_with(".googleapis.com")
}

/// Reports whether a host gives out the tokens of service accounts.
fn is_impersonation(host: &str) -> bool {
    host == "iamcredentials.googleapis.com"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_the_issuer_goes_to_google_alone() {
        for (exchange, impersonation, is_good) in [
            ("https://sts.googleapis.com/v1/token", None, true),
            ("https://sts.europe-west1.rep.googleapis.com/v1/token", None, true),
            ("https://sts.googleapis.com/v1/token", Some("https://iamcredentials.googleapis.com/v1/x"), true),
            ("http://sts.googleapis.com/v1/token", None, false),
            ("https://sts.googleapis.com.evil/v1/token", None, false),
            ("https://evil/sts.googleapis.com", None, false),
            ("https://storage.googleapis.com/", None, false),
            ("https://sts.googleapis.com/v1/token", Some("https://evil/v1/x"), false),
            ("https://sts.googleapis.com/v1/token", Some("https://storage.googleapis.com/"), false),
        ] {
            let file = json!({
                "audience": "a",
                "subject_token_type": "t",
                "token_url": exchange,
                "service_account_impersonation_url": impersonation,
                "credential_source": {"file": "/f"},
            });
            let read = ExternalAccount::read(file, &Http::default());
            assert_eq!(read.is_ok(), is_good, "{exchange} {impersonation:?}");
        }
    }
}
