//! The files of the command line: which there are now, and their texts.
//!
//! A folder counts with all its YAML and JSON files, or, if it has a `kustomization.yaml`, with the resources that this names.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// Names of the file that lists the resources of a folder.
const KUSTOMIZATION: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// Fields of that file that change nothing here.
const WITHOUT_EFFECT: [&str; 5] = ["apiVersion", "kind", "metadata", "resources", "sortOptions"];
/// Deepest nesting of folders, so that a loop of links or resources ends.
const MAX_DEPTH: usize = 32;

/// Files to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    /// A file, or a folder of files.
    Path(PathBuf),
    /// A text that is in no file, under this name.
    Text(&'static str, String),
}

/// A file, or what stands for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceText {
    /// Its name as the user wrote it.
    pub(crate) name: String,
    /// Folder of the file, absolute; `None` for a text that is in no file.
    pub(crate) folder: Option<PathBuf>,
    /// Its text.
    pub(crate) text: String,
}

/// Result of the search for files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundFiles {
    /// Files in the order of the command line; those of a folder by their names.
    pub(crate) files: Vec<SourceText>,
    /// Reasons why files are not among them.
    pub(crate) problems: Vec<String>,
    /// Folders in which a change may concern these files.
    pub(crate) folders: BTreeSet<PathBuf>,
}

/// Reads all files as they are now; `recursive` takes the folders below a folder, too.
pub(crate) fn find(inputs: &[Input], recursive: bool) -> FoundFiles {
    let mut found = FoundFiles::default();
    for input in inputs {
        match input {
            Input::Text(name, text) => {
                found.files.push(SourceText { name: (*name).to_owned(), folder: None, text: text.clone() });
            }
            Input::Path(path) => found.add(path, recursive, 0),
        }
    }
    let mut known = BTreeSet::new();
    found.files.retain(|file| known.insert(file.name.clone()));
    found
}

impl FoundFiles {
    fn add(&mut self, path: &Path, recursive: bool, depth: usize) {
        let path = &tidy(path);
        if depth > MAX_DEPTH {
            self.problems.push(format!("{}: folders are nested too deeply", path.display()));
        } else if path.is_dir() {
            self.add_folder(path, recursive, depth);
        } else {
            self.add_file(path);
        }
    }

    fn add_folder(&mut self, folder: &Path, recursive: bool, depth: usize) {
        self.folders.insert(folder.to_owned());
        if let Some(list) = KUSTOMIZATION.iter().map(|name| folder.join(name)).find(|list| list.is_file()) {
            match fs::read_to_string(&list).map_err(|error| error.to_string()).and_then(|text| resources(&text)) {
                Ok(resources) => {
                    resources.iter().for_each(|resource| self.add(&folder.join(resource), recursive, depth + 1));
                }
                Err(error) => self.problems.push(format!("{}{error}", list.display())),
            }
            return;
        }
        let entries = match fs::read_dir(folder).and_then(|entries| entries.collect::<io::Result<Vec<_>>>()) {
            Ok(entries) => entries,
            Err(error) => return self.problems.push(format!("{}: {error}", folder.display())),
        };
        let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).filter(|path| !is_hidden(path)).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                if recursive {
                    self.add(&path, recursive, depth + 1);
                }
            } else if is_manifest(&path) {
                self.add_file(&path);
            }
        }
    }

    fn add_file(&mut self, path: &Path) {
        let path = &tidy(path);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.folders.insert(folder.to_owned());
        match fs::read_to_string(path) {
            Ok(text) => {
                let folder = fs::canonicalize(folder).ok();
                self.files.push(SourceText { name: path.display().to_string(), folder, text });
            }
            Err(error) => self.problems.push(format!("{}: {error}", path.display())),
        }
    }
}

/// Reports whether a file of a folder is read: those that kubectl reads.
pub(crate) fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known))
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// Returns a path without `x/..`, so that a file has one name.
fn tidy(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut tidy = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(tidy.components().next_back(), Some(Component::Normal(_))) => {
                tidy.pop();
            }
            part => tidy.push(part),
        }
    }
    if tidy.as_os_str().is_empty() { PathBuf::from(".") } else { tidy }
}

