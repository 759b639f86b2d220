//! Content of the files, as they were last read. A file that cannot be read as YAML counts with what it held before.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    env_file::{self, Variables},
    files::{self, Input},
    kinds::Kinds,
    manifest::{self, Contents, Manifest},
    secrets::{self, WantedSecrets},
};

/// Name of the file of variables, beside the first file.
const ENV_FILE: &str = ".env";

/// Files of the command line, and what they held when they were last read.
#[derive(Debug)]
pub(crate) struct Workspace {
    inputs: Vec<Input>,
    recursive: bool,
    namespace: String,
    kinds: Kinds,
    /// File of variables.
    pub(crate) env_file: PathBuf,
    files: Vec<(String, FileState)>,
    variables: Variables,
    /// Text of the file of variables; `None` if there is none.
    env_text: Option<String>,
    /// Secrets that were made, with their keys, as last reported.
    made: BTreeMap<String, Vec<String>>,
    noted: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct FileState {
    text: String,
    contents: Contents,
    /// Reason why the text is no YAML.
    error: Option<String>,
}

/// Present content of the files.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// Objects, namespaces first.
    pub(crate) manifests: Vec<Manifest>,
    /// Secrets that objects refer to and that are in no file.
    pub(crate) wanted: WantedSecrets,
    /// Everything that is wrong, with places.
    pub(crate) problems: Vec<String>,
    /// Notes, each of which is shown once.
    pub(crate) notes: Vec<String>,
    /// Secrets that were made of variables, each reported once: name and keys.
    pub(crate) made: Vec<(String, Vec<String>)>,
    /// Files whose text is another one than before.
    pub(crate) saved: Vec<String>,
    /// Folders to watch.
    pub(crate) folders: BTreeSet<PathBuf>,
}

impl Workspace {
    /// Makes the workspace of these inputs. Nothing is read yet. `env_file` is the file of variables, by default that beside the
    /// first input; objects that name no namespace are in `namespace`.
    pub(crate) fn new(
        inputs: Vec<Input>,
        recursive: bool,
        env_file: Option<PathBuf>,
        namespace: String,
        kinds: Kinds,
    ) -> Self {
        let env_file = env_file.unwrap_or_else(|| beside(inputs.first()));
        Self {
            inputs,
            recursive,
            namespace,
            kinds,
            env_file,
            files: Vec::new(),
            variables: Variables::new(),
            env_text: None,
            made: BTreeMap::new(),
            noted: BTreeSet::new(),
        }
    }

    /// Returns the variables, as last read.
    pub(crate) fn variables(&self) -> &Variables {
        &self.variables
    }

    /// Reads all files.
    pub(crate) fn read(&mut self) -> Snapshot {
        let found = files::find(&self.inputs, self.recursive);
        let mut snapshot = Snapshot { problems: found.problems, folders: found.folders, ..Snapshot::default() };
        let mut before: BTreeMap<String, FileState> = std::mem::take(&mut self.files).into_iter().collect();
        for file in found.files {
            let old = before.remove(&file.name);
            let state = match old {
                Some(old) if old.text == file.text => old,
                old => {
                    snapshot.saved.push(file.name.clone());
                    let old = old.unwrap_or_default();
                    let read = match file.text.is_empty() && !old.contents.manifests.is_empty() {
                        // Many programs empty a file before they write it.
                        true => Err(format!("{}: it is empty", file.name)),
                        false => manifest::read(&file, &self.kinds, &self.namespace),
                    };
                    match read {
                        Ok(contents) => FileState { text: file.text, contents, error: None },
                        Err(error) => {
                            let error = Some(error + &stays(&old.contents));
                            FileState { text: file.text, contents: old.contents, error }
                        }
                    }
                }
            };
            self.files.push((file.name, state));
        }
        snapshot.saved.extend(before.into_keys());
        for (_, state) in &self.files {
            snapshot.problems.extend(state.error.clone());
            snapshot.problems.extend(state.contents.problems.iter().cloned());
            for (kind, name) in &state.contents.without_effect {
                if self.noted.insert(kind.clone()) {
                    snapshot.notes.push(format!("{kind}/{name} has no effect here"));
                }
            }
            let fresh = state.contents.notes.iter().filter(|note| self.noted.insert((*note).clone()));
            snapshot.notes.extend(fresh.cloned());
        }
        let all = self.files.iter().flat_map(|(_, state)| state.contents.manifests.iter().cloned()).collect();
        let (manifests, doubles) = manifest::without_doubles(all);
        snapshot.problems.extend(doubles);
        self.read_variables(&mut snapshot);
        snapshot.wanted = secrets::wanted(&manifests);
        snapshot.manifests = manifests;
        let secrets = secrets::make(&snapshot.wanted, &self.variables, &self.env_file.display().to_string());
        let mut made = BTreeMap::new();
        for secret in secrets {
            let name = secret.manifest.id.to_string();
            if self.made.get(&name) != Some(&secret.keys) {
                snapshot.made.push((name.clone(), secret.keys.clone()));
            }
            made.insert(name, secret.keys);
            snapshot.manifests.push(secret.manifest);
        }
        self.made = made;
        snapshot
    }

