//! End-to-end scenarios, one file per theme. Each is named after the rule that it tests.

mod agent_fields;
mod agent_protocols;
mod approval;
mod audit;
mod bad_input;
mod bad_requests;
mod callers;
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
mod doctor_remedies;
mod drain;
mod egress;
mod environment;
mod exact_usage;
mod faults;
mod flow_changes;
mod flow_sets;
mod flows;
mod foreign;
mod frameworks;
mod gateway;
mod gateway_auth;
mod gateway_root;
mod identity;
mod images;
mod import;
mod import_live;
mod kubectl;
mod limits;
mod loops;
mod manifests;
mod mcp_servers;
mod mcp_sessions;
mod metrics;
mod models;
mod mutations;
mod namespaced;
mod nodes;
mod pins;
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
mod tool_servers;
mod tools;
mod traces;
mod traffic;
mod usage;

use crate::scenario::{Isolation, Scenario};

/// All themes. The longest come first; `steady` comes when no other scenario disturbs it, and those that take the installation away,
/// of which `chart` also replaces it, after all.
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
    mcp_sessions::SCENARIOS,
    tool_servers::SCENARIOS,
    pins::SCENARIOS,
    approval::SCENARIOS,
    callers::SCENARIOS,
    store::SCENARIOS,
    store_faults::SCENARIOS,
    flow_sets::SCENARIOS,
    flow_changes::SCENARIOS,
    flows::SCENARIOS,
    references::SCENARIOS,
    children::SCENARIOS,
    environment::SCENARIOS,
    agent_fields::SCENARIOS,
    agent_protocols::SCENARIOS,
    foreign::SCENARIOS,
    egress::SCENARIOS,
    loops::SCENARIOS,
    scale::SCENARIOS,
    sidecar::SCENARIOS,
    scaling::SCENARIOS,
    metrics::SCENARIOS,
    deletion::SCENARIOS,
    start::SCENARIOS,
    docs::SCENARIOS,
    frameworks::SCENARIOS,
    conditions::SCENARIOS,
    bad_input::SCENARIOS,
    requests::SCENARIOS,
    bad_requests::SCENARIOS,
    gateway::SCENARIOS,
    gateway_root::SCENARIOS,
    audit::SCENARIOS,
    limits::SCENARIOS,
    identity::SCENARIOS,
    cli::SCENARIOS,
    commands::SCENARIOS,
    import::SCENARIOS,
    kubectl::SCENARIOS,
    completions::SCENARIOS,
    doctor::SCENARIOS,
    doctor_remedies::SCENARIOS,
    chat::SCENARIOS,
    models::SCENARIOS,
    traces::SCENARIOS,
    usage::SCENARIOS,
    exact_usage::SCENARIOS,
    control_plane::SCENARIOS,
    comparison::SCENARIOS,
    manifests::SCENARIOS,
    manifests::ALONE,
    mutations::SCENARIOS,
    loops::ALONE,
    environment::ALONE,
    traces::ALONE,
    identity::ALONE,
    import_live::ALONE,
    doctor::ALONE,
    doctor_remedies::ALONE,
    faults::SCENARIOS,
    restore::SCENARIOS,
    images::ALONE,
    namespaced::ALONE,
    drain::ALONE,
    steady::SCENARIOS,
    doctor_remedies::WITHOUT_AN_INSTALL,
    chart::SCENARIOS,
    doctor_remedies::OF_THE_CHARTS,
];

/// Themes of clusters with two nodes.
const THEMES_OF_NODES: &[&[Scenario]] = &[nodes::SCENARIOS];

/// Themes of the samples of frameworks, with those whose images take minutes.
const THEMES_OF_FRAMEWORKS: &[&[Scenario]] = &[frameworks::SCENARIOS, frameworks::LONG];

/// Themes that `recif dev` passes, too.
const LOCAL_THEMES: &[&[Scenario]] = &[
    flow_sets::SCENARIOS,
    flow_changes::SCENARIOS,
    flows::SCENARIOS,
    references::SCENARIOS,
    tools::SCENARIOS,
    bad_input::SCENARIOS,
    start::SCENARIOS,
    scale::SCENARIOS,
    conditions::SCENARIOS,
    children::SCENARIOS,
    deletion::SCENARIOS,
    manifests::SCENARIOS,
    cli::SCENARIOS,
    commands::SCENARIOS,
    import::SCENARIOS,
    kubectl::SCENARIOS,
];

