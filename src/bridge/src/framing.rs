//! Finds JSON-RPC messages in the output of a child.
//!
//! A message should be one line. Some servers print theirs over several lines, and many print other text, too: a
//! banner, a log, a stack trace. So a message is text that begins with a bracket and is JSON up to its end, regardless
//! of line breaks; other text is skipped line by line. The bytes held never exceed the largest message.

use std::{collections::VecDeque, mem};

use super::{
    message::{Message, RpcId},
    scanner::{ScanStep, Scanner},
};

/// Most bytes of a skipped line that are reported.
const MAX_LOGGED_NOISE: usize = 200;

/// Item found in the output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A JSON object or list, on one line.
    Json(Vec<u8>),
    /// The start of other text, up to the end of its line.
    Noise(Vec<u8>),
    /// A message over the limit, which was not kept.
    TooLarge(UndeliveredMessage),
}

/// Known parts of a message that is not passed on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UndeliveredMessage {
    /// Id of the message, if it has one.
    pub(super) id: Option<RpcId>,
    /// Set for a request of the child; otherwise the message is the response to the request of that id.
    pub(super) is_request: bool,
}

impl UndeliveredMessage {
    /// Reads the id and the sort of a message that is not passed on.
    pub(super) fn from_message(message: Option<Message<'_>>) -> Self {
        match message {
            Some(Message::Request { id, .. }) => Self { id: Some(id), is_request: true },
            Some(Message::Response { id, .. }) => Self { id, is_request: false },
            Some(Message::Notification { .. }) | None => Self { id: None, is_request: true },
        }
    }
}

