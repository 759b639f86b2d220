//! Periodic re-authorization: a request that lasts longer than a verdict may be cached is authorized again.
//!
//! A WebSocket or an event stream may stay open for days, and a token may be revoked meanwhile. The timer belongs to
//! the connection: a short request only checks whether it has fired, because arming one per request would cost more
//! than the rest of the check.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

/// Interval between two authorizations of one request, which is also the longest time for which a verdict holds.
pub(super) const RECHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Polls `work`, which began at `began`, to its end. Returns `None` as soon as `is_allowed`, called once a minute,
/// denies. `timer` may still be armed for an earlier use.
// Not an async function, whose future would store its arguments twice.
pub(super) fn while_allowed<T, A: Future<Output = bool> + Send>(
    mut work: Pin<&mut impl Future<Output = T>>,
    began: Instant,
    mut timer: Pin<&mut Sleep>,
    is_allowed: impl Fn() -> A,
) -> impl Future<Output = Option<T>> {
    let mut due = began + RECHECK_INTERVAL;
    // Set if the timer wakes this task.
    let mut waits = false;
    let mut question: Option<Pin<Box<A>>> = None;
    poll_fn(move |cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        loop {
            if let Some(asked) = &mut question {
                if !ready!(asked.as_mut().poll(cx)) {
                    return Poll::Ready(None);
                }
                question = None;
                due = Instant::now() + RECHECK_INTERVAL;
            }
            if timer.is_elapsed() {
                timer.as_mut().reset(due);
                waits = false;
            }
            if waits {
                return Poll::Pending;
            }
            waits = true;
            ready!(timer.as_mut().poll(cx));
            // The timer may have been armed for an earlier request.
            if due <= Instant::now() {
                question = Some(Box::pin(is_allowed()));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        pin::pin,
        sync::atomic::{AtomicU32, Ordering::Relaxed},
    };

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_lasts_is_asked_for_its_right_each_minute_and_what_ends_soon_is_not() {
        let mut timer = pin!(sleep(RECHECK_INTERVAL));
        let (began, asked) = (Instant::now(), AtomicU32::new(0));
        let ask = |answer: bool| {
            asked.fetch_add(1, Relaxed);
            async move { answer }
        };
        for number in 0..100 {
            let work = pin!(async {
                sleep(Duration::from_secs(1)).await;
                number
            });
            assert_eq!(while_allowed(work, Instant::now(), timer.as_mut(), || ask(false)).await, Some(number));
        }
        assert_eq!((asked.load(Relaxed), began.elapsed().as_secs()), (0, 100));
        let began = Instant::now();
        let forever = pin!(pending::<()>());
        let ended = while_allowed(forever, began, timer.as_mut(), || {
            let times = asked.load(Relaxed);
            ask(times < 4)
        });
        assert_eq!(ended.await, None);
        assert_eq!((asked.load(Relaxed), began.elapsed().as_secs()), (5, 300));
    }
}
