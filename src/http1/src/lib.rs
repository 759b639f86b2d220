//! HTTP/1.1 for relays: parses, validates and rewrites heads, finds the end of bodies, and moves exchanges between
//! connections.
//!
//! A relay that repairs a client's message enables [request
//! smuggling](https://www.rfc-editor.org/rfc/rfc9112#section-11.2): two parsers that disagree about where a message
//! ends. So a message that RFC 9112 calls invalid or ambiguous is refused here and never forwarded. A valid one is
//! forwarded byte for byte: the chunked transfer coding is parsed only to find the end of a body, and a head is copied
//! line by line except for its hop-by-hop fields. Trailers of requests are dropped.
//!
//! Parsing does no I/O: the caller reads bytes and asks, and reads more. The same bytes give the same result however
//! they are split into reads. Exchanges work on any [`Connection`] that can be polled. Only `socket` and [`query()`]
//! know about TCP.

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

#[cfg(any(test, feature = "fuzzing"))]
pub mod entries;
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

/// Longest head in bytes, from the first byte of the start line to the empty line.
pub const MAX_HEAD: usize = 64 * 1024;
/// Most header fields in one head.
pub const MAX_FIELDS: usize = 128;

/// Longest wait of an idle connection for its next request.
pub const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// Longest time from the first byte of a head to its last.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

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
