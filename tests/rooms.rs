//! Inside `src` a room may use only the rooms that its `//! Uses:` line names.
//!
//! Dependencies that point one way are what lets a reader understand one room at a time, so they are checked rather than
//! trusted.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files = Vec::new();
    for path in entries {
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// Each room with its folder; `bin` is no room, nor is a package, whose `Cargo.toml` names what it uses.
fn rooms() -> BTreeMap<String, PathBuf> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let folders = fs::read_dir(src)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir() && !path.join("Cargo.toml").exists());
    let named = folders.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path));
    named.filter(|(name, _)| name != "bin").collect()
}

/// What the room says that it uses.
fn stated(folder: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(folder.join("mod.rs")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("//! Uses: "));
    let line = line.unwrap_or_else(|| panic!("{}: the first file of a room has a `//! Uses:` line", folder.display()));
    line.split(',').map(|name| name.trim().to_owned()).filter(|name| name != "–").collect()
}

/// The names that follow `crate::`, also in groups such as `crate::{cache::A, cluster}`.
fn mentioned(text: &str) -> BTreeSet<String> {
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let mut depth = 0;
        let mut word = String::new();
        let mut path_begins = true;
        for character in rest.chars() {
            if character.is_alphanumeric() || character == '_' {
                word.push(character);
                continue;
            }
            let word = std::mem::take(&mut word);
            if path_begins && !word.is_empty() {
                found.insert(word);
                path_begins = false;
            }
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => path_begins = true,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

#[test]
fn a_room_uses_only_what_it_says() {
    let rooms = rooms();
    let mut wrong = Vec::new();
    for (room, folder) in &rooms {
        let stated = stated(folder);
        for name in stated.iter().filter(|name| !rooms.contains_key(*name)) {
            println!("{room} may use {name}, which is not there yet");
        }
        for file in sources(folder) {
            for used in mentioned(&fs::read_to_string(&file).unwrap()) {
                if used != *room && rooms.contains_key(&used) && !stated.contains(&used) {
                    wrong.push(format!("{}: {room} may not use {used}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rooms_depend_one_way() {
    let stated: BTreeMap<_, _> = rooms().into_iter().map(|(room, folder)| (room, stated(&folder))).collect();
    let mut left: BTreeSet<_> = stated.keys().cloned().collect();
    loop {
        let free: Vec<_> = left.iter().filter(|room| stated[*room].is_disjoint(&left)).cloned().collect();
        if free.is_empty() {
            break;
        }
        left.retain(|room| !free.contains(room));
    }
    assert!(left.is_empty(), "these rooms use each other in a circle: {left:?}");
}

#[test]
fn mentions_are_found_in_every_form() {
    let found = |text: &str| mentioned(text).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(found("use crate::cluster::Change;"), "cluster");
    assert_eq!(found("use crate::{cache::{A, B}, cluster};"), "cache cluster");
    assert_eq!(found("use crate::{\n    cache::A,\n    telemetry::{http::{self, P}, logs},\n};"), "cache telemetry");
    assert_eq!(found("fn a(b: crate::scaler::B) {}\n// crate::proxy"), "scaler");
}
