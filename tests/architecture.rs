//! Checks that every path exists that `ARCHITECTURE.md` names, or the table of folders in `docs/development.md`.

use std::path::Path;

const PAGE: &str = include_str!("../ARCHITECTURE.md");
const DEVELOPMENT: &str = include_str!("../docs/development.md");

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

#[test]
fn every_path_in_the_table_of_folders_is_there() {
    let (_, table) = DEVELOPMENT.split_once("| folder | holds |\n|---|---|\n").unwrap();
    let rows: Vec<_> = table.lines().take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() >= 8, "{rows:#?}");
    for row in rows {
        let folder = Path::new(row.split('`').nth(1).unwrap());
        // A row names what is in its folder from there, or from its `src/`.
        let bases =
            [Path::new(""), folder, &folder.join("src")].map(|base| Path::new(env!("CARGO_MANIFEST_DIR")).join(base));
        let named = row.split('`').skip(1).step_by(2).filter(|word| word.ends_with('/') || word.ends_with(".rs"));
        for path in named {
            assert!(bases.iter().any(|base| base.join(path).exists()), "{path} is not there: {row}");
        }
    }
}
