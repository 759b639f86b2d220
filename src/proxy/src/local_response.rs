//! Writes the answers that the sidecar gives itself.

use http1::{InvalidMessage, write_local_response};

/// The last line of an OpenMetrics exposition.
pub(super) const OPENMETRICS_EOF: &str = "# EOF\n";

/// An answer of the proxy's own.
#[derive(Debug)]
pub(super) struct SidecarResponse {
    /// Status code.
    pub(super) status: u16,
    /// Type of the body.
    pub(super) content_type: &'static str,
    /// The body.
    pub(super) body: String,
    /// The word by which other parts of the system tell what was refused.
    pub(super) reason: Option<&'static str>,
    /// Whether it is worth another try in a second.
    pub(super) retry: bool,
}

impl SidecarResponse {
    /// A text.
    pub(super) fn text(status: u16, body: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.into(), reason: None, retry: false }
    }

    /// A refusal: `{"error", "reason"}`.
    pub(super) fn refusal(status: u16, error: &str, reason: &'static str) -> Self {
        let body = serde_json::json!({ "error": error, "reason": reason }).to_string();
        Self { status, content_type: "application/json", body, reason: Some(reason), retry: status == 503 }
    }

    /// To what must not be passed on.
    pub(super) fn bad_request(bad: InvalidMessage) -> Self {
        Self::refusal(bad.status(), &bad.to_string(), "bad-request")
    }

    /// As HTTP/1.1, for a request that was HEAD or not; with the load, which every answer tells.
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
