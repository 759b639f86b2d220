//! Lazy timer: one timer for all waits of a connection.
//!
//! Arming a timer costs more than a needless wake-up. So it is moved only if it would fire too late. If it fires too
//! early, because there was progress since, it is armed for the current deadline.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::time::{Instant, Sleep};

/// Becomes ready when `due` has passed.
pub(super) fn poll_due(mut timer: Pin<&mut Sleep>, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        if timer.deadline() > due || timer.is_elapsed() {
            timer.as_mut().reset(due);
        }
        ready!(timer.as_mut().poll(cx));
        if due <= Instant::now() {
            return Poll::Ready(());
        }
    }
}
