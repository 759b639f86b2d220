//! The operator dies at every write of every scenario: before it is sent, unanswered, and after the answer. The next one
//! brings everything to the same place, and makes and deletes each object as often as one that lived.

use super::scenarios::{ALL, REST, Scenario};
use crate::fake::{Fault, Operator, Sim, live};

/// Runs the scenario to its end and says what came of it; then another operator must find nothing to do.
async fn outcome(scenario: Scenario, at: Option<(usize, Fault)>) -> (Sim, String) {
    let sim = scenario.stage().await;
    let said = at.as_ref().map_or_else(String::new, |(n, fault)| format!("{}: {fault:?} at write {n}", scenario.name));
    (scenario.happens)(&mut sim.store());
    if let Some((at, fault)) = at {
        let mut writes = 0;
        sim.plan(move |request, _| {
            writes += usize::from(request.is_write());
            if request.is_write() && writes == at + 1 { fault.clone() } else { Fault::No }
        });
    }
    live(&sim, REST).await;
    (sim, said)
}

async fn dies_at_every_write_of(scenario: Scenario) {
    let (reference, _) = outcome(scenario, None).await;
    let writes = reference.take_writes();
    for n in 0..writes.len() {
        for fault in [Fault::DieBefore, Fault::DieUnanswered, Fault::DieAfter] {
            let (sim, said) = outcome(scenario, Some((n, fault))).await;
            let (want, got) = (reference.store().end_state(), sim.store().end_state());
            pretty_eq(&want, &got, &format!("{said} ({})", writes[n]));
            assert_eq!(
                reference.store().counts,
                sim.store().counts,
                "{said} ({}): objects made and deleted",
                writes[n]
            );
            sim.take_requests();
            Operator::start(&sim).run(REST * 10).await;
            assert_eq!(sim.take_writes(), Vec::<String>::new(), "{said}: after it came to rest");
        }
    }
}

/// Names what differs, and only that.
pub(super) fn pretty_eq(
    want: &std::collections::BTreeMap<String, serde_json::Value>,
    got: &std::collections::BTreeMap<String, serde_json::Value>,
    said: &str,
) {
    let keys: std::collections::BTreeSet<_> = want.keys().chain(got.keys()).collect();
    for key in keys {
        let (want, got) = (want.get(key), got.get(key));
        if want == got {
            continue;
        }
        let fields = |of: Option<&serde_json::Value>| of.and_then(|of| of.as_object().cloned()).unwrap_or_default();
        let (old, new) = (fields(want), fields(got));
        for (field, value) in &old {
            assert_eq!(Some(value), new.get(field), "{said}: {key}.{field}");
        }
        panic!("{said}: {key} is {got:?}, not {want:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn whenever_the_operator_dies_the_next_one_ends_in_the_same_place() {
    let mut bad = Vec::new();
    for scenario in ALL {
        eprintln!("{}", scenario.name);
        if std::env::var("ONLY").is_ok_and(|only| !scenario.name.contains(&only)) {
            continue;
        }
        let done =
            futures::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(dies_at_every_write_of(*scenario))).await;
        if done.is_err() {
            bad.push(scenario.name);
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}
