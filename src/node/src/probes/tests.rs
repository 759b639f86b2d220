use serde_json::{Value, json};

use super::*;

fn timing(probe: Value) -> Timing {
    Timing::of(&serde_json::from_value(probe).unwrap())
}

#[test]
fn the_pause_grows_with_the_wait_up_to_the_period() {
    let timing = timing(json!({ "periodSeconds": 5, "failureThreshold": 12, "initialDelaySeconds": 3 }));
    let pause = |waited| timing.pause(Duration::from_millis(waited)).as_millis();
    assert_eq!([0, 1000, 5000, 100_000, 1_000_000].map(pause), [20, 20, 50, 1000, 5000]);
    assert_eq!(timing.limit(), Duration::from_secs(63));
    let default = Timing::of(&Probe::default());
    assert_eq!((default.period.as_secs(), default.timeout.as_secs(), default.failures), (10, 1, 3));
}

/// Plays probes, each `+` or `-` at its second, and returns what is seen of each: `R` ready from now on, `N` not ready from now on,
/// `!` worth an Event, `.` nothing.
fn readiness(probe: Value, script: &str) -> String {
    let begin = Instant::now();
    let mut readiness = ContainerReadiness::new(timing(probe), begin);
    let play = |word: &str| {
        let (second, outcome) = word.split_at(word.len() - 1);
        let now = begin + Duration::from_secs(second.parse().unwrap());
        let seen = readiness.apply(outcome == "+", now);
        let change = match (seen.has_changed, readiness.is_ready) {
            (false, _) => "",
            (true, true) => "R",
            (true, false) => "N",
        };
        let event = if seen.is_recorded { "!" } else { "" };
        let shown = format!("{event}{change}");
        if shown.is_empty() { ".".to_owned() } else { shown }
    };
    script.split_whitespace().map(play).collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn a_container_is_ready_after_enough_passes_and_until_enough_failures() {
    let usual = || json!({ "periodSeconds": 1, "failureThreshold": 2 });
    for (probe, script, expected) in [
        (usual(), "0- 1+ 2+", ". R ."),
        (json!({ "periodSeconds": 1, "successThreshold": 2 }), "0+ 1- 2+ 3+", ". . . R"),
        // One failure of two does not change the readiness, but is recorded as an Event.
        (usual(), "0+ 1- 2+ 3- 4-", "R ! . ! !N"),
        (usual(), "0+ 1- 2- 3+", "R ! !N R"),
        // A start longer than the probe allows is recorded once.
        (usual(), "0- 1- 2- 3- 4+", ". . ! . R"),
        (usual(), "0+ 1- 2- 3- 5- 6- 7+", "R ! !N . ! . R"),
        (json!({ "periodSeconds": 1, "failureThreshold": 2, "initialDelaySeconds": 3 }), "4- 5-", ". !"),
    ] {
        assert_eq!(readiness(probe.clone(), script), expected, "{probe} {script}");
    }
}

#[tokio::test(start_paused = true)]
async fn until_it_is_ready_it_is_probed_often_and_then_at_its_period() {
    let begin = Instant::now();
    let mut readiness = ContainerReadiness::new(timing(json!({ "periodSeconds": 5 })), begin);
    let at = |second| begin + Duration::from_secs(second);
    let pause = |readiness: &ContainerReadiness, now| (readiness.next(begin, now) - now).as_millis();
    assert_eq!(pause(&readiness, at(0)), 20);
    assert_eq!(pause(&readiness, at(10)), 100);
    readiness.apply(true, at(10));
    assert_eq!(pause(&readiness, at(11)), 5000);
    let late = at(11) + Duration::from_millis(300);
    assert_eq!(readiness.next(begin, late), at(16), "at a whole second, with all others");
    assert_eq!(readiness.next(at(20), at(11)), at(16), "a clock of later");
    for second in [15, 20, 25] {
        readiness.apply(false, at(second));
    }
    assert_eq!(pause(&readiness, at(25)), 20, "from the time on at which it was lost");
}

#[test]
fn a_container_is_dead_after_enough_failures_in_a_row() {
    let timing = timing(json!({ "failureThreshold": 3 }));
    for (script, events, dead) in [
        ("--", "..", false),
        // Before the first success only the end of the container is recorded.
        ("---", "..!", true),
        ("--+--", "...!!", false),
        ("+---", ".!!!", true),
    ] {
        let mut liveness = Liveness::default();
        let seen = |outcome: char| if liveness.apply(outcome == '+', &timing) { '!' } else { '.' };
        assert_eq!(script.chars().map(seen).collect::<String>(), events, "{script}");
        assert_eq!(liveness.is_dead, dead, "{script}");
    }
}