    /// Reads the variables. A file with an error counts with what it held before.
    fn read_variables(&mut self, snapshot: &mut Snapshot) {
        let folder = self.env_file.parent().filter(|folder| !folder.as_os_str().is_empty());
        snapshot.folders.insert(folder.unwrap_or(Path::new(".")).to_owned());
        let text = match fs::read_to_string(&self.env_file) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return snapshot.problems.push(format!("{}: {error}", self.env_file.display())),
        };
        match env_file::read(text.as_deref().unwrap_or_default()) {
            Ok(variables) => self.variables = variables,
            Err((line, cause)) => snapshot.problems.push(format!("{}:{line}:1: {cause}", self.env_file.display())),
        }
        if text != self.env_text {
            snapshot.saved.push(self.env_file.display().to_string());
            self.env_text = text;
        }
    }
}

/// Returns the file of variables beside an input.
fn beside(input: Option<&Input>) -> PathBuf {
    match input {
        Some(Input::Path(path)) if path.is_dir() => path.join(ENV_FILE),
        Some(Input::Path(path)) => path.with_file_name(ENV_FILE),
        _ => PathBuf::from(ENV_FILE),
    }
}

/// Returns what becomes of the objects of a file that is no YAML any more.
fn stays(contents: &Contents) -> String {
    let names: Vec<String> = contents.manifests.iter().map(|manifest| manifest.id.to_string()).collect();
    match names.as_slice() {
        [] => String::new(),
        [name] => format!("; {name} stays as it was"),
        names => format!("; {} stay as they were", names.join(", ")),
    }
}

/// Problems that were reported: each is reported once for as long as it lasts.
#[derive(Debug, Default)]
pub(crate) struct ReportedProblems(BTreeSet<String>);

impl ReportedProblems {
    /// Replaces them by the present problems, and returns those that are new.
    pub(crate) fn renew(&mut self, problems: Vec<String>) -> Vec<String> {
        let now: BTreeSet<String> = problems.iter().cloned().collect();
        let before = std::mem::replace(&mut self.0, now);
        let mut fresh: Vec<String> = problems.into_iter().filter(|problem| !before.contains(problem)).collect();
        fresh.dedup();
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::example;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("recif-dev-workspace-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.0.join(name), text).unwrap();
        }

        fn workspace(&self) -> Workspace {
            Workspace::new(vec![Input::Path(self.0.clone())], false, None, "default".to_owned(), example())
        }

        /// Leaves the folder out of names.
        fn short(&self, texts: &[String]) -> Vec<String> {
            let prefix = format!("{}/", self.0.display());
            texts.iter().map(|text| text.replace(&prefix, "")).collect()
        }
    }

