//! Rewrites heads for forwarding: the request head that a workload gets, and the response head that a client gets.

use http1::{HeadWriter, ResponseHead, Version, is_lenient_match};

use super::{
    clock::random,
    path::Path,
    request::RequestContext,
    sessions::{self, PodTag},
    workload::WorkloadState,
};

/// Header fields by which frameworks override the path or the method of a request.
const REROUTES: [&str; 3] = ["x-original-url", "x-rewrite-url", "x-http-method-override"];

/// Writes the request head that a Pod of the workload gets.
pub(super) fn write_request_head(call: &RequestContext<'_>, workload: &WorkloadState, out: &mut Vec<u8>) {
    let RequestContext { head, path, caller, peer, shared, session, token, audit, .. } = call;
    // Reserves room for the added fields, so that the buffer grows once.
    out.reserve(head.bytes.len() + token.map_or(0, str::len) + 512);
    let mut traces = head.fields.values(head.bytes, "traceparent");
    let own = match (traces.next(), traces.next()) {
        (Some(parent), None) if is_trace_parent(parent) => Some(parent),
        _ => None,
    };
    let traced = own.is_some();
    let mut with_root = Vec::new();
    let target = match path.rest.first() {
        Some(b'/') => path.rest,
        _ => {
            with_root.push(b'/');
            with_root.extend_from_slice(path.rest);
            &with_root
        }
    };
    let mut writer = HeadWriter::request(head, target, out).copy(head.bytes, head.fields, |name| {
        // Dispatches on the first byte, so that most names need no further comparison.
        match name.first().map(u8::to_ascii_lowercase) {
            Some(b'x') => {
                is_reserved_name(name)
                    || (caller.is_anonymous() && REROUTES.iter().any(|known| is_lenient_match(name, known)))
            }
            Some(b't') => !traced && name.eq_ignore_ascii_case(b"traceparent"),
            Some(b'm') => session.is_some() && name.eq_ignore_ascii_case(sessions::FIELD.as_bytes()),
            Some(b'a') => caller.hides_authorization && name.eq_ignore_ascii_case(b"authorization"),
            _ => false,
        }
    });
    writer = forwarded_for(call, writer);
    let trusted_value = |name| head.value(name).filter(|_| peer.trusted);
    if let Some(host) = trusted_value("x-forwarded-host").or(Some(head.host)).filter(|host| !host.is_empty()) {
        writer = writer.field("X-Forwarded-Host", host);
    }
    writer = writer.field("X-Forwarded-Proto", trusted_value("x-forwarded-proto").unwrap_or(peer.proto.as_bytes()));
    writer = match trusted_value("x-forwarded-prefix") {
        Some(before) => writer.field("X-Forwarded-Prefix", prefix(before, path)),
        None => writer.field("X-Forwarded-Prefix", path.prefix),
    };
    match own {
        Some(parent) => audit.sent(parent),
        None => {
            let parent = new_trace_parent();
            audit.sent(&parent);
            writer = writer.field("traceparent", parent);
        }
    }
    if let Some(session) = session {
        writer = writer.field(sessions::FIELD, session.id);
    }
    if let Some(user) = &caller.user {
        // For sidecars of older templates, and Pods without a sidecar, which do not read the token.
        writer = writer.field("X-Recif-User", user.as_bytes());
    }
    if let Some(token) = token {
        writer = writer.field(identity::CALLER_HEADER, token);
    }
    // If the address belongs to a Pod of another workload by now, its sidecar responds 421 to this name.
    writer = writer.field("x-recif-via", &shared.instance).field("X-Recif-Workload", workload.full_name.as_bytes());
    writer.end_request(head);
}

/// Writes the response head that a client gets. `pod` is the tag that is put before a session id, for workloads with
/// sessions.
pub(super) fn write_response_head(
    head: &ResponseHead<'_>,
    version: Version,
    close: bool,
    pod: Option<&PodTag>,
    out: &mut Vec<u8>,
) {
    out.reserve(head.bytes.len() + 32);
    let mut writer = HeadWriter::response(head, version, out).copy(head.bytes, head.fields, |name| {
        name.eq_ignore_ascii_case(b"x-recif-load")
            || (pod.is_some() && name.eq_ignore_ascii_case(sessions::FIELD.as_bytes()))
    });
    if head.is_interim() {
        return writer.end();
    }
    if let Some(pod) = pod
        && let Some(id) = head.fields.values(head.bytes, sessions::FIELD).next()
    {
        writer = writer.parts(sessions::FIELD, [pod.as_bytes(), b".", id]);
    }
    writer.end_response(head, version, close);
}

