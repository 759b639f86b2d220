//! Tokens of a service account, by its key.
//!
//! Source: <https://developers.google.com/identity/protocols/oauth2/service-account>.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use crds::provider::GEMINI_VERTEX;
use jiff::Timestamp;
use reqwest::{
    Client,
    header::{CONTENT_TYPE, HeaderValue},
};
use ring::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};
use serde::Deserialize;
use serde_json::{Value, json};
use url::{Url, form_urlencoded::Serializer};

use super::names::{CREDENTIALS, SCOPE};
use crate::models::{
    Http,
    credential_cache::{CredentialCache, FetchedCredential},
    credential_server::{FORM, ask, bearer, is_loopback, safe_url},
    error::{ModelError, ModelErrorKind},
};

/// Kind of the grant (RFC 7523, section 2.1).
const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Google's server of tokens: the audience of every assertion, also where a key names another address of it.
const TOKENS: &str = "https://oauth2.googleapis.com/token";
/// Host of `token_uri` in older files of service accounts.
const OLD_TOKEN_HOST: &str = "accounts.google.com";
/// Seconds for which a token is asked.
const LIFE: i64 = 3600;

/// Service account with its key.
pub(super) struct ServiceAccount {
    email: String,
    key_id: Option<String>,
    key: RsaKeyPair,
    url: Url,
    http: Http,
}

/// File with the key of a service account.
#[derive(Deserialize)]
struct ServiceAccountFile {
    client_email: String,
    private_key: String,
    private_key_id: Option<String>,
    project_id: Option<String>,
    token_uri: Option<String>,
}

impl ServiceAccount {
    /// Reads the file of a service account; returns its project too. Only Google and `gateway`, the host of a configured base URL,
    /// are asked for its tokens: the file may come from a user who must not choose where the Pod connects.
    ///
    /// # Errors
    /// The part that cannot be used, without its value.
    pub(super) fn read(file: Value, gateway: Option<&str>, http: &Http) -> Result<(Arc<Self>, Option<String>), String> {
        let file: ServiceAccountFile = serde_json::from_value(file)
            .map_err(|_| format!("{CREDENTIALS} needs client_email and private_key of a service account"))?;
        let no_key = || format!("private_key in {CREDENTIALS} is not an RSA key in PEM, as Google Cloud makes it");
        let key = PrivatePkcs8KeyDer::from_pem_slice(file.private_key.as_bytes()).map_err(|_| no_key())?;
        let key = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).map_err(|_| no_key())?;
        let url = file.token_uri.as_deref().unwrap_or(TOKENS);
        let url = safe_url(url).filter(|url| gives_tokens(url, gateway)).ok_or_else(|| {
            format!(
                "token_uri in {CREDENTIALS} is neither the https URL of a host of Google ({TOKENS}) nor of the base URL of the model: \
                 leave it as Google Cloud made it"
            )
        })?;
        let (email, key_id) = (file.client_email, file.private_key_id);
        Ok((Arc::new(Self { email, key_id, key, url, http: http.clone() }), file.project_id))
    }

    /// Returns the tokens of the account.
    pub(super) fn tokens(self: &Arc<Self>) -> CredentialCache<HeaderValue> {
        let account = self.clone();
        CredentialCache::new(move || account.clone().fetch())
    }

    async fn fetch(self: Arc<Self>) -> Result<FetchedCredential<HeaderValue>, ModelError> {
        let assertion = self.assertion(Timestamp::now().as_second())?;
        let body = form(&assertion);
        let build = |client: &Client| client.post(self.url.clone()).header(CONTENT_TYPE, FORM).body(body);
        bearer(&ask(&self.http, CREDENTIALS, build).await?, CREDENTIALS)
    }

    /// Returns a token that the account signs for the server of tokens (RFC 7519), at this second.
    fn assertion(&self, now: i64) -> Result<String, ModelError> {
        let mut header = json!({ "alg": "RS256", "typ": "JWT" });
        if let Some(id) = &self.key_id {
            header["kid"] = id.as_str().into();
        }
        let claims = json!({ "iss": self.email, "scope": SCOPE, "aud": TOKENS, "iat": now, "exp": now + LIFE });
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", encode(&header), encode(&claims));
        let mut signature = vec![0; self.key.public().modulus_len()];
        let random = SystemRandom::new();
        self.key.sign(&RSA_PKCS1_SHA256, &random, signed.as_bytes(), &mut signature).map_err(|_| {
            ModelError::no_credentials(ModelErrorKind::Refused, format!("the key in {CREDENTIALS} signs nothing"))
        })?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(&signature)))
    }
}

