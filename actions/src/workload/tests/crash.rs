//! Lets the operator die at every write of every scenario: before it is sent, without its response, and after the response. The
//! next operator reaches the same end state, creates and deletes each object as often as one that did not die, and applies again only what
//! no status had recorded.

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
        let undisturbed = reference.take_writes();
        for (n, write) in undisturbed.iter().enumerate() {
            let text = format!("{}: {fault:?} at write {n} ({write})", scenario.name);
            let sim = outcome(&stage, *scenario, Some((n, fault.clone()))).await;
            same(&reference.store(), &sim.store(), &text);
            assert_eq!(reference.store().counts, sim.store().counts, "{text}: objects made and deleted");
            check_repeats(&undisturbed, &sim.take_writes(), (n, &fault), &text);
            Operator::start(&sim).run(REST * 10).await;
            assert_eq!(sim.take_writes(), Vec::<String>::new(), "{text}: written although all is well");
        }
    }
}

/// Checks the applies that the next operator made again after a death at this write: at most once each, and only those that no status
/// of the Agent had recorded.
fn check_repeats(undisturbed: &[String], made: &[String], (at, fault): (usize, &RequestFault), text: &str) {
    let answered = if *fault == RequestFault::DieAfter { at + 1 } else { at };
    let recorded = undisturbed[..answered].iter().rposition(|write| write == "Status Agent/a").map_or(0, |at| at + 1);
    let unrecorded = &undisturbed[recorded..=at];
    let count = |writes: &[String], write: &String| writes.iter().filter(|found| *found == write).count();
    for apply in made.iter().filter(|write| write.starts_with("Apply ") || write.starts_with("Replicas ")) {
        let more = count(made, apply).saturating_sub(count(undisturbed, apply));
        assert!(more <= usize::from(unrecorded.contains(apply)), "{text}: {more} × {apply} again");
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
