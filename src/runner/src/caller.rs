//! Identity of the caller, from the headers of the sidecar and the gateway, and the headers that tools send on.

use std::{fmt, sync::Arc};

use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use crds::approval::APPROVER_HEADER;

use super::{conversations::history::UserName, traces::TraceScope, usage::UsageAccount};

/// Identity of the caller, from the headers of the sidecar and the gateway.
#[derive(Debug, Clone, Default)]
pub(super) struct CallerContext {
    /// User name, from `X-Recif-User`.
    pub(super) user: UserName,
    /// Set if a gateway vouches that this user may approve calls for others.
    pub(super) is_approver: bool,
    /// Key for a provider of models, from `Authorization: Bearer`. It is kept for the turn only.
    pub(super) key: Option<CallerKey>,
    /// Headers of the request.
    pub(super) headers: RequestHeaders,
    /// Account of the request, with its trace.
    pub(super) account: UsageAccount,
}

/// Key of a caller, from the `Authorization: Bearer` of its request. It is never printed.
#[derive(Clone, PartialEq)]
pub(super) struct CallerKey(pub(super) Arc<str>);

impl fmt::Debug for CallerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
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

    /// Reports whether there is a header of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

impl From<HeaderMap> for RequestHeaders {
    fn from(headers: HeaderMap) -> Self {
        Self(Arc::new(headers))
    }
}

impl fmt::Debug for RequestHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl CallerContext {
    /// Reads the identity from the headers of the current request, and keeps the headers and the request's account.
    pub(super) fn from_headers(headers: HeaderMap) -> Self {
        let text = |name: &str| text(&headers, name);
        let bearer = text("authorization").and_then(|value| value.split_once(' '));
        let key = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, key)| key.trim());
        let key = key.filter(|key| !key.is_empty()).map(|key| CallerKey(key.into()));
        let (user, is_approver) = (Self::user_of(&headers), Self::is_approver(&headers));
        Self { user, is_approver, key, headers: headers.into(), account: UsageAccount::current() }
    }

    /// Reads the user name alone.
    pub(super) fn user_of(headers: &HeaderMap) -> UserName {
        text(headers, "x-recif-user").map(Into::into)
    }

    /// Reports whether a gateway vouches that the caller may approve calls for others.
    pub(super) fn is_approver(headers: &HeaderMap) -> bool {
        Self::user_of(headers).is_some() && text(headers, APPROVER_HEADER) == Some("true")
    }

    /// Returns the same caller for what is part of this span.
    pub(super) fn within(self, trace: &TraceScope) -> Self {
        Self { account: self.account.within(trace), ..self }
    }
}

/// Returns the value of a header; `None` if it is absent, empty or no text.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_read_and_the_headers_are_kept() {
        let sent = [("x-recif-user", "ada"), ("authorization", "Bearer k"), ("x-tenant", "blue")];
        let sent: HeaderMap = sent
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .into_iter()
            .collect();
        let caller = CallerContext::from_headers(sent);
        assert_eq!(caller.user.as_deref(), Some("ada"));
        assert_eq!(caller.key.map(|key| key.0.to_string()).as_deref(), Some("k"));
        let kept: Vec<_> = caller.headers.values(&HeaderName::from_static("x-tenant")).collect();
        assert_eq!(kept, ["blue"]);
        assert!(!caller.is_approver);
    }

    #[test]
    fn an_approver_has_a_name() {
        for (user, word, expected) in [
            ("ada", "true", true),
            ("ada", "", false),
            ("ada", "false", false),
            ("ada", "ada", false),
            ("", "true", false),
        ] {
            let sent = [("x-recif-user", user), (APPROVER_HEADER, word)];
            let sent = sent.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            let caller = CallerContext::from_headers(sent.into_iter().collect());
            assert_eq!(caller.is_approver, expected, "{user:?} {word:?}");
        }
    }
}