/// Reports whether tokens may be fetched from a URL: its host is one of Google's or `gateway`, or is loopback.
fn gives_tokens(url: &Url, gateway: Option<&str>) -> bool {
    let host = url.host_str();
    GEMINI_VERTEX.owns(url) || host == Some(OLD_TOKEN_HOST) || host == gateway || is_loopback(url)
}

/// Returns the form that asks for a token by an assertion.
fn form(assertion: &str) -> String {
    Serializer::new(String::new()).append_pair("grant_type", GRANT).append_pair("assertion", assertion).finish()
}

#[cfg(test)]
mod tests {
    use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

    use super::*;

    const KEY: &str = include_str!("../tests/fixtures/google-key.pem");

    fn file(more: Value) -> Value {
        let mut file = json!({"type": "service_account", "client_email": "a@p.example", "private_key": KEY});
        file.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        file
    }

    #[test]
    fn an_assertion_is_signed_by_the_key() {
        let more = json!({"private_key_id": "k1", "project_id": "p", "token_uri": "https://tokens.example/t"});
        let (account, project) = ServiceAccount::read(file(more), Some("tokens.example"), &Http::default()).unwrap();
        assert_eq!(project.as_deref(), Some("p"));
        let assertion = account.assertion(1_000).unwrap();
        let (signed, signature) = assertion.rsplit_once('.').unwrap();
        let (header, claims) = signed.split_once('.').unwrap();
        let read = |part: &str| serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
        assert_eq!(read(header), json!({"alg": "RS256", "typ": "JWT", "kid": "k1"}));
        let expected = json!({
            "iss": "a@p.example", "scope": SCOPE, "aud": "https://oauth2.googleapis.com/token", "iat": 1_000, "exp": 4_600,
        });
        assert_eq!(read(claims), expected);
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, account.key.public_key());
        public.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_without_its_values() {
        for (more, words) in [
            (json!({"private_key": null}), "needs client_email and private_key"),
            (
                json!({"private_key": "SECRET"}),
                "private_key in GOOGLE_APPLICATION_CREDENTIALS is not an RSA key in PEM",
            ),
            (
                json!({"token_uri": "http://SECRET.example"}),
                "token_uri in GOOGLE_APPLICATION_CREDENTIALS is neither the https URL of a host of Google",
            ),
        ] {
            let problem = ServiceAccount::read(file(more), None, &Http::default()).err().unwrap();
            assert!(problem.contains(words) && !problem.contains("SECRET"), "{problem}");
        }
    }

    #[test]
    fn google_and_the_gateway_of_the_model_alone_are_asked_for_tokens() {
        for (url, gateway, is_good) in [
            ("https://oauth2.googleapis.com/token", None, true),
            ("https://oauth2.europe-west1.rep.googleapis.com/token", None, true),
            ("https://accounts.google.com/o/oauth2/token", None, true),
            ("http://127.0.0.1:80/token", None, true),
            ("https://gateway.example/token", Some("gateway.example"), true),
            ("http://gateway.example/token", Some("gateway.example"), false),
            ("https://gateway.example/token", None, false),
            ("https://evil/token", Some("gateway.example"), false),
            ("http://oauth2.googleapis.com/token", None, false),
            ("https://oauth2.googleapis.com.evil/token", None, false),
            ("https://oauth2.googleapis.com@evil/token", None, false),
            ("https://googleapis.evil/oauth2.googleapis.com", None, false),
        ] {
            let read = ServiceAccount::read(file(json!({"token_uri": url})), gateway, &Http::default());
            assert_eq!(read.is_ok(), is_good, "{url} {gateway:?}");
        }
    }
}
