//! Tests writes of other clients between any two requests of the operator: none of them is lost, and the end state is the same as
//! if they had come later.

use serde_json::json;

use super::scenarios::{ALL, REST, same};
use crate::fake::{Cascade, Operator, RequestFault, Store, agent_id};

async fn between_any_two_requests(compared: bool, meddles: fn(&mut Store)) {
    for scenario in ALL.iter().filter(|scenario| !scenario.name.contains("deleted")) {
        let stage = scenario.stage().await;
        let reference = stage.fork();
        (scenario.happens)(&mut reference.store());
        Operator::start(&reference).run(REST).await;
        let requests = reference.take_requests();
        meddles(&mut reference.store());
        Operator::start(&reference).run(REST).await;
        for (n, request) in requests.into_iter().enumerate() {
            let text = format!("{}: before request {n} ({request})", scenario.name);
            let sim = stage.fork();
            (scenario.happens)(&mut sim.store());
            sim.plan(move |request, store| {
                if request.nth == n {
                    meddles(store);
                }
                RequestFault::No
            });
            let mut operator = Operator::start(&sim);
            operator.run(REST).await;
            if compared {
                same(&reference.store(), &sim.store(), &text);
            }
            sim.take_requests();
            Operator::start(&sim).run(REST * 10).await;
            assert_eq!(sim.take_writes(), Vec::<String>::new(), "{text}: written although all is well");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn labels_neither_conflict_nor_get_lost() {
    between_any_two_requests(true, |store| {
        store.edit(&agent_id("a"), |body| body["metadata"]["labels"] = json!({"team": "blue"}));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn foreign_status_fields_neither_conflict_nor_get_lost() {
    between_any_two_requests(true, |store| {
        store.edit(&agent_id("a"), |body| {
            // Fields of the gateway and of the scaler; the time is written as another build might.
            body["status"]["lastInvocationAt"] = json!("2030-01-01T00:00:00.5Z");
            body["status"]["desiredReplicas"] = json!(3);
        });
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn foreign_conditions_survive() {
    between_any_two_requests(true, |store| {
        let theirs = json!({"type": "Audited", "status": "True", "reason": "Good", "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z"});
        store.edit(&agent_id("a"), |body| match body["status"]["conditions"].as_array_mut() {
            Some(conditions) => conditions.insert(0, theirs),
            None => body["status"]["conditions"] = json!([theirs]),
        });
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_spec_edit_in_the_middle_wins() {
    between_any_two_requests(true, |store| {
        store.edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("be kind"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_in_the_middle_that_needs_no_secret_leaves_none() {
    between_any_two_requests(true, |store| {
        store.edit(&agent_id("a"), |body| drop(body["spec"].as_object_mut().expect("it").remove("databaseUrl")));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_delete_in_the_middle_wins() {
    between_any_two_requests(true, |store| store.delete(&agent_id("a"), Cascade::Background)).await;
    between_any_two_requests(true, |store| store.delete(&agent_id("a"), Cascade::Foreground)).await;
}
