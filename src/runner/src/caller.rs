//! Says who asks, as the sidecar and the gateway tell.

use axum::http::header::HeaderMap;

use super::conversations::history::UserName;

/// Who asks, as the sidecar and the gateway tell.
#[derive(Debug, Clone, Default)]
pub(super) struct CallerContext {
    /// The user.
    pub(super) user: UserName,
    /// The trace that the request is a part of (W3C Trace Context).
    pub(super) trace_id: Option<String>,
}

impl CallerContext {
    /// Who sent these headers.
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
        let run = text("traceparent").and_then(|parent| parent.split('-').nth(1));
        let is_id = |run: &&str| run.len() == 32 && run.bytes().all(|byte| byte.is_ascii_hexdigit());
        Self { user: text("x-recif-user").map(Into::into), trace_id: run.filter(is_id).map(str::to_owned) }
    }
}
