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
mod tests;
