//! Extracts the error message of a provider's response for the log: at most 500 characters, credentials masked.

use reqwest::{Response, header::HeaderMap};
use serde_json::Value;

/// Maximum bytes of a response that are read.
const MAX_READ: usize = 8 << 10;
/// Code of a provider for an account without quota or credit.
pub(super) const NO_QUOTA: &str = "insufficient_quota";
/// Code of a provider for a request that its rules on content forbid.
pub(super) const CONTENT_FILTER: &str = "content_filter";
/// Code of AWS for credentials whose time is over.
pub(super) const EXPIRED_TOKEN: &str = "ExpiredTokenException";
/// Code of AWS for credentials that are not known, such as those whose time is long over.
pub(super) const UNKNOWN_CLIENT: &str = "UnrecognizedClientException";
/// Code of AWS for a model that took too long.
pub(super) const MODEL_TIMEOUT: &str = "ModelTimeoutException";
/// Code of AWS for an account whose quota does not allow the request.
pub(super) const SERVICE_QUOTA: &str = "ServiceQuotaExceededException";
/// Codes that decide what kind of failure it is, or what follows.
const CODES: [&str; 6] = [NO_QUOTA, CONTENT_FILTER, EXPIRED_TOKEN, UNKNOWN_CLIENT, MODEL_TIMEOUT, SERVICE_QUOTA];
/// Header with the code of AWS.
const AWS_CODE: &str = "x-amzn-errortype";
/// Maximum characters of a message.
const MAX_CHARS: usize = 500;
/// Prefixes of API keys of common providers, and the scheme in front of a token.
const KEYS: [&str; 9] = ["Bearer ", "sk-", "sk_", "pk-", "AIza", "gsk_", "xai-", "hf_", "eyJ"];
/// Replacement for a credential.
const MASK: &str = "***";

/// Returns the message of `response`, a response to a request with `headers`, empty when there is none; and its code, if it is
/// one that decides.
pub(super) async fn read(mut response: Response, headers: &HeaderMap) -> (String, Option<&'static str>) {
    let header = response.headers().get(AWS_CODE).and_then(|value| value.to_str().ok());
    let of_header = header.and_then(known_code);
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk[..chunk.len().min(MAX_READ - body.len())]);
        if body.len() == MAX_READ {
            break;
        }
    }
    let body = String::from_utf8_lossy(&body);
    (message(&body, secrets(headers)), of_header.or_else(|| code(&body)))
}

/// Returns the credentials among the headers of a request.
fn secrets(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers.values().filter(|value| value.is_sensitive()).filter_map(|value| value.to_str().ok())
}

/// Returns the code in a response body, if it is one that decides.
fn code(body: &str) -> Option<&'static str> {
    let json: Value = serde_json::from_str(body).ok()?;
    let error = &json["error"];
    let fields = [&error["code"], &error["type"], &error["status"], &json["code"], &json["type"], &json["__type"]];
    fields.into_iter().filter_map(Value::as_str).find_map(known_code)
}

/// Returns a code if it is one that decides. AWS may write a namespace and `#` before it, and a colon and an address after it
/// ([restJson1](https://smithy.io/2.0/aws/protocols/aws-restjson1-protocol.html#operation-error-serialization)).
fn known_code(found: &str) -> Option<&'static str> {
    let name = found.split(':').next().unwrap_or(found);
    let name = name.rsplit('#').next().unwrap_or(name);
    CODES.into_iter().find(|code| *code == name)
}

/// Returns the error message in one piece of a streamed answer to a request with `headers`.
pub(super) fn piece_message(piece: &[u8], headers: &HeaderMap) -> String {
    message(&String::from_utf8_lossy(piece), secrets(headers))
}

/// Returns the message in a response body, with `secrets`, values of headers, masked.
fn message<'s>(body: &str, secrets: impl Iterator<Item = &'s str>) -> String {
    let json: Value = serde_json::from_str(body).unwrap_or_default();
    // Gemini wraps some errors in a list of one.
    let json = json.get(0).unwrap_or(&json);
    let fields = [&json["error"]["message"], &json["error"], &json["message"], &json["detail"]];
    let mut text = fields.iter().find_map(|place| place.as_str()).unwrap_or(body).to_owned();
    for secret in secrets {
        let secret = secret.rsplit(' ').next().unwrap_or(secret);
        if !secret.is_empty() {
            text = text.replace(secret, MASK);
        }
    }
    for key in KEYS {
        text = mask_keys(&text, key);
    }
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    text.trim().chars().map(printable).take(MAX_CHARS).collect()
}

/// Masks every word in `text` that begins with `key`; a key has at least 8 characters after its prefix.
fn mask_keys(text: &str, key: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.+/=*".contains(c);
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(key) {
        let (before, found) = rest.split_at(at);
        let after = &found[key.len()..];
        let length = after.find(|c| !is_part(c)).unwrap_or(after.len());
        out.push_str(before);
        out.push_str(key);
        let begins_a_word = !before.ends_with(|c: char| c.is_ascii_alphanumeric());
        out.push_str(if begins_a_word && length >= 8 { MASK } else { &after[..length] });
        rest = &after[length..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codes_that_decide_are_read() {
        for (body, expected) in [
            (r#"{"error": {"code": "insufficient_quota", "message": "x"}}"#, Some(NO_QUOTA)),
            (r#"{"error": {"type": "insufficient_quota", "code": null}}"#, Some(NO_QUOTA)),
            (r#"{"error": {"code": "content_filter", "status": 400}}"#, Some(CONTENT_FILTER)),
            (r#"{"error": {"code": "rate_limit_exceeded"}}"#, None),
            (r#"{"__type": "com.amazon.coral.service#ExpiredTokenException"}"#, Some(EXPIRED_TOKEN)),
            (r#"{"code": "ModelTimeoutException:http://internal.example/x#y"}"#, Some(MODEL_TIMEOUT)),
            (r#"{"__type": "ExpiredTokenException#Other"}"#, None),
            ("insufficient_quota", None),
            ("[]", None),
        ] {
            assert_eq!(code(body), expected, "{body}");
        }
    }

    #[test]
    fn a_message_is_found_cut_and_holds_no_credential() {
        let secrets = ["Bearer my-own-key-1", "plainkey"];
        let long = "x".repeat(600);
        for (body, expected) in [
            (r#"{"error": {"message": "`tools` is not supported", "type": "x"}}"#, "`tools` is not supported"),
            (r#"{"error": "model not found"}"#, "model not found"),
            (r#"[{"error": {"message": "quota"}}]"#, "quota"),
            (r#"{"message": "no", "code": 1}"#, "no"),
            ("<html>\nBad Gateway</html>", "<html> Bad Gateway</html>"),
            ("", ""),
            (r#"{"error": {"message": "bad key my-own-key-1, plainkey"}}"#, "bad key ***, ***"),
            (
                r#"{"error": {"message": "Incorrect API key provided: sk-proj-abc123DEF456."}}"#,
                "Incorrect API key provided: sk-***",
            ),
            (
                r#"{"error": {"message": "got Bearer eyJhbGciOi.J9.x and AIzaSyA1234567890"}}"#,
                "got Bearer *** and AIza***",
            ),
            (r#"{"error": {"message": "a risk-assessment task-force"}}"#, "a risk-assessment task-force"),
            (&long, &long[..500]),
        ] {
            assert_eq!(message(body, secrets.into_iter()), expected, "{body}");
        }
    }
}
