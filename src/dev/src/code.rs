//! Code that workloads run: the annotation `recif.dev/dev-watch` names files by a pattern, and a workload starts anew when one of them
//! is saved.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

use globset::{GlobBuilder, GlobMatcher};

use crate::manifest::{Manifest, ObjectId, WATCH};

/// Files of workloads.
#[derive(Debug, Default)]
pub(crate) struct Code(Vec<CodeOf>);

#[derive(Debug)]
struct CodeOf {
    workload: ObjectId,
    /// Folder that all files are in.
    base: PathBuf,
    /// Matches whole paths.
    pattern: GlobMatcher,
}

impl Code {
    /// Reads the annotations of objects, and returns what is wrong with them, too.
    pub(crate) fn of(manifests: &[Manifest]) -> (Self, Vec<String>) {
        let (mut code, mut problems) = (Self::default(), Vec::new());
        for manifest in manifests {
            let annotation = manifest.object.pointer("/metadata/annotations").and_then(|all| all.get(WATCH)?.as_str());
            let Some(patterns) = annotation else { continue };
            let here = PathBuf::from(".");
            let folder = manifest.origin.folder.as_ref().unwrap_or(&here);
            for pattern in split(patterns) {
                match CodeOf::new(manifest.id.clone(), folder, pattern) {
                    Ok(of) => code.0.push(of),
                    Err(error) => {
                        let at = manifest.origin.at(&format!("metadata.annotations[{WATCH}]"));
                        problems.push(format!("{at}: {WATCH} {pattern:?}: {error}"));
                    }
                }
            }
        }
        (code, problems)
    }

    /// Returns the folders to watch, with all below them.
    pub(crate) fn folders(&self) -> BTreeMap<PathBuf, bool> {
        self.0.iter().filter(|code| code.base.is_dir()).map(|code| (code.base.clone(), true)).collect()
    }

    /// Returns the workloads that one of these files belongs to, and which of the files do.
    pub(crate) fn concerned<'p>(&self, paths: &'p BTreeSet<PathBuf>) -> (BTreeSet<ObjectId>, BTreeSet<&'p Path>) {
        let (mut workloads, mut files) = (BTreeSet::new(), BTreeSet::new());
        for path in paths {
            for code in self.0.iter().filter(|code| code.pattern.is_match(path)) {
                workloads.insert(code.workload.clone());
                files.insert(path.as_path());
            }
        }
        (workloads, files)
    }
}

impl CodeOf {
    fn new(workload: ObjectId, folder: &Path, pattern: &str) -> Result<Self, globset::Error> {
        // The part before the first wildcard is a folder, or a file in one.
        let is_plain = |part: &Component<'_>| !part.as_os_str().to_string_lossy().contains(['*', '?', '[', '{']);
        let parts: Vec<_> = Path::new(pattern).components().collect();
        let plain = parts.iter().take_while(|part| is_plain(part)).count().min(parts.len().saturating_sub(1));
        let base = parts.iter().take(plain).fold(folder.to_owned(), |base, part| base.join(part));
        let rest: PathBuf = parts.iter().skip(plain).collect();
        let base = std::fs::canonicalize(&base).unwrap_or(base);
        let whole = format!("{}/{}", globset::escape(&base.to_string_lossy()), rest.to_string_lossy());
        // A `*` stays within a folder, as in a shell.
        let pattern = GlobBuilder::new(&whole).literal_separator(true).build()?.compile_matcher();
        Ok(Self { workload, base, pattern })
    }
}

/// Returns the patterns of a list that is separated by commas; those in braces are part of a pattern.
fn split(patterns: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    let is_separator = move |letter: char| {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    };
    patterns.split(is_separator).map(str::trim).filter(|pattern| !pattern.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::tests::contents;

    fn code(pattern: &str) -> (Code, Vec<String>) {
        let text = format!(
            "apiVersion: agents.recif.dev/v1\nkind: Agent\nmetadata:\n  name: a\n  annotations:\n    recif.dev/dev-watch: {pattern:?}\n"
        );
        Code::of(&contents("a.yaml", &text).manifests)
    }

    #[test]
    fn patterns_are_those_of_a_shell() {
        let cases = [
            ("src/**/*.py", "/x/src/a.py", true),
            ("src/**/*.py", "/x/src/b/c/a.py", true),
            ("src/**/*.py", "/x/src/a.txt", false),
            ("src/**/*.py", "/x/other/a.py", false),
            ("*.py", "/x/a.py", true),
            ("*.py", "/x/b/a.py", false),
            ("main.py", "/x/main.py", true),
            ("a.py, b.py", "/x/b.py", true),
            ("*.{py,toml}", "/x/a.toml", true),
        ];
        for (pattern, path, expected) in cases {
            let (code, problems) = code(pattern);
            assert_eq!(problems, Vec::<String>::new());
            let paths = [PathBuf::from(path)].into();
            let (workloads, files) = code.concerned(&paths);
            assert_eq!((workloads.len(), files.len()), if expected { (1, 1) } else { (0, 0) }, "{pattern} {path}");
        }
    }

    #[test]
    fn the_folder_before_the_first_wildcard_is_watched() {
        let bases = |pattern: &str| code(pattern).0.0.into_iter().map(|code| code.base).collect::<Vec<_>>();
        assert_eq!(bases("src/app/**/*.py"), [PathBuf::from("/x/src/app")]);
        assert_eq!(bases("*.py"), [PathBuf::from("/x")]);
        assert_eq!(bases("src/main.py"), [PathBuf::from("/x/src")]);
    }

    #[test]
    fn a_pattern_that_is_none_is_named_with_its_place() {
        let (_, problems) = code("src/[a");
        assert!(problems[0].starts_with("a.yaml:6:26: recif.dev/dev-watch \"src/[a\": "), "{problems:?}");
    }
}
