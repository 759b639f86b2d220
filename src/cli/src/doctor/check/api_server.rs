//! Row 14: response time of the API server, and its clock.

use std::time::Duration;

use super::super::{
    finding::{Finding, Issue},
    reading::Read,
};
use crate::cluster::ServerTime;

const CHECK: &str = "api-server";
const TITLE: &str = "API server";
const SLOW: Duration = Duration::from_millis(200);
const TOO_SLOW: Duration = Duration::from_secs(2);
/// Largest difference of the clocks, in seconds: the header `Date` has whole ones.
const CLOCK: f64 = 5.0;

/// Judges the times of some reads; `offset` is the clock of the API server minus that of this machine, in seconds.
pub(super) fn check(times: &Read<Vec<ServerTime>>, offset: Option<f64>) -> Finding {
    let times = match times {
        Ok(times) => times,
        Err(why) => return Finding::skip(CHECK, TITLE, why),
    };
    let slowest = percentile_95(times.iter().map(|time| time.took).collect());
    let mut issues = Vec::new();
    let what = format!("95 of 100 reads take up to {} ms", slowest.as_millis());
    let remedy = "see its load and that of etcd, and the way to it";
    if slowest > TOO_SLOW {
        issues.push(Issue::fail(what.clone(), remedy));
    } else if slowest > SLOW {
        issues.push(Issue::warn(what.clone(), remedy));
    }
    if let Some(offset) = offset.filter(|offset| offset.abs() > CLOCK) {
        let what = format!("its clock and yours differ by {:.0} s", offset.abs());
        issues.push(Issue::warn(what, "set both by NTP: tokens and certificates depend on it"));
    }
    Finding::judge(CHECK, TITLE, what, issues)
}

fn percentile_95(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let index = (times.len() * 95).div_ceil(100).saturating_sub(1);
    times.get(index).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::Verdict, reading::Unread};

    #[test]
    fn slow_reads_and_a_wrong_clock_are_told_of() {
        for (millis, offset, verdict) in [
            (5, Some(1.0), Verdict::Ok),
            (200, None, Verdict::Ok),
            (201, None, Verdict::Warn),
            (5, Some(-6.0), Verdict::Warn),
            (2001, Some(6.0), Verdict::Fail),
        ] {
            let mut times = vec![ServerTime { took: Duration::from_millis(1), clock: None }; 9];
            times.push(ServerTime { took: Duration::from_millis(millis), clock: None });
            let found = check(&Ok(times), offset);
            assert_eq!(found.verdict, verdict, "{}", found.text);
        }
        assert_eq!(check(&Err(Unread::Failed("late".into())), None).verdict, Verdict::Skip);
    }

    #[test]
    fn of_a_hundred_reads_the_five_slowest_do_not_count() {
        let times = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile_95(times), Duration::from_millis(95));
        assert_eq!(percentile_95(Vec::new()), Duration::ZERO);
    }
}
