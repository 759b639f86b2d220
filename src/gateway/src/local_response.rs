//! Responses that the gateway generates itself: refusals with the body `{"error", "reason"}`.

use std::{borrow::Cow, time::Duration};

use http1::{InvalidMessage, write_local_response};

/// Response header with the id of the trace.
pub(super) const RUN_HEADER: &str = "x-recif-run";

/// Form of the body of a refusal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ErrorForm {
    /// `{"error", "reason"}`.
    #[default]
    Recif,
    /// `{"error": {"message", "type", "param", "code"}}`, which clients of OpenAI's API read.
    OpenAi,
}

/// Refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocalResponse {
    /// HTTP status code.
    pub(super) status: u16,
    /// Message for people: the cause and the remedy.
    pub(super) error: Cow<'static, str>,
    /// Machine-readable reason: one word.
    pub(super) reason: &'static str,
    /// Additional header field with its value, such as `WWW-Authenticate`.
    pub(super) field: Option<(&'static str, Cow<'static, str>)>,
    /// JSON-RPC error code; if set, the body is a JSON-RPC error.
    pub(super) rpc: Option<i32>,
    /// Time after which the request may be sent again, if it is known: for `Retry-After` and the body.
    pub(super) retry_after: Option<Duration>,
}

impl LocalResponse {
    /// Creates a refusal.
    pub(super) fn new(status: u16, reason: &'static str, error: impl Into<Cow<'static, str>>) -> Self {
        Self { status, error: error.into(), reason, field: None, rpc: None, retry_after: None }
    }

    /// Creates the refusal of an invalid request.
    pub(super) fn invalid_message(bad: InvalidMessage) -> Self {
        Self::new(bad.status(), "bad-request", bad.to_string())
    }

    /// Appends the refusal to `out` as HTTP/1.1; `run` is the id of its trace, if that is recorded, and `to_head` says whether the
    /// request was HEAD. Statuses 429 and 503 get `Retry-After: 1` unless the time is known, or `field` is a `Retry-After`.
    pub(super) fn write(&self, form: ErrorForm, run: Option<&str>, to_head: bool, close: bool, out: &mut Vec<u8>) {
        let Self { status, error, reason, field, rpc, retry_after } = self;
        let seconds = retry_after.map(|wait| wait.as_millis().div_ceil(1000).max(1) as u64);
        let mut body = match (rpc, form) {
            (Some(code), _) => {
                serde_json::json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": error } })
            }
            (None, ErrorForm::Recif) => serde_json::json!({ "error": error, "reason": reason }),
            (None, ErrorForm::OpenAi) => {
                let (kind, param, code) = match (*reason, *status) {
                    ("unknown", _) => ("invalid_request_error", Some("model"), "model_not_found"),
                    ("rate", _) => ("requests", None, "rate_limit_exceeded"),
                    ("budget", _) => ("insufficient_quota", None, "insufficient_quota"),
                    (other, ..500) => ("invalid_request_error", None, other),
                    (other, _) => ("server_error", None, other),
                };
                serde_json::json!({ "error": { "message": error, "type": kind, "param": param, "code": code } })
            }
        };
        match (retry_after, rpc, form) {
            (Some(wait), Some(_), _) => {
                let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                body["error"]["data"] = serde_json::json!({ "reason": reason, "retryAfterMs": millis });
            }
            (Some(_), None, ErrorForm::Recif) => body["retryAfter"] = serde_json::json!(seconds),
            _ => {}
        }
        let (body, seconds) = (body.to_string(), seconds.unwrap_or(1).to_string());
        let mut fields = vec![("Content-Type", &b"application/json"[..]), ("x-recif-reason", reason.as_bytes())];
        let tells_when = field.as_ref().is_some_and(|(name, _)| *name == "Retry-After");
        if matches!(status, 429 | 503) && !tells_when {
            fields.push(("Retry-After", seconds.as_bytes()));
        }
        fields.extend(field.iter().map(|(name, value)| (*name, value.as_bytes())));
        fields.extend(run.map(|run| (RUN_HEADER, run.as_bytes())));
        write_local_response(*status, &fields, &body, to_head, close, out);
    }
}

/// Creates the refusal of a client that has as many requests in flight as it may.
pub(super) fn too_many_requests() -> LocalResponse {
    LocalResponse::new(429, "too-many-requests", "as many requests as allowed are in flight for this client")
}

/// Creates the refusal for an unknown workload.
pub(super) fn unknown_workload() -> LocalResponse {
    LocalResponse::new(
        404,
        "unknown",
        "unknown workload: use /v1/agents, /v1/flows, /v1/flowsets or /v1/mcp, namespace and name",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_knows_when_says_it_in_every_form() {
        let limited =
            LocalResponse { retry_after: Some(Duration::from_millis(1001)), ..LocalResponse::new(429, "rate", "x") };
        for (rpc, form, body) in [
            (None, ErrorForm::Recif, r#"{"error":"x","reason":"rate","retryAfter":2}"#),
            (
                None,
                ErrorForm::OpenAi,
                r#"{"error":{"code":"rate_limit_exceeded","message":"x","param":null,"type":"requests"}}"#,
            ),
            (
                Some(-32000),
                ErrorForm::Recif,
                r#"{"error":{"code":-32000,"data":{"reason":"rate","retryAfterMs":1001},"message":"x"},"id":null,"jsonrpc":"2.0"}"#,
            ),
        ] {
            let mut out = Vec::new();
            LocalResponse { rpc, ..limited.clone() }.write(form, None, false, false, &mut out);
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains("\r\nRetry-After: 2\r\n") && text.contains("\r\nx-recif-reason: rate\r\n"), "{text}");
            assert_eq!(text.split_once("\r\n\r\n").unwrap().1, body);
        }
    }

    #[test]
    fn a_refusal_says_what_was_wrong_in_words_and_in_one_word() {
        let answer = LocalResponse::new(503, "queue-full", "\"too\" many");
        let mut out = Vec::new();
        answer.write(ErrorForm::Recif, None, false, true, &mut out);
        let expected = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 46\r\nContent-Type: application/json\r\n\
                        x-recif-reason: queue-full\r\nRetry-After: 1\r\nConnection: close\r\n\r\n\
                        {\"error\":\"\\\"too\\\" many\",\"reason\":\"queue-full\"}";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let mut out = Vec::new();
        let field = Some(("WWW-Authenticate", "Bearer".into()));
        LocalResponse { field, ..LocalResponse::new(401, "unauthenticated", "x") }.write(
            ErrorForm::Recif,
            Some("0a"),
            true,
            false,
            &mut out,
        );
        assert!(out.ends_with(b"unauthenticated\r\nWWW-Authenticate: Bearer\r\nx-recif-run: 0a\r\n\r\n"));
        let mut out = Vec::new();
        LocalResponse::new(404, "unknown", "x").write(ErrorForm::OpenAi, None, false, false, &mut out);
        let error =
            br#"{"error":{"code":"model_not_found","message":"x","param":"model","type":"invalid_request_error"}}"#;
        assert!(out.ends_with(error), "{}", String::from_utf8_lossy(&out));
    }
}
