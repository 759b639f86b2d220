//! What may be read of servers: of each within one discovery, and of all at once.
//!
//! Hundreds of servers may be asked at the same time, and each may send as much as it likes and then hang. So what is held of
//! an answer is free of charge only while it is small; a large one needs one of a few places, and waits for it within its
//! own deadline, as other large ones do. A list of a hundred tools is small.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most that is read in one discovery, in bytes.
pub(super) const MOST: usize = 2 << 20;
/// Up to this many bytes an answer is small; and the most that an event of a stream that is kept may have.
pub(super) const SMALL: usize = 128 << 10;
/// How many large answers are read at a time.
const LARGE: usize = 24;

/// The places for large answers.
#[derive(Debug, Clone)]
pub struct Places(Arc<Semaphore>);

impl Default for Places {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE)))
    }
}

/// The most that an answer to a call, or anything else on the stream of a server that is called, may have, in bytes.
const EVENT: usize = 4 << 20;

/// What was read of one server.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    places: Places,
    /// In all, and between two ends of an event.
    most: usize,
    event: usize,
    count: Arc<Mutex<Count>>,
}

#[derive(Debug, Default)]
struct Count {
    bytes: usize,
    place: Option<OwnedSemaphorePermit>,
    /// While the server is only listened to: bytes since the last end of an event.
    unfinished: Option<usize>,
    /// The last byte of the piece before.
    last: Option<u8>,
}

/// It is more than is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMuch;

impl Reading {
    pub(super) fn new(places: Places) -> Self {
        Self { places, most: MOST, event: SMALL, count: Arc::default() }
    }

    /// Of a server whose tools are called, for as long as that goes on.
    pub(super) fn of_calls() -> Self {
        let reading = Self { most: usize::MAX, event: EVENT, ..Self::new(Places::default()) };
        reading.listen();
        reading
    }

    /// Counts a piece in, as soon as there is a place for it.
    ///
    /// # Errors
    /// [`TooMuch`].
    pub(super) async fn take(&self, piece: &[u8]) -> Result<(), TooMuch> {
        let waits = {
            let mut guard = self.count();
            let count = &mut *guard;
            count.bytes = count.bytes.saturating_add(piece.len());
            if let Some(unfinished) = &mut count.unfinished {
                // An event ends with an empty line, of whichever sort of line break.
                let is_end = |two: &[u8]| matches!(two, b"\n\n" | b"\r\r" | b"\n\r");
                let across = count.last.zip(piece.first()).is_some_and(|(last, first)| is_end(&[last, *first]));
                let ends = across || piece.windows(2).any(is_end);
                count.last = piece.last().copied().or(count.last);
                *unfinished = if ends { 0 } else { unfinished.saturating_add(piece.len()) };
                if *unfinished > self.event {
                    return Err(TooMuch);
                }
            }
            if count.bytes > self.most {
                return Err(TooMuch);
            }
            count.bytes > SMALL && count.place.is_none() && count.unfinished.is_none()
        };
        if waits {
            // It is never closed.
            let place = self.places.0.clone().acquire_owned().await.map_err(|_| TooMuch)?;
            let mut count = self.count();
            // Its answer may have been taken in meanwhile.
            if count.unfinished.is_none() {
                count.place = Some(place);
            }
        }
        Ok(())
    }

    /// Its answer is taken in, and it is only listened to from now on.
    pub(super) fn listen(&self) {
        *self.count() = Count { unfinished: Some(0), ..Count::default() };
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn small_answers_wait_for_nobody_and_large_ones_for_each_other() {
        let places = Places::default();
        let large: Vec<_> = (0..LARGE).map(|_| Reading::new(places.clone())).collect();
        for reading in &large {
            assert_eq!(reading.take(&[0; SMALL + 1]).now_or_never(), Some(Ok(())));
        }
        let small = Reading::new(places.clone());
        assert_eq!(small.take(&[0; SMALL]).now_or_never(), Some(Ok(())));
        assert_eq!(small.take(&[0; 1]).now_or_never(), None, "it is large now, and there is no place");
        large[0].listen();
        assert_eq!(small.take(&[0; 1]).now_or_never(), Some(Ok(())));
        drop(large);
        assert_eq!(places.0.available_permits(), LARGE - 1);
    }

    #[test]
    fn a_place_that_comes_when_the_answer_is_taken_in_is_given_back() {
        let places = Places::default();
        let large: Vec<_> = (0..LARGE).map(|_| Reading::new(places.clone())).collect();
        for reading in &large {
            assert_eq!(reading.take(&[0; SMALL + 1]).now_or_never(), Some(Ok(())));
        }
        let late = Reading::new(places.clone());
        let piece = [0; SMALL + 1];
        let mut waits = Box::pin(late.take(&piece));
        assert_eq!(waits.as_mut().now_or_never(), None);
        late.listen();
        drop(large);
        assert_eq!(waits.now_or_never(), Some(Ok(())));
        assert_eq!(places.0.available_permits(), LARGE);
    }

    #[test]
    fn the_end_of_an_event_may_be_in_two_pieces() {
        for (first, second) in [(&b"x\n"[..], &b"\n"[..]), (b"x\r\n", b"\r\n"), (b"x\r", b"\r")] {
            let reading = Reading::new(Places::default());
            reading.listen();
            assert_eq!(reading.take(&vec![b'x'; SMALL - 3]).now_or_never(), Some(Ok(())));
            for piece in [first, b"", second, &[b'x'; SMALL]] {
                assert_eq!(reading.take(piece).now_or_never(), Some(Ok(())), "{first:?}");
            }
        }
    }

    #[test]
    fn no_more_is_read_than_is_allowed() {
        let reading = Reading::new(Places::default());
        assert_eq!(reading.take(&vec![0; MOST]).now_or_never(), Some(Ok(())));
        assert_eq!(reading.take(&[0]).now_or_never(), Some(Err(TooMuch)));
    }

    #[test]
    fn an_event_of_a_stream_that_is_kept_ends_before_it_is_large() {
        let reading = Reading::new(Places::default());
        reading.listen();
        let mut event = vec![b'x'; SMALL];
        event.extend_from_slice(b"\r\n\r\n");
        for _ in 0..4 {
            assert_eq!(reading.take(&event).now_or_never(), Some(Ok(())));
        }
        assert_eq!(reading.take(&[b'x'; SMALL]).now_or_never(), Some(Ok(())));
        assert_eq!(reading.take(b"x").now_or_never(), Some(Err(TooMuch)));
    }
}
