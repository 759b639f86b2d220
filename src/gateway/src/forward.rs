//! Rewrites heads for forwarding: the request head that a workload gets, and the response head that a client gets.

use std::sync::atomic::Ordering::Relaxed;

use crds::{
    pending_calls::{DECISION_HEADER, PENDING_HEADER},
    usage::{COST_HEADER, LEFT_COST_HEADER, LEFT_HEADER, PRICES_HEADER, SPENT_HEADER},
};
use http1::{HeadWriter, RequestHead, ResponseHead, is_lenient_match};
use telemetry::{TRACEPARENT, TRACESTATE};

use super::{
    limits::LimitTime,
    path::Path,
    pod::UpstreamPod,
    request::RequestContext,
    routes::Route,
    sessions::{self, PodTag},
    traces::sent_context,
};

/// Header fields by which frameworks override the path or the method of a request.
const REROUTES: [&str; 3] = ["x-original-url", "x-rewrite-url", "x-http-method-override"];

/// Writes the request head that this Pod of the workload gets.
pub(super) fn write_request_head(call: &RequestContext<'_>, route: &Route, pod: &UpstreamPod, out: &mut Vec<u8>) {
    let RequestContext { head, path, caller, peer, shared, session, token, record, .. } = call;
    // Reserves room for the added fields, so that the buffer grows once.
    out.reserve(head.bytes.len() + token.map_or(0, str::len) + 512);
    let sent = sent_context(head);
    let trace = shared.log.traces.forwarded(record.span(), sent.as_ref(), caller.continues_trace(peer));
    record.sent(trace.trace_id);
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
            Some(b't') => {
                (!trace.keeps_parent() && name.eq_ignore_ascii_case(TRACEPARENT.as_bytes()))
                    || (!trace.keeps_state && name.eq_ignore_ascii_case(TRACESTATE.as_bytes()))
            }
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
    if let Some(parent) = &trace.parent {
        writer = writer.field(TRACEPARENT, parent);
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
    let name = &route.workload.full_name;
    let run = || Some(pod.run.load(Relaxed)).filter(|run| *run > 0);
    if let Some(budgets) = &route.object.budgets {
        let left = shared.limits.left(budgets, name, || call.client(), run(), LimitTime::now(&shared.clock));
        writer = writer.field(LEFT_HEADER, left.to_string());
    }
    if let Some(cost) = &route.object.cost {
        let now = LimitTime::now(&shared.clock);
        let left = shared.limits.left(&cost.budgets, &cost.name(name), || call.client(), run(), now);
        writer = writer.field(LEFT_COST_HEADER, left.to_string()).field(PRICES_HEADER, cost.prices.to_string());
    }
    // If the address belongs to a Pod of another workload by now, its sidecar responds 421 to this name.
    writer = writer.field("x-recif-via", &shared.instance).field("X-Recif-Workload", name.as_bytes());
    writer.end_request(head);
}

/// Writes the response head that the client of `request` gets. `pod` is the tag that is put before a session id, for workloads with
/// sessions.
pub(super) fn write_response_head(
    head: &ResponseHead<'_>,
    request: &RequestHead<'_>,
    close: bool,
    pod: Option<&PodTag>,
    out: &mut Vec<u8>,
) {
    out.reserve(head.bytes.len() + 32);
    let writer = HeadWriter::response(head, request.version, out).with_trailers(request.takes_trailers());
    let mut writer = writer.copy(head.bytes, head.fields, |name| {
        is_for_gateway(name) || (pod.is_some() && name.eq_ignore_ascii_case(sessions::FIELD.as_bytes()))
    });
    if head.is_interim() {
        return writer.end();
    }
    if let Some(pod) = pod
        && let Some(id) = head.fields.values(head.bytes, sessions::FIELD).next()
    {
        writer = writer.parts(sessions::FIELD, [pod.as_bytes(), b".", id]);
    }
    writer.end_response(head, request.version, close);
}

/// Reports whether a name begins so, in any case of its letters.
fn begins(name: &[u8], start: &[u8]) -> bool {
    name.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start))
}

/// Reports whether a name is one of ours.
pub(super) fn is_ours(name: &[u8]) -> bool {
    begins(name, b"x-recif-")
}

/// Reports whether a header field of a response is for the gateway alone.
fn is_for_gateway(name: &[u8]) -> bool {
    // Most names need no further comparison.
    is_ours(name)
        && ["x-recif-load", SPENT_HEADER, COST_HEADER, PENDING_HEADER, DECISION_HEADER]
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Returns the reason that a sidecar gives for a response of its own.
pub(super) fn reason<'a>(head: &ResponseHead<'a>) -> Option<&'a [u8]> {
    head.fields.values(head.bytes, "x-recif-reason").next()
}

/// Reports whether a name from a client is reserved for the gateway.
fn is_reserved_name(name: &[u8]) -> bool {
    is_ours(name)
        || (begins(name, b"x-forwarded-")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ours_are_known_however_they_are_written() {
        for ours in ["x-recif-user", "X-Recif-Key", "X-RECIF-", "X-Forwarded-For", "x-forwarded-prefix"] {
            assert!(is_reserved_name(ours.as_bytes()), "{ours}");
        }
        for other in ["x-recife", "x-forwarded-port", "x-forwarded-forx", "x"] {
            assert!(!is_reserved_name(other.as_bytes()), "{other}");
        }
        for (name, expected) in [
            ("X-Recif-Load", true),
            ("x-recif-spent", true),
            ("X-RECIF-COST", true),
            ("X-Recif-Approvals", true),
            ("x-recif-approval", true),
            ("x-recif-usage", false),
            ("x-recif-costs", false),
            ("x-recif", false),
            ("content-type", false),
        ] {
            assert_eq!(is_for_gateway(name.as_bytes()), expected, "{name}");
        }
    }
}
