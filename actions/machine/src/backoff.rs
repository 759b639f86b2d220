//! Computes delays before a next attempt (exponential back-off with jitter, and its limits), and holds the resync period.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

/// Resync period: an object that waits for a watch event, or for nothing, gets a step after about this long, from the informer
/// caches and without a request, to make up for a missed event.
pub const RECHECK: Duration = Duration::from_secs(600);

/// Longest back-off between two attempts at a request that fails without a fault of this program.
pub(super) const UNREACHABLE: Duration = Duration::from_secs(5);

/// Longest back-off.
pub(super) const LONGEST_BACKOFF: Duration = Duration::from_secs(300);

/// Longest time until an attempt: the longest back-off with its jitter, rounded up.
pub(super) const LONGEST_WAIT: SignedDuration = SignedDuration::from_secs(361);

/// Returns the exponential back-off with jitter before the next attempt: 1 s · 2ⁿ up to `most`, spread by ±20 %, so that objects
/// that failed together are not retried together. The jitter is derived from the uid, so that a restart computes the same delay.
///
/// See <https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/>.
pub(super) fn backoff(attempts: i32, uid: &str, most: Duration) -> Duration {
    let exponent = u32::try_from(attempts.clamp(1, 20) - 1).unwrap_or_default();
    let base = Duration::from_secs(1).saturating_mul(1 << exponent).min(most);
    jitter(base, &format!("{uid}/{attempts}"))
}

/// Returns the exponential back-off for an object that a watch is to deliver soon: 20 ms · 2ⁿ up to 1 s, without jitter.
pub(super) fn short_backoff(attempts: i32) -> Duration {
    Duration::from_millis(20 << (attempts.clamp(1, 7) - 1)).min(Duration::from_secs(1))
}

/// Spreads a delay by ±20 %, the same for the same seed.
pub(super) fn jitter(delay: Duration, seed: &str) -> Duration {
    let digest = Sha256::digest(seed);
    delay.mul_f64(0.8 + 0.4 * f64::from(digest.first().copied().unwrap_or_default()) / 255.0)
}

/// Reports whether an attempt is due. A time that is farther away than the longest back-off was set by another clock, or before
/// this clock was set back, and is not waited for.
pub fn is_due(at: Timestamp, now: Timestamp) -> bool {
    at <= now || at.duration_since(now) > LONGEST_WAIT
}
