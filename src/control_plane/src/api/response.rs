//! Response of an operation: content negotiation, and 304 for a client that has this version already.

use axum::{body::Body, response::Response};
use bytes::Bytes;
use crds::digest::sha256_hex;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;

use super::problem::Problem;
use crate::stream_body::{self, BodyChunks};

/// Result of an operation.
pub(super) enum OperationResponse {
    /// JSON, and the entity tag of this version.
    Json { body: Bytes, tag: String },
    /// Stream of server-sent events.
    Events(BodyChunks),
}

/// Media type of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContentFormat {
    Json,
    Yaml,
}

impl OperationResponse {
    /// Serializes a value; its entity tag is a digest of the text.
    ///
    /// # Errors
    /// The value cannot be serialized: a defect.
    pub(super) fn of(value: &impl Serialize) -> Result<Self, Problem> {
        let body = serde_json::to_vec(value).map_err(|error| Problem::defect(&error))?;
        let tag = sha256_hex(&body)[..24].to_owned();
        Ok(Self::Json { body: body.into(), tag })
    }

    /// Creates the HTTP response to a request with these header fields.
    ///
    /// # Errors
    /// The caller accepts neither JSON nor YAML.
    pub(super) fn respond(self, asked: &HeaderMap) -> Result<Response, Problem> {
        let (body, tag) = match self {
            Self::Json { body, tag } => (body, tag),
            Self::Events(pieces) => return Ok(stream_response(pieces)),
        };
        let form = negotiate(asked).ok_or_else(|| {
            Problem::new(
                StatusCode::NOT_ACCEPTABLE,
                "there is application/json and application/yaml: accept one of them",
            )
        })?;
        // A weak tag, because the same version may also be sent compressed.
        let tag = format!("W/\"{tag}{}\"", if form == ContentFormat::Yaml { "-yaml" } else { "" });
        let known = asked.get_all(header::IF_NONE_MATCH).iter().any(|value| matches(value.as_bytes(), &tag));
        let mut response = if known {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else if form == ContentFormat::Yaml {
            let value: serde_json::Value = serde_json::from_slice(&body).map_err(|error| Problem::defect(&error))?;
            let text = serde_yaml::to_string(&value).map_err(|error| Problem::defect(&error))?;
            with_content_type(Body::from(text), "application/yaml")
        } else {
            with_content_type(Body::from(body), "application/json")
        };
        let fields = response.headers_mut();
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            fields.insert(header::ETAG, tag);
        }
        // The response depends on the caller's rights.
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        fields.insert(header::VARY, HeaderValue::from_static("accept, authorization"));
        Ok(response)
    }
}

fn with_content_type(body: Body, content_type: &'static str) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn stream_response(pieces: BodyChunks) -> Response {
    let mut response = stream_body::response(pieces);
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Some proxies buffer responses that they do not know to be streams.
    fields.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Chooses the format by `Accept` (RFC 9110, section 12.5.1); `None`: the caller accepts none of them.
fn negotiate(asked: &HeaderMap) -> Option<ContentFormat> {
    let mut found: Option<(f32, ContentFormat)> = None;
    let mut given = false;
    for range in
        asked.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','))
    {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        if media.is_empty() {
            continue;
        }
        given = true;
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0_f32);
        let form = match media.as_str() {
            "application/json" | "application/*" | "*/*" => ContentFormat::Json,
            "application/yaml" | "application/x-yaml" | "text/yaml" => ContentFormat::Yaml,
            _ => continue,
        };
        if weight > 0.0 && found.is_none_or(|(best, _)| weight > best) {
            found = Some((weight, form));
        }
    }
    if given { found.map(|(_, form)| form) } else { Some(ContentFormat::Json) }
}

/// Reports whether `If-None-Match` (RFC 9110, section 13.1.2) lists this version, by weak comparison.
fn matches(field: &[u8], tag: &str) -> bool {
    let plain = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let field = String::from_utf8_lossy(field);
    field.trim() == "*" || field.split(',').any(|known| plain(known) == plain(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (http::HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        fields.iter().map(pair).collect()
    }

    fn json_response() -> OperationResponse {
        OperationResponse::Json { body: Bytes::from_static(b"{\"a\":1}"), tag: "t".into() }
    }

    #[test]
    fn the_form_is_the_one_that_is_taken() {
        for (accept, expected) in [
            ("", Some(ContentFormat::Json)),
            ("*/*", Some(ContentFormat::Json)),
            ("application/yaml", Some(ContentFormat::Yaml)),
            ("application/json;q=0.5, application/yaml", Some(ContentFormat::Yaml)),
            ("text/html, application/yaml;q=0.2, */*;q=0.3", Some(ContentFormat::Json)),
            ("text/html", None),
            ("application/json;q=0", None),
        ] {
            assert_eq!(negotiate(&fields(&[("accept", accept)])), expected, "{accept}");
        }
        assert_eq!(negotiate(&HeaderMap::new()), Some(ContentFormat::Json));
        assert_eq!(json_response().respond(&fields(&[("accept", "image/png")])).unwrap_err().status(), 406);
    }

    #[test]
    fn what_is_known_is_not_sent_again() {
        for (tag, status) in
            [("W/\"t\"", 304), ("\"x\", \"t\"", 304), ("*", 304), ("\"t-yaml\"", 200), ("t", 200), ("", 200)]
        {
            let response = json_response().respond(&fields(&[("if-none-match", tag)])).unwrap();
            assert_eq!(response.status(), status, "{tag}");
            assert_eq!(response.headers()["etag"], "W/\"t\"");
        }
    }
}
