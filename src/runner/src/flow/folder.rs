//! Contract folder, in which the operator's files are mounted.
//!
//! Only names found by listing it, or validated names, ever become paths, so a file's content cannot cause path
//! traversal. A mounted ConfigMap shows each file as a symbolic link through hidden folders such as `..data`; those are
//! not contract files.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::problem::FlowProblem;

/// Mount path of the contract; absolute paths in its files begin with this.
pub(crate) const MOUNT: &str = "/genkit";
/// Maximum size of one file, in bytes. A ConfigMap holds at most that much in total.
const FILE: u64 = 1 << 20;

/// Contract folder; tests use another path than [`MOUNT`].
#[derive(Debug, Clone)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Creates the folder at `path`.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Reports whether `file` exists, readable or not.
    pub(crate) fn has(&self, file: &str) -> bool {
        fs::symlink_metadata(self.0.join(file)).is_ok()
    }

    /// Reads the text of `file`, a path relative to the folder.
    ///
    /// # Errors
    /// It cannot be read, is too large, or is not UTF-8; the last with its line.
    pub(super) fn read(&self, file: &str) -> Result<String, FlowProblem> {
        let path = self.0.join(file);
        let unread = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => FlowProblem::new(file, "file not found; the operator writes it"),
            _ => FlowProblem::new(file, format!("it cannot be read: {error}")),
        };
        let size = fs::metadata(&path).map_err(unread)?.len();
        if size > FILE {
            return Err(FlowProblem::new(file, format!("it has {size} bytes; a file may have 1 MiB")));
        }
        String::from_utf8(fs::read(path).map_err(unread)?).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            FlowProblem::at(file, line_after(before), "it is not UTF-8 text")
        })
    }

    /// Lists the files of `folder` that end in `suffix`, as sorted names without it; empty when there is no such
    /// folder.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub(super) fn list(&self, folder: &str, suffix: &str) -> Result<Vec<String>, FlowProblem> {
        let unlisted = |error: io::Error| FlowProblem::new(folder, format!("it cannot be listed: {error}"));
        let entries = match fs::read_dir(self.0.join(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unlisted(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(unlisted)?.file_name();
            names.extend(name.to_string_lossy().strip_suffix(suffix).map(str::to_owned));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Resolves a path that a file of the contract names: relative to `base`, or absolute and below the contract's
    /// mount path. `None` when it leads out of the folder.
    pub(super) fn resolve(&self, base: &str, named: &str) -> Option<String> {
        let named = Path::new(named);
        let below = if named.is_absolute() {
            named.strip_prefix(&self.0).or_else(|_| named.strip_prefix(MOUNT)).ok()?.to_path_buf()
        } else {
            Path::new(base).join(named)
        };
        let plain = below.components().all(|one| matches!(one, Component::Normal(_)));
        if plain { below.to_str().map(str::to_owned) } else { None }
    }

    /// Returns the file system path of `file`.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }
}

/// Returns the number of the line that follows `text`, from 1.
pub(super) fn line_after(text: &[u8]) -> usize {
    1 + text.iter().filter(|byte| **byte == b'\n').count()
}

/// Reports whether `name` is safe in a route and a file name: 1 to 253 letters, digits, `-`, `_` or `.`, the first not
/// a `.`; keys of a ConfigMap have the same form.
pub(super) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=253).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_in_the_folder() {
        let folder = Folder::new("/elsewhere");
        for (named, resolved) in [
            ("flows/a", Some("flows/a")),
            ("/genkit/flows/a", Some("flows/a")),
            ("/elsewhere/flows/a", Some("flows/a")),
            ("/etc", None),
            ("../etc", None),
            ("/genkit/../etc", None),
            ("flows/../../etc", None),
        ] {
            assert_eq!(folder.resolve("", named).as_deref(), resolved, "{named}");
        }
        assert_eq!(folder.resolve("flows/a", "credentials").as_deref(), Some("flows/a/credentials"));
    }

    #[test]
    fn which_names_are_safe() {
        for (name, safe) in
            [("a", true), ("A-b_c.d", true), ("", false), ("..", false), (".a", false), ("a/b", false), ("a b", false)]
        {
            assert_eq!(is_name(name), safe, "{name:?}");
        }
    }
}