/// Those of them that it does not pass, by what they need.
const NOT_LOCAL: &[&[&str]] = &[
    // The audit log of the API server.
    &[
        "a_drifted_child_is_back_with_one_write",
        "a_deleted_child_is_back_with_one_write",
        "a_deleted_deployment_is_back_with_two_moves",
        "a_child_that_lost_its_label_or_owner_is_taken_back",
        "a_foreign_annotation_on_a_child_costs_nothing",
        "a_field_that_a_client_keeps_changing_starts_no_write_war",
        "background_deletion_takes_the_children_and_makes_none_again",
        "foreground_deletion_takes_the_children_and_makes_none_again",
        "orphan_deletion_leaves_the_children_and_a_successor_takes_them",
        "a_deleted_namespace_takes_its_agents_along",
    ],
    // ReplicaSets.
    &[
        "an_edited_prompt_rolls_exactly_its_users_and_answers_change",
        "a_rotated_secret_rolls_exactly_its_users_once",
        "a_changed_model_and_its_provider_are_rendered_anew",
        "a_rollout_that_is_asked_for_happens_once",
    ],
    // NetworkPolicies.
    &["what_a_set_has_is_made_again_and_goes_with_it"],
    // Images, and names of users.
    &[
        "an_image_with_a_named_user_runs",
        "the_ui_is_shown_to_holders_of_the_key",
        "the_archive_of_a_release_is_a_plugin_of_kubectl",
        "each_failure_has_its_exit_code",
    ],
];

/// Those that only the default Kubernetes can pass: the API server in memory has its texts and defaults.
const OF_DEFAULT_VERSION: &[&str] = &["the_api_server_in_memory_answers_as_the_real_one"];

/// Set of scenarios that are run together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suite {
    /// Those of a cluster with one node and the default Kubernetes.
    Cluster,
    /// Those of a cluster with one node and another Kubernetes.
    OtherVersion,
    /// Those of a cluster with two.
    Nodes,
    /// Those of the samples of frameworks.
    Frameworks,
    /// Those of a `recif dev`.
    Local,
}

/// Tells whether `recif dev` passes a scenario.
fn is_local(scenario: &Scenario) -> bool {
    let is_of = |theme: &&[Scenario]| theme.iter().any(|it| it.title() == scenario.title());
    LOCAL_THEMES.iter().any(is_of) && !NOT_LOCAL.iter().any(|names| names.contains(&scenario.name))
}

/// Returns the scenarios of a suite whose title contains one of the filters; without filters all. With `third_of`, of the
/// exclusive ones and of those that `recif dev` passes too only the third that this text decides.
pub(crate) fn matching(filters: &[String], suite: Suite, third_of: Option<&str>) -> Vec<&'static Scenario> {
    let themes = match suite {
        Suite::Cluster | Suite::OtherVersion => THEMES,
        Suite::Nodes => THEMES_OF_NODES,
        Suite::Frameworks => THEMES_OF_FRAMEWORKS,
        Suite::Local => LOCAL_THEMES,
    };
    let is_left_out = |scenario: &Scenario| match suite {
        Suite::Local => !is_local(scenario),
        Suite::OtherVersion => OF_DEFAULT_VERSION.contains(&scenario.name),
        Suite::Cluster | Suite::Nodes | Suite::Frameworks => false,
    };
    let wanted = |scenario: &&Scenario| {
        let is_named = filters.is_empty() || filters.iter().any(|it| scenario.title().contains(it.as_str()));
        is_named && !is_left_out(scenario)
    };
    let is_divided = |scenario: &Scenario| {
        scenario.isolation == Isolation::Exclusive || (suite == Suite::Cluster && is_local(scenario))
    };
    let mut divided = 0..;
    themes
        .iter()
        .copied()
        .flatten()
        .filter(wanted)
        .filter(|scenario| {
            !is_divided(scenario)
                || divided.next().is_none_or(|at: usize| third_of.is_none_or(|text| e2e::in_third_of(text, at)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_commits_decide_for_every_divided_scenario_once_and_for_the_others_always() {
        let all = matching(&[], Suite::Cluster, None);
        let thirds = ["a", "b", "c"].map(|commit| matching(&[], Suite::Cluster, Some(commit)));
        for scenario in &all {
            let runs = thirds.iter().filter(|third| third.iter().any(|it| it.title() == scenario.title())).count();
            let is_divided = scenario.isolation == Isolation::Exclusive || is_local(scenario);
            let expected = if is_divided { 1 } else { 3 };
            assert_eq!(runs, expected, "{}", scenario.title());
        }
        let longest = thirds.iter().map(Vec::len).max().unwrap_or_default();
        assert!(thirds.iter().all(|third| longest - third.len() <= 1), "the thirds are as large as each other");
    }

    #[test]
    fn each_scenario_that_recif_dev_does_not_pass_is_one_of_its_themes() {
        let all: Vec<&str> = LOCAL_THEMES.iter().copied().flatten().map(|scenario| scenario.name).collect();
        let left_out: Vec<&str> = NOT_LOCAL.iter().copied().flatten().copied().collect();
        assert!(left_out.iter().all(|name| all.contains(name)), "{left_out:?}");
        assert_eq!(matching(&[], Suite::Local, None).len() + left_out.len(), all.len());
    }
}
