//! Reads the objects of files, with the line of each.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use ::import::SourceObject;
use serde_json::Value;

use crate::error::CliError;

/// Endings of the files of a folder that are read.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Reads the objects of files and folders; `-` is stdin.
///
/// # Errors
/// [`CliError::ReadFile`], or [`CliError::Document`] for a text that is no YAML.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<SourceObject>, CliError> {
    let mut objects = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            let mut text = String::new();
            let done = io::stdin().lock().read_to_string(&mut text);
            done.map_err(|source| CliError::ReadFile { path: "stdin".into(), source })?;
            objects.extend(documents("stdin", &text)?);
            continue;
        }
        for path in files(path)? {
            let text = fs::read_to_string(&path).map_err(|source| CliError::ReadFile { path: path.clone(), source })?;
            objects.extend(documents(&path.to_string_lossy(), &text)?);
        }
    }
    Ok(objects)
}

/// Returns the files that a path stands for, by name.
fn files(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    let failed = |source| CliError::ReadFile { path: path.to_owned(), source };
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if ENDINGS.contains(&ending) && !file.is_dir() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the objects of a text, those of Lists one by one.
pub(super) fn documents(file: &str, text: &str) -> Result<Vec<SourceObject>, CliError> {
    let text = text.trim_start_matches('\u{feff}');
    let documents = yaml::read(text)
        .map_err(|error| CliError::Document(format!("{file}:{}: not YAML: {}", error.at.line, error.message)))?;
    let mut objects = Vec::new();
    for document in documents {
        let at = |pointer: &str| format!("{file}:{}", document.places.of(pointer).line);
        let is_list = document.value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        match document.value.get("items").and_then(Value::as_array).filter(|_| is_list) {
            Some(items) => {
                let item = |(index, value): (usize, &Value)| SourceObject {
                    value: value.clone(),
                    at: at(&format!("/items/{index}")),
                    is_context: false,
                };
                objects.extend(items.iter().enumerate().map(item));
            }
            None => {
                let at = at("");
                objects.push(SourceObject { value: document.value, at, is_context: false });
            }
        }
    }
    Ok(objects)
}
