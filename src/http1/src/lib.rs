//! HTTP/1.1 for relays: parses, validates and rewrites heads, finds the end of bodies, and moves exchanges between
//! connections.
//!
//! A relay that repairs a client's message enables [request
//! smuggling](https://www.rfc-editor.org/rfc/rfc9112#section-11.2): two parsers that disagree about where a message
//! ends. So a message that RFC 9112 calls invalid or ambiguous is refused here and never forwarded. A valid one is
//! forwarded byte for byte: the chunked transfer coding is parsed only to find the end of a body, and a head is copied
//! line by line except for its hop-by-hop fields. Trailers of requests are dropped; those of responses reach a client that
//! accepts them, except for those that the relay's policy removes.
//!
//! Parsing does no I/O: the caller reads bytes and asks, and reads more. The same bytes give the same result however
//! they are split into reads. Exchanges work on any [`Connection`] that can be polled. Only `socket` and [`query()`]
//! know about TCP.

mod body;
mod connection;
mod exchange;
mod fields;
mod head;
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

pub use body::{BodyProgress, BodyScanner, Framing};
pub use connection::Connection;
pub use exchange::{Exchange, ExchangeOutcome, ExchangeRequest, ResponsePolicy, Timeouts};
pub use fields::{FieldLine, Fields};
pub use head::{KEEP_ALIVE, MAX_FIELDS, MAX_HEAD, Version, head_length};
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
