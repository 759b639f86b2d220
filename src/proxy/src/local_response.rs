//! Responses that the sidecar generates itself.

use http1::{InvalidMessage, write_local_response};

/// Last line of an OpenMetrics exposition.
pub(super) const OPENMETRICS_EOF: &str = "# EOF\n";

/// Response that the sidecar generates itself.
#[derive(Debug)]
pub(super) struct SidecarResponse {
    /// HTTP status code.
    pub(super) status: u16,
    /// Media type of the body.
    pub(super) content_type: &'static str,
    /// Response body.
    pub(super) body: String,
    /// Machine-readable reason of a refusal, sent in `x-recif-reason`.
    pub(super) reason: Option<&'static str>,
    /// Set if a retry in one second makes sense (`Retry-After: 1`).
    pub(super) retry: bool,
}

impl SidecarResponse {
    /// Creates a plain-text response.
    pub(super) fn text(status: u16, body: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.into(), reason: None, retry: false }
    }

    /// Creates a refusal with the body `{"error", "reason"}`. Status 503 asks for a retry.
    pub(super) fn refusal(status: u16, error: &str, reason: &'static str) -> Self {
        let body = serde_json::json!({ "error": error, "reason": reason }).to_string();
        Self { status, content_type: "application/json", body, reason: Some(reason), retry: status == 503 }
    }

    /// Creates the refusal of an invalid request.
    pub(super) fn bad_request(bad: InvalidMessage) -> Self {
        Self::refusal(bad.status(), &bad.to_string(), "bad-request")
    }

    /// Appends the response to `out` as HTTP/1.1, with the load, which every response carries; `to_head` says whether
    /// the request was HEAD.
    pub(super) fn write(&self, to_head: bool, close: bool, load: &[u8], out: &mut Vec<u8>) {
        let mut fields = vec![("Content-Type", self.content_type.as_bytes()), ("x-recif-load", load)];
        if let Some(reason) = self.reason {
            fields.push(("x-recif-reason", reason.as_bytes()));
        }
        if self.retry {
            fields.push(("Retry-After", b"1"));
        }
        write_local_response(self.status, &fields, &self.body, to_head, close, out);
    }
}
