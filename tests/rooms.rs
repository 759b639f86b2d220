//! Checks the allowed imports of each workspace member: of other members, and of the crates that access the outside. Checks the diagram
//! of the members in `ARCHITECTURE.md`, too.
//!
//! Cargo itself ensures that an edge needs an entry in a `Cargo.toml`, and that there is no cycle.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, process::Command};

use serde_json::Value;

/// Workspace members, each with the members that it may import.
const MEMBERS: &[(&str, &str)] = &[
    ("meta", ""),
    ("crds", "meta"),
    ("machine", "meta"),
    ("actions", "meta crds machine dotprompt"),
    ("dotprompt", ""),
    ("daemon", ""),
    ("identity", ""),
    ("yaml", ""),
    ("a2a", ""),
    ("import", "crds"),
    ("http1", ""),
    ("mcp", ""),
    ("store", "crds"),
    ("apiserver", "crds"),
    ("node", "crds apiserver"),
    ("telemetry", "mcp"),
    ("bridge", "daemon"),
    ("proxy", "http1 daemon crds identity"),
    ("runner", "a2a mcp daemon crds dotprompt telemetry"),
    ("cluster", "meta crds machine actions identity"),
    ("operator", "meta crds machine actions cluster mcp http1 daemon identity telemetry"),
    ("gateway", "meta crds machine cluster http1 daemon identity"),
    ("control_plane", "meta crds machine actions cluster store http1 daemon telemetry"),
    ("cli", "a2a meta crds machine actions cluster identity import yaml"),
    ("dev", "apiserver control_plane crds daemon gateway meta node operator yaml"),
    ("recif", "bridge cli control_plane daemon dev gateway operator proxy runner"),
    ("testing", ""),
    ("e2e", "crds meta testing apiserver"),
];

/// Crates that access the outside, each with the members that may import it.
const OUTSIDE: &[(&str, &str)] = &[
    ("kube", "crds actions cluster cli dev node e2e"),
    ("reqwest", "mcp runner operator cli telemetry e2e"),
    ("rmcp", "mcp"),
];

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

/// Returns the allowed imports of a member.
fn imports(member: &str) -> impl Iterator<Item = &'static str> + use<> {
    let row = MEMBERS.iter().find(|(name, _)| *name == member);
    row.into_iter().flat_map(|(_, allowed)| allowed.split_whitespace())
}

/// Returns the members that a member imports, directly or through others.
fn reachable(member: &str) -> BTreeSet<&'static str> {
    imports(member).flat_map(|next| reachable(next).into_iter().chain([next])).collect()
}

#[test]
fn the_diagram_shows_the_imports_that_do_not_follow_from_others() {
    let page = include_str!("../ARCHITECTURE.md");
    let (_, diagram) = page.split_once("```mermaid\n").unwrap();
    let (diagram, _) = diagram.split_once("```").unwrap();
    let drawn: BTreeSet<_> = diagram.lines().filter_map(|line| line.trim().split_once(" --> ")).collect();
    let mut expected = BTreeSet::new();
    for (member, _) in MEMBERS {
        let follows = |wanted: &str| imports(member).any(|other| reachable(other).contains(wanted));
        expected.extend(imports(member).filter(|wanted| !follows(wanted)).map(|wanted| (*member, wanted)));
    }
    assert_eq!(drawn, expected);
    for (member, _) in MEMBERS {
        assert!(page.contains(&format!("\n| `{member}` | ")), "{member} has no line");
    }
}
