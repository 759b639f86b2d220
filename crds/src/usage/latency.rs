//! Histogram of durations with buckets whose bounds are powers of two.

/// Number of buckets: 16 ms, 32 ms, … 524 s, and all that is longer in the last one.
pub const LATENCY_BUCKETS: usize = 16;
/// Exponent of the first bound, in milliseconds.
const FIRST: u32 = 4;

/// Returns the bucket of a duration in milliseconds: the first one whose bound it does not exceed.
pub fn latency_bucket(millis: u64) -> usize {
    (0..LATENCY_BUCKETS).find(|bucket| millis <= bound(*bucket)).unwrap_or(LATENCY_BUCKETS - 1)
}

/// Returns the bound in milliseconds that so many percent of the durations do not exceed; `None` without durations.
pub fn quantile_ms(buckets: &[u64; LATENCY_BUCKETS], percent: u64) -> Option<u64> {
    let all = buckets.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
    let mut rest = all.saturating_mul(percent).div_ceil(100);
    let reached = |count: &u64| {
        rest = rest.saturating_sub(*count);
        rest == 0
    };
    let bucket = buckets.iter().position(reached).filter(|_| all > 0)?;
    Some(bound(bucket))
}

fn bound(bucket: usize) -> u64 {
    u32::try_from(bucket).ok().and_then(|bucket| 1_u64.checked_shl(FIRST + bucket)).unwrap_or(u64::MAX)
}
