//! Budget of bytes that are read from servers: from each within one discovery, and from all at once.
//!
//! Hundreds of servers may be queried at the same time, and each may send as much as it likes and then hang. So the part of an
//! answer that is held in memory needs no permit only while it is small. A large answer acquires one of a few permits of a
//! semaphore and waits for it within its own deadline, as other large ones do. A list of a hundred tools is small.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most bytes that are read in one discovery.
pub(super) const MAX_DISCOVERY_BYTES: usize = 2 << 20;
/// Size up to which an answer is small, in bytes; also the largest event of a stream that is kept open.
pub(super) const SMALL_ANSWER: usize = 128 << 10;
/// Number of large answers that are read at a time.
const LARGE_ANSWERS: usize = 24;

/// Permits for large answers. Clones share them.
#[derive(Debug, Clone)]
pub struct ReadPermits(Arc<Semaphore>);

impl Default for ReadPermits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_ANSWERS)))
    }
}

/// Largest answer to a call, or other event, on the stream of a server that is called, in bytes.
const MAX_CALL_EVENT: usize = 4 << 20;

/// Count of the bytes that were read from one server, and its limits. Clones share the count.
#[derive(Debug, Clone)]
pub(super) struct ReadBudget {
    permits: ReadPermits,
    /// Most bytes in all.
    max_bytes: usize,
    /// Most bytes of one event, counted while the server is only listened to.
    max_event: usize,
    count: Arc<Mutex<ReadCount>>,
}

/// Counters of a [`ReadBudget`]. Invariant: no permit is held while `unfinished` is set.
#[derive(Debug, Default)]
struct ReadCount {
    bytes: usize,
    permit: Option<OwnedSemaphorePermit>,
    /// Bytes since the last end of an event; set while the server is only listened to.
    unfinished: Option<usize>,
    /// Last byte of the previous chunk.
    last: Option<u8>,
}

/// Error: a limit of the budget is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadLimitExceeded;

impl ReadBudget {
    pub(super) fn new(permits: ReadPermits) -> Self {
        Self { permits, max_bytes: MAX_DISCOVERY_BYTES, max_event: SMALL_ANSWER, count: Arc::default() }
    }

    /// Returns the budget for a server whose tools are called: unlimited in all, limited for each event.
    pub(super) fn for_calls() -> Self {
        let reading = Self { max_bytes: usize::MAX, max_event: MAX_CALL_EVENT, ..Self::new(ReadPermits::default()) };
        reading.listen();
        reading
    }

    /// Counts a chunk, and waits for a permit if the answer has become large.
    ///
    /// # Errors
    /// [`ReadLimitExceeded`].
    pub(super) async fn acquire(&self, piece: &[u8]) -> Result<(), ReadLimitExceeded> {
        let waits = {
            let mut guard = self.count();
            let count = &mut *guard;
            count.bytes = count.bytes.saturating_add(piece.len());
            if let Some(unfinished) = &mut count.unfinished {
                // An event ends with an empty line, whether line breaks are LF, CR or CRLF.
                let is_end = |two: &[u8]| matches!(two, b"\n\n" | b"\r\r" | b"\n\r");
                let across = count.last.zip(piece.first()).is_some_and(|(last, first)| is_end(&[last, *first]));
                let ends = across || piece.windows(2).any(is_end);
                count.last = piece.last().copied().or(count.last);
                *unfinished = if ends { 0 } else { unfinished.saturating_add(piece.len()) };
                if *unfinished > self.max_event {
                    return Err(ReadLimitExceeded);
                }
            }
            if count.bytes > self.max_bytes {
                return Err(ReadLimitExceeded);
            }
            count.bytes > SMALL_ANSWER && count.permit.is_none() && count.unfinished.is_none()
        };
        if waits {
            // The semaphore is never closed.
            let place = self.permits.0.clone().acquire_owned().await.map_err(|_| ReadLimitExceeded)?;
            let mut count = self.count();
            // `listen` may have ended the answer meanwhile.
            if count.unfinished.is_none() {
                count.permit = Some(place);
            }
        }
        Ok(())
    }

