//! Millisecond clock and pseudorandom numbers, cheap enough for every request.

use std::{
    cell::Cell,
    hash::{BuildHasher as _, RandomState},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::Instant;

/// Monotonic clock that counts milliseconds since its creation, so that an instant fits in an atomic. It knows the time of day, too.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// One second before its creation.
    began: Instant,
    /// Time since 1970 at which it stands in a test, in milliseconds.
    #[cfg(test)]
    unix: Option<u64>,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// Creates a clock that starts now.
    pub fn new() -> Self {
        // Starts one second ahead of zero, so that 0 is always in the past.
        Self {
            began: Instant::now() - Duration::from_secs(1),
            #[cfg(test)]
            unix: None,
        }
    }

    /// Creates a clock that starts now, at a time since 1970 in milliseconds that does not pass.
    #[cfg(test)]
    pub(super) fn at(unix: u64) -> Self {
        Self { unix: Some(unix), ..Self::new() }
    }

    /// Returns the current time in milliseconds.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the time since 1970 in milliseconds.
    pub(super) fn unix(&self) -> u64 {
        #[cfg(test)]
        if let Some(unix) = self.unix {
            return unix;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

thread_local! {
    static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
}

/// Returns a pseudorandom number ([splitmix64](https://prng.di.unimi.it/splitmix64.c)). It is predictable and not for
/// secrets.
pub(super) fn random() -> u64 {
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns a pseudorandom number of milliseconds from `from` to `to`, both included.
pub(super) fn random_between(from: u64, to: u64) -> u64 {
    from + random() % (to - from + 1)
}
