//! Common parts of the heads of requests and responses: their version, their end, and their limits.

use std::time::Duration;

use super::invalid_message::InvalidMessage;

/// Longest head in bytes, from the first byte of the start line to the empty line.
pub const MAX_HEAD: usize = 64 * 1024;

/// Most header fields in one head.
pub const MAX_FIELDS: usize = 128;

/// Longest wait of an idle connection for its next request.
pub const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// Longest time from the first byte of a head to its last.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP version of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// `HTTP/1.0`: one request per connection unless both sides agree otherwise, and no chunked transfer coding.
    Http10,
    /// `HTTP/1.1`.
    Http11,
}

/// Returns the length of the head at the start of `buffer`, its empty line included, or `None` if it is incomplete.
/// `scanned` is the number of bytes that earlier calls searched, so a head that arrives byte by byte is searched once.
///
/// # Errors
/// [`InvalidMessage::HeadTooLarge`].
pub fn head_length(buffer: &[u8], scanned: &mut usize) -> Result<Option<usize>, InvalidMessage> {
    let mut from = scanned.saturating_sub(3).min(buffer.len());
    *scanned = buffer.len();
    let end = loop {
        let Some(found) = memchr::memchr(b'\n', &buffer[from..]) else { break None };
        from += found + 1;
        if buffer[..from].ends_with(b"\r\n") && buffer[from..].starts_with(b"\r\n") {
            break Some(from + 2);
        }
    };
    match end {
        Some(length) if length <= MAX_HEAD => Ok(Some(length)),
        None if buffer.len() <= MAX_HEAD => Ok(None),
        _ => Err(InvalidMessage::HeadTooLarge),
    }
}
