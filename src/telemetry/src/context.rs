//! Context of a trace, as it travels in headers ([W3C Trace Context](https://www.w3.org/TR/trace-context/)).

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;

/// Header with the ids of a trace and of the span that sent the request.
pub const TRACEPARENT: &str = "traceparent";
/// Header with what other vendors add; passed on as it is.
pub const TRACESTATE: &str = "tracestate";

/// Length of a `traceparent` of version 00.
const LENGTH: usize = 55;
/// Longest `tracestate` that is passed on, in bytes.
const MAX_STATE: usize = 512;
/// Flag of a sampled trace.
const SAMPLED: u8 = 1;

/// Position in a trace: the trace and one span of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// Trace; not all zero.
    pub trace_id: [u8; 16],
    /// Span; not all zero.
    pub span_id: [u8; 8],
    /// Set if spans of the trace are recorded.
    pub is_sampled: bool,
    /// Values that other vendors added.
    pub state: Option<Arc<str>>,
}

impl TraceContext {
    /// Begins a trace.
    pub fn root(is_sampled: bool) -> Self {
        let mut trace_id = [0; 16];
        trace_id[..8].copy_from_slice(&random_id());
        trace_id[8..].copy_from_slice(&random_id());
        Self { trace_id, span_id: random_id(), is_sampled, state: None }
    }

    /// Returns the context of a further span of the trace.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { span_id: random_id(), ..self.clone() }
    }

    /// Parses `traceparent`, and adds `tracestate`, of which too long a one is left out. `None` for an invalid `traceparent`. Of a
    /// version that is not known yet, only what version 00 has is read.
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let bytes = traceparent.as_bytes();
        if bytes.len() < LENGTH || ![2, 35, 52].into_iter().all(|at| bytes[at] == b'-') {
            return None;
        }
        let [version] = decode_hex(bytes.get(..2)?)?;
        match version {
            0 if bytes.len() > LENGTH => return None,
            0xff => return None,
            _ if bytes.get(LENGTH).is_some_and(|next| *next != b'-') => return None,
            _ => {}
        }
        let trace_id: [u8; 16] = decode_hex(bytes.get(3..35)?)?;
        let span_id: [u8; 8] = decode_hex(bytes.get(36..52)?)?;
        let [flags] = decode_hex(bytes.get(53..LENGTH)?)?;
        if trace_id == [0; 16] || span_id == [0; 8] {
            return None;
        }
        let is_text = |state: &&str| !state.is_empty() && state.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
        let state = tracestate.map(str::trim).filter(is_text).filter(|state| state.len() <= MAX_STATE);
        Some(Self { trace_id, span_id, is_sampled: flags & SAMPLED != 0, state: state.map(Into::into) })
    }

    /// Returns the header `traceparent`, of version 00.
    pub fn traceparent(&self) -> String {
        let flags = if self.is_sampled { "01" } else { "00" };
        format!("00-{}-{}-{flags}", self.trace_text(), self.span_text())
    }

    /// Returns the id of the trace as 32 hexadecimal digits.
    pub fn trace_text(&self) -> String {
        hex::encode(self.trace_id)
    }

    /// Returns the id of the span as 16 hexadecimal digits.
    pub fn span_text(&self) -> String {
        hex::encode(self.span_id)
    }
}

/// Decodes lowercase hexadecimal digits.
fn decode_hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    if !digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut bytes = [0; N];
    hex::decode_to_slice(digits, &mut bytes).ok()?;
    Some(bytes)
}

/// Returns a random id that is not zero. The keys of the hash come from the system's random numbers once for each thread.
fn random_id() -> [u8; 8] {
    loop {
        let id = RandomState::new().build_hasher().finish();
        if id != 0 {
            return id.to_be_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_is_read_and_written() {
        let context = TraceContext::parse(VALID, Some("vendor=x,other=y")).unwrap();
        assert_eq!(context.traceparent(), VALID);
        assert_eq!((context.is_sampled, context.state.as_deref()), (true, Some("vendor=x,other=y")));
        assert_eq!(context.trace_text(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let other = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-fe", None).unwrap();
        assert!(!other.is_sampled);
        assert_eq!(other.traceparent(), VALID.replace("b7-01", "b7-00"));
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        for later in [VALID.replacen("00", "01", 1), format!("{}-more", VALID.replacen("00", "cc", 1))] {
            assert_eq!(TraceContext::parse(&later, None).unwrap().traceparent(), VALID, "{later}");
        }
    }

    #[test]
    fn what_is_no_context_is_not_continued() {
        for invalid in [
            "",
            "not-valid",
            &VALID[..54],
            &format!("{VALID}-more"),
            &VALID.replacen("00", "ff", 1),
            &format!("{}x", VALID.replacen("00", "01", 1)),
            &VALID.to_ascii_uppercase(),
            &VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &VALID.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &VALID.replace('-', "_"),
        ] {
            assert_eq!(TraceContext::parse(invalid, None), None, "{invalid}");
        }
    }

    #[test]
    fn a_state_that_is_too_long_or_no_text_is_left_out() {
        for state in ["", " ", "a=\u{7f}", "ä=b", &format!("a={}", "x".repeat(MAX_STATE))] {
            assert_eq!(TraceContext::parse(VALID, Some(state)).unwrap().state, None, "{state}");
        }
    }

    #[test]
    fn a_child_stays_in_the_trace() {
        let root = TraceContext::root(true);
        let child = root.child();
        assert_eq!((child.trace_id, child.is_sampled), (root.trace_id, true));
        assert_ne!(child.span_id, root.span_id);
        assert_ne!(TraceContext::root(true).trace_id, root.trace_id);
        assert_eq!(TraceContext::parse(&root.traceparent(), None), Some(root));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,80}", state in ".{0,40}") {
            let _ = TraceContext::parse(&text, Some(&state));
        }
    }
}
