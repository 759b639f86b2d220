//! Requests to the servers that give out credentials, bounded in time and size.
//!
//! What such a server says goes to the log only. An error names the variables to check, and no value.

use std::time::Duration;

pub(super) use crds::provider::is_loopback;
use reqwest::{
    Client, Request, RequestBuilder, StatusCode,
    header::{HeaderMap, HeaderValue},
};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;
use url::{Host, Url};

use super::{
    credential_cache::FetchedCredential,
    error::{ModelError, ModelErrorKind},
    http::Http,
};

/// Timeout of the whole exchange.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of an answer.
const MAX_ANSWER: usize = 64 << 10;
/// Bytes of a refusal after which no more is read.
const MAX_REFUSAL: usize = 8 << 10;
/// Content type of a form.
pub(super) const FORM: &str = "application/x-www-form-urlencoded";

/// Sends a request to a server of credentials and returns the body of its answer. `settings` names the variables by which it was
/// found.
///
/// # Errors
/// It refuses, or does not answer in time.
pub(super) async fn ask(
    http: &Http,
    settings: &str,
    build: impl FnOnce(&Client) -> RequestBuilder,
) -> Result<Vec<u8>, ModelError> {
    ask_known(http, settings, build, |_| true).await
}

/// Asks as [`ask`] does a server that is known by the headers of its answer.
///
/// # Errors
/// As for [`ask`], or it is another server.
pub(super) async fn ask_known(
    http: &Http,
    settings: &str,
    build: impl FnOnce(&Client) -> RequestBuilder,
    is_known: fn(&HeaderMap) -> bool,
) -> Result<Vec<u8>, ModelError> {
    let (client, request) = build(http.client()?).build_split();
    let request = request.map_err(|_| problem(ModelErrorKind::Refused, "cannot be asked", settings))?;
    let client = if is_near(request.url()) { http.direct_client()?.clone() } else { client };
    match timeout(TIMEOUT, exchange(&client, request, settings, is_known)).await {
        Ok(answer) => answer,
        Err(_) => Err(problem(ModelErrorKind::Timeout, "does not answer within 10 s", settings)),
    }
}

async fn exchange(
    client: &Client,
    request: Request,
    settings: &str,
    is_known: fn(&HeaderMap) -> bool,
) -> Result<Vec<u8>, ModelError> {
    let unreachable = |_| problem(ModelErrorKind::Unavailable, "cannot be reached", settings);
    let mut response = client.execute(request).await.map_err(unreachable)?;
    let status = response.status();
    if !status.is_success() {
        let mut body = Vec::new();
        while body.len() < MAX_REFUSAL
            && let Ok(Some(more)) = response.chunk().await
        {
            body.extend_from_slice(&more);
        }
        let code = error_code(&body);
        tracing::warn!(status = status.as_u16(), code, "a server of credentials refuses the request");
        let is_transient = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        let kind = if is_transient { ModelErrorKind::Unavailable } else { ModelErrorKind::Refused };
        return Err(problem(kind, &format!("answers HTTP {}", status.as_u16()), settings));
    }
    if !is_known(response.headers()) {
        return Err(unreadable(settings));
    }
    let mut body = Vec::new();
    while let Some(more) = response.chunk().await.map_err(unreachable)? {
        if body.len() + more.len() > MAX_ANSWER {
            return Err(unreadable(settings));
        }
        body.extend_from_slice(&more);
    }
    Ok(body)
}

/// Returns the `error` of an answer (RFC 6749, section 5.2), empty where it has none. The rest may quote what was sent.
fn error_code(answer: &[u8]) -> String {
    let json: Value = serde_json::from_slice(answer).unwrap_or_default();
    let code = json["error"].as_str().or(json["error"]["status"].as_str()).unwrap_or_default();
    let is_word = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if is_word { code.to_owned() } else { String::new() }
}

