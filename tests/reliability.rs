//! Checks that every test that `docs/reliability.md` names for a promise exists.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

const PAGE: &str = include_str!("../docs/reliability.md");

/// Returns the names in the second column of the tables.
fn names() -> Vec<&'static str> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| ")?.trim_end_matches('|').split_once(" | "));
    rows.flat_map(|(_, tests)| tests.split('`').skip(1).step_by(2)).collect()
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// Returns the text of all Rust files below a folder.
fn sources(folder: &Path) -> Result<String> {
    let mut text = String::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            text += &sources(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text += &read(&path)?;
        }
    }
    Ok(text)
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let units: String =
        ["src", "actions", "crds", "tests"].iter().map(|part| sources(&root.join(part)).unwrap()).collect();
    let faults = sources(&root.join("e2e/src/bin/faults")).unwrap();
    let missing: Vec<_> = names()
        .into_iter()
        .filter(|name| {
            let is_there = match name.split_once('/') {
                Some((theme, scenario)) => read(&root.join(format!("e2e/src/scenarios/{theme}.rs")))
                    .unwrap()
                    .contains(&format!("fn {scenario}(")),
                None if name.starts_with('P') => faults.contains(&format!("\"{name}\"")),
                None => units.contains(&format!("fn {name}(")),
            };
            !is_there
        })
        .collect();
    assert!(missing.is_empty(), "no test has these names: {missing:#?}");
    assert!(names().len() > 90, "{}", names().len());
}

#[test]
fn every_scenario_of_the_fault_suite_is_named_by_the_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let faults = sources(&root.join("e2e/src/bin/faults")).unwrap();
    let quoted = faults.split('"').skip(1).step_by(2);
    let unnamed: Vec<_> = quoted
        .filter(|text| {
            text.strip_prefix('P').is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
        })
        .filter(|name| !names().contains(name))
        .collect();
    assert!(unnamed.is_empty(), "docs/reliability.md does not name {unnamed:?}");
}
