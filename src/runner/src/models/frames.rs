//! Splits a streamed answer into frames that hold one JSON text each.
//!
//! Memory is bounded regardless of the provider: a frame has at most 1 MiB, a whole answer at most 64 MiB.

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use futures::{
    Stream, StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use reqwest::Response;
use sse_stream::{Error, SseStream};

use super::{
    error::ModelError,
    http::{Timeouts, silent},
};

/// Maximum bytes of a line or an event.
const PIECE: usize = 1 << 20;
/// Maximum bytes of an answer.
const ANSWER: usize = 64 << 20;

/// Stream of frames of an answer.
pub(super) type Frames = BoxStream<'static, Result<Bytes, ModelError>>;

/// Streams the bytes of an answer as they arrive, within the timeouts and the size limit.
pub(super) fn bytes(response: Response, timeouts: Timeouts) -> Frames {
    let state = (response, 0);
    let bytes = stream::try_unfold(state, move |(mut response, before)| async move {
        let silence = if before == 0 { timeouts.first } else { timeouts.idle };
        let more = tokio::time::timeout(silence, response.chunk()).await.map_err(|_| silent(silence))?;
        let Some(more) = more.map_err(|_| ModelError::broken_off())? else { return Ok(None) };
        let all = before + more.len();
        if all > ANSWER {
            return Err(ModelError::too_large("64 MiB"));
        }
        Ok(Some((more, (response, all))))
    });
    bytes.boxed()
}

/// Splits server-sent events and returns the data of each. A body of a single line that is none of theirs is malformed.
pub(super) fn events(bytes: Frames) -> Frames {
    let state = Some((bytes, Length::default()));
    let bounded = stream::try_unfold(state, |state| async move {
        let Some((mut bytes, mut length)) = state else { return Ok(None) };
        match bytes.try_next().await {
            Err(error) => Err(error),
            Ok(Some(more)) => length.add(&more).map(|()| Some((more, Some((bytes, length))))),
            // The parser reads only lines that have an end.
            Ok(None) if length.is_unended_line() => Ok(Some((Bytes::from_static(b"\n"), None))),
            Ok(None) => Ok(None),
        }
    });
    let bounded: Frames = bounded.boxed();
    let events = SseStream::from_bytes_stream(bounded).map_err(|error| match error {
        Error::Body(error) => error.downcast().map_or_else(|_| ModelError::malformed(), |error| *error),
        _ => ModelError::malformed(),
    });
    let data = events.try_filter_map(|event| std::future::ready(Ok(event.data.map(Bytes::from))));
    data.boxed()
}

/// Splits lines; the last one need not be terminated.
pub(super) fn lines(bytes: Frames) -> Frames {
    struct LineSplitter {
        bytes: Pin<Box<dyn Stream<Item = Result<Bytes, ModelError>> + Send>>,
        buffer: BytesMut,
        /// Bytes of the buffer already searched for a line end.
        searched: usize,
        over: bool,
    }
    let state = LineSplitter { bytes, buffer: BytesMut::new(), searched: 0, over: false };
    let lines = stream::try_unfold(state, |mut state| async move {
        loop {
            let found = state.buffer[state.searched..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = found {
                let line = state.buffer.split_to(state.searched + end + 1).freeze();
                state.searched = 0;
                return Ok(Some((line, state)));
            }
            state.searched = state.buffer.len();
            if state.searched > PIECE {
                return Err(ModelError::too_large("a line of 1 MiB"));
            }
            if state.over {
                let rest = state.buffer.split().freeze();
                state.searched = 0;
                return Ok((!rest.is_empty()).then_some((rest, state)));
            }
            match state.bytes.next().await {
                Some(more) => state.buffer.extend_from_slice(&more?),
                None => state.over = true,
            }
        }
    });
    lines.try_filter(|line| std::future::ready(!line.trim_ascii().is_empty())).boxed()
}

/// Counter of the length of the event being received, and of its present line. An empty line ends an event.
#[derive(Default)]
struct Length {
    event: usize,
    line: usize,
    /// Set once a line has ended.
    has_line_end: bool,
}

impl Length {
    fn add(&mut self, more: &[u8]) -> Result<(), ModelError> {
        self.has_line_end |= more.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
        for byte in more {
            match byte {
                b'\n' if self.line == 0 => self.event = 0,
                b'\n' => self.line = 0,
                b'\r' => {}
                _ => {
                    self.line += 1;
                    self.event += 1;
                    if self.event > PIECE {
                        return Err(ModelError::too_large("an event of 1 MiB"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Reports whether all bytes so far are one line that has not ended.
    fn is_unended_line(&self) -> bool {
        self.line > 0 && !self.has_line_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the frames of `text` when it arrives `size` bytes at a time.
    async fn cut(how: fn(Frames) -> Frames, text: &str, size: usize) -> Result<Vec<String>, ModelError> {
        let pieces: Vec<_> = text.as_bytes().chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let frames: Vec<Bytes> = how(stream::iter(pieces).boxed()).try_collect().await?;
        Ok(frames.iter().map(|frame| String::from_utf8(frame.to_vec()).unwrap()).collect())
    }

    #[tokio::test]
    async fn pieces_are_the_same_however_the_bytes_come() {
        let sent = ": hello\n\ndata: {\"a\":\ndata: 1}\n\nevent: ping\r\ndata: é\r\n\r\nid: 1\n\ndata: lost";
        for size in 1..sent.len() {
            assert_eq!(cut(events, sent, size).await.unwrap(), ["{\"a\":\n1}", "é"], "{size}");
            assert_eq!(cut(lines, "a\n\n \r\né\nb", size).await.unwrap(), ["a\n", "é\n", "b"], "{size}");
        }
    }

    #[tokio::test]
    async fn a_piece_has_at_most_one_mebibyte() {
        let long = "x".repeat(PIECE - 6);
        let many = format!("data: {long}\n\n").repeat(2);
        assert_eq!(cut(events, &many, 5000).await.unwrap(), [long.as_str(), &long]);
        let no_end = format!("data: {long}\ndata: y\n\n");
        let crlf = no_end.replace('\n', "\r\n");
        for (how, sent) in [
            (events as fn(_) -> _, no_end),
            (events, crlf),
            (events, "x".repeat(PIECE + 1)),
            (lines, "x".repeat(PIECE + 1)),
        ] {
            let error = cut(how, &sent, 5000).await.unwrap_err().to_string();
            assert!(error.contains("holds more than") && error.contains("1 MiB"), "{error}");
        }
    }

    #[tokio::test]
    async fn what_is_no_event_is_malformed() {
        for body in ["<html>\n", "<html>", "{\"choices\": []}"] {
            assert_eq!(cut(events, body, 3).await.unwrap_err(), ModelError::malformed(), "{body}");
        }
        for cut_off in ["", "data: {\"choices\"", ": wait"] {
            assert!(cut(events, cut_off, 3).await.unwrap().is_empty(), "{cut_off}");
        }
        let broken: Frames = stream::iter([Ok(Bytes::from("data: 1\n\n")), Err(ModelError::broken_off())]).boxed();
        let found: Vec<_> = events(broken).collect().await;
        assert_eq!(found, [Ok(Bytes::from("1")), Err(ModelError::broken_off())]);
    }
}
