//! Number of messages within a request, found before they are decoded: an empty span is two bytes of a body, and hundreds in memory.

/// Fields that hold what is counted, from the request inwards: resource spans, their scopes, their spans, and of these the attributes,
/// events and links ([the proto](https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/trace/v1/trace.proto)).
const FIELDS: [&[u64]; 4] = [&[1], &[2], &[2], &[9, 11, 13]];

/// Returns the number of messages in a body in protocol buffers, as far as it can be read.
pub(super) fn in_protobuf(body: &[u8]) -> usize {
    count(body, &FIELDS)
}

/// Returns the largest possible number of messages in a body in JSON.
pub(super) fn in_json(body: &[u8]) -> usize {
    body.iter().filter(|byte| **byte == b'{').count()
}

fn count(mut rest: &[u8], fields: &[&[u64]]) -> usize {
    let Some((wanted, inner)) = fields.split_first() else { return 0 };
    let mut found = 0;
    while let Some((field, value, after)) = next_field(rest) {
        rest = after;
        if wanted.contains(&field) {
            found += 1 + count(value, inner);
        }
    }
    found
}

/// Returns the number of the first field, its bytes if it has a length, and what follows; `None` at the end, or where it cannot be read.
fn next_field(body: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    const NONE: &[u8] = &[];
    let (tag, rest) = varint(body)?;
    let (value, rest) = match tag & 7 {
        0 => (NONE, varint(rest)?.1),
        1 => (NONE, rest.get(8..)?),
        2 => {
            let (length, rest) = varint(rest)?;
            rest.split_at_checked(usize::try_from(length).ok()?)?
        }
        5 => (NONE, rest.get(4..)?),
        _ => return None,
    };
    Some((tag >> 3, value, rest))
}

fn varint(body: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (place, byte) in body.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((number, body.get(place + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use telemetry::{ExportProtocol, FinishedSpan, SpanKind, TraceContext, otlp::encode_traces};

    use super::*;

    #[test]
    fn spans_and_what_they_hold_are_counted() {
        let span = FinishedSpan {
            context: TraceContext::root(true),
            parent: None,
            name: "chat m".into(),
            kind: SpanKind::Client,
            start: 5,
            end: 9,
            attributes: vec![("a", "x".into()), ("b", 7_u64.into())],
            events: Vec::new(),
            links: Vec::new(),
            error: None,
        };
        let body = encode_traces(ExportProtocol::Protobuf, &[], vec![span.clone(), span.clone()]);
        // The process, its scope, two spans, and two attributes of each.
        assert_eq!(in_protobuf(&body), 8);
        for end in 0..body.len() {
            assert!(in_protobuf(&body[..end]) <= 8);
        }
        assert!(in_json(&encode_traces(ExportProtocol::Json, &[], vec![span])) >= 5);
    }

    #[test]
    fn empty_spans_are_seen_without_being_decoded() {
        let spans = [0x12, 0].repeat(50);
        let scope = [&[0x12, 100][..], &spans].concat();
        let body = [&[0x0a, 102][..], &scope].concat();
        assert_eq!(in_protobuf(&body), 52);
        assert_eq!(in_protobuf(&[0xff; 20]), 0);
        assert_eq!(in_json(b"{{{"), 3);
    }
}
