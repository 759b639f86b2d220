//! Injects every kind of error into every request of every scenario, and tests that the end state is the same.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use machine::{ApiError, Clock as _};

use super::scenarios::{ALL, CREATE, REST, phase, same};
use crate::fake::{Operator, RequestFault, Sim, Verb};

fn transient() -> ApiError {
    ApiError::Transient { message: "503".into(), after: None }
}

async fn at_every_request(fault: RequestFault) {
    for scenario in ALL {
        let stage = scenario.stage().await;
        let reference = stage.fork();
        (scenario.happens)(&mut reference.store());
        Operator::start(&reference).run(REST).await;
        for (n, request) in reference.take_requests().into_iter().enumerate() {
            let text = format!("{}: {fault:?} at request {n} ({request})", scenario.name);
            let sim = stage.fork();
            (scenario.happens)(&mut sim.store());
            let once = fault.clone();
            sim.plan(move |request, _| if request.nth == n { once.clone() } else { RequestFault::No });
            let mut operator = Operator::start(&sim);
            operator.run(REST).await;
            if matches!(fault, RequestFault::Refuse(ApiError::Invalid(_) | ApiError::Refused(_))) {
                // It passed through Failed, which the status remembers.
                assert_eq!(phase(&sim), phase(&reference), "{text}");
                continue;
            }
            same(&reference.store(), &sim.store(), &text);
            assert_eq!(reference.store().counts, sim.store().counts, "{text}: objects made and deleted");
            sim.take_requests();
            Operator::start(&sim).run(REST * 10).await;
            assert_eq!(sim.take_writes(), Vec::<String>::new(), "{text}: written although all is well");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_for_a_while_is_sent_again() {
    at_every_request(RequestFault::Refuse(transient())).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_does_nothing_twice() {
    at_every_request(RequestFault::Lose(transient())).await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_waited_for() {
    at_every_request(RequestFault::Refuse(ApiError::Forbidden("forbidden".into()))).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_because_the_namespace_goes_is_waited_for() {
    at_every_request(RequestFault::Refuse(ApiError::NamespaceTerminating)).await;
}

#[tokio::test(start_paused = true)]
async fn a_stale_step_is_dropped() {
    at_every_request(RequestFault::Refuse(ApiError::Stale)).await;
}

#[tokio::test(start_paused = true)]
async fn another_uid_is_looked_at_again() {
    at_every_request(RequestFault::Refuse(ApiError::WrongUid("it".into()))).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_not_found_is_looked_for_again() {
    at_every_request(RequestFault::Refuse(ApiError::NotFound)).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_is_taken_back_is_over_by_itself() {
    at_every_request(RequestFault::Refuse(ApiError::Invalid("no such field".into()))).await;
    at_every_request(RequestFault::Refuse(ApiError::Refused("not today".into()))).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_for_an_object_before_the_time_is_over_that_the_api_server_named() {
    for at in 0..12 {
        let sim = Sim::new();
        (CREATE.happens)(&mut sim.store());
        let mut operator = Operator::start(&sim);
        let named = Duration::from_secs(7);
        // By kind, because there is one object of each: the time of the rejection, and the requests that came too early.
        let refused = Arc::new(Mutex::new(HashMap::<&str, Duration>::new()));
        let early = Arc::new(Mutex::new(Vec::new()));
        let (clock, refusals, asked) = (sim.clock, refused.clone(), early.clone());
        sim.plan(move |request, _| {
            let (now, mut refusals) = (clock.elapsed(), refusals.lock().expect("not poisoned"));
            let object = if request.id.kind == "Tool" { "Tool" } else { "Agent" };
            if let Some(at) = refusals.get(object).filter(|at| now < **at + named) {
                asked.lock().expect("not poisoned").push(format!("{request} after {:?}", now - *at));
            }
            if request.nth != at {
                return RequestFault::No;
            }
            refusals.insert(object, now);
            RequestFault::Refuse(ApiError::Transient { message: "429".into(), after: Some(named) })
        });
        operator.run(REST).await;
        assert_eq!(phase(&sim), "Running", "refused at request {at}");
        assert_eq!(refused.lock().expect("not poisoned").len(), 1, "request {at} was never made");
        assert_eq!(*early.lock().expect("not poisoned"), Vec::<String>::new(), "refused at request {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_for_an_hour_fails_no_object() {
    // Most requests in an hour: two per attempt, every 2.5 s, 5 s or 30 s, and one a second for an object that a watch is to
    // deliver.
    let errors = [
        (transient(), 3_600),
        (ApiError::Forbidden("quota".into()), 3_000),
        (ApiError::NamespaceTerminating, 300),
        (ApiError::Stale, 7_400),
        (ApiError::WrongUid("it".into()), 7_400),
        (ApiError::NotFound, 7_400),
    ];
    for (error, most) in errors {
        let sim = Sim::new();
        (CREATE.happens)(&mut sim.store());
        let mut operator = Operator::start(&sim);
        let always = error.clone();
        sim.plan(move |request, _| match &always {
            // A namespace that is being deleted accepts writes of existing objects.
            ApiError::NamespaceTerminating if request.verb != Verb::Apply => RequestFault::No,
            error => RequestFault::Refuse(error.clone()),
        });
        operator.run(Duration::from_secs(3600)).await;
        let requests = sim.take_requests().len();
        assert!((50..=most).contains(&requests), "{error:?}: {requests} requests in an hour");
        sim.clear_faults();
        operator.run(REST).await;
        assert_eq!(phase(&sim), "Running", "{error:?}");
    }
}
