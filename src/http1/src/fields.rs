//! Header fields of a head: validated once, then read by their offsets in the buffer.

use super::{InvalidMessage, MAX_FIELDS, MAX_HEAD, names::is_protected};

/// Position of one field line in the head, as byte offsets from its start.
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
    /// Kind of the field.
    pub(super) kind: FieldKind,
}

/// Kinds of header fields that a relay interprets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldKind {
    Host,
    ContentLength,
    TransferEncoding,
    Connection,
    Upgrade,
    /// Names of the trailers that follow a body.
    Trailer,
    /// Transfer codings that the sender accepts, and whether it accepts trailers.
    Te,
    /// Never forwarded: a hop-by-hop field, or a field with `_` that a server could take for a protected one.
    Dropped,
    Other,
}

impl FieldKind {
    /// Returns the bit of the kind, for sets of kinds.
    pub(super) const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// Error: a field that must be unique occurs several times.
pub(super) struct DuplicateField;

/// Header fields of one head, in their order.
///
/// Invariant: `seen` has the bit of each kind in `lines`, and no other.
#[derive(Debug, Default)]
pub struct Fields {
    lines: Vec<FieldLine>,
    /// Set of the kinds that occur.
    seen: u16,
}

impl Fields {
    /// Parses the fields of `head` from `from`, the byte after the start line, to the empty line. Reuses its
    /// allocation.
    ///
    /// # Errors
    /// Any line that is no complete `name: value` ([`InvalidMessage::Field`], [`InvalidMessage::LineEnd`]), or too many
    /// or too long fields.
    pub(super) fn read(&mut self, head: &[u8], from: usize) -> Result<(), InvalidMessage> {
        self.lines.clear();
        self.seen = 0;
        if head.len() > MAX_HEAD {
            return Err(InvalidMessage::HeadTooLarge);
        }
        // Covers the start line too, which was parsed before.
        if !is_text(head) {
            return Err(InvalidMessage::Field);
        }
        self.lines.reserve(16);
        // Few heads contain an underscore, so few names need the check.
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

    /// Returns every field line.
    pub fn lines(&self) -> &[FieldLine] {
        &self.lines
    }

    /// Returns the values of all fields with this name (lower case), in their order.
    pub fn values<'a>(&'a self, head: &'a [u8], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.lines.iter().filter(move |line| line.is(head, name)).map(move |line| line.value(head))
    }

    /// Reports whether a field of this kind occurs.
    pub(super) fn has(&self, kind: FieldKind) -> bool {
        self.seen & kind.bit() != 0
    }

    /// Returns the value of the only field of this kind, if there is one.
    ///
    /// # Errors
    /// The field occurs several times.
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

    /// Returns the values of all fields of this kind.
    pub(super) fn of<'a>(&'a self, head: &'a [u8], kind: FieldKind) -> impl Iterator<Item = &'a [u8]> {
        self.lines.iter().filter(move |line| line.kind == kind).map(move |line| line.value(head))
    }

    /// Returns the elements of all fields of this kind, which are comma-separated lists.
    pub(super) fn words<'a>(&'a self, head: &'a [u8], kind: FieldKind) -> impl Iterator<Item = &'a [u8]> {
        let elements = self.of(head, kind).flat_map(|list| list.split(|byte| *byte == b','));
        elements.map(<[u8]>::trim_ascii).filter(|word| !word.is_empty())
    }
}

impl FieldLine {
    /// Returns the name as written.
    pub fn name<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        head.get(self.start as usize..self.colon as usize).unwrap_or_default()
    }

    /// Returns the value without surrounding white space.
    pub fn value<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        head.get(self.value as usize..self.value_end as usize).unwrap_or_default()
    }

    /// Reports whether the field has this name.
    pub fn is(&self, head: &[u8], name: &str) -> bool {
        (self.colon - self.start) as usize == name.len() && self.name(head).eq_ignore_ascii_case(name.as_bytes())
    }
}

/// Parses the line at `start`. The head has at most [`MAX_HEAD`] bytes and was checked by [`is_text`].
fn read_line(head: &[u8], start: usize) -> Result<FieldLine, InvalidMessage> {
    let rest = &head[start..];
    let length = rest.iter().position(|byte| !is_token(*byte)).ok_or(InvalidMessage::LineEnd)?;
    // Empty name, space before the colon, folded line, or no colon at all.
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
        2 => ("te", FieldKind::Te),
        4 => ("host", FieldKind::Host),
        7 if name[0] | 0x20 == b't' => ("trailer", FieldKind::Trailer),
        7 => ("upgrade", FieldKind::Upgrade),
        10 if name[0] | 0x20 == b'k' => ("keep-alive", FieldKind::Dropped),
        10 => ("connection", FieldKind::Connection),
        // Starts an upgrade to HTTP/2 (RFC 7540, section 3.2.1), which some servers accept without `Connection`.
        14 if name[0] | 0x20 == b'h' => ("http2-settings", FieldKind::Dropped),
        14 => ("content-length", FieldKind::ContentLength),
        16 => ("proxy-connection", FieldKind::Dropped),
        17 => ("transfer-encoding", FieldKind::TransferEncoding),
        _ => return FieldKind::Other,
    };
    if name.eq_ignore_ascii_case(candidate.as_bytes()) { kind } else { FieldKind::Other }
}

/// Reports whether a byte is a token character (RFC 9110, section 5.6.2).
pub(super) fn is_token(byte: u8) -> bool {
    TOKEN[byte as usize]
}

const TOKEN: [bool; 256] = table(b"!#$%&'*+-.^_`|~");

/// Creates a lookup table of letters, digits and these marks.
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

/// Reports whether all bytes are allowed in field values (RFC 9110, section 5.5: visible, blank, or not ASCII) or end a
/// line. Every byte is checked without a branch, so that the compiler can vectorize. The last block overlaps the one
/// before it, instead of being shorter.
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
