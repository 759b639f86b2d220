//! Signs requests to AWS.
//!
//! Source: <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>.

use async_trait::async_trait;
use crds::digest::sha256_hex;
use jiff::Timestamp;
use percent_encoding::utf8_percent_encode;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use ring::hmac::{self, HMAC_SHA256};
use url::Url;

use super::{
    credentials::{AwsCredentialSource, AwsCredentials},
    names::ESCAPED,
};
use crate::models::{
    authorizer::RequestAuthorizer,
    error::ModelError,
    http::ProviderRequest,
    refusal::{EXPIRED_TOKEN, UNKNOWN_CLIENT},
};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Name of Bedrock in signatures.
const SERVICE: &str = "bedrock";
const DATE: &str = "x-amz-date";
const SESSION: &str = "x-amz-security-token";

/// Signer of requests.
pub(super) struct AwsAuthorizer {
    pub(super) source: AwsCredentialSource,
    pub(super) region: String,
}

#[async_trait]
impl RequestAuthorizer for AwsAuthorizer {
    async fn authorize(&self, call: &mut ProviderRequest) -> Result<(), ModelError> {
        let credentials = self.source.current().await?;
        let scope = SignatureScope { region: &self.region, service: SERVICE, time: Timestamp::now() };
        sign(call, "POST", &credentials, &scope);
        Ok(())
    }

    fn renews(&self, error: &ModelError) -> bool {
        let is_expired = matches!(error.code, Some(EXPIRED_TOKEN | UNKNOWN_CLIENT));
        matches!(self.source, AwsCredentialSource::Fetched(_)) && (is_expired || error.status == Some(401))
    }

    fn forget(&self, call: &ProviderRequest) {
        let sent = call.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        self.source.forget(|known| sent.contains(&known.key_id));
    }
}

/// Scope of a signature.
struct SignatureScope<'a> {
    region: &'a str,
    service: &'a str,
    time: Timestamp,
}

/// Adds the headers of a signature. What another header holds is not signed: a proxy may change it.
fn sign(call: &mut ProviderRequest, method: &str, credentials: &AwsCredentials, scope: &SignatureScope<'_>) {
    let time = scope.time.strftime("%Y%m%dT%H%M%SZ").to_string();
    let day = &time[..8];
    let host = match (call.url.host_str().unwrap_or_default(), call.url.port()) {
        (host, Some(port)) => format!("{host}:{port}"),
        (host, None) => host.to_owned(),
    };
    let mut signed = vec![("host", host.as_str()), (DATE, time.as_str())];
    signed.extend(credentials.session.as_deref().map(|session| (SESSION, session)));
    let headers: String = signed.iter().flat_map(|(name, value)| [*name, ":", *value, "\n"]).collect();
    let names: Vec<_> = signed.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let (path, query) = (canonical_path(&call.url), canonical_query(&call.url));
    let request = format!("{method}\n{path}\n{query}\n{headers}\n{names}\n{}", sha256_hex(&call.body));
    let place = format!("{day}/{}/{}/aws4_request", scope.region, scope.service);
    let text = format!("{ALGORITHM}\n{time}\n{place}\n{}", sha256_hex(request.as_bytes()));
    let mut key = format!("AWS4{}", credentials.secret).into_bytes();
    for part in place.split('/') {
        key = hmac(&key, part);
    }
    let signature = hex::encode(hmac(&key, &text));
    let key_id = &credentials.key_id;
    let value = format!("{ALGORITHM} Credential={key_id}/{place}, SignedHeaders={names}, Signature={signature}");
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(mut value) = HeaderValue::from_str(value) {
            value.set_sensitive(true);
            call.headers.insert(name, value);
        }
    };
    set(AUTHORIZATION, &value);
    set(HeaderName::from_static(DATE), &time);
    if let Some(session) = &credentials.session {
        set(HeaderName::from_static(SESSION), session);
    }
}

/// Returns the path, each of its segments escaped once more, as every service but S3 wants it.
fn canonical_path(url: &Url) -> String {
    let segments: Vec<_> = url.path().split('/').map(|part| utf8_percent_encode(part, ESCAPED).to_string()).collect();
    segments.join("/")
}

