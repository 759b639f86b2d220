//! Checks that every path that `ARCHITECTURE.md` names exists.

use std::path::Path;

const PAGE: &str = include_str!("../ARCHITECTURE.md");

/// Returns the targets of links, and the paths in code.
fn paths() -> Vec<&'static str> {
    let links = PAGE.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let links = links.map(|target| target.split_once('#').map_or(target, |(path, _)| path));
    let code = PAGE.split("```").step_by(2).flat_map(|text| text.split('`').skip(1).step_by(2));
    // Paths of files and folders of this repository, and no commands, URL paths or resources.
    let is_path = |word: &&str| {
        !word.starts_with('/')
            && !word.contains(' ')
            && (word.ends_with('/') || (word.contains('/') && word.contains('.')))
    };
    links.filter(|path| !path.is_empty()).chain(code.filter(is_path)).collect()
}

#[test]
fn every_path_that_the_page_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // What the example of a new kind adds.
    let is_new = |path: &str| path.contains("/note/") || path.ends_with("note.rs") || path.ends_with("note.yaml");
    let missing: Vec<_> = paths().into_iter().filter(|path| !is_new(path) && !root.join(path).exists()).collect();
    assert!(missing.is_empty(), "not there: {missing:#?}");
    assert!(paths().len() > 100, "{}", paths().len());
}
