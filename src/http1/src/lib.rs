//! HTTP/1.1 messages, without any I/O: heads are read, judged and rewritten, and the end of a body is found.
//!
//! A relay that repairs what a client sent is how requests are smuggled: two parsers that disagree about where a message
//! ends. So what RFC 9112 calls invalid or ambiguous is refused here and never passed on, and what is passed on is passed
//! on byte for byte: chunk framing is read only to find the end of a body, and a head is copied line by line but for the
//! lines that belong to one connection.
//!
//! Everything works on bytes that are there: the caller reads, asks, and reads more. The same bytes give the same result
//! however they were cut. Only `socket` knows what carries them, and `ask` puts a
//! question of its own.

mod body;
mod connection;
mod exchange;
mod fields;
mod invalid_message;
mod local_response;
mod names;
mod next_head;
mod query;
mod request;
mod response;
mod rewrite;
mod socket;
mod target;
mod timer;
mod tunnel;

#[cfg(test)]
mod differential_tests;
#[cfg(any(test, feature = "fuzzing"))]
pub mod entries;
#[cfg(test)]
mod entries_tests;
#[cfg(test)]
mod exchange_tests;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use body::{BodyProgress, BodyScanner, Framing};
pub use connection::Connection;
pub use exchange::{Exchange, ExchangeOutcome, ExchangeRequest, ResponsePolicy, Timeouts};
pub use fields::{FieldLine, Fields};
pub use invalid_message::InvalidMessage;
pub use local_response::write_local_response;
pub use names::is_lenient_match;
pub use next_head::HeadError;
pub use query::{QueryError, QueryResponse, get_request, query};
pub use request::RequestHead;
pub use response::ResponseHead;
pub use rewrite::HeadWriter;
pub use socket::{connect, listen};
pub use tunnel::tunnel;

/// The longest head, in bytes, from the first byte of the start line to the empty line.
pub const MAX_HEAD: usize = 64 * 1024;
/// The most fields in one head.
pub const MAX_FIELDS: usize = 128;

/// How long a connection may wait for its next request.
pub const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// How long a head may take from its first byte.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The version of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// `HTTP/1.0`: one request per connection unless both sides say otherwise, and no chunks.
    Http10,
    /// `HTTP/1.1`.
    Http11,
}

/// How many bytes the head at the start of `buffer` has, its empty line included; `None`: it is not complete. `scanned`
/// says how far an earlier call looked, so that a head that arrives byte by byte is searched once.
///
/// # Errors
/// [`Bad::HeadTooLarge`].
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
