//! Trace context of a request, as it was sent and as it is forwarded to a Pod ([W3C](https://www.w3.org/TR/trace-context/)).

use http1::RequestHead;
use telemetry::{TRACEPARENT, TraceContext};

use crate::clock::random;

/// Trace context with which a request is forwarded to a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ForwardedTrace {
    /// Id of the trace; `None` if the request is in none.
    pub(crate) trace_id: Option<[u8; 16]>,
    /// Value that replaces the sent `traceparent`.
    pub(crate) parent: Option<[u8; 55]>,
    /// Set if `tracestate` is forwarded as it was sent, because it belongs to the trace.
    pub(crate) keeps_state: bool,
}

impl ForwardedTrace {
    /// Forwards the context as it was sent.
    pub(super) fn as_sent(sent: &TraceContext) -> Self {
        Self { trace_id: Some(sent.trace_id), parent: None, keeps_state: true }
    }

    /// Continues the trace with this span.
    pub(super) fn continued(trace_id: [u8; 16], span_id: [u8; 8], is_sampled: bool) -> Self {
        Self { keeps_state: true, ..Self::begun(trace_id, span_id, is_sampled) }
    }

    /// Begins the trace with this span.
    pub(super) fn begun(trace_id: [u8; 16], span_id: [u8; 8], is_sampled: bool) -> Self {
        let parent = trace_parent(trace_id, span_id, is_sampled);
        Self { trace_id: Some(trace_id), parent: Some(parent), keeps_state: false }
    }

    /// Reports whether `traceparent` is forwarded as it was sent.
    pub(crate) fn keeps_parent(&self) -> bool {
        self.trace_id.is_some() && self.parent.is_none()
    }
}

/// Begins a trace that is not recorded.
pub(super) fn unsampled_begin() -> ForwardedTrace {
    ForwardedTrace::begun(random_trace_id(), random_span_id(), false)
}

/// Returns the context that was sent with a request; `None` if there are several.
pub(crate) fn sent_context(head: &RequestHead<'_>) -> Option<TraceContext> {
    let mut values = head.fields.values(head.bytes, TRACEPARENT);
    match (values.next(), values.next()) {
        (Some(value), None) => TraceContext::parse(str::from_utf8(value).ok()?, None),
        _ => None,
    }
}

/// Returns a random id of a trace, which is not all zero.
pub(super) fn random_trace_id() -> [u8; 16] {
    (u128::from(random() | 1) << 64 | u128::from(random())).to_be_bytes()
}

/// Returns a random id of a span, which is not zero.
pub(super) fn random_span_id() -> [u8; 8] {
    (random() | 1).to_be_bytes()
}

/// Writes `traceparent`, of version 00.
fn trace_parent(trace_id: [u8; 16], span_id: [u8; 8], is_sampled: bool) -> [u8; 55] {
    let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
    // Writing fails only if the lengths do not match.
    let _ = hex::encode_to_slice(trace_id, &mut text[3..35]);
    let _ = hex::encode_to_slice(span_id, &mut text[36..52]);
    if is_sampled {
        text[54] = b'1';
    }
    text
}

#[cfg(test)]
mod tests {
    use http1::Fields;

    use super::*;

    const SENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn sent(fields: &str) -> Option<TraceContext> {
        let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let mut scratch = Fields::default();
        sent_context(&RequestHead::read(bytes.as_bytes(), &mut scratch).unwrap())
    }

    #[test]
    fn one_valid_context_is_read_and_written_alike() {
        let context = sent(&format!("Traceparent: {SENT}\r\n")).unwrap();
        let again = ForwardedTrace::continued(context.trace_id, context.span_id, true);
        assert_eq!(again.parent.as_ref().map(|parent| &parent[..]), Some(SENT.as_bytes()));
        assert!(again.keeps_state && !again.keeps_parent() && ForwardedTrace::as_sent(&context).keeps_parent());
        for invalid in ["", &format!("traceparent: {SENT}\r\nTRACEPARENT: {SENT}\r\n")] {
            assert_eq!(sent(invalid), None, "{invalid}");
        }
        assert!(!ForwardedTrace::default().keeps_parent());
    }

    #[test]
    fn a_trace_is_passed_on_only_if_it_is_one() {
        let later = SENT.replacen("00", "cc", 1);
        for good in [later.clone(), format!("{later}-more")] {
            assert!(sent(&format!("traceparent: {good}\r\n")).is_some(), "{good}");
        }
        for bad in [
            String::new(),
            "00-x".into(),
            SENT.to_uppercase(),
            SENT.replacen("00", "ff", 1),
            format!("{SENT}-more"),
            SENT.replace('-', "_"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01".into(),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01".into(),
            SENT[..54].into(),
        ] {
            assert_eq!(sent(&format!("traceparent: {bad}\r\n")), None, "{bad}");
        }
    }

    #[test]
    fn what_begins_is_another_trace_each_time() {
        let (one, other) = (unsampled_begin(), unsampled_begin());
        assert_ne!(one.trace_id, other.trace_id);
        let text = String::from_utf8(one.parent.unwrap().to_vec()).unwrap();
        let context = TraceContext::parse(&text, None).unwrap();
        assert_eq!((Some(context.trace_id), context.is_sampled), (one.trace_id, false));
    }
}