    const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME}\ndata: {a: A}\n";

    fn map(name: &str, value: &str) -> String {
        MAP.replace("NAME", name).replace("A}", &format!("{value}}}"))
    }

    #[test]
    fn only_files_that_are_saved_are_read_again() {
        let folder = Folder::new("saved");
        folder.write("a.yaml", &map("a", "x"));
        folder.write("b.yaml", &map("b", "x"));
        let mut workspace = folder.workspace();
        assert_eq!(folder.short(&workspace.read().saved), ["a.yaml", "b.yaml"]);
        assert!(workspace.read().saved.is_empty());
        folder.write("b.yaml", &map("b", "y"));
        folder.write("c.yaml", &map("c", "x"));
        let snapshot = workspace.read();
        assert_eq!(folder.short(&snapshot.saved), ["b.yaml", "c.yaml"]);
        assert_eq!(snapshot.manifests.len(), 3);
        fs::remove_file(folder.0.join("a.yaml")).unwrap();
        let snapshot = workspace.read();
        assert_eq!((folder.short(&snapshot.saved), snapshot.manifests.len()), (vec!["a.yaml".to_owned()], 2));
    }

    #[test]
    fn a_file_that_is_no_yaml_counts_as_it_was() {
        let folder = Folder::new("broken");
        folder.write("a.yaml", &map("a", "x"));
        folder.write("b.yaml", &map("b", "x"));
        let mut workspace = folder.workspace();
        let before = workspace.read().manifests;
        folder.write("a.yaml", "kind: x\n  a: b\n");
        let snapshot = workspace.read();
        assert_eq!(snapshot.manifests, before);
        let [problem] = &folder.short(&snapshot.problems)[..] else { panic!("{snapshot:?}") };
        assert!(problem.starts_with("a.yaml:2:") && problem.ends_with("; configmap/a stays as it was"), "{problem}");
        assert_eq!(workspace.read().problems, snapshot.problems, "it is still so");
        folder.write("a.yaml", "");
        let snapshot = workspace.read();
        assert_eq!(folder.short(&snapshot.problems), ["a.yaml: it is empty; configmap/a stays as it was"]);
        assert_eq!(snapshot.manifests, before);
    }

    #[test]
    fn variables_make_secrets_and_an_error_in_them_keeps_those_before() {
        let folder = Folder::new("variables");
        folder.write("a.yaml", "apiVersion: agents.recif.dev/v1\nkind: PluginConfig\nmetadata: {name: p}\nspec: {credentialsRef: {name: s}}\n");
        let mut workspace = folder.workspace();
        assert_eq!(workspace.read().manifests.len(), 1);
        folder.write(".env", "KEY=1\n");
        let snapshot = workspace.read();
        assert_eq!(snapshot.made, [("secret/s".to_owned(), vec!["KEY".to_owned()])]);
        assert_eq!(folder.short(&snapshot.saved), [".env"]);
        assert_eq!(snapshot.manifests.len(), 2);
        folder.write(".env", "KEY=2\nhello\n");
        let snapshot = workspace.read();
        assert_eq!(folder.short(&snapshot.problems), [".env:2:1: expected KEY=VALUE"]);
        assert_eq!((snapshot.manifests.len(), snapshot.made.len()), (2, 0));
        assert_eq!(workspace.variables()["KEY"], "1");
    }

    #[test]
    fn a_problem_is_reported_once_for_as_long_as_it_lasts() {
        let mut reported = ReportedProblems::default();
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(reported.renew(list(&["a", "b"])), ["a", "b"]);
        assert_eq!(reported.renew(list(&["b", "c"])), ["c"]);
        assert_eq!(reported.renew(list(&["a", "b"])), ["a"]);
    }

    #[test]
    fn the_file_of_variables_is_beside_the_first_file() {
        let cases = [
            (Some(Input::Path("x/agent.yaml".into())), "x/.env"),
            (Some(Input::Path("agent.yaml".into())), ".env"),
            (Some(Input::Text("-", String::new())), ".env"),
            (None, ".env"),
        ];
        for (input, expected) in cases {
            assert_eq!(beside(input.as_ref()), Path::new(expected));
        }
    }
}
