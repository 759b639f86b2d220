//! Checks the allowed imports of each workspace member: of other members, and of the crates that access the outside. Checks the diagram
//! of the members in `ARCHITECTURE.md`, too, the imports between the files of a member, and the names of types.
//!
//! Cargo itself ensures that an edge needs an entry in a `Cargo.toml`, and that there is no cycle of members.

#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

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
    ("gateway", "meta crds machine cluster http1 daemon identity telemetry"),
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

/// Names of types that do not say of what they are.
const VAGUE: [&str; 10] = ["Answer", "Asked", "Board", "Judge", "Known", "Look", "Place", "Said", "Told", "Turn"];

/// Returns the packages of the workspace.
fn packages() -> Vec<Value> {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args(["metadata", "--no-deps", "--format-version=1", "--offline"]);
    let output = metadata.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

#[test]
fn a_member_imports_only_what_it_may() {
    let packages = packages();
    let names: BTreeSet<_> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    assert_eq!(names, MEMBERS.iter().map(|(name, _)| *name).collect(), "each member has its row here");
    for package in &packages {
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

/// Code of the files of a member, by the path of the module; that of its root is empty.
type Files = BTreeMap<String, String>;

/// Adds the files of a folder, which is this module, without tests and other members.
fn add_files(folder: &Path, module: &str, files: &mut Files) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let child = if matches!(name, "lib" | "main" | "mod") { module.to_owned() } else { join(module, name) };
        if path.is_dir() && !matches!(name, "bin" | "tests") && !path.join("Cargo.toml").exists() {
            add_files(&path, &child, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests" {
            let text = fs::read_to_string(&path).unwrap();
            // What is for tests alone is a module until the end of the file, or a statement.
            let mut parts = text.split("\n#[cfg(test)]\n");
            let code = parts.next().unwrap_or_default();
            let is_module =
                |part: &&str| part.lines().next().is_some_and(|line| line.contains("mod ") && line.ends_with('{'));
            let rest = parts.filter(|part| !is_module(part)).filter_map(|part| part.split_once(';'));
            files.insert(child, rest.fold(code.to_owned(), |code, (_, rest)| code + rest));
        }
    }
}

fn join(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

/// Returns the imports of a file: whether each is exported, and its path.
fn uses(code: &str) -> impl Iterator<Item = (bool, String)> {
    let is_use = |line: &str| line.starts_with("use ") || (line.starts_with("pub") && line.contains(" use "));
    code.split(';').flat_map(move |statement| {
        let text: String = statement.lines().map(str::trim).skip_while(|line| !is_use(line)).collect();
        let (visibility, tree) = text.split_once("use ").unwrap_or_default();
        let is_exported = !visibility.is_empty();
        branches(tree).into_iter().map(move |path| (is_exported, path))
    })
}

/// Returns the paths of a tree of imports, such as `a::{b, c::d}`.
fn branches(tree: &str) -> Vec<String> {
    let Some((stem, rest)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let mut depth = 0;
    let parts = rest.rsplit_once('}').map_or(rest, |(inside, _)| inside).split(|letter: char| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        depth == 0 && letter == ','
    });
    let parts = parts.flat_map(branches).filter(|part| !part.is_empty());
    parts.map(|part| format!("{}{part}", stem.trim()).trim_end_matches("::self").to_owned()).collect()
}

/// Returns a path from the root of the member; `None` for that of another crate.
fn absolute(module: &str, path: &str, files: &Files) -> Option<String> {
    match path.split_once("::") {
        Some(("crate", rest)) => Some(rest.to_owned()),
        Some(("self", rest)) if rest.starts_with("super::") => absolute(module, rest, files),
        Some(("self", rest)) => Some(join(module, rest)),
        Some(("super", rest)) => {
            let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
            absolute(parent, &format!("self::{rest}"), files)
        }
        _ => files.contains_key(&join(module, path.split("::").next()?)).then(|| join(module, path)),
    }
}

/// Returns the module that a path leads to, through what modules export.
fn target(path: &str, files: &Files, exports: &BTreeMap<String, String>) -> String {
    let mut module = "";
    for end in path.match_indices("::").map(|(end, _)| end).chain([path.len()]) {
        let (known, rest) = path.split_at(end);
        match exports.get(known) {
            _ if files.contains_key(known) => module = known,
            Some(origin) => return target(&format!("{origin}{rest}"), files, exports),
            None => break,
        }
    }
    module.to_owned()
}

/// Returns the modules that import each other in circles by `use`, and those between two circles.
fn circles(files: &Files) -> Vec<String> {
    let (mut imports, mut exports) = (Vec::new(), BTreeMap::new());
    for (module, (is_exported, path)) in
        files.iter().flat_map(|(module, code)| uses(code).map(move |found| (module, found)))
    {
        let (path, name) =
            path.split_once(" as ").unwrap_or((path.as_str(), path.rsplit("::").next().unwrap_or_default()));
        match absolute(module, path, files) {
            Some(path) if is_exported => drop(exports.insert(join(module, name), path)),
            Some(path) => imports.push((module.clone(), path)),
            None => {}
        }
    }
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (module, path) in imports {
        let target = target(&path, files, &exports);
        if target != module {
            edges.entry(module).or_default().insert(target);
        }
    }
    loop {
        let importing: BTreeSet<_> = edges.keys().cloned().collect();
        let imported: BTreeSet<_> = edges.values().flatten().cloned().collect();
        edges.values_mut().for_each(|targets| targets.retain(|target| importing.contains(target)));
        edges.retain(|module, targets| imported.contains(module) && !targets.is_empty());
        if edges.len() == importing.len() {
            return edges.into_keys().collect();
        }
    }
}

/// Returns the files of each package, by its name.
fn members() -> Vec<(String, Files)> {
    let files = |package: &Value| {
        let mut files = Files::new();
        add_files(&Path::new(package["manifest_path"].as_str().unwrap()).with_file_name("src"), "", &mut files);
        (package["name"].as_str().unwrap().to_owned(), files)
    };
    packages().iter().map(files).collect()
}

#[test]
fn files_import_each_other_in_no_circle() {
    let product = members().into_iter().filter(|(name, _)| !matches!(name.as_str(), "e2e" | "testing"));
    let found = product.map(|(name, files)| (name, circles(&files))).filter(|(_, modules)| !modules.is_empty());
    let found: Vec<_> = found.map(|(name, modules)| format!("{name}: {}", modules.join(" "))).collect();
    assert_eq!(found, [""; 0], "move what both files need to one of its own");
}

#[test]
fn a_circle_is_found_through_super_and_through_exports() {
    let files = [
        ("", "mod a;\nmod b;\nmod c;"),
        ("a", "use super::{\n    b::{self, Shown},\n    c,\n};"),
        ("b", "mod d;\n\npub use self::d::Hidden as Shown;\nuse std::fmt;"),
        ("b::d", "use crate::a::A;\n\nfn d() {\n    use c::C;\n}"),
        ("c", "#[derive(Debug)]\nstruct C;"),
    ];
    let files: Files = files.map(|(module, code)| (module.to_owned(), code.to_owned())).into();
    assert_eq!(circles(&files), ["a", "b::d"]);
}

#[test]
fn no_type_has_a_name_that_does_not_say_of_what_it_is() {
    for (member, files) in members() {
        for words in files
            .values()
            .flat_map(|code| code.lines())
            .map(|line| line.split(|letter: char| !letter.is_alphanumeric()))
        {
            let mut words = words.skip_while(|word| !matches!(*word, "enum" | "struct" | "trait" | "type"));
            let name = words.nth(1).unwrap_or_default();
            assert!(!VAGUE.contains(&name), "{member} has a type {name}: name what it is of");
        }
    }
}
