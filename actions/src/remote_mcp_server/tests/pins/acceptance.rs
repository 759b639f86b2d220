//! Acceptance by the annotation: what is taken, what is refused and reported, and what a death of the operator leaves.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::*;
use crate::fake::{RequestFault, RunEnd};

#[tokio::test(start_paused = true)]
async fn what_is_accepted_by_its_digest_is_used_and_a_digest_of_the_past_is_refused() {
    let (sim, mut operator) = started("Hold").await;
    sim.serve(URL, lists_tools(&[("echo", "Echoes a text"), ("add", "Adds")]));
    operator.run(2 * MINUTE).await;
    let shown = held_digest(&sim, "echo");
    accept(&sim, &[("echo", &shown)]);
    operator.run(Duration::from_secs(5)).await;
    assert!(!is_accepting(&sim), "it is removed");
    assert_eq!((discovered(&sim, "echo")["digest"].clone(), current(&sim, &server_id())), (json!(shown), None));
    operator.run(MINUTE).await;
    for agent in ["a", "b"] {
        assert!(rendered(&sim, agent).contains("Echoes a text"), "{agent}");
        assert_eq!(phase(&sim, &agent_id(agent)), "Running");
    }
    assert_eq!(reported(&operator), [""; 0]);

    sim.serve(URL, lists_tools(&[("echo", "Echoes, and more"), ("add", "Adds")]));
    operator.run(2 * MINUTE).await;
    let seen = held_digest(&sim, "echo");
    sim.serve(URL, lists_tools(&[("echo", "Echoes, and what was never shown"), ("add", "Adds")]));
    operator.run(2 * MINUTE).await;
    accept(&sim, &[("echo", &seen)]);
    operator.run(MINUTE).await;
    assert!(!is_accepting(&sim));
    assert!(rendered(&sim, "a").contains("Echoes a text"), "{}", rendered(&sim, "a"));
    let expected = "ToolChanged: not accepted, because the server has another definition by now: echo; read recif tools diff \
                    rmcp/everything";
    assert_eq!(reported(&operator), [expected]);
}

/// Returns the Events of the server since the last call.
fn reported(operator: &Operator) -> Vec<String> {
    let steps = operator.trace.take().into_iter().filter(|step| step.kind == "RemoteMCPServer");
    steps.filter_map(|step| step.event).map(|event| format!("{}: {}", event.reason, event.message)).collect()
}

#[tokio::test(start_paused = true)]
async fn what_was_accepted_of_a_server_that_is_down_is_judged_and_reported_once_when_it_is_back() {
    let (sim, mut operator) = started("Hold").await;
    sim.serve(URL, lists_tools(&[("echo", "Echoes a text"), ("add", "Adds")]));
    operator.run(2 * MINUTE).await;
    let shown = held_digest(&sim, "echo");
    sim.serve(URL, down());
    operator.run(2 * MINUTE).await;
    assert_eq!(phase(&sim, &server_id()), "Error");
    accept(&sim, &[("echo", &shown), ("old", &shown)]);
    operator.run(MINUTE).await;
    assert!(is_accepting(&sim), "it waits");
    reported(&operator);
    sim.serve(URL, lists_tools(&[("echo", "Echoes a text"), ("add", "Adds")]));
    operator.run(5 * MINUTE).await;
    assert!(!is_accepting(&sim));
    assert!(rendered(&sim, "a").contains("Echoes a text"));
    let refusals: Vec<_> = reported(&operator).into_iter().filter(|event| event.contains("not accepted")).collect();
    assert_eq!(refusals, ["ToolChanged: not accepted, because the server has no such tool: old"]);
}

/// Lets the operator die after this write, counted from 0, and reports whether it did.
fn die_after(sim: &Sim, nth: usize) -> Arc<AtomicBool> {
    let died = Arc::new(AtomicBool::new(false));
    let (reported, mut writes) = (died.clone(), 0);
    sim.plan(move |request, _| {
        writes += usize::from(request.is_write());
        let dies = request.is_write() && writes == nth + 1;
        if dies {
            reported.store(true, Ordering::Relaxed);
        }
        if dies { RequestFault::DieUnanswered } else { RequestFault::No }
    });
    died
}

#[tokio::test(start_paused = true)]
async fn an_acceptance_survives_the_operator_wherever_it_dies() {
    for nth in 0..8 {
        let (sim, mut operator) = started("Hold").await;
        sim.serve(URL, lists_tools(&[("echo", "Echoes a text"), ("add", "Adds")]));
        operator.run(2 * MINUTE).await;
        accept(&sim, &[("echo", &held_digest(&sim, "echo"))]);
        let died = die_after(&sim, nth);
        run_with_restarts(&sim, 10 * MINUTE).await;
        assert!(died.load(Ordering::Relaxed), "there is no write {nth}");
        assert!(rendered(&sim, "a").contains("Echoes a text"), "after write {nth}");
        assert!(!is_accepting(&sim) && current(&sim, &server_id()).is_none(), "after write {nth}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_acceptance_survives_a_change_of_the_server_between_its_writes() {
    let (sim, mut operator) = started("Hold").await;
    sim.serve(URL, lists_tools(&[("echo", "Echoes a text"), ("add", "Adds")]));
    operator.run(2 * MINUTE).await;
    let shown = held_digest(&sim, "echo");
    sim.take_requests();
    accept(&sim, &[("echo", &shown)]);
    let died = die_after(&sim, 0);
    assert_eq!(operator.run(MINUTE).await, RunEnd::Died);
    assert!(died.load(Ordering::Relaxed));
    assert_eq!(sim.take_writes(), ["Apply ConfigMap/everything.mcp-tools"]);
    sim.clear_faults();
    sim.serve(URL, lists_tools(&[("echo", "Echoes, and what was never shown"), ("add", "Adds")]));
    run_with_restarts(&sim, 10 * MINUTE).await;
    assert!(!is_accepting(&sim));
    assert_eq!(discovered(&sim, "echo")["digest"], json!(shown));
    assert!(rendered(&sim, "a").contains("Echoes a text"), "{}", rendered(&sim, "a"));
    assert_eq!(current(&sim, &server_id()).unwrap().1, "ToolChanged", "the later one waits");
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_cannot_be_read_is_removed_and_said() {
    let (sim, mut operator) = started("Hold").await;
    sim.store().edit(&server_id(), |body| body["metadata"]["annotations"] = json!({ ACCEPT_TOOLS: "echo" }));
    operator.run(Duration::from_secs(5)).await;
    assert!(!is_accepting(&sim));
    let events: Vec<_> = operator.trace.take().into_iter().filter_map(|step| step.event).collect();
    assert_eq!((events.len(), events[0].reason.as_str()), (1, "BadAnnotation"));
}