/// State between two reads.
///
/// Invariant: `buffer` holds the unfinished message, or the first `MAX_LOGGED_NOISE` bytes of a skipped line, and is
/// empty between two items.
#[derive(Debug)]
pub(super) struct Framer {
    limit: usize,
    state: FramerState,
    /// The message so far, with line breaks replaced by spaces; of a skipped line, the part that is reported.
    buffer: Vec<u8>,
    /// Index in `buffer` at which the current line begins.
    line_start: usize,
    scanner: Scanner,
    /// Set once the message is over the limit; it is then no longer held.
    is_over: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum FramerState {
    Between,
    Message,
    Noise,
}

impl Framer {
    /// Returns a framer for messages of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            state: FramerState::Between,
            buffer: Vec::new(),
            line_start: 0,
            scanner: Scanner::default(),
            is_over: false,
        }
    }

    /// Consumes the bytes read and appends the items that they complete to `found`.
    pub(super) fn push(&mut self, bytes: &[u8], found: &mut VecDeque<Frame>) {
        let mut rest = bytes;
        while let Some((first, others)) = rest.split_first() {
            // Most bytes belong to long strings; those of them that are too long to be kept are only skipped.
            let plain = match self.state {
                FramerState::Message => self.scanner.plain_text_len(rest),
                FramerState::Noise if self.buffer.len() == MAX_LOGGED_NOISE => {
                    memchr::memchr(b'\n', rest).unwrap_or(rest.len())
                }
                FramerState::Noise | FramerState::Between => 0,
            };
            if plain == 0 {
                self.push_byte(*first, found);
                rest = others;
                continue;
            }
            if self.state == FramerState::Message {
                self.buffer_all(&rest[..plain]);
            }
            rest = &rest[plain..];
        }
    }

    /// Returns the number of bytes held of an unfinished message.
    pub(super) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Drops the bytes held of the current message, as if it were too large.
    pub(super) fn discard(&mut self) {
        if self.state == FramerState::Message {
            (self.buffer, self.is_over) = (Vec::new(), true);
        }
    }

    fn push_byte(&mut self, byte: u8, found: &mut VecDeque<Frame>) {
        match self.state {
            FramerState::Between if byte.is_ascii_whitespace() => {}
            FramerState::Between if matches!(byte, b'{' | b'[') => {
                self.state = FramerState::Message;
                self.scanner = Scanner::default();
                (self.line_start, self.is_over) = (0, false);
                self.push_message_byte(byte, found);
            }
            FramerState::Between => {
                self.state = FramerState::Noise;
                self.push_noise_byte(byte, found);
            }
            FramerState::Noise => self.push_noise_byte(byte, found),
            FramerState::Message => self.push_message_byte(byte, found),
        }
    }

    fn push_message_byte(&mut self, byte: u8, found: &mut VecDeque<Frame>) {
        match self.scanner.step(byte) {
            ScanStep::Bad => self.demote_to_noise(byte, found),
            ScanStep::More if byte == b'\n' && self.is_message_alone() => {
                let message = self.buffer.split_off(self.line_start);
                self.buffer.truncate(MAX_LOGGED_NOISE);
                found.extend([Frame::Noise(mem::take(&mut self.buffer)), Frame::Json(message)]);
                self.state = FramerState::Between;
            }
            step => {
                self.buffer_byte(byte);
                if step == ScanStep::Done {
                    self.state = FramerState::Between;
                    let held = mem::take(&mut self.buffer);
                    let id = || std::str::from_utf8(self.scanner.id()).ok().and_then(RpcId::read);
                    let too_large = || UndeliveredMessage { id: id(), is_request: self.scanner.is_request() };
                    found.push_back(if self.is_over { Frame::TooLarge(too_large()) } else { Frame::Json(held) });
                }
            }
        }
    }

    /// Reports whether the current line is a message without the lines before it. Those are then noise that looks like
    /// the start of a list: no JSON printer puts a whole message on one of several lines.
    fn is_message_alone(&self) -> bool {
        let line = self.buffer.get(self.line_start..).unwrap_or_default().trim_ascii();
        let looks = self.line_start > 0 && line.starts_with(b"{") && line.ends_with(b"}");
        looks && str::from_utf8(line).is_ok_and(|line| Message::read(line).is_ok())
    }

    fn buffer_byte(&mut self, byte: u8) {
        self.buffer_all(&[if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }]);
        if byte == b'\n' {
            self.line_start = self.buffer.len();
        }
    }

    fn buffer_all(&mut self, bytes: &[u8]) {
        if self.buffer.len() + bytes.len() > self.limit {
            (self.buffer, self.is_over) = (Vec::new(), true);
        } else if !self.is_over {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// Handles text that looked like a message and is not one. If it began on an earlier line, the current line is
    /// scanned anew.
    fn demote_to_noise(&mut self, byte: u8, found: &mut VecDeque<Frame>) {
        if self.line_start == 0 || self.is_over {
            self.state = FramerState::Noise;
            self.buffer.truncate(MAX_LOGGED_NOISE);
            return self.push_noise_byte(byte, found);
        }
        let present = self.buffer.split_off(self.line_start);
        self.buffer.truncate(MAX_LOGGED_NOISE);
        found.push_back(Frame::Noise(mem::take(&mut self.buffer)));
        self.state = FramerState::Between;
        // One line only, so the recursion ends here.
        self.push(&present, found);
        self.push_byte(byte, found);
    }

    fn push_noise_byte(&mut self, byte: u8, found: &mut VecDeque<Frame>) {
        if byte == b'\n' {
            self.state = FramerState::Between;
            found.push_back(Frame::Noise(mem::take(&mut self.buffer)));
        } else if self.buffer.len() < MAX_LOGGED_NOISE {
            self.buffer.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const LIMIT: usize = 4096;

    fn frames(text: &[u8], cuts: &[usize]) -> Vec<Frame> {
        let mut framer = Framer::new(LIMIT);
        let mut found = VecDeque::new();
        let mut from = 0;
        for cut in cuts.iter().copied().chain([text.len()]) {
            let cut = cut.clamp(from, text.len());
            framer.push(&text[from..cut], &mut found);
            from = cut;
        }
        found.into()
    }

    fn messages(text: &str) -> Vec<Value> {
        let json = |frame| match frame {
            Frame::Json(bytes) => Some(serde_json::from_slice(&bytes).unwrap()),
            _ => None,
        };
        frames(text.as_bytes(), &[]).into_iter().filter_map(json).collect()
    }

    #[test]
    fn a_message_over_several_lines_is_one() {
        let text = "{\n  \"a\": [\n    1,\n\r\n 2\n  ]\n}\n{\"b\":1}\n";
        assert_eq!(messages(text), [json!({"a": [1, 2]}), json!({"b": 1})]);
        let Frame::Json(bytes) = &frames(text.as_bytes(), &[])[0] else { panic!("a message") };
        assert!(!bytes.contains(&b'\n') && !bytes.contains(&b'\r'));
    }

    #[test]
    fn messages_need_no_line_break_between_them() {
        assert_eq!(messages("{\"a\":1}{\"b\":1}\r\n[]"), [json!({"a": 1}), json!({"b": 1}), json!([])]);
    }

    #[test]
    fn noise_does_not_hide_the_messages_around_it() {
        for noise in [
            "hello",
            "[INFO] ready",
            "{ starting",
            "{",
            "[",
            "{\"a\":",
            "[1,",
            "\"",
            "{\"half\": \"text",
            "[[[[",
            "{}}",
            "\u{fffd}{",
        ] {
            let text = format!("{{\"a\":1}}\n{noise}\n{{\"b\":1}}\n{{\"c\":1}}\n{{\"d\":1}}\n");
            let found = messages(&text);
            assert!(found.contains(&json!({"a": 1})) && found.contains(&json!({"d": 1})), "{noise}: {found:?}");
        }
        let noise = frames(b"{\"a\":1}\nhello\n[INFO] x\n", &[]);
        assert_eq!(noise[1..], [Frame::Noise(b"hello".to_vec()), Frame::Noise(b"[INFO] x".to_vec())]);
    }

    #[test]
    fn a_message_after_the_start_of_something_is_known_at_its_end() {
        let message = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        for start in ["[", "{\"a\":", "[1,\n"] {
            let found = frames(format!("{start}\n{message}\n").as_bytes(), &[]);
            assert_eq!(found.last(), Some(&Frame::Json(message.into())), "{start}");
        }
    }

    #[test]
    fn what_is_too_large_is_not_held_but_its_id_is_known() {
        let mut framer = Framer::new(LIMIT);
        let mut found = VecDeque::new();
        framer.push(b"{\"result\":\"", &mut found);
        for _ in 0..100 {
            framer.push(&[b'x'; 1000], &mut found);
            assert!(framer.buffer.capacity() <= 2 * LIMIT);
        }
        framer.push(b"\",\"id\":\"a\\u0062\"}\n{\"b\":1}\n", &mut found);
        let next = Frame::Json(b"{\"b\":1}".to_vec());
        let too_large = UndeliveredMessage { id: Some(RpcId::Text("ab".into())), is_request: false };
        assert_eq!(Vec::from(found), [Frame::TooLarge(too_large), next]);
    }

    #[test]
    fn what_there_is_no_room_for_is_like_what_is_too_large() {
        let mut framer = Framer::new(LIMIT);
        let mut found = VecDeque::new();
        framer.push(b"{\"id\":7,\"method\":\"", &mut found);
        assert!(framer.buffered() > 0);
        framer.discard();
        assert_eq!(framer.buffered(), 0);
        framer.push(b"m\"}{\"b\":1}", &mut found);
        let too_large = UndeliveredMessage { id: Some(RpcId::Number(7)), is_request: true };
        assert_eq!(Vec::from(found), [Frame::TooLarge(too_large), Frame::Json(b"{\"b\":1}".to_vec())]);
    }

    #[test]
    fn noise_without_end_is_not_held() {
        let mut framer = Framer::new(LIMIT);
        let mut found = VecDeque::new();
        for start in ["x", "{\"a\":\"", "[", "{\"a\":1}{"] {
            framer.push(start.as_bytes(), &mut found);
            for _ in 0..100 {
                framer.push(&[b'['; 1000], &mut found);
                framer.push(&[b'x'; 1000], &mut found);
                assert!(framer.buffer.capacity() <= 2 * LIMIT);
            }
            framer.push(b"\n", &mut found);
        }
        assert!(found.len() < 20, "{}", found.len());
    }

    proptest! {
        #[test]
        fn every_cut_gives_the_same(
            parts in prop::collection::vec((super::super::scanner::tests::value(), any::<bool>(), "[ -~]{0,12}"), 0..5),
            cuts in prop::collection::vec(0_usize..2000, 0..8),
        ) {
            let mut text = String::new();
            let mut wanted = Vec::new();
            for (value, pretty, noise) in parts {
                let message = json!({"v": value});
                let json = if pretty { serde_json::to_string_pretty(&message) } else { serde_json::to_string(&message) };
                // Noise that does not begin like JSON, on a line of its own.
                text.push_str(&format!("x{noise}\n{}\n", json.unwrap()));
                wanted.push(message);
            }
            let mut cuts = cuts;
            cuts.sort_unstable();
            let whole = frames(text.as_bytes(), &[]);
            prop_assert_eq!(&frames(text.as_bytes(), &cuts), &whole);
            if text.len() < LIMIT {
                let floats_are_near = |a: &Value, b: &Value| a.to_string().len().abs_diff(b.to_string().len()) < 8;
                let found = messages(&text);
                prop_assert_eq!(found.len(), wanted.len());
                prop_assert!(found.iter().zip(&wanted).all(|(a, b)| a == b || floats_are_near(a, b)));
            }
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut framer = Framer::new(64);
            let mut found = VecDeque::new();
            framer.push(&bytes, &mut found);
            prop_assert!(framer.buffer.len() <= MAX_LOGGED_NOISE);
        }
    }
}
