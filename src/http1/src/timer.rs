//! One timer for everything that a connection waits for.
//!
//! Arming a timer costs more than waiting for nothing: so it is moved only when it would fire too late, and when it fires too
//! early, because something has happened since, it is armed for what is due then.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::time::{Instant, Sleep};

/// Ready when `due` has come.
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
