//! Checks the bridge's parsers for the output of MCP servers and the messages of their clients.

use std::collections::VecDeque;

use serde_json::Value;

#[path = "../../src/bridge/src/framing/mod.rs"]
#[allow(dead_code, reason = "the bridge uses more of it")]
mod framing;
#[path = "../../src/bridge/src/headers.rs"]
#[allow(dead_code, reason = "the bridge uses more of it")]
mod headers;
#[path = "../../src/bridge/src/message.rs"]
#[allow(dead_code, reason = "the bridge uses more of it")]
mod message;
#[path = "../../src/bridge/src/rewrite.rs"]
#[allow(dead_code, reason = "the bridge uses more of it")]
mod rewrite;
#[path = "../../src/bridge/src/scanner.rs"]
mod scanner;

/// Replaces `src/bridge/reply.rs`, of which `headers` needs this type only.
mod reply {
    #[derive(PartialEq, Eq)]
    pub(super) struct Accepts {
        pub(super) json: bool,
        pub(super) events: bool,
    }
}

use framing::{Frame, Framer};
use message::{Message, RpcId, RpcOutcome};
use scanner::{ScanStep, Scanner};

/// Limit of the reported part of a noise frame, in bytes.
const TOLD: usize = 200;
/// Valid message that follows the fuzzed output.
const NEXT: &[u8] = br#"{"jsonrpc":"2.0","id":7,"method":"m"}"#;
/// Id that the bridge assigns to a request.
const NUMBER: i64 = 4711;

/// Checks that the output of a child gives the same frames for every split into chunks, that frames are bounded, that a
/// message is one whole value on one line, and that no output hides a message on the line after it. The first byte sets the
/// size limit.
pub fn child_output(bytes: &[u8]) {
    let Some((limit, bytes)) = bytes.split_first() else { return };
    let limit = 64 << (limit % 8);
    let whole = frames(limit, bytes, bytes.len());
    for piece in [1, 2, 7, 64] {
        assert_eq!(frames(limit, bytes, piece), whole, "in pieces of {piece}");
    }
    for frame in &whole {
        match frame {
            Frame::Json(message) => {
                assert!(message.len() <= limit);
                assert!(memchr::memchr2(b'\n', b'\r', message).is_none());
                let message = message.trim_ascii();
                assert_eq!(scan(message).1, (message.len(), ScanStep::Done));
            }
            Frame::Noise(noise) => assert!(noise.len() <= TOLD && !noise.contains(&b'\n')),
            Frame::TooLarge(_) => {}
        }
    }
    let followed = [bytes, b"\n", NEXT, b"\n"].concat();
    if followed.len() <= limit {
        assert_eq!(frames(limit, &followed, followed.len()).last(), Some(&Frame::Json(NEXT.to_vec())));
    }
    as_serde_reads(bytes.trim_ascii_start());
}

fn frames(limit: usize, bytes: &[u8], piece: usize) -> Vec<Frame> {
    let (mut framer, mut found) = (Framer::new(limit), VecDeque::new());
    for part in bytes.chunks(piece.max(1)) {
        framer.push(part, &mut found);
        assert!(framer.buffered() <= limit.max(TOLD));
    }
    found.into()
}

/// Scans the first value; returns the scanner, the offset at which it stopped, and its last step.
fn scan(bytes: &[u8]) -> (Scanner, (usize, ScanStep)) {
    let mut scanner = Scanner::default();
    for (at, byte) in bytes.iter().enumerate() {
        let step = scanner.step(*byte);
        if step != ScanStep::More {
            return (scanner, (at + 1, step));
        }
    }
    (scanner, (bytes.len(), ScanStep::More))
}

/// Checks that a value that serde accepts ends at the same byte for the scanner, and that both find the same id and method.
fn as_serde_reads(bytes: &[u8]) {
    if !matches!(bytes.first(), Some(b'{' | b'[')) {
        return;
    }
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    let Some(Ok(_)) = values.next() else { return };
    let end = values.byte_offset();
    let (scanner, found) = scan(bytes);
    assert_eq!(found, (end, ScanStep::Done));
    let Ok(text) = str::from_utf8(&bytes[..end]) else { return };
    // The scanner does not decode escapes, nor ids that are too long.
    if text.contains('\\') || scanner.id().len() >= 256 {
        return;
    }
    let (id, asks) = match Message::read(text) {
        Ok(Message::Request { id, .. }) => (Some(id), true),
        Ok(Message::Notification { .. }) => (None, true),
        Ok(Message::Response { id, .. }) => (id, false),
        Err(_) => return,
    };
    let known = str::from_utf8(scanner.id()).ok().and_then(RpcId::read);
    assert_eq!((known, scanner.is_request()), (id, asks));
}

