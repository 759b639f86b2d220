//! Wait for the next request head on a connection.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, Sleep},
};

use super::{
    Connection, Fields, InvalidMessage,
    connection::{ReadOutcome, Scratch, with_scratch},
    head::{HEAD_TIMEOUT, KEEP_ALIVE},
    head_length,
    timer::poll_due,
};

/// Reasons for which no head was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadError {
    /// The peer closed, the connection broke, or no request came in time.
    Gone,
    /// The head began and was not complete in time.
    Timeout,
    /// The head is invalid.
    Invalid(InvalidMessage),
}

impl From<InvalidMessage> for HeadError {
    fn from(bad: InvalidMessage) -> Self {
        Self::Invalid(bad)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Waits for the next head, 75 s for its first byte and 10 s from there for the whole, and passes it to `parse`,
    /// which must not block. The bytes after the head are in `incoming` then. A partial head stays there if this future
    /// is dropped.
    ///
    /// # Errors
    /// No further head comes, or an invalid one.
    pub async fn next_head<T>(
        &mut self,
        mut timer: Pin<&mut Sleep>,
        mut parse: impl FnMut(&[u8], &mut Fields) -> T,
    ) -> Result<T, HeadError> {
        let (mut scanned, mut due) = (0, None);
        poll_fn(|cx| {
            let had_begun = !self.incoming.is_empty();
            let result = with_scratch(|scratch| self.poll_head(cx, scratch, &mut scanned, &mut parse));
            if result.is_ready() {
                return result;
            }
            let has_begun = !self.incoming.is_empty();
            if has_begun && !had_begun {
                due = None;
            }
            let due = *due.get_or_insert_with(|| Instant::now() + if has_begun { HEAD_TIMEOUT } else { KEEP_ALIVE });
            ready!(poll_due(timer.as_mut(), due, cx));
            Poll::Ready(Err(if has_begun { HeadError::Timeout } else { HeadError::Gone }))
        })
        .await
    }

    fn poll_head<T>(
        &mut self,
        cx: &mut Context<'_>,
        Scratch { bytes, fields, .. }: &mut Scratch,
        scanned: &mut usize,
        parse: &mut impl FnMut(&[u8], &mut Fields) -> T,
    ) -> Poll<Result<T, HeadError>> {
        loop {
            if *scanned < self.incoming.len()
                && let Some(length) = head_length(&self.incoming, scanned)?
            {
                let rest = self.incoming.split_off(length);
                let head = std::mem::replace(&mut self.incoming, rest);
                return Poll::Ready(Ok(parse(&head, fields)));
            }
            let read = match ready!(self.poll_read(cx, bytes)) {
                Ok(ReadOutcome::Bytes(length)) => &bytes[..length],
                Ok(ReadOutcome::End) | Err(_) => return Poll::Ready(Err(HeadError::Gone)),
            };
            // Most heads arrive in one read, and are not copied.
            if self.incoming.is_empty()
                && let Some(length) = head_length(read, scanned)?
            {
                self.incoming.extend_from_slice(&read[length..]);
                return Poll::Ready(Ok(parse(&read[..length], fields)));
            }
            self.incoming.extend_from_slice(read);
        }
    }
}
