//! End-to-end scenarios, one file per theme. Each is named after the rule that it tests.

mod bad_input;
mod bad_requests;
mod chart;
mod chat;
mod children;
mod cli;
mod commands;
mod comparison;
mod completions;
mod conditions;
mod control_plane;
mod deletion;
mod docs;
mod doctor;
mod drain;
mod environment;
mod faults;
mod flow_changes;
mod flow_sets;
mod flows;
mod foreign;
mod gateway;
mod gateway_auth;
mod identity;
mod images;
mod loops;
mod manifests;
mod mcp_servers;
mod metrics;
mod mutations;
mod namespaced;
mod nodes;
mod pods;
mod quota;
mod references;
mod refusals;
mod requests;
mod restore;
mod scale;
mod scaling;
mod sidecar;
mod start;
mod steady;
mod store;
mod store_faults;
mod tools;
mod traffic;

use crate::scenario::{Isolation, Scenario};

/// All themes. The longest come first; `steady` comes when no other scenario disturbs it, and `chart`, which replaces the
/// installation, after all.
const THEMES: &[&[Scenario]] = &[
    gateway_auth::SCENARIOS,
    drain::SCENARIOS,
    scaling::SHARED,
    traffic::SCENARIOS,
    quota::SCENARIOS,
    refusals::SCENARIOS,
    pods::SCENARIOS,
    tools::SCENARIOS,
    mcp_servers::SCENARIOS,
    store::SCENARIOS,
    store_faults::SCENARIOS,
    flow_sets::SCENARIOS,
    flow_changes::SCENARIOS,
    flows::SCENARIOS,
    references::SCENARIOS,
    children::SCENARIOS,
    environment::SCENARIOS,
    foreign::SCENARIOS,
    loops::SCENARIOS,
    scale::SCENARIOS,
    sidecar::SCENARIOS,
    scaling::SCENARIOS,
    metrics::SCENARIOS,
    deletion::SCENARIOS,
    start::SCENARIOS,
    docs::SCENARIOS,
    conditions::SCENARIOS,
    bad_input::SCENARIOS,
    requests::SCENARIOS,
    bad_requests::SCENARIOS,
    gateway::SCENARIOS,
    identity::SCENARIOS,
    cli::SCENARIOS,
    commands::SCENARIOS,
    completions::SCENARIOS,
    doctor::SCENARIOS,
    chat::SCENARIOS,
    control_plane::SCENARIOS,
    comparison::SCENARIOS,
    manifests::SCENARIOS,
    manifests::ALONE,
    mutations::SCENARIOS,
    loops::ALONE,
    environment::ALONE,
    identity::ALONE,
    doctor::ALONE,
    faults::SCENARIOS,
    restore::SCENARIOS,
    images::ALONE,
    namespaced::ALONE,
    drain::ALONE,
    steady::SCENARIOS,
    chart::SCENARIOS,
];

/// Themes of clusters with two nodes.
const THEMES_OF_NODES: &[&[Scenario]] = &[nodes::SCENARIOS];

/// Returns the scenarios whose title contains one of the filters; without filters all. `nodes` chooses those of clusters
/// with two nodes, else there are those of one. With `third_of`, of the exclusive ones only the third that this text decides.
pub(crate) fn matching(filters: &[String], nodes: bool, third_of: Option<&str>) -> Vec<&'static Scenario> {
    let themes = if nodes { THEMES_OF_NODES } else { THEMES };
    let wanted =
        |scenario: &&Scenario| filters.is_empty() || filters.iter().any(|it| scenario.title().contains(it.as_str()));
    let mut exclusive = 0..;
    themes
        .iter()
        .copied()
        .flatten()
        .filter(wanted)
        .filter(|scenario| {
            scenario.isolation != Isolation::Exclusive
                || exclusive.next().is_none_or(|at: usize| third_of.is_none_or(|text| e2e::in_third_of(text, at)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_commits_decide_for_every_exclusive_scenario_once_and_for_the_others_always() {
        let all = matching(&[], false, None);
        let thirds = ["a", "b", "c"].map(|commit| matching(&[], false, Some(commit)));
        for scenario in &all {
            let runs = thirds.iter().filter(|third| third.iter().any(|it| it.title() == scenario.title())).count();
            let expected = if scenario.isolation == Isolation::Exclusive { 1 } else { 3 };
            assert_eq!(runs, expected, "{}", scenario.title());
        }
        let longest = thirds.iter().map(Vec::len).max().unwrap_or_default();
        assert!(thirds.iter().all(|third| longest - third.len() <= 1), "the thirds are as large as each other");
    }
}
