//! The fields of a head: judged once, then read by their place in the buffer.

use super::{Bad, MAX_FIELDS};

/// Where one field stands in the head: byte offsets from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
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
}

/// The fields of one head, in their order.
#[derive(Debug, Default)]
pub struct Fields {
    lines: Vec<Line>,
}

impl Fields {
    /// Reads the fields of `head` from `from`, the byte after the start line, to its empty line. The allocation of an earlier
    /// head is used again.
    ///
    /// # Errors
    /// Anything but complete lines of `name: value` ([`Bad::Field`], [`Bad::LineEnd`]), or too many.
    pub(super) fn read(&mut self, head: &[u8], from: usize) -> Result<(), Bad> {
        self.lines.clear();
        let mut at = from;
        loop {
            let rest = head.get(at..).ok_or(Bad::LineEnd)?;
            if rest == b"\r\n" {
                return Ok(());
            }
            if self.lines.len() == MAX_FIELDS {
                return Err(Bad::TooManyFields);
            }
            let line = read_line(head, at)?;
            at = line.end as usize;
            self.lines.push(line);
        }
    }

    /// Every field.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The values of the fields of this name (lower case), in their order.
    pub fn values<'a>(&'a self, head: &'a [u8], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.lines.iter().filter(move |line| line.is(head, name)).map(move |line| line.value(head))
    }

    /// Whether a comma-separated field of this name holds this word, in any case.
    pub fn lists(&self, head: &[u8], name: &str, word: &str) -> bool {
        self.values(head, name).flat_map(words).any(|found| found.eq_ignore_ascii_case(word.as_bytes()))
    }
}

impl Line {
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
        self.name(head).eq_ignore_ascii_case(name.as_bytes())
    }
}

/// The elements of a comma-separated list, without white space and empty ones.
pub(super) fn words(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|word| !word.is_empty())
}

fn read_line(head: &[u8], start: usize) -> Result<Line, Bad> {
    let rest = &head[start..];
    let length = rest.iter().position(|byte| !is_token(*byte)).ok_or(Bad::LineEnd)?;
    // No name, space before the colon, a folded line, or no colon at all.
    if length == 0 || rest[length] != b':' {
        return Err(Bad::Field);
    }
    let value_at = start + length + 1;
    let ends = head[value_at..].iter().position(|byte| !is_text(*byte)).ok_or(Bad::LineEnd)?;
    let raw_end = value_at + ends;
    match head.get(raw_end..raw_end + 2) {
        Some(b"\r\n") => {}
        _ if matches!(head[raw_end], b'\r' | b'\n') => return Err(Bad::LineEnd),
        _ => return Err(Bad::Field),
    }
    let raw = &head[value_at..raw_end];
    let value = value_at + raw.iter().position(|byte| !is_blank(*byte)).unwrap_or(raw.len());
    let value_end = raw.iter().rposition(|byte| !is_blank(*byte)).map_or(value, |last| value_at + last + 1);
    let place = |at: usize| u32::try_from(at).map_err(|_| Bad::HeadTooLarge);
    Ok(Line {
        start: place(start)?,
        colon: place(start + length)?,
        value: place(value)?,
        value_end: place(value_end)?,
        end: place(raw_end + 2)?,
    })
}

/// A character of a token (RFC 9110, section 5.6.2).
pub(super) fn is_token(byte: u8) -> bool {
    TOKEN[byte as usize]
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let marks = b"!#$%&'*+-.^_`|~";
    let mut at = 0;
    while at < marks.len() {
        table[marks[at] as usize] = true;
        at += 1;
    }
    table
};

/// A character of a field's value (RFC 9110, section 5.5): visible, blank, or not ASCII.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}
