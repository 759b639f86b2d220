//! Parses the headers of a request, and compares them with its body.
//!
//! From revision 2026-07-28 on headers repeat parts of the body, so that intermediaries need not parse bodies. A server
//! that parses bodies must refuse a request in which the two differ ([specification
//! 2026-07-28](https://modelcontextprotocol.io/specification), Streamable HTTP, "Server Validation").

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, header};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::reply::Accepts;

/// Header with the revision of the protocol.
pub(super) const VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// Revisions with a handshake (`initialize`).
const HANDSHAKE_VERSIONS: [&str; 5] = ["2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Methods for which a header repeats a name: the field of the body that holds it, and whether the header is required.
const NAMED_METHODS: [(&str, &str, bool); 8] = [
    ("tools/call", "name", true),
    ("prompts/get", "name", true),
    ("resources/read", "uri", true),
    ("resources/subscribe", "uri", false),
    ("resources/unsubscribe", "uri", false),
    ("tasks/get", "taskId", false),
    ("tasks/update", "taskId", false),
    ("tasks/cancel", "taskId", false),
];

/// Reason of a refusal: a JSON-RPC error with status 400.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HeaderError {
    pub(super) code: i32,
    pub(super) why: String,
}

fn mismatch(why: impl Into<String>) -> HeaderError {
    HeaderError { code: -32020, why: why.into() }
}

/// Reports whether the revision has no handshake, and so no sessions.
pub(super) fn is_stateless(version: &str) -> bool {
    version > HANDSHAKE_VERSIONS[HANDSHAKE_VERSIONS.len() - 1]
}

/// Returns the revision that the headers name.
///
/// # Errors
/// The header is there twice, cannot be read, or names a revision that never existed.
pub(super) fn version(headers: &HeaderMap) -> Result<Option<&str>, HeaderError> {
    let version = single(headers, VERSION)?;
    match version {
        Some(version) if !is_stateless(version) && !HANDSHAKE_VERSIONS.contains(&version) => {
            Err(HeaderError { code: -32600, why: format!("unknown protocol revision {version:?}") })
        }
        version => Ok(version),
    }
}

/// Returns the only value of a header; fails if there are several.
pub(super) fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, HeaderError> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(|value| value.to_str());
    match (value, values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value.trim())),
        (Some(Err(_)), None) => Err(mismatch(format!("the header {name} has characters that are not allowed"))),
        (_, Some(_)) => Err(mismatch(format!("the header {name} is there more than once"))),
    }
}

/// Returns the media types that a client accepts; all of them if it does not say.
pub(super) fn accepts(headers: &HeaderMap) -> Accepts {
    let mut accepts = Accepts { json: false, events: false };
    if !headers.contains_key(header::ACCEPT) {
        return Accepts { json: true, events: true };
    }
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for kind in values.flat_map(|value| value.split(',')) {
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        accepts.json |= matches!(kind.as_str(), "application/json" | "application/*" | "*/*");
        accepts.events |= matches!(kind.as_str(), "text/event-stream" | "text/*" | "*/*");
    }
    accepts
}

/// Reports whether the content type of the body is JSON.
pub(super) fn has_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// Parameters of a request of the newer era, as far as headers repeat them.
#[derive(Deserialize)]
pub(super) struct StatelessParams<'a> {
    #[serde(borrow, default, rename = "_meta")]
    pub(super) meta: Option<StatelessMeta<'a>>,
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    uri: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "taskId")]
    task: Option<&'a RawValue>,
}

/// Metadata of a request of the newer era.
#[derive(Deserialize)]
pub(super) struct StatelessMeta<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    pub(super) version: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/logLevel")]
    pub(super) log_level: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "progressToken")]
    pub(super) token: Option<&'a RawValue>,
}

impl<'a> StatelessParams<'a> {
    /// Parses the parameters; `None` if they are not an object or have a field twice.
    pub(super) fn read(params: Option<&'a RawValue>) -> Option<Self> {
        serde_json::from_str(params?.get()).ok()
    }

    fn source(&self, field: &str) -> Option<String> {
        let raw = match field {
            "name" => self.name,
            "uri" => self.uri,
            _ => self.task,
        };
        serde_json::from_str(raw?.get()).ok()
    }
}

