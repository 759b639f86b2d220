//! Tests that what gateways report of budgets, and of calls that wait for a person, is noted.

use std::collections::HashMap;

use tokio::sync::Semaphore;

use super::{super::notes::StatusNotes, *};

/// Serves a gateway that reports this many tokens of a day.
async fn spending_gateway(day: i64, spent: u64) -> SocketAddr {
    let clock = Instant::now();
    serve("127.0.0.1:0", move || {
        let uptime = clock.elapsed().as_millis() + 1;
        let tokens = format!(r#"{{"day":{day},"spent":{spent},"cost":1}}"#);
        let queue = format!(r#"{{"kind":"Agent","namespace":"ns","name":"a","tokens":{tokens}}}"#);
        format!(r#"{{"instance":"g","uptimeMs":{uptime},"workloads":[{queue}]}}"#)
    })
    .await
}

#[tokio::test]
async fn the_most_tokens_of_the_latest_day_are_noted() {
    let port = sidecars("127.0.0.1:0", Arc::default()).await.port();
    let toy = FakeFleet::new(scaling(1), ours(), 1);
    for (day, spent) in [(20_001, 7), (20_001, 9), (20_000, 99)] {
        let gateway = spending_gateway(day, spent).await;
        toy.gateways.lock().unwrap().push(gateway);
    }
    let _leading = toy.scaler(port);
    toy.waits_for(|writes| writes.last().is_some_and(|last| last == "a Some(9)")).await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_has_one_write_under_way_and_one_that_failed_is_tried_again() {
    let toy = FakeFleet::new(scaling(1), ours(), 1);
    let fleet: Arc<dyn WorkloadFleet> = toy.clone();
    let permits = Arc::new(Semaphore::new(1));
    let reported = HashMap::from([(id(), ReportedTokens { day: 20_000, spent: 7, cost: 0, reporting: None })]);
    let mut notes = StatusNotes::default();
    for (round, is_refused) in [(1, true), (2, true), (3, false)] {
        toy.refuses_status.store(is_refused, Ordering::Relaxed);
        let begun = Instant::now();
        notes.begin_budgets(&reported, &fleet, &permits);
        notes.begin_budgets(&reported, &fleet, &permits);
        while notes.next().await.is_some() {}
        assert_eq!(toy.writes(), vec!["a Some(7)"; round]);
        assert_eq!(begun.elapsed() >= WRITE_BACKOFF, is_refused, "round {round}");
    }
    assert_eq!(fleet.due_budgets(&HashMap::new()), Vec::<WorkloadId>::new());
    notes.begin_budgets(&HashMap::new(), &fleet, &permits);
    assert!(notes.next().await.is_none(), "nothing is due");
}

#[tokio::test]
async fn the_newest_report_of_calls_that_wait_is_noted() {
    let port = sidecars("127.0.0.1:0", Arc::default()).await.port();
    let toy = FakeFleet::new(scaling(1), ours(), 1);
    for (at, calls) in [(7, 2), (6, 3)] {
        let begun = Instant::now();
        let gateway = serve("127.0.0.1:0", move || {
            let uptime = begun.elapsed().as_millis() + 1;
            let pending = format!(r#"{{"at":{at},"calls":{calls},"since":1,"until":2}}"#);
            let queue = format!(r#"{{"kind":"Agent","namespace":"ns","name":"a","pending":{pending}}}"#);
            format!(r#"{{"instance":"g","uptimeMs":{uptime},"workloads":[{queue}]}}"#)
        });
        let gateway = gateway.await;
        toy.gateways.lock().unwrap().push(gateway);
    }
    let _leading = toy.scaler(port);
    toy.waits_for(|writes| writes.last().is_some_and(|last| last == "a 2 wait")).await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_are_noted_at_most_every_five_seconds() {
    let toy = FakeFleet::new(scaling(1), ours(), 1);
    let fleet: Arc<dyn WorkloadFleet> = toy.clone();
    let permits = Arc::new(Semaphore::new(1));
    let mut notes = StatusNotes::default();
    for (seconds, calls, expected) in [(0, 1, "a 1 wait"), (4, 2, ""), (5, 3, "a 3 wait")] {
        let pending = HashMap::from([(id(), PendingCalls { calls, ..PendingCalls::default() })]);
        let before = toy.writes().len();
        notes.begin_pending(pending, Duration::from_secs(seconds), &fleet, &permits);
        while notes.next().await.is_some() {}
        assert_eq!(toy.writes()[before..].join(" "), expected, "after {seconds} s");
    }
}