    /// Ends the answer and releases its permit; from then on the server is only listened to, and only events are limited.
    pub(super) fn listen(&self) {
        *self.count() = ReadCount { unfinished: Some(0), ..ReadCount::default() };
    }

    fn count(&self) -> MutexGuard<'_, ReadCount> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn small_answers_wait_for_none_and_large_ones_for_each_other() {
        let permits = ReadPermits::default();
        let large: Vec<_> = (0..LARGE_ANSWERS).map(|_| ReadBudget::new(permits.clone())).collect();
        for reading in &large {
            assert_eq!(reading.acquire(&[0; SMALL_ANSWER + 1]).now_or_never(), Some(Ok(())));
        }
        let small = ReadBudget::new(permits.clone());
        assert_eq!(small.acquire(&[0; SMALL_ANSWER]).now_or_never(), Some(Ok(())));
        assert_eq!(small.acquire(&[0; 1]).now_or_never(), None, "it is large now, and there is no place");
        large[0].listen();
        assert_eq!(small.acquire(&[0; 1]).now_or_never(), Some(Ok(())));
        drop(large);
        assert_eq!(permits.0.available_permits(), LARGE_ANSWERS - 1);
    }

    #[test]
    fn a_place_that_comes_when_the_answer_is_taken_in_is_given_back() {
        let permits = ReadPermits::default();
        let large: Vec<_> = (0..LARGE_ANSWERS).map(|_| ReadBudget::new(permits.clone())).collect();
        for reading in &large {
            assert_eq!(reading.acquire(&[0; SMALL_ANSWER + 1]).now_or_never(), Some(Ok(())));
        }
        let late = ReadBudget::new(permits.clone());
        let piece = [0; SMALL_ANSWER + 1];
        let mut waits = Box::pin(late.acquire(&piece));
        assert_eq!(waits.as_mut().now_or_never(), None);
        late.listen();
        drop(large);
        assert_eq!(waits.now_or_never(), Some(Ok(())));
        assert_eq!(permits.0.available_permits(), LARGE_ANSWERS);
    }

    #[test]
    fn the_end_of_an_event_may_be_in_two_pieces() {
        for (first, second) in [(&b"x\n"[..], &b"\n"[..]), (b"x\r\n", b"\r\n"), (b"x\r", b"\r")] {
            let reading = ReadBudget::new(ReadPermits::default());
            reading.listen();
            assert_eq!(reading.acquire(&vec![b'x'; SMALL_ANSWER - 3]).now_or_never(), Some(Ok(())));
            for piece in [first, b"", second, &[b'x'; SMALL_ANSWER]] {
                assert_eq!(reading.acquire(piece).now_or_never(), Some(Ok(())), "{first:?}");
            }
        }
    }

    #[test]
    fn no_more_is_read_than_is_allowed() {
        let reading = ReadBudget::new(ReadPermits::default());
        assert_eq!(reading.acquire(&vec![0; MAX_DISCOVERY_BYTES]).now_or_never(), Some(Ok(())));
        assert_eq!(reading.acquire(&[0]).now_or_never(), Some(Err(ReadLimitExceeded)));
    }

    #[test]
    fn an_event_of_a_stream_that_is_kept_ends_before_it_is_large() {
        let reading = ReadBudget::new(ReadPermits::default());
        reading.listen();
        let mut event = vec![b'x'; SMALL_ANSWER];
        event.extend_from_slice(b"\r\n\r\n");
        for _ in 0..4 {
            assert_eq!(reading.acquire(&event).now_or_never(), Some(Ok(())));
        }
        assert_eq!(reading.acquire(&[b'x'; SMALL_ANSWER]).now_or_never(), Some(Ok(())));
        assert_eq!(reading.acquire(b"x").now_or_never(), Some(Err(ReadLimitExceeded)));
    }
}