/// Checks that headers and body of a request of the newer era agree.
///
/// # Errors
/// They differ, or one of them lacks a required value.
pub(super) fn check_body_agreement(
    headers: &HeaderMap,
    method: &str,
    params: Option<&StatelessParams<'_>>,
) -> Result<(), HeaderError> {
    let claimed = params.and_then(|params| params.meta.as_ref()).and_then(|meta| meta.version);
    let Some(claimed) = claimed else {
        let why = "params._meta has to name the revision of the protocol, in io.modelcontextprotocol/protocolVersion";
        return Err(HeaderError { code: -32602, why: why.into() });
    };
    let claimed: Option<String> = serde_json::from_str(claimed.get()).ok();
    if claimed.is_none() || claimed.as_deref() != single(headers, VERSION)? {
        return Err(mismatch("the header MCP-Protocol-Version and params._meta name different revisions"));
    }
    if single(headers, METHOD)? != Some(method) {
        return Err(mismatch("the header Mcp-Method does not name the method of the body"));
    }
    let Some((_, field, required)) = NAMED_METHODS.iter().find(|(named, ..)| *named == method) else { return Ok(()) };
    let (given, source) = (single(headers, NAME)?, params.and_then(|params| params.source(field)));
    match (given, source) {
        (None, Some(_)) if *required => Err(mismatch(format!("{method} needs the header Mcp-Name"))),
        (Some(given), source) if source.is_none() || decode_value(given) != source => {
            Err(mismatch(format!("the header Mcp-Name is not the {field} of the body")))
        }
        _ => Ok(()),
    }
}

/// Decodes the value of a header, which is base64 where a header could not hold it as it is.
fn decode_value(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(encoded) => String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use serde_json::{Value, json};

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    fn check(pairs: &[(&'static str, &str)], method: &str, params: Value) -> Result<(), i32> {
        let raw = serde_json::value::to_raw_value(&params).unwrap();
        check_body_agreement(&headers(pairs), method, StatelessParams::read(Some(&raw)).as_ref())
            .map_err(|refusal| refusal.code)
    }

    #[test]
    fn headers_and_body_have_to_agree() {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
        let call = |name: &str| json!({"_meta": meta, "name": name});
        let base = [(VERSION, "2026-07-28"), (METHOD, "tools/call")];
        let with = |name: &'static str| [base[0], base[1], (NAME, name)];
        assert_eq!(check(&with("echo"), "tools/call", call("echo")), Ok(()));
        assert_eq!(check(&with("=?base64?w6k=?="), "tools/call", call("é")), Ok(()));
        assert_eq!(check(&with("=?base64?!?="), "tools/call", call("!")), Err(-32020));
        assert_eq!(check(&with("Echo"), "tools/call", call("echo")), Err(-32020));
        assert_eq!(check(&base, "tools/call", call("echo")), Err(-32020));
        assert_eq!(check(&[base[0]], "tools/call", call("echo")), Err(-32020));
        assert_eq!(check(&[base[1], (NAME, "echo")], "tools/call", call("echo")), Err(-32020));
        assert_eq!(check(&base, "tools/list", json!({"_meta": meta})), Err(-32020));
        assert_eq!(check(&[base[0], (METHOD, "tools/list")], "tools/list", json!({"_meta": meta})), Ok(()));
        assert_eq!(check(&[base[0], (METHOD, "tools/list")], "tools/list", json!({"_meta": {}})), Err(-32602));
        let named = [base[0], (METHOD, "tools/call"), (NAME, "safe")];
        assert_eq!(check(&named, "tools/call", json!({"_meta": meta, "name": 7})), Err(-32020));
        assert_eq!(check(&[(VERSION, "2027-01-01"), (METHOD, "a")], "a", json!({"_meta": meta})), Err(-32020));
        let number = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": 1}});
        assert_eq!(check(&[(VERSION, "1"), (METHOD, "a")], "a", number), Err(-32020));
        let twice = [base[0], base[1], (NAME, "echo"), (NAME, "echo")];
        assert_eq!(check(&twice, "tools/call", call("echo")), Err(-32020));
        assert_eq!(
            check(&[base[0], (METHOD, "tasks/get")], "tasks/get", json!({"_meta": meta, "taskId": "t"})),
            Ok(())
        );
        let task = [base[0], (METHOD, "tasks/get"), (NAME, "u")];
        assert_eq!(check(&task, "tasks/get", json!({"_meta": meta, "taskId": "t"})), Err(-32020));
    }

    #[test]
    fn a_revision_has_to_exist() {
        let read =
            |value: &str| version(&headers(&[(VERSION, value)])).map(|version| version.map(str::to_owned)).is_ok();
        assert!(read("2025-06-18") && read("2026-07-28") && read("2099-01-01"));
        assert!(!read("2025-07-01") && !read("1") && !read("2020-01-01"));
        assert_eq!(version(&headers(&[])), Ok(None));
    }

    #[test]
    fn a_client_takes_what_it_says() {
        for (value, json, events) in [
            ("application/json, text/event-stream", true, true),
            ("text/event-stream", false, true),
            ("Application/JSON;q=0.9", true, false),
            ("*/*", true, true),
            ("text/html", false, false),
        ] {
            assert_eq!(accepts(&headers(&[("accept", value)])), Accepts { json, events }, "{value}");
        }
        assert_eq!(accepts(&headers(&[])), Accepts { json: true, events: true });
    }
}
