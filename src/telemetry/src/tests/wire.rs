//! Both encodings hold the same.

use crate::otlp::{
    DecodeError, decode_traces, encode_response, encode_traces, gunzip, gzip, rejected_spans, span, status,
    text_attribute,
};
use crate::{AttributeValue, ExportProtocol, FinishedSpan, SpanEvent, SpanKind, SpanLink, TraceContext};

use super::finished;

fn full() -> FinishedSpan {
    let context = TraceContext { state: Some("v=1".into()), ..TraceContext::root(true) };
    FinishedSpan {
        parent: Some([7; 8]),
        kind: SpanKind::Client,
        attributes: vec![
            ("text", "x".into()),
            ("texts", AttributeValue::Texts(vec!["a".into(), "b".into()])),
            ("int", u64::MAX.into()),
            ("float", 0.25.into()),
            ("bool", true.into()),
        ],
        events: vec![SpanEvent { at: 1_700_000_000_000_000_005, name: "retry", attributes: vec![("n", 2_u64.into())] }],
        links: vec![SpanLink { context: TraceContext::root(false) }],
        error: Some("429".into()),
        context,
        ..finished("chat m")
    }
}

#[test]
fn protobuf_and_json_are_read_alike() {
    let resource = [("service.name".to_owned(), "s".to_owned())];
    let spans = vec![full(), finished("invoke_agent a")];
    let read = [ExportProtocol::Protobuf, ExportProtocol::Json].map(|protocol| {
        let body = encode_traces(protocol, &resource, spans.clone());
        decode_traces(&format!("{}; charset=utf-8", protocol.content_type()), &body).unwrap()
    });
    assert_eq!(read[0], read[1]);
    let process = &read[0].resource_spans[0];
    assert_eq!(text_attribute(&process.resource.as_ref().unwrap().attributes, "service.name"), Some("s"));
    let [chat, invoke] = &process.scope_spans[0].spans[..] else { panic!("two spans") };
    assert_eq!(chat.trace_id, spans[0].context.trace_id);
    assert_eq!((&chat.parent_span_id[..], chat.trace_state.as_str()), (&[7; 8][..], "v=1"));
    assert_eq!((chat.kind(), invoke.kind()), (span::SpanKind::Client, span::SpanKind::Internal));
    assert_eq!(chat.status.as_ref().unwrap().code(), status::StatusCode::Error);
    assert_eq!((text_attribute(&chat.attributes, "text"), text_attribute(&chat.attributes, "int")), (Some("x"), None));
    assert_eq!((chat.attributes.len(), chat.events.len(), chat.links.len()), (5, 1, 1));
    assert!(invoke.parent_span_id.is_empty());
    assert_eq!(invoke.end_time_unix_nano - invoke.start_time_unix_nano, 8);
}

#[test]
fn what_is_no_request_is_refused() {
    let (protobuf, json) = ("application/x-protobuf", "application/json");
    for (kind, body) in [(protobuf, &b"\xff\xff"[..]), (json, &b"7"[..]), (json, &b""[..])] {
        assert!(matches!(decode_traces(kind, body), Err(DecodeError::Body(_))), "{kind}");
    }
    assert!(matches!(decode_traces("application/grpc", b""), Err(DecodeError::ContentType)));
    let unknown = br#"{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "0102", "new": 1}]}]}]}"#;
    let read = decode_traces("application/json", unknown).unwrap();
    assert_eq!(read.resource_spans[0].scope_spans[0].spans[0].trace_id, [1, 2]);
}

#[test]
fn a_body_is_decompressed_up_to_a_bound() {
    let body = gzip(&[b'x'; 1000]).unwrap();
    assert!(body.len() < 100);
    assert_eq!(gunzip(&body, 1000).unwrap().len(), 1000);
    assert!(gunzip(&body, 999).is_err());
    assert!(gunzip(b"plain", 1000).is_err());
}

#[test]
fn an_answer_tells_how_many_spans_were_refused() {
    for protocol in [ExportProtocol::Protobuf, ExportProtocol::Json] {
        let read = |body: &[u8]| rejected_spans(protocol.content_type(), body);
        assert_eq!(read(&encode_response(protocol, 3, "too many")), 3);
        assert_eq!(read(&encode_response(protocol, 0, "")), 0);
        assert_eq!(read(b"no answer"), 0);
    }
}
