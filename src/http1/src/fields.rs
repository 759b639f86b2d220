//! The fields of a head: judged once, then read by their place in the buffer.

use super::{InvalidMessage, MAX_FIELDS, MAX_HEAD, names::is_protected};

/// Where one field stands in the head: byte offsets from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldLine {
    /// First byte of the name.
    pub start: u32,
    /// Byte after the name: the colon.
    pub colon: u32,
    /// First byte of the value without leading white space.
    pub value: u32,
    /// Byte after the value without trailing white space.
    pub value_end: u32,
    /// Byte after the line's CRLF.
    pub end: u32,
    /// Which of those it is that mean something here.
    pub(super) kind: FieldKind,
}

/// The fields that mean something to a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldKind {
    Host,
    ContentLength,
    TransferEncoding,
    Connection,
    Upgrade,
    /// Names of what follows a body.
    Trailer,
    /// Never passed on: of one connection, or one that its server could take for a field that is protected.
    Dropped,
    Other,
}

impl FieldKind {
    /// A bit of its own, for sets of kinds.
    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A field that may stand only once stands there several times.
pub(super) struct DuplicateField;

/// The fields of one head, in their order.
#[derive(Debug, Default)]
pub struct Fields {
    lines: Vec<FieldLine>,
    /// One bit for each [`FieldKind`] that is there.
    seen: u8,
}

impl Fields {
    /// Reads the fields of `head` from `from`, the byte after the start line, to its empty line. The allocation of an earlier
    /// head is used again.
    ///
    /// # Errors
    /// Anything but complete lines of `name: value` ([`Bad::Field`], [`Bad::LineEnd`]), or too many.
    pub(super) fn read(&mut self, head: &[u8], from: usize) -> Result<(), InvalidMessage> {
        self.lines.clear();
        self.seen = 0;
        if head.len() > MAX_HEAD {
            return Err(InvalidMessage::HeadTooLarge);
        }
        // The start line, which was judged before, is text too.
        if !is_text(head) {
            return Err(InvalidMessage::Field);
        }
        self.lines.reserve(16);
        // Few heads have the character, so that few names are looked at.
        let disguises = memchr::memchr(b'_', head).is_some();
        let mut at = from;
        while head[at..] != *b"\r\n" {
            if self.lines.len() == MAX_FIELDS {
                return Err(InvalidMessage::TooManyFields);
            }
            let mut line = read_line(head, at)?;
            if disguises && line.name(head).contains(&b'_') && is_protected(line.name(head)) {
                line.kind = FieldKind::Dropped;
            }
            at = line.end as usize;
            self.seen |= line.kind.bit();
            self.lines.push(line);
        }
        Ok(())
    }

    /// Every field.
    pub fn lines(&self) -> &[FieldLine] {
        &self.lines
    }

    /// The values of the fields of this name (lower case), in their order.
    pub fn values<'a>(&'a self, head: &'a [u8], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.lines.iter().filter(move |line| line.is(head, name)).map(move |line| line.value(head))
    }

    /// Whether there is a field of this kind.
    pub(super) fn has(&self, kind: FieldKind) -> bool {
        self.seen & kind.bit() != 0
    }

    /// The only value of this kind, if there is one.
    ///
    /// # Errors
    /// There are several.
    pub(super) fn only<'a>(&self, head: &'a [u8], kind: FieldKind) -> Result<Option<&'a [u8]>, DuplicateField> {
        if !self.has(kind) {
            return Ok(None);
        }
        let mut found = self.lines.iter().filter(|line| line.kind == kind).map(|line| line.value(head));
        match (found.next(), found.next()) {
            (value, None) => Ok(value),
            _ => Err(DuplicateField),
        }
    }

    /// The values of the fields of this kind.
    pub(super) fn of<'a>(&'a self, head: &'a [u8], kind: FieldKind) -> impl Iterator<Item = &'a [u8]> {
        self.lines.iter().filter(move |line| line.kind == kind).map(move |line| line.value(head))
    }

    /// The words of the fields of this kind, which are comma-separated lists.
    pub(super) fn words<'a>(&'a self, head: &'a [u8], kind: FieldKind) -> impl Iterator<Item = &'a [u8]> {
        let elements = self.of(head, kind).flat_map(|list| list.split(|byte| *byte == b','));
        elements.map(<[u8]>::trim_ascii).filter(|word| !word.is_empty())
    }
}