/// Returns the query, escaped and sorted.
fn canonical_query(url: &Url) -> String {
    let escape = |text: &str| utf8_percent_encode(text, ESCAPED).to_string();
    let mut pairs: Vec<_> = url.query_pairs().map(|(name, value)| (escape(&name), escape(&value))).collect();
    pairs.sort();
    let pairs: Vec<_> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;
    use serde::Deserialize;
    use testing::peers;

    use super::*;

    /// Request with its signature.
    #[derive(Deserialize)]
    struct SignedRequest {
        url: String,
        body: String,
        region: String,
        time: Timestamp,
        key_id: String,
        secret: String,
        session: Option<String>,
        authorization: String,
    }

    #[test]
    fn signatures_are_those_of_botocore() {
        let output = peers::python("providers/signatures.py").arg("10000").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().count(), 10_000);
        for line in text.lines() {
            let known: SignedRequest = serde_json::from_str(line).unwrap();
            let url = Url::parse(&known.url).unwrap();
            let mut call = ProviderRequest { url, headers: HeaderMap::new(), body: known.body.into() };
            let credentials = AwsCredentials { key_id: known.key_id, secret: known.secret, session: known.session };
            let scope = SignatureScope { region: &known.region, service: SERVICE, time: known.time };
            sign(&mut call, "POST", &credentials, &scope);
            assert_eq!(call.headers["authorization"], known.authorization.as_str(), "{line}");
        }
    }

    /// Signatures of the [test suite of AWS](https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html)
    /// for Signature Version 4: get-vanilla, post-vanilla, post-vanilla-query, post-sts-header-before. The last one is computed by
    /// the same steps for a path with escapes.
    #[test]
    fn signatures_are_those_of_the_test_suite() {
        for (method, target, session, signature) in [
            ("GET", "/", None, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
            ("POST", "/", None, "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
            ("POST", "/?Param1=value1", None, "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"),
            (
                "POST",
                "/",
                Some(
                    "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==",
                ),
                "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
            ),
            (
                "POST",
                "/model/eu.a%3A1%2Fb/converse-stream",
                None,
                "5d8365d01d8b274fcb011a3696af365fc05aa50475ff6d3f016387a2bcdfbd71",
            ),
        ] {
            let url = Url::parse(&format!("https://example.amazonaws.com{target}")).unwrap();
            let mut call = ProviderRequest { url, headers: HeaderMap::new(), body: Default::default() };
            let credentials = AwsCredentials {
                key_id: "AKIDEXAMPLE".into(),
                secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
                session: session.map(str::to_owned),
            };
            let time = "2015-08-30T12:36:00Z".parse().unwrap();
            sign(&mut call, method, &credentials, &SignatureScope { region: "us-east-1", service: "service", time });
            let names = if session.is_some() { "host;x-amz-date;x-amz-security-token" } else { "host;x-amz-date" };
            let expected = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders={names}, \
                 Signature={signature}"
            );
            assert_eq!(call.headers["authorization"], expected.as_str(), "{method} {target}");
            assert_eq!(call.headers["x-amz-date"], "20150830T123600Z");
            assert_eq!(call.headers.get("x-amz-security-token").map(|it| it.to_str().unwrap()), session);
            assert!(call.headers.values().all(HeaderValue::is_sensitive));
        }
    }

    /// The suite has no such request without further headers: these signatures are computed by the same steps with Python's
    /// `hashlib` and `hmac`, by code that gives those of the suite for its requests.
    #[test]
    fn the_body_is_signed() {
        let body = r#"{"messages":[{"role":"user","content":[{"text":"thére"}]}]}"#;
        let arn =
            "/model/arn%3Aaws%3Abedrock%3Aeu-central-1%3A1%3Ainference-profile%2Feu.acme.m-v1%3A0/converse-stream";
        for (target, signature) in [
            ("/", "7ba9c3d60db1113aa3cfd12ce6275fafc007cb5e0324757faa85c93c2910f4c5"),
            (arn, "a6e5fa4be91d711a9bbed2a4ec05460ea3b9f33f14c611593ef2b1bc61f75440"),
        ] {
            let url = Url::parse(&format!("https://example.amazonaws.com{target}")).unwrap();
            let mut call = ProviderRequest { url, headers: HeaderMap::new(), body: body.into() };
            let (key_id, secret) = ("AKIDEXAMPLE".into(), "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into());
            let time = "2015-08-30T12:36:00Z".parse().unwrap();
            let scope = SignatureScope { region: "us-east-1", service: "service", time };
            sign(&mut call, "POST", &AwsCredentials { key_id, secret, session: None }, &scope);
            let sent = call.headers["authorization"].to_str().unwrap();
            assert!(sent.ends_with(&format!("Signature={signature}")), "{target}: {sent}");
        }
    }
}
