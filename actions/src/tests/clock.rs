//! Tests a wall clock that jumps by an hour, as on a machine that resumes or synchronizes its clock.

use std::time::Duration;

use machine::Clock;
use serde_json::json;

use super::{Does, MINUTE, operator, status};
use crate::fake::{Health, Operator, Sim, agent, agent_id};

const HOUR: i64 = 3600;

#[tokio::test(start_paused = true)]
async fn five_minutes_without_a_pod_are_five_minutes() {
    for jump in [HOUR, -HOUR] {
        for restarted in [false, true] {
            let sim = Sim::new();
            sim.store().create(&agent_id("a"), agent(json!({})));
            let mut operator = Operator::start(&sim);
            operator.run(MINUTE).await;
            sim.store().set_health(Health::Bad(None));
            operator.run(MINUTE).await;
            sim.clock.jump(jump);
            operator.run(Duration::from_secs(210)).await;
            assert_eq!(status(&sim, "/phase"), json!("Running"), "{jump}: after four and a half minutes");
            if restarted {
                operator = Operator::start(&sim);
                operator.run(Duration::from_secs(50)).await;
                assert_eq!(status(&sim, "/phase"), json!("Running"), "{jump}: at first sight of a new process");
            }
            operator.run(6 * MINUTE).await;
            assert_eq!(status(&sim, "/phase"), json!("Failed"), "{jump}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_never_farther_away_than_the_longest_backoff() {
    let sim = Sim::new();
    let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let (times, clock) = (asked.clone(), sim.clock);
    let mut operator = operator(
        &sim,
        Does::new(move |_| {
            times.lock().expect("not poisoned").push(clock.elapsed());
            panic!("oh no")
        }),
    );
    operator.run(30 * MINUTE).await;
    assert_eq!(status(&sim, "/phase"), json!("Failed"));
    let before = asked.lock().expect("not poisoned").len();
    sim.clock.jump(-HOUR);
    operator.run(13 * MINUTE).await;
    let after = asked.lock().expect("not poisoned").len();
    assert!((1..5).contains(&(after - before)), "{} attempts in 13 minutes", after - before);
}