/// Returns the resources that a kustomization names.
///
/// # Errors
/// It is no YAML, or has fields that only kustomize knows; the text begins with the place.
fn resources(text: &str) -> Result<Vec<String>, String> {
    let documents = yaml::read(text).map_err(|error| format!(":{}: {}", error.at, error.message))?;
    let Some(document) = documents.first() else { return Ok(Vec::new()) };
    let mut fields = document.value.as_object().into_iter().flatten();
    if let Some((field, _)) = fields.find(|(field, _)| !WITHOUT_EFFECT.contains(&field.as_str())) {
        let at = document.places.of_key(&format!("/{field}"));
        return Err(format!(
            ":{at}: {field} is not known here: let kustomize read it, as in `kubectl kustomize DIR | recif dev -`"
        ));
    }
    let list = document.value.get("resources").and_then(Value::as_array).into_iter().flatten();
    let mut names = Vec::new();
    for (index, item) in list.enumerate() {
        let at = document.places.of(&format!("/resources/{index}"));
        match item.as_str() {
            Some(name) if name.contains("://") => return Err(format!(":{at}: {name}: only files are read")),
            Some(name) => names.push(name.to_owned()),
            None => return Err(format!(":{at}: a resource is the name of a file or folder")),
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a folder with these files.
    fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("recif-dev-files-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        for (file, text) in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn names(found: &FoundFiles, folder: &Path) -> Vec<String> {
        let prefix = format!("{}/", folder.display());
        found.files.iter().map(|file| file.name.strip_prefix(&prefix).unwrap_or(&file.name).to_owned()).collect()
    }

    #[test]
    fn a_folder_counts_with_its_manifests() {
        let folder = folder(
            "plain",
            &[("b.yaml", ""), ("a.yml", ""), ("c.json", ""), ("d.txt", ""), (".e.yaml", ""), ("f/g.yaml", "")],
        );
        let input = [Input::Path(folder.clone())];
        assert_eq!(names(&find(&input, false), &folder), ["a.yml", "b.yaml", "c.json"]);
        let found = find(&input, true);
        assert_eq!(names(&found, &folder), ["a.yml", "b.yaml", "c.json", "f/g.yaml"]);
        assert_eq!(found.folders.len(), 2);
        assert!(found.files[0].folder.as_ref().unwrap().is_absolute());
    }

    #[test]
    fn a_kustomization_names_the_files() {
        let list = "kind: Kustomization\nresources:\n  - ../other\n  - a.yaml\n";
        let folder = folder(
            "list",
            &[("one/kustomization.yaml", list), ("one/a.yaml", ""), ("one/b.yaml", ""), ("other/c.yaml", "")],
        );
        let found = find(&[Input::Path(folder.join("one"))], false);
        assert_eq!(names(&found, &folder), ["other/c.yaml", "one/a.yaml"]);
        assert_eq!(found.problems, Vec::<String>::new());
    }

    #[test]
    fn what_only_kustomize_can_do_is_said_with_its_place() {
        let error = resources("resources: [a.yaml]\nnamePrefix: x-\n").unwrap_err();
        assert!(error.starts_with(":2:1: namePrefix is not known here"), "{error}");
        assert!(resources("resources: [https://x.example/y]").unwrap_err().starts_with(":1:13: "));
        assert_eq!(resources("# nothing").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_file_is_read_once_and_a_missing_one_is_named() {
        let folder = folder("twice", &[("a.yaml", "x")]);
        let inputs = [folder.join("a.yaml"), folder.clone(), folder.join("none.yaml")].map(Input::Path);
        let found = find(&inputs, false);
        assert_eq!(names(&found, &folder), ["a.yaml"]);
        assert!(found.problems[0].contains("none.yaml: "), "{:?}", found.problems);
    }

    #[test]
    fn a_file_has_one_name() {
        for (path, expected) in [("a/../b", "b"), ("../a", "../a"), ("a/./b", "a/b"), ("a/..", "."), ("/a/../b", "/b")]
        {
            assert_eq!(tidy(Path::new(path)), Path::new(expected), "{path}");
        }
    }
}
