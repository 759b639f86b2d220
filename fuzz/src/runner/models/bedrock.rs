//! Checks how the binary stream of AWS is split into events.

use bytes::Bytes;
use serde_json::Value;

#[path = "../../../../src/runner/src/models/bedrock/event_stream.rs"]
mod event_stream;

use super::{error::ModelError, found};

/// Checks that the events of a stream are the same for every split into chunks, that each is a JSON object, and that a bit that
/// changed on the way is noticed. The input is such a stream; it is also the length of the headers of a message, these headers, and
/// its payload, because no input has the right checksums by chance.
pub fn aws_events(bytes: &[u8]) {
    events(bytes);
    let Some((length, rest)) = bytes.split_first() else { return };
    let (headers, payload) = rest.split_at(usize::from(*length).min(rest.len()));
    let sent = message(headers, payload);
    let (whole, error) = events(&sent);
    assert_eq!(whole.len() + usize::from(error.is_some()), 1, "{whole:?} {error:?}");
    events(&[&sent[..], &sent, bytes].concat());
    let mut broken = sent;
    let place = bytes.len() % broken.len();
    broken[place] ^= 1 << (length % 8);
    let (whole, error) = events(&broken);
    assert!(whole.is_empty() && error.is_some(), "byte {place}: {whole:?}");
}

/// Returns the events before an error, and the error.
fn events(bytes: &[u8]) -> (Vec<Bytes>, Option<ModelError>) {
    let whole = found(event_stream::events, bytes, bytes.len());
    for piece in [1, 2, 3, 7, 64] {
        assert_eq!(found(event_stream::events, bytes, piece), whole, "in pieces of {piece}");
    }
    for event in &whole.0 {
        let json: Value = serde_json::from_slice(event).expect("an event is JSON");
        assert!(json.is_object(), "{json}");
    }
    whole
}

/// Builds a message: two lengths and their checksum, the headers, the payload, and the checksum of all of it.
fn message(headers: &[u8], payload: &[u8]) -> Vec<u8> {
    let number = |length: usize| u32::try_from(length).expect("inputs are short").to_be_bytes();
    let mut message = [number(16 + headers.len() + payload.len()), number(headers.len())].concat();
    message.extend(crc32fast::hash(&message).to_be_bytes());
    message.extend_from_slice(headers);
    message.extend_from_slice(payload);
    message.extend(crc32fast::hash(&message).to_be_bytes());
    message
}
