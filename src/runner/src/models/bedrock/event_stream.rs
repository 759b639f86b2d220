//! Splits the binary stream of events in which AWS answers.
//!
//! A message is its length, the length of its headers, their checksum, the headers, the payload, and a checksum of all of it. Each
//! becomes a JSON object whose only field is the event, by its name; that of a failure is `exception`, with `error` beside it.
//! Memory is bounded regardless of the provider: a message has at most 1 MiB.
//!
//! Source: <https://smithy.io/2.0/aws/amazon-eventstream.html>.

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

// Relative, as the fuzz targets include this file.
use super::super::{error::ModelError, frames::Frames};

/// Maximum bytes of a message.
const MESSAGE: usize = 1 << 20;
/// Bytes before the headers: two lengths, and their checksum.
const PRELUDE: usize = 12;
/// Bytes of a checksum.
const CHECKSUM: usize = 4;
/// Type of a header whose value is a text.
const TEXT: u8 = 7;

/// Splits messages and returns each as JSON.
pub(super) fn events(bytes: Frames) -> Frames {
    let events = stream::try_unfold((bytes, BytesMut::new()), |(mut bytes, mut buffer)| async move {
        loop {
            if let Some(event) = take_event(&mut buffer)? {
                return Ok(Some((event, (bytes, buffer))));
            }
            match bytes.try_next().await? {
                Some(more) => buffer.extend_from_slice(&more),
                None if buffer.is_empty() => return Ok(None),
                None => return Err(ModelError::broken_off()),
            }
        }
    });
    events.boxed()
}

/// Takes the first message from the buffer, if all of it is there.
fn take_event(buffer: &mut BytesMut) -> Result<Option<Bytes>, ModelError> {
    let Some(prelude) = buffer.first_chunk::<PRELUDE>().copied() else { return Ok(None) };
    let number = |at: usize| prelude[at..].first_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    let (length, headers, checksum) = (number(0) as usize, number(4) as usize, number(8));
    if crc32fast::hash(&prelude[..8]) != checksum {
        return Err(ModelError::malformed());
    }
    if length > MESSAGE {
        return Err(ModelError::too_large("a message of 1 MiB"));
    }
    if length < PRELUDE + CHECKSUM + headers {
        return Err(ModelError::malformed());
    }
    if buffer.len() < length {
        return Ok(None);
    }
    let message = buffer.split_to(length).freeze();
    let (content, checksum) = message.split_at(length - CHECKSUM);
    if crc32fast::hash(content).to_be_bytes() != *checksum {
        return Err(ModelError::malformed());
    }
    let (headers, payload) = content[PRELUDE..].split_at(headers);
    event(headers, payload).map(Some).ok_or_else(ModelError::malformed)
}

/// Returns a message as JSON; `None` if it has not the form that AWS documents.
fn event(mut headers: &[u8], payload: &[u8]) -> Option<Bytes> {
    let (mut kind, mut name) = ("", "");
    while !headers.is_empty() {
        let (header, value) = take_header(&mut headers)?;
        match header {
            ":message-type" => kind = value,
            ":event-type" | ":exception-type" | ":error-code" => name = value,
            _ => {}
        }
    }
    let payload: Value = match payload {
        [] => json!({}),
        payload => serde_json::from_slice(payload).ok()?,
    };
    let json = match kind {
        "event" => json!({ name: payload }),
        "exception" | "error" => json!({ "exception": name, "error": payload }),
        _ => return None,
    };
    Some(json.to_string().into())
}

/// Takes the first header; one that is no text has an empty value.
fn take_header<'h>(headers: &mut &'h [u8]) -> Option<(&'h str, &'h str)> {
    let length = take(headers, 1)?[0];
    let name = std::str::from_utf8(take(headers, length.into())?).ok()?;
    let type_ = take(headers, 1)?[0];
    let value = match type_ {
        0 | 1 => take(headers, 0),
        2 => take(headers, 1),
        3 => take(headers, 2),
        4 => take(headers, 4),
        5 | 8 => take(headers, 8),
        6 | TEXT => {
            let length = take(headers, 2)?.first_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes))?;
            take(headers, length.into())
        }
        9 => take(headers, 16),
        _ => None,
    }?;
    Some((name, if type_ == TEXT { std::str::from_utf8(value).ok()? } else { "" }))
}

