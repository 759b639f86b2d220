//! Checks: one file per row or pair of rows, each a pure function of what was read.

mod absent;
mod accounts;
mod admission;
mod api_server;
mod database;
mod definitions;
mod images;
mod local;
mod network;
mod network_policy;
mod nodes;
mod objects;
mod operator;
mod pods;
mod traffic;
mod versions;
mod yours;

use super::{
    finding::Finding,
    reading::{Installed, LocalReadings, Part, Readings},
};

/// Returns the findings about a `recif dev`.
pub(super) fn all_local(readings: &LocalReadings, system: &str) -> Vec<Finding> {
    let operator = Ok(Some(Part::default()));
    vec![
        local::check(readings),
        // Its clock is that of this machine.
        api_server::check(&readings.times, None),
        objects::check(&readings.objects, Installed::Yes, &operator, system),
    ]
}

/// Returns the findings of all checks, in the order in which they are shown.
pub(super) fn all(readings: &Readings) -> Vec<Finding> {
    let Readings { scope, installed, .. } = readings;
    let [operator, gateway, control_plane] = &readings.parts;
    let namespace = scope.namespace.as_str();
    let apply = absent::apply(&readings.installer, &scope.system);
    vec![
        versions::check(&readings.server, &readings.nodes),
        pods::check_sidecar(&readings.dry_runs),
        admission::check(&readings.policies, *installed, operator, gateway, &apply),
        nodes::check(&readings.nodes),
        definitions::check(&readings.definitions, *installed, &definitions::built_in(), env!("CARGO_PKG_VERSION")),
        operator::check(operator, &readings.lease, readings.server_now(), &scope.system, *installed, &apply),
        accounts::check(&readings.accounts, &apply),
        yours::check(&readings.yours, namespace),
        images::check(&readings.images, &readings.nodes, readings.pulled.as_deref()),
        traffic::check(
            [gateway, control_plane],
            &readings.database,
            &readings.certificate,
            readings.server_now(),
            &scope.system,
            *installed,
            &apply,
        ),
        pods::check(&readings.dry_runs, &readings.refused, namespace),
        network::check(&readings.network, &readings.workload_pods, scope, &readings.plugin),
        database::check(control_plane, &readings.database, *installed, &scope.system),
        api_server::check(&readings.times, readings.clock_offset()),
        objects::check(&readings.objects, *installed, operator, &scope.system),
    ]
}
