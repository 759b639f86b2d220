//! Tests the counting of attempts, the back-off between them, and their expiry.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crds::WorkloadPhase;
use machine::{ActionError, Clock};
use meta::PhasedObject;
use serde_json::json;

use super::{Does, MINUTE, operator, ready, status};
use crate::fake::{Operator, Sim, agent_id, tool, tool_id};

/// Returns an action that panics, and the times at which it was run.
fn panics(sim: &Sim) -> (Does, Arc<Mutex<Vec<Duration>>>) {
    let (asked, clock) = (Arc::new(Mutex::new(Vec::new())), sim.clock);
    let times = asked.clone();
    let action = Does::new(move |_| {
        times.lock().expect("not poisoned").push(clock.elapsed());
        panic!("oh no")
    });
    (action, asked)
}

#[tokio::test(start_paused = true)]
async fn panics_are_tried_again_ever_more_rarely_and_the_eighth_is_failed() {
    let sim = Sim::new();
    let (action, asked) = panics(&sim);
    operator(&sim, action).run(60 * MINUTE).await;
    let asked = asked.lock().expect("not poisoned").clone();
    for (n, pair) in asked.windows(2).enumerate() {
        let gap = (pair[1] - pair[0]).as_secs_f64();
        let usual = 2_f64.powi(i32::try_from(n).expect("few")).min(300.0);
        assert!((0.8 * usual..1.2 * usual + 1.1).contains(&gap), "attempt {} came after {gap} s", n + 2);
    }
    assert!(asked.len() > 12, "{asked:?}");
    assert_eq!(status(&sim, "/phase"), json!("Failed"));
    assert_eq!(ready(&sim), ("Panic".into(), "resolve panicked: oh no; please report it".into()));
    let history = status(&sim, "/history");
    let attempts = status(&sim, "/failure/attempts").as_i64().expect("a number");
    assert_eq!(attempts, i64::try_from(asked.len()).expect("few"));
    assert_eq!(status(&sim, "/failure/during"), json!("Resolving"));
    assert_eq!(history.as_array().map(Vec::len), Some(20), "history is kept short");
}

#[tokio::test(start_paused = true)]
async fn seven_attempts_stay_in_the_phase() {
    let sim = Sim::new();
    let (action, asked) = panics(&sim);
    let mut operator = operator(&sim, action);
    while asked.lock().expect("not poisoned").len() < 7 {
        assert_ne!(status(&sim, "/phase"), json!("Failed"));
        operator.run(Duration::from_secs(1)).await;
    }
    assert_eq!((status(&sim, "/phase"), status(&sim, "/failure/attempts")), (json!("Resolving"), json!(7)));
    operator.run(2 * MINUTE).await;
    assert_eq!(status(&sim, "/phase"), json!("Failed"));
}

#[tokio::test(start_paused = true)]
async fn old_attempts_are_forgotten_after_ten_good_minutes() {
    let sim = Sim::new();
    operator(&sim, panics(&sim).0).run(MINUTE).await;
    let mut healthy = Operator::start(&sim);
    healthy.run(2 * MINUTE).await;
    assert_eq!(status(&sim, "/phase"), json!("Running"));
    assert!(status(&sim, "/failure/attempts").as_i64() > Some(3));
    sim.take_requests();
    healthy.run(7 * MINUTE).await;
    assert_eq!(sim.take_writes(), Vec::<String>::new());
    healthy.run(4 * MINUTE).await;
    assert_eq!(status(&sim, "/failure"), json!(null));
    assert_eq!(sim.take_writes(), ["Status Agent/a"]);
}

#[tokio::test(start_paused = true)]
async fn old_attempts_are_forgotten_when_the_spec_or_an_input_changes() {
    let cases: [fn(&mut crate::fake::Store); 2] = [
        |store| store.edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("be brief")),
        |store| store.edit(&tool_id("weather"), |body| body["spec"]["endpoint"] = json!("http://other")),
    ];
    for changes in cases {
        let sim = Sim::new();
        sim.store().create(&tool_id("weather"), tool("http://weather"));
        sim.store().create(&agent_id("a"), crate::fake::agent(json!({"tools": ["weather"]})));
        Operator::start(&sim).run(MINUTE).await;
        sim.store().edit(&agent_id("a"), |body| {
            let next = "2030-03-17T17:00:00Z";
            let failure = json!({"reason": "Panic", "during": "Rendering", "retryable": true, "attempts": 7, "nextAttemptAt": next});
            body["status"]["failure"] = failure;
        });
        changes(&mut sim.store());
        Operator::start(&sim).run(MINUTE).await;
        assert_eq!((status(&sim, "/phase"), status(&sim, "/failure")), (json!("Running"), json!(null)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_action_over_its_deadline_is_tried_again_and_not_counted() {
    let sim = Sim::new();
    let action = Does { hangs: true, ..Does::new(|_| Ok(None)) };
    operator(&sim, action).run(60 * MINUTE).await;
    assert_eq!((status(&sim, "/phase"), status(&sim, "/failure")), (json!("Resolving"), json!(null)));
    assert_eq!(ready(&sim), ("ApiServerUnavailable".into(), "resolve took longer than 30 s".into()));
}

#[tokio::test(start_paused = true)]
async fn a_retry_says_when() {
    let sim = Sim::new();
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    let action = Does::new(move |_| {
        *count.lock().expect("not poisoned") += 1;
        let message = "the server is busy".to_owned();
        Err(ActionError::Retry { reason: "Busy", message, after: Some(Duration::from_secs(40)) })
    });
    operator(&sim, action).run(2 * MINUTE).await;
    assert_eq!(*asked.lock().expect("not poisoned"), 3);
    assert_eq!(ready(&sim), ("Busy".into(), "the server is busy".into()));
}

#[tokio::test(start_paused = true)]
async fn a_move_that_is_no_edge_is_not_written_but_reported() {
    let sim = Sim::new();
    let action = Does::new(|cr| Ok(Some(cr.moved_to(WorkloadPhase::Running))));
    operator(&sim, action).run(Duration::from_secs(5)).await;
    assert_eq!(status(&sim, "/phase"), json!("Resolving"));
    let message = "resolve may not move from Resolving to Running; please report it";
    assert_eq!(ready(&sim), ("IllegalEdge".into(), message.into()));
}

#[tokio::test(start_paused = true)]
async fn the_spec_is_the_users() {
    let sim = Sim::new();
    let action = Does::new(|cr| {
        let mut next = cr.as_ref().clone();
        next.spec.replicas = 7;
        Ok(Some(next))
    });
    operator(&sim, action).run(Duration::from_secs(5)).await;
    assert_eq!(sim.store().at(&agent_id("a"), "/spec/replicas"), json!(1));
    assert_eq!(ready(&sim).0, "SpecChangedByAction");
}
