//! Checks how the streamed responses of models are split into events and lines.

pub mod bedrock;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};

#[path = "../../../src/runner/src/models/error.rs"]
#[allow(dead_code, reason = "the models use more of it")]
mod error;
#[path = "../../../src/runner/src/models/frames.rs"]
#[allow(dead_code, reason = "the models use more of it")]
mod frames;
#[path = "../../../src/runner/src/models/refusal.rs"]
#[allow(dead_code, reason = "the models use more of it")]
mod refusal;

/// Replaces `src/runner/models/http.rs`, which is needed only for a connection.
mod http {
    use std::time::Duration;

    use super::error::{ModelError, ModelErrorKind};

    #[derive(Clone, Copy)]
    pub(super) struct Timeouts {
        pub(super) first: Duration,
        pub(super) idle: Duration,
    }

    pub(super) fn silent(_: Duration) -> ModelError {
        ModelError::new(ModelErrorKind::Timeout, "")
    }
}

use error::ModelError;
use frames::Frames;

/// Checks that the events and the lines of a stream are the same for every split into chunks, and the same as those of a
/// simple parser.
pub fn model_events(bytes: &[u8]) {
    let whole = found(frames::events, bytes, bytes.len());
    for piece in [1, 2, 3, 7, 64] {
        let cut = found(frames::events, bytes, piece);
        assert_eq!(cut.1, whole.1, "in pieces of {piece}");
        // Events that arrive in the same chunk as an error are lost.
        let alike = if whole.1.is_none() { cut.0 == whole.0 } else { cut.0.starts_with(&whole.0) };
        assert!(alike, "in pieces of {piece}: {cut:?} and {whole:?}");
    }
    if whole.1.is_none() {
        assert_eq!(whole.0, data(bytes));
    }

    let whole = found(frames::lines, bytes, bytes.len());
    for piece in [1, 2, 3, 7, 64] {
        assert_eq!(found(frames::lines, bytes, piece), whole, "in pieces of {piece}");
    }
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    assert_eq!(whole, (lines.map(Bytes::copy_from_slice).collect(), None));
}

/// Returns the frames before an error, and the error, when the bytes arrive in chunks of this size.
fn found(how: fn(Frames) -> Frames, bytes: &[u8], piece: usize) -> (Vec<Bytes>, Option<ModelError>) {
    let pieces: Vec<_> = bytes.chunks(piece.max(1)).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let mut frames = how(stream::iter(pieces).boxed());
    let mut found = Vec::new();
    loop {
        match frames.next().now_or_never().expect("all is there") {
            Some(Ok(frame)) => found.push(frame),
            Some(Err(error)) => return (found, Some(error)),
            None => return (found, None),
        }
    }
}

/// Parses the data of events (WHATWG HTML, section 9.2.6). The stream has known fields only.
fn data(bytes: &[u8]) -> Vec<Bytes> {
    // Bytes that are not UTF-8 are accepted only where they are dropped, such as in comments.
    let text = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (mut events, mut event) = (Vec::new(), None::<String>);
    // An incomplete last line is ignored.
    let lines = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
    for line in lines.split('\n') {
        if line.is_empty() {
            events.extend(event.take().map(Bytes::from));
        } else if let Some(value) = line.strip_prefix("data:") {
            let value = value.strip_prefix(' ').unwrap_or(value);
            event = Some(event.map_or(value.to_owned(), |before| format!("{before}\n{value}")));
        }
    }
    events
}
