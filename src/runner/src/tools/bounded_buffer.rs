//! Text buffer bounded to 1 MiB.
//!
//! A model cannot use more, and a tool with endless output must not exhaust the memory of the process. The caller stops
//! reading as soon as [`BoundedBuffer::push`] returns false; the text then ends with a line that marks it as truncated.

/// Maximum bytes of a tool's result.
pub(super) const CAP: usize = 1 << 20;

/// Bytes up to the cap. Invariant: at most [`CAP`] bytes; `truncated` is set once any byte was discarded.
#[derive(Default)]
pub(super) struct BoundedBuffer {
    bytes: Vec<u8>,
    truncated: bool,
}

impl BoundedBuffer {
    /// Appends `more`; returns false once the cap is exceeded and bytes are discarded.
    pub(super) fn push(&mut self, more: &[u8]) -> bool {
        let taken = more.len().min(CAP - self.bytes.len());
        self.bytes.extend_from_slice(&more[..taken]);
        self.truncated |= taken < more.len();
        !self.truncated
    }

    /// Reports whether anything was discarded.
    pub(super) fn truncated(&self) -> bool {
        self.truncated
    }

    /// Returns the text; bytes that are not UTF-8 become U+FFFD.
    pub(super) fn into_text(self) -> String {
        let mut text = String::from_utf8_lossy(&self.bytes).into_owned();
        text.truncate(text.floor_char_boundary(CAP));
        if self.truncated {
            text.push_str("\n[truncated after 1 MiB]");
        }
        text
    }
}

/// Truncates `text` to the cap.
pub(super) fn truncate_to_cap(text: &str) -> String {
    let mut capped = BoundedBuffer::default();
    capped.push(text.as_bytes());
    capped.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_cap_is_whole_and_one_more_byte_is_not() {
        let mut text = BoundedBuffer::default();
        assert!(text.push(&vec![b'a'; CAP]));
        assert!(text.push(b""));
        assert!(!text.push(b"b"));
        let text = text.into_text();
        assert!(text.len() < CAP + 100 && text.ends_with("a\n[truncated after 1 MiB]"));
    }

    #[test]
    fn bytes_that_are_no_text_do_not_make_it_longer_than_the_cap() {
        let mut text = BoundedBuffer::default();
        text.push(&vec![0xff; CAP]);
        assert!(text.into_text().len() <= CAP);
    }
}
