//! Holds the members to what they may import of each other and of the crates behind which the outside stands.
//!
//! That an edge exists only where a `Cargo.toml` names it, and that there is no circle, cargo sees to.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, process::Command};

use serde_json::Value;

/// A member, and the members that it may import.
const MEMBERS: &[(&str, &str)] = &[
    ("meta", ""),
    ("crds", "meta"),
    ("machine", "meta"),
    ("actions", "meta crds machine dotprompt"),
    ("dotprompt", ""),
    ("daemon", ""),
    ("identity", ""),
    ("http1", ""),
    ("mcp", ""),
    ("store", "crds"),
    ("bridge", "daemon"),
    ("proxy", "http1 daemon crds identity"),
    ("runner", "mcp daemon crds dotprompt"),
    ("cluster", "meta crds machine actions identity"),
    ("operator", "meta crds machine actions cluster mcp http1 daemon identity"),
    ("gateway", "meta crds machine cluster http1 daemon identity"),
    ("control_plane", "meta crds machine actions cluster store http1 daemon"),
    ("cli", "meta crds machine actions cluster identity"),
    ("recif", "bridge cli control_plane daemon gateway operator proxy runner"),
    ("testing", ""),
    ("e2e", "crds meta testing"),
];

/// A crate behind which the outside stands, and the members that may import it.
const OUTSIDE: &[(&str, &str)] =
    &[("kube", "crds actions cluster cli e2e"), ("reqwest", "mcp runner operator cli e2e"), ("rmcp", "mcp")];

#[test]
fn a_member_imports_only_what_it_may() {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args(["metadata", "--no-deps", "--format-version=1", "--offline"]);
    let output = metadata.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeSet<_> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    assert_eq!(names, MEMBERS.iter().map(|(name, _)| *name).collect(), "each member has its row here");
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let dependencies = package["dependencies"].as_array().unwrap().iter().filter(|found| found["kind"].is_null());
        let allows = |list: &str, what: &str| list.split(' ').any(|allowed| allowed == what);
        for dependency in dependencies.filter_map(|found| found["name"].as_str()) {
            let allowed = match OUTSIDE.iter().find(|(outside, _)| *outside == dependency) {
                Some((_, members)) => allows(members, name),
                None if names.contains(dependency) => {
                    MEMBERS.iter().any(|(member, allowed)| *member == name && allows(allowed, dependency))
                }
                None => true,
            };
            assert!(allowed, "{name} may not import {dependency}");
        }
    }
}
