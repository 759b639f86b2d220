//! Checks the example of a new kind in `ARCHITECTURE.md`: the patch applies to this tree, and changes exactly the files of the list.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Stdio},
};

const PAGE: &str = include_str!("../ARCHITECTURE.md");
const PATCH: &str = include_str!("../docs/examples/note-kind.patch");
/// The patch, from the root.
const FILE: &str = "docs/examples/note-kind.patch";

/// Returns the files in the first column of the table of changes by hand.
fn listed() -> BTreeSet<&'static str> {
    let (_, section) = PAGE.split_once("\n## How to add a kind\n").unwrap();
    let (_, by_hand) = section.split_once("\nBy hand:\n").unwrap();
    let table = by_hand.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    table.filter_map(|row| row.strip_prefix("| `")?.split_once('`')).map(|(file, _)| file).collect()
}

/// Returns the files that the patch adds or changes.
fn patched() -> BTreeSet<&'static str> {
    PATCH.lines().filter_map(|line| line.strip_prefix("+++ b/")).collect()
}

#[test]
fn the_patch_changes_the_files_that_the_page_lists() {
    assert_eq!(patched(), listed());
    assert!(!PATCH.contains("+++ /dev/null"), "it deletes nothing");
}

/// Reports whether the patch applies to this tree, or, with `reverse`, could be taken back from it; otherwise returns the reason.
fn check(reverse: bool) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut git = Command::new("git");
    // In a copy inside of another repository git would skip the files, so it must not look for one above.
    git.args(["apply", "--check"]).env("GIT_CEILING_DIRECTORIES", root.parent().unwrap());
    let mut patch = Command::new("patch");
    patch.args(["--dry-run", "--strip=1", "--batch", "--fuzz=0"]);
    for (program, file) in [(&mut git, None), (&mut patch, Some("--input"))] {
        program.args(reverse.then_some("--reverse")).args(file).arg(FILE).current_dir(root).stdin(Stdio::null());
        if let Ok(output) = program.output() {
            let message =
                [output.stderr, output.stdout].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
            return if output.status.success() { Ok(()) } else { Err(message) };
        }
    }
    Err("neither git nor patch is installed".to_owned())
}

#[test]
fn the_patch_applies_to_this_tree() {
    // Those who try it run the tests with it.
    if let (Err(message), Err(_)) = (check(false), check(true)) {
        panic!("make {FILE} anew from the list in ARCHITECTURE.md: {message}");
    }
}
