//! Checks that the diagrams in docs/*.md are equal to the output of `recif machine`.
//!
//! A block begins with the line `<!-- machine:agent -->` and ends with `<!-- /machine -->`. This command rewrites all
//! blocks: `RECIF_WRITE=1 cargo test --test diagrams`.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::{env, fs, path::PathBuf};

use cli::machine::diagram;

const END: &str = "<!-- /machine -->";

#[test]
fn the_diagrams_in_the_documentation_are_those_of_the_tables() {
    let mut found = 0;
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        let (renewed, blocks) = renew(&text);
        found += blocks;
        if env::var_os("RECIF_WRITE").is_some() {
            fs::write(&path, &renewed).unwrap();
        } else {
            assert_eq!(text, renewed, "{}: renew it with RECIF_WRITE=1", path.display());
        }
    }
    assert!(found > 0, "no document holds a diagram");
}

fn documents() -> Vec<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    fs::read_dir(root.join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect()
}

/// Returns the text with every block renewed, and the number of blocks.
fn renew(text: &str) -> (String, usize) {
    let mut out = String::new();
    let mut blocks = 0;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        out += line;
        out.push('\n');
        let kind = line.trim().strip_prefix("<!-- machine:").and_then(|rest| rest.strip_suffix(" -->"));
        let Some(kind) = kind else { continue };
        let diagram = crds::ApiKind::find(kind).map(diagram).unwrap_or_else(|| panic!("no machine {kind}"));
        out += &format!("```mermaid\n{diagram}```\n{END}\n");
        assert!(lines.any(|line| line.trim() == END), "the block {kind} does not end with {END}");
        blocks += 1;
    }
    (out, blocks)
}
