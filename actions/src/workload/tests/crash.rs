//! Lets the operator die at every write of every scenario: before it is sent, without its response, and after the response. The
//! next operator reaches the same end state, and creates and deletes each object as often as one that did not die.

use super::scenarios::{ALL, AgentScenario, REST, same};
use crate::fake::{Operator, RequestFault, Sim, run_with_restarts};

/// Returns a cluster in which the scenario ran to its end, with this fault at its nth write.
async fn outcome(stage: &Sim, scenario: AgentScenario, at: Option<(usize, RequestFault)>) -> Sim {
    let sim = stage.fork();
    (scenario.happens)(&mut sim.store());
    if let Some((at, fault)) = at {
        sim.plan(
            move |request, _| {
                if request.is_write() && request.nth_write == at { fault.clone() } else { RequestFault::No }
            },
        );
    }
    run_with_restarts(&sim, REST).await;
    sim
}

async fn dies_at_every_write(fault: RequestFault) {
    for scenario in ALL {
        let stage = scenario.stage().await;
        let reference = outcome(&stage, *scenario, None).await;
        for (n, write) in reference.take_writes().into_iter().enumerate() {
            let text = format!("{}: {fault:?} at write {n} ({write})", scenario.name);
            let sim = outcome(&stage, *scenario, Some((n, fault.clone()))).await;
            same(&reference.store(), &sim.store(), &text);
            assert_eq!(reference.store().counts, sim.store().counts, "{text}: objects made and deleted");
            sim.take_requests();
            Operator::start(&sim).run(REST * 10).await;
            assert_eq!(sim.take_writes(), Vec::<String>::new(), "{text}: written although all is well");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dying_before_a_write_is_sent_changes_nothing_in_the_end() {
    dies_at_every_write(RequestFault::DieBefore).await;
}

#[tokio::test(start_paused = true)]
async fn dying_before_a_write_is_answered_changes_nothing_in_the_end() {
    dies_at_every_write(RequestFault::DieUnanswered).await;
}

#[tokio::test(start_paused = true)]
async fn dying_after_a_write_changes_nothing_in_the_end() {
    dies_at_every_write(RequestFault::DieAfter).await;
}
