//! What the gateway answers itself: refusals, as `{"error", "reason"}`.

use std::borrow::Cow;

use crate::http1::Bad;

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// Status code.
    pub(super) status: u16,
    /// For people: what was wrong and what to do.
    pub(super) error: Cow<'static, str>,
    /// For machines: one word.
    pub(super) reason: &'static str,
    /// A field more, such as `WWW-Authenticate` and its value.
    pub(super) field: Option<(&'static str, Cow<'static, str>)>,
}

impl Answer {
    /// A refusal.
    pub(super) fn new(status: u16, reason: &'static str, error: impl Into<Cow<'static, str>>) -> Self {
        Self { status, error: error.into(), reason, field: None }
    }

    /// The request itself is bad.
    pub(super) fn bad(bad: Bad) -> Self {
        Self::new(bad.status(), "bad-request", bad.to_string())
    }

    /// Writes it as HTTP/1.1, for a request that was HEAD or not. 503 and 429 ask for another try in a second.
    pub(super) fn write(&self, to_head: bool, close: bool, out: &mut Vec<u8>) {
        let Self { status, error, reason, field } = self;
        let body = serde_json::json!({ "error": error, "reason": reason }).to_string();
        let phrase =
            http::StatusCode::from_u16(*status).ok().and_then(|code| code.canonical_reason()).unwrap_or_default();
        let mut text = format!(
            "HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nx-recif-reason: \
             {reason}\r\n",
            body.len()
        );
        if matches!(status, 429 | 503) {
            text.push_str("Retry-After: 1\r\n");
        }
        if let Some((name, value)) = field {
            text.extend([*name, ": ", value, "\r\n"]);
        }
        if close {
            text.push_str("Connection: close\r\n");
        }
        text.push_str("\r\n");
        if !to_head {
            text.push_str(&body);
        }
        out.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_was_wrong_in_words_and_in_one_word() {
        let answer = Answer::new(503, "queue-full", "\"too\" many");
        let mut out = Vec::new();
        answer.write(false, true, &mut out);
        let expected = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 46\r\n\
                        x-recif-reason: queue-full\r\nRetry-After: 1\r\nConnection: close\r\n\r\n\
                        {\"error\":\"\\\"too\\\" many\",\"reason\":\"queue-full\"}";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let mut out = Vec::new();
        let field = Some(("WWW-Authenticate", "Bearer".into()));
        Answer { field, ..Answer::new(401, "unauthenticated", "x") }.write(true, false, &mut out);
        assert!(out.ends_with(b"unauthenticated\r\nWWW-Authenticate: Bearer\r\n\r\n"));
    }
}
