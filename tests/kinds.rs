//! Checks that the kinds are listed in one place: the table in `crds/src/kinds.rs`, and for the web UI, which adds labels, one more.

#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crds::{KINDS, Role};

/// Folders of product source.
const FOLDERS: [&str; 3] = ["crds", "actions", "src"];
/// Files that may list every kind. The last two name those of other systems, and the order in which an import prints ours among kinds
/// of Kubernetes.
const LISTS: [&str; 4] = [
    "crds/src/kinds.rs",
    "src/control_plane/ui/src/api/kinds.ts",
    "src/import/src/live.rs",
    "src/import/src/output.rs",
];
/// Files and folders that are generated, built, or tests.
const NOT_PRODUCT: [&str; 5] = ["node_modules", "dist", "tests", "tests.rs", "schema.d.ts"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Adds the source files of the product below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if NOT_PRODUCT.contains(&name) {
            continue;
        }
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            collect(&path, files);
        } else if [".rs", ".ts", ".tsx"].iter().any(|end| name.ends_with(end)) {
            files.push(path);
        }
    }
}

/// Returns the text without its line comments, as far as it takes to find names in code.
fn code(text: &str) -> String {
    text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code)).collect::<Vec<_>>().join("\n")
}

fn lists_all(code: &str, name: impl Fn(&crds::ApiKind) -> &'static str) -> bool {
    let words: Vec<_> = code.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').collect();
    KINDS.iter().all(|kind| words.contains(&name(kind)))
}

#[test]
fn no_file_but_the_table_names_every_kind() {
    let mut files = Vec::new();
    FOLDERS.iter().for_each(|folder| collect(&root().join(folder), &mut files));
    assert!(files.len() > 300, "{} files", files.len());
    let names_all = |path: &PathBuf| {
        let code = code(&fs::read_to_string(path).unwrap());
        lists_all(&code, |kind| kind.name) || lists_all(&code, |kind| kind.plural)
    };
    let lists = files.iter().filter(|path| names_all(path));
    let lists: BTreeSet<_> = lists.map(|path| path.strip_prefix(root()).unwrap().to_str().unwrap()).collect();
    assert_eq!(lists, LISTS.into(), "iterate crds::KINDS or expand crds::for_each_kind! instead of a list by hand");
}

#[test]
fn the_web_ui_has_a_label_for_every_kind() {
    let list = fs::read_to_string(root().join(LISTS[1])).unwrap();
    for kind in KINDS {
        let row = format!("{{ kind: {:?}, plural: {:?}, label: ", kind.name, kind.plural);
        let row = list.lines().find(|line| line.trim_start().starts_with(&row));
        let workload = format!("workload: {}", kind.role == Role::Workload);
        assert!(row.is_some_and(|row| row.contains(&workload)), "{} is not in {}", kind.name, LISTS[1]);
    }
    assert_eq!(list.matches("{ kind: \"").count(), KINDS.len());
}