/// Checks that a request reaches the shared child with the bridge's id and no other change, that the response gets the
/// client's id and token again, and that each message is one line.
pub fn mcp_message(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(message) = Message::read(text) else { return };
    let line = message::line(text.to_owned());
    assert_eq!(memchr::memchr2_iter(b'\n', b'\r', &line).collect::<Vec<_>>(), [line.len() - 1]);
    let line = str::from_utf8(&line).expect("the line is text");
    assert_eq!(format!("{:?}", kind(&Message::read(line))), format!("{:?}", kind(&Ok(message))));
    match Message::read(text).expect("it was read before") {
        Message::Request { id, method, params } => {
            assert_eq!(RpcId::read(&id.to_json()), Some(id));
            request(&method, params.map(|params| params.get()));
        }
        Message::Notification { method, params: Some(params) } => {
            let theirs = RpcId::Text("the client's \"own\"".into());
            if let Some(text) = rewrite::progress(&method, params, &theirs) {
                renamed(&text, &method, params.get(), &["progressToken"], &theirs);
            }
            if rewrite::subscription_of(params).is_some() {
                let text =
                    rewrite::subscription_notification(&method, params, &theirs).expect("it names a subscription");
                renamed(&text, &method, params.get(), &["_meta", SUBSCRIPTION], &theirs);
            }
        }
        Message::Response { outcome, .. } => {
            let theirs = RpcId::Text("the client's \"own\"".into());
            let given = rewrite::response(&theirs, &outcome, false);
            let Ok(Message::Response { id, outcome: passed }) = Message::read(&given) else { panic!("{given}") };
            assert_eq!(id, Some(theirs));
            match (outcome, passed) {
                (RpcOutcome::Result(from), RpcOutcome::Result(to))
                | (RpcOutcome::Error(from), RpcOutcome::Error(to)) => {
                    assert_eq!(from.get(), to.get());
                }
                _ => panic!("{given}"),
            }
        }
        Message::Notification { params: None, .. } => {}
    }
}

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Checks a request on its way to the child that all clients share.
fn request(method: &str, params: Option<&str>) {
    let raw = params.and_then(|params| serde_json::from_str(params).ok());
    let Some(meta) = headers::StatelessParams::read(raw).and_then(|params| params.meta) else { return };
    let token = meta.token.map(|token| RpcId::read(token.get()));
    if token == Some(None) {
        return;
    }
    let sent = rewrite::request(NUMBER, method, raw, token.is_some());
    let Ok(Message::Request { id: RpcId::Number(NUMBER), method: passed, params: Some(arrived) }) =
        Message::read(&sent)
    else {
        panic!("{sent}")
    };
    assert_eq!(passed, method);
    let (Some(mut wanted), Some(arrived)) = (value(params.unwrap_or_default()), value(arrived.get())) else { return };
    if token.is_some() {
        wanted["_meta"]["progressToken"] = NUMBER.into();
    }
    assert_eq!(arrived, wanted);
}

/// Checks that only the value at `path` of a notification has changed.
fn renamed(text: &str, method: &str, before: &str, path: &[&str], theirs: &RpcId) {
    let Ok(Message::Notification { method: passed, params: Some(params) }) = Message::read(text) else {
        panic!("{text}")
    };
    assert_eq!(passed, method);
    let (Some(mut wanted), Some(params)) = (value(before), value(params.get())) else { return };
    let place = path.iter().fold(&mut wanted, |value, name| &mut value[*name]);
    *place = serde_json::from_str(&theirs.to_json()).expect("an id is JSON");
    assert_eq!(params, wanted);
}

/// Parses a value; `None` if a number is too large for serde, or the nesting too deep.
fn value(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

/// Returns the id, the method and whether a message is no error.
fn kind(message: &Result<Message<'_>, message::MessageError>) -> (Option<RpcId>, Option<String>, bool) {
    match message {
        Ok(Message::Request { id, method, .. }) => (Some(id.clone()), Some(method.clone()), true),
        Ok(Message::Notification { method, .. }) => (None, Some(method.clone()), true),
        Ok(Message::Response { id, outcome }) => (id.clone(), None, matches!(outcome, RpcOutcome::Result(_))),
        Err(_) => (None, None, false),
    }
}