/// Takes bytes from the beginning.
fn take<'b>(bytes: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::tests::bedrock::message;

    /// Returns the events of `bytes` when they arrive `size` at a time.
    async fn cut(bytes: &[u8], size: usize) -> Result<Vec<Value>, ModelError> {
        let pieces: Vec<_> = bytes.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let all: Vec<Bytes> = events(stream::iter(pieces).boxed()).try_collect().await?;
        Ok(all.iter().map(|event| serde_json::from_slice(event).unwrap()).collect())
    }

    #[tokio::test]
    async fn events_are_the_same_however_the_bytes_come() {
        let sent = [
            message(&[(":message-type", "event"), (":event-type", "messageStart")], r#"{"role":"assistant"}"#),
            message(&[(":event-type", "new"), (":content-type", "application/json"), (":message-type", "event")], ""),
            message(&[(":message-type", "exception"), (":exception-type", "x")], r#"{"message":"m"}"#),
        ]
        .concat();
        let expected = [
            json!({"messageStart": {"role": "assistant"}}),
            json!({"new": {}}),
            json!({"exception": "x", "error": {"message": "m"}}),
        ];
        for size in 1..=sent.len() {
            assert_eq!(cut(&sent, size).await.unwrap(), expected, "{size}");
        }
        for end in 1..sent.len() {
            // An answer may end only between two messages.
            match cut(&sent[..end], 7).await {
                Ok(all) => assert_eq!(all, expected[..all.len()], "{end}"),
                Err(error) => assert_eq!(error, ModelError::broken_off(), "{end}"),
            }
        }
    }

    /// An empty message, and one with a header of each type, computed by the algorithm of the source.
    #[tokio::test]
    async fn vectors_are_read() {
        // The smallest message: no headers and no payload. Nothing says what it is.
        let empty = hex::decode("000000100000000005c248eb7d98c8ff").unwrap();
        assert_eq!(cut(&empty, 5).await, Err(ModelError::malformed()));
        let mut prelude = BytesMut::from(&empty[..]);
        assert_eq!(take_event(&mut prelude), Err(ModelError::malformed()));
        assert!(prelude.is_empty(), "both of its checksums are right");
        let mut headers: Vec<u8> = Vec::new();
        for (type_, length) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 4), (5, 8), (8, 8), (9, 16)] {
            headers.extend([1, b'n', type_]);
            headers.extend(std::iter::repeat_n(7_u8, length));
        }
        headers.extend([1, b'b', 6, 0, 2, 0xff, 0xfe]);
        headers.extend(b"\x0d:message-type\x07\x00\x05event\x0b:event-type\x07\x00\x01e");
        assert_eq!(event(&headers, b"1").unwrap(), r#"{"e":1}"#);
        for end in 0..headers.len() {
            let found = event(&headers[..end], b"1");
            assert!(found.is_none_or(|found| found != r#"{"e":1}"#), "{end}");
        }
    }

    #[tokio::test]
    async fn what_is_broken_or_too_long_is_malformed() {
        let good = message(&[(":message-type", "event"), (":event-type", "e")], "{}");
        for place in 0..good.len() {
            let mut broken = good.clone();
            broken[place] ^= 1;
            assert_eq!(cut(&broken, 9).await, Err(ModelError::malformed()), "{place}");
        }
        let long = message(&[(":message-type", "event")], &"x".repeat(MESSAGE));
        assert!(cut(&long, 5000).await.unwrap_err().to_string().contains("a message of 1 MiB"));
        let no_json = message(&[(":message-type", "event"), (":event-type", "e")], "<html>");
        assert_eq!(cut(&no_json, 9).await, Err(ModelError::malformed()));
        assert_eq!(cut(b"<html>a page of a proxy</html>", 9).await, Err(ModelError::malformed()));
    }
}