impl FieldLine {
    /// The name as written.
    pub fn name<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        head.get(self.start as usize..self.colon as usize).unwrap_or_default()
    }

    /// The value, without white space around it.
    pub fn value<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        head.get(self.value as usize..self.value_end as usize).unwrap_or_default()
    }

    /// Whether it has this name.
    pub fn is(&self, head: &[u8], name: &str) -> bool {
        (self.colon - self.start) as usize == name.len() && self.name(head).eq_ignore_ascii_case(name.as_bytes())
    }
}

/// Reads the line at `start`. The head has at most [`MAX_HEAD`] bytes and is text.
fn read_line(head: &[u8], start: usize) -> Result<FieldLine, InvalidMessage> {
    let rest = &head[start..];
    let length = rest.iter().position(|byte| !is_token(*byte)).ok_or(InvalidMessage::LineEnd)?;
    // No name, space before the colon, a folded line, or no colon at all.
    if length == 0 || rest[length] != b':' {
        return Err(InvalidMessage::Field);
    }
    let end = length + memchr::memchr2(b'\r', b'\n', &rest[length..]).ok_or(InvalidMessage::LineEnd)?;
    if !rest[end..].starts_with(b"\r\n") {
        return Err(InvalidMessage::LineEnd);
    }
    let (mut value, mut value_end) = (length + 1, end);
    while value < value_end && is_blank(rest[value]) {
        value += 1;
    }
    while value_end > value && is_blank(rest[value_end - 1]) {
        value_end -= 1;
    }
    let place = |at: usize| (start + at) as u32;
    Ok(FieldLine {
        start: place(0),
        colon: place(length),
        value: place(value),
        value_end: place(value_end),
        end: place(end + 2),
        kind: field_kind(&rest[..length]),
    })
}

fn field_kind(name: &[u8]) -> FieldKind {
    let (candidate, kind) = match name.len() {
        2 => ("te", FieldKind::Dropped),
        4 => ("host", FieldKind::Host),
        7 if name[0] | 0x20 == b't' => ("trailer", FieldKind::Trailer),
        7 => ("upgrade", FieldKind::Upgrade),
        10 if name[0] | 0x20 == b'k' => ("keep-alive", FieldKind::Dropped),
        10 => ("connection", FieldKind::Connection),
        // What an upgrade to HTTP/2 begins with (RFC 7540, section 3.2.1), which servers take without `Connection`.
        14 if name[0] | 0x20 == b'h' => ("http2-settings", FieldKind::Dropped),
        14 => ("content-length", FieldKind::ContentLength),
        16 => ("proxy-connection", FieldKind::Dropped),
        17 => ("transfer-encoding", FieldKind::TransferEncoding),
        _ => return FieldKind::Other,
    };
    if name.eq_ignore_ascii_case(candidate.as_bytes()) { kind } else { FieldKind::Other }
}

/// A character of a token (RFC 9110, section 5.6.2).
pub(super) fn is_token(byte: u8) -> bool {
    TOKEN[byte as usize]
}

const TOKEN: [bool; 256] = table(b"!#$%&'*+-.^_`|~");

/// Letters, digits, and these.
pub(super) const fn table(marks: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < marks.len() {
        table[marks[at] as usize] = true;
        at += 1;
    }
    table
}

/// Whether these are what a field's value may hold (RFC 9110, section 5.5: visible, blank, or not ASCII) and ends of lines.
/// Every byte is looked at, without a branch, so that the compiler takes many at once; so the last part overlaps the one
/// before it instead of being shorter.
fn is_text(bytes: &[u8]) -> bool {
    let fits = |byte: u8| (byte >= b' ') & (byte != 0x7f) | (byte == b'\t') | (byte == b'\r') | (byte == b'\n');
    let fit = |part: &[u8]| part.iter().fold(true, |all, byte| all & fits(*byte));
    match bytes.last_chunk::<32>() {
        Some(last) => bytes.as_chunks::<32>().0.iter().chain([last]).all(|part| fit(part)),
        None => fit(bytes),
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}
