//! Identity of the caller, from the headers of the sidecar and the gateway, and the headers that tools send on.

use std::{fmt, sync::Arc};

use axum::http::header::{HeaderMap, HeaderName, HeaderValue};

use super::{conversations::history::UserName, models::CallerKey, traces::TraceScope, usage::UsageAccount};

/// Identity of the caller, from the headers of the sidecar and the gateway.
#[derive(Debug, Clone, Default)]
pub(super) struct CallerContext {
    /// User name, from `X-Recif-User`.
    pub(super) user: UserName,
    /// Key for a provider of models, from `Authorization: Bearer`. It is kept for the turn only.
    pub(super) key: Option<CallerKey>,
    /// Headers of the request.
    pub(super) headers: RequestHeaders,
    /// Account of the request, with its trace.
    pub(super) account: UsageAccount,
}

/// Headers of the request that began a turn, which tools with `forwardHeaders` send. They are kept for the turn only, and never
/// printed.
#[derive(Clone, Default)]
pub(super) struct RequestHeaders(Arc<HeaderMap>);

impl RequestHeaders {
    /// Returns the values of a header.
    pub(super) fn values(&self, name: &HeaderName) -> impl Iterator<Item = &HeaderValue> {
        self.0.get_all(name).iter()
    }
}

impl From<&HeaderMap> for RequestHeaders {
    fn from(headers: &HeaderMap) -> Self {
        Self(Arc::new(headers.clone()))
    }
}

impl fmt::Debug for RequestHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl CallerContext {
    /// Reads the identity from request headers. Called by the handler of the request, whose account it takes.
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
        let bearer = text("authorization").and_then(|value| value.split_once(' '));
        let key = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, key)| key.trim());
        Self {
            user: text("x-recif-user").map(Into::into),
            key: key.filter(|key| !key.is_empty()).map(|key| CallerKey(key.into())),
            headers: headers.into(),
            account: UsageAccount::current(),
        }
    }

    /// Returns the same caller for what is part of this span.
    pub(super) fn within(self, trace: &TraceScope) -> Self {
        Self { account: self.account.within(trace), ..self }
    }
}
