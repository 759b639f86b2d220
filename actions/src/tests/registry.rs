//! Tests that a defective table of edges or list of actions is rejected at start-up.

use std::sync::Arc;

use crds::{
    Agent, Tool,
    WorkloadPhase::{self, Deploying, Failed, Pending, Running},
};
use machine::{Action, Edge, EdgeFrom, Rule, Table, TableError};

use super::Does;
use crate::{
    deps::Deps,
    kind::{ControlledKind, Registry},
    workload,
};

/// Returns the edges of an Agent that pass, and more; leaked, because a table's edges are static.
fn edges(
    passes: impl Fn(&Edge<WorkloadPhase>) -> bool,
    more: &[Edge<WorkloadPhase>],
) -> &'static [Edge<WorkloadPhase>] {
    workload::EDGES.iter().filter(|edge| passes(edge)).chain(more).copied().collect::<Vec<_>>().leak()
}

fn registry(
    actions: Vec<Arc<dyn Action<Agent, Deps>>>,
    edges: &'static [Edge<WorkloadPhase>],
) -> Result<Registry<Agent>, TableError> {
    Registry::new(Table { edges, ..Agent::TABLE }, actions, workload::external_digest)
}

fn without(name: &str) -> Vec<Arc<dyn Action<Agent, Deps>>> {
    workload::actions().into_iter().filter(|action: &Arc<dyn Action<Agent, Deps>>| action.name() != name).collect()
}

#[test]
fn the_real_tables_pass() {
    Agent::registry().expect("Agent");
    Tool::registry().expect("Tool");
}

#[test]
fn each_fault_is_refused_by_its_name() {
    let kind = "Agent";
    let all = || without("");
    let twice = || {
        let again: Arc<dyn Action<Agent, Deps>> = Arc::new(Does::new(|_| Ok(None)));
        all().into_iter().chain([again]).collect::<Vec<_>>()
    };
    let stranger = [Edge::new(Running, Failed, "explode", "it may")];
    let misplaced = [Edge::new(Running, Failed, "accept", "accept claims Pending only")];
    let cases = [
        (without("drain"), edges(|_| true, &[]), TableError::Unclaimed { kind, phase: "Terminating" }),
        (twice(), edges(|_| true, &[]), TableError::ListedTwice { kind, action: "resolve" }),
        (all(), edges(|edge| edge.to != Deploying, &[]), TableError::Unreachable { kind, phase: "Deploying" }),
        (all(), edges(|edge| edge.from != EdgeFrom::Nothing, &[]), TableError::Unreachable { kind, phase: "Pending" }),
        (all(), edges(|edge| edge.from != EdgeFrom::In(Failed), &[]), TableError::Trap { kind, phase: "Failed" }),
        (
            all(),
            edges(|_| true, &stranger),
            TableError::UnknownAction { kind, from: "In(Running)".into(), action: "explode" },
        ),
        (
            all(),
            edges(|_| true, &misplaced),
            TableError::UnknownAction { kind, from: "In(Running)".into(), action: "accept" },
        ),
    ];
    for (actions, edges, fault) in cases {
        assert_eq!(registry(actions, edges).err(), Some(fault));
    }
}

#[test]
fn an_exit_by_a_rule_for_any_phase_does_not_hide_a_trap() {
    let edges = edges(
        |edge| edge.from != EdgeFrom::In(Pending),
        &[Edge::rule(EdgeFrom::Any, Failed, Rule::SpecChanged, "leads out, but the user has to do something")],
    );
    let actions: Vec<Arc<dyn Action<Agent, Deps>>> = workload::actions();
    assert_eq!(registry(actions, edges).err(), Some(TableError::Trap { kind: "Agent", phase: "Pending" }));
}