/// Reports whether a server is on the Pod or its node, where no proxy leads.
fn is_near(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "metadata.google.internal" || is_loopback(url),
        Some(Host::Ipv4(address)) => address.is_link_local() || is_loopback(url),
        // The second is the agent of EKS.
        Some(Host::Ipv6(address)) => {
            address.is_unicast_link_local() || address.segments()[..2] == [0xfd00, 0x0ec2] || is_loopback(url)
        }
        None => false,
    }
}

fn problem(kind: ModelErrorKind, what: &str, settings: &str) -> ModelError {
    ModelError::no_credentials(kind, format!("the server of credentials {what}; check {settings}"))
}

/// Creates the error for an answer that is not what such a server documents.
pub(super) fn unreadable(settings: &str) -> ModelError {
    problem(ModelErrorKind::Malformed, "sends what cannot be read", settings)
}

/// Answer of a token endpoint (RFC 6749, section 5.1).
#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    expires_in: u64,
}

/// Parses the answer of a token endpoint and returns the value of the header `Authorization`.
///
/// # Errors
/// It is not one.
pub(super) fn bearer(answer: &[u8], settings: &str) -> Result<FetchedCredential<HeaderValue>, ModelError> {
    let TokenAnswer { access_token, expires_in } =
        serde_json::from_slice::<TokenAnswer>(answer).map_err(|_| unreadable(settings))?;
    let value = bearer_header(&access_token).ok_or_else(|| unreadable(settings))?;
    Ok(FetchedCredential { value, life: Duration::from_secs(expires_in) })
}

/// Returns the value of the header `Authorization` with a token, marked sensitive; `None` if no header may hold it.
pub(super) fn bearer_header(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Parses the URL of a server that gets a credential: https, or http on loopback.
pub(super) fn safe_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    (url.scheme() == "https" && url.has_host() || url.scheme() == "http" && is_loopback(&url)).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_goes_over_https_or_loopback() {
        for (url, is_safe) in [
            ("https://login.example", true),
            ("http://127.0.0.1:80/x", true),
            ("http://[::1]/", true),
            ("http://localhost", true),
            ("http://login.example", false),
            ("http://127.0.0.1.example", false),
            ("file:///x", false),
            ("login.example", false),
        ] {
            assert_eq!(safe_url(url).is_some(), is_safe, "{url}");
        }
    }

    #[test]
    fn no_proxy_stands_before_servers_of_the_node() {
        for (url, expected) in [
            ("http://metadata.google.internal/computeMetadata/v1/", true),
            ("http://169.254.169.254/", true),
            ("http://169.254.170.23/v1/credentials", true),
            ("http://[fd00:ec2::23]/v1/credentials", true),
            ("http://[fe80::1]/", true),
            ("http://127.0.0.1:80/", true),
            ("http://localhost/", true),
            ("https://sts.googleapis.com/", false),
            ("https://10.0.0.1/", false),
        ] {
            assert_eq!(is_near(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn of_a_refusal_only_the_code_is_read() {
        for (answer, code) in [
            (r#"{"error": "invalid_grant", "error_description": "SECRET"}"#, "invalid_grant"),
            (r#"{"error": {"status": "PERMISSION_DENIED", "message": "SECRET"}}"#, "PERMISSION_DENIED"),
            (r#"{"error": "the token SECRET is wrong"}"#, ""),
            ("<Error>SECRET</Error>", ""),
            ("[]", ""),
        ] {
            assert_eq!(error_code(answer.as_bytes()), code, "{answer}");
        }
    }

    #[test]
    fn what_is_no_token_is_not_repeated() {
        for answer in ["[]", r#"{"access_token": "SECRET"}"#, r#"{"access_token": "SECRET\n", "expires_in": 1}"#] {
            let error = bearer(answer.as_bytes(), "A_KEY").err().unwrap().to_string();
            assert!(error.ends_with("sends what cannot be read; check A_KEY"), "{error}");
        }
    }
}