/// Reports whether a name from a client is reserved for the gateway.
fn is_reserved_name(name: &[u8]) -> bool {
    let begins = |start: &[u8]| name.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start));
    begins(b"x-recif-")
        || (begins(b"x-forwarded-")
            && [&b"x-forwarded-for"[..], b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-prefix"]
                .iter()
                .any(|ours| name.eq_ignore_ascii_case(ours)))
}

/// Writes `X-Forwarded-For`: the received chain, then the peer.
fn forwarded_for<'o>(call: &RequestContext<'_>, writer: HeadWriter<'o>) -> HeadWriter<'o> {
    let RequestContext { head, peer, .. } = call;
    let mut earlier = head.fields.values(head.bytes, "x-forwarded-for").peekable();
    if earlier.peek().is_none() {
        return writer.field("X-Forwarded-For", peer.text.as_bytes());
    }
    let mut chain = Vec::new();
    for value in earlier {
        chain.extend_from_slice(value);
        chain.extend_from_slice(b", ");
    }
    chain.extend_from_slice(peer.text.as_bytes());
    writer.field("X-Forwarded-For", chain)
}

fn prefix(before: &[u8], path: &Path<'_>) -> Vec<u8> {
    [before.strip_suffix(b"/").unwrap_or(before), path.prefix].concat()
}

/// Reports whether a value is a valid `traceparent` (W3C Trace Context, section 3.2).
fn is_trace_parent(value: &[u8]) -> bool {
    let hex = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let (Some(version), Some(trace), Some(parent), Some(flags)) =
        (value.get(..2), value.get(3..35), value.get(36..52), value.get(53..55))
    else {
        return false;
    };
    let dashes = [2, 35, 52].iter().all(|at| value[*at] == b'-');
    let set = |part: &[u8]| part.iter().any(|byte| *byte != b'0');
    let length = value.len() == 55 || (version != b"00" && value[55] == b'-');
    dashes
        && length
        && version != b"ff"
        && [version, trace, parent, flags].iter().all(|part| hex(part))
        && set(trace)
        && set(parent)
}

/// Creates a new trace context that is not sampled; the first service that sees it may decide to sample.
fn new_trace_parent() -> [u8; 55] {
    let mut text = *b"00-00000000000000000000000000000001-0000000000000001-00";
    let mut write = |from: usize, to: usize| {
        let mut number = 0;
        for (at, byte) in text[from..to].iter_mut().enumerate() {
            if at % 16 == 0 {
                number = random() | 1;
            }
            *byte = b"0123456789abcdef"[(number & 15) as usize];
            number >>= 4;
        }
    };
    write(3, 35);
    write(36, 52);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_passed_on_only_if_it_is_one() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(is_trace_parent(good.as_bytes()));
        assert!(is_trace_parent(good.replacen("00", "cc", 1).as_bytes()));
        assert!(is_trace_parent(format!("{}-more", good.replacen("00", "cc", 1)).as_bytes()));
        for bad in [
            String::new(),
            good.to_uppercase(),
            good.replacen("00", "ff", 1),
            format!("{good}-more"),
            good.replace('-', "_"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01".into(),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01".into(),
            good[..54].into(),
        ] {
            assert!(!is_trace_parent(bad.as_bytes()), "{bad}");
        }
        let (one, other) = (new_trace_parent(), new_trace_parent());
        assert!(is_trace_parent(&one) && is_trace_parent(&other) && one != other);
    }

    #[test]
    fn names_of_ours_are_known_however_they_are_written() {
        for ours in ["x-recif-user", "X-Recif-Key", "X-RECIF-", "X-Forwarded-For", "x-forwarded-prefix"] {
            assert!(is_reserved_name(ours.as_bytes()), "{ours}");
        }
        for other in ["x-recife", "x-forwarded-port", "x-forwarded-forx", "x"] {
            assert!(!is_reserved_name(other.as_bytes()), "{other}");
        }
    }
}
