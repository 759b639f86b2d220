//! Program of a container: one of ours by image or path, the annotation `recif.dev/dev-command`, or the container's command.

use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crds::{agent::DEFAULT_IMAGE, pod_problem::NEEDS_CONTAINER};
use k8s_openapi::api::core::v1::Container;

/// Annotation of an object: the command that its container runs here, as words of a shell.
pub const DEV_COMMAND: &str = "recif.dev/dev-command";
/// Annotation of an object: the folder of its file, in which its program runs.
pub const DEV_FOLDER: &str = "recif.dev/dev-folder";
/// Image of the sidecar and of the bridge: give it to the operator as `--proxy-image`.
pub const PROXY_IMAGE: &str = "recif.local/proxy:dev";
/// Image of the runner: give it to the operator as `--runner-image`.
pub const RUNNER_IMAGE: &str = "recif.local/runner:dev";

/// File names of our programs.
const PROXY: &str = "recif-proxy";
const RUNNER: &str = "recif-runner";
/// First argument of the bridge.
const BRIDGE: &str = "mcp-bridge";
/// First argument by which the sidecar's program copies itself to a volume.
const INSTALL: &str = "install";

/// Programs of ours on this machine, as absolute paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// `recif-proxy`: the sidecar, and the bridge.
    pub proxy: PathBuf,
    /// `recif-runner`.
    pub runner: PathBuf,
}

/// Command of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// A program with its arguments.
    Run(PathBuf, Vec<String>),
    /// Nothing: it would copy a program that is on this machine already.
    Done,
}

/// A container that cannot run here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProgramError {
    /// Ends in the words by which the state machines know a missing object.
    #[error("program \"{0}\" not found")]
    Missing(String),
    /// The container names an image, and nothing to run without it.
    #[error("image {0} {NEEDS_CONTAINER}: name what runs instead, as {DEV_COMMAND}: uv run shop.py")]
    OnlyImage(String),
    /// The annotation is no command.
    #[error("{DEV_COMMAND} {0:?} cannot be read: close its quotes, and name a program")]
    Unreadable(String),
}

impl ProgramError {
    /// Returns the reason for which the container waits.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::OnlyImage(_) => "ErrImageNeverPull",
            Self::Missing(_) | Self::Unreadable(_) => "CreateContainerError",
        }
    }

    /// Returns the sentence for the user.
    pub(crate) fn advice(&self) -> String {
        match self {
            Self::Missing(_) => format!("{self} on PATH: install it, or set the annotation {DEV_COMMAND}"),
            _ => self.to_string(),
        }
    }
}

impl Programs {
    /// Reports whether a container runs a program of ours, as long as no annotation says otherwise.
    pub(crate) fn is_ours(&self, container: &Container) -> bool {
        match container.command.iter().flatten().next() {
            Some(program) => self.by_path(program).is_some(),
            None => self.by_image(container).is_some(),
        }
    }

    fn by_image(&self, container: &Container) -> Option<&Path> {
        match container.image.as_deref().unwrap_or_default() {
            PROXY_IMAGE => Some(&self.proxy),
            RUNNER_IMAGE | DEFAULT_IMAGE => Some(&self.runner),
            _ => None,
        }
    }

    /// Returns the program of ours that is meant by a path in an image, such as `/recif/recif-proxy`.
    fn by_path(&self, program: &str) -> Option<&Path> {
        let path = Path::new(program);
        let name = path.file_name().filter(|_| path.is_absolute())?;
        if name == PROXY {
            Some(&self.proxy)
        } else if name == RUNNER {
            Some(&self.runner)
        } else {
            None
        }
    }
}

/// Surroundings in which a command is looked up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lookup<'a> {
    /// Programs of ours.
    pub(crate) programs: &'a Programs,
    /// Annotation [`DEV_COMMAND`], if the container is the one that it is meant for.
    pub(crate) dev_command: Option<&'a str>,
    /// Folder in which the program runs.
    pub(crate) folder: &'a Path,
    /// Variables of the program, PATH among them.
    pub(crate) variables: &'a BTreeMap<String, String>,
}

impl Lookup<'_> {
    /// Returns what a container runs. `place` fills in variables, and the folder of a volume for its mount path.
    ///
    /// # Errors
    /// The program does not exist, or only an image is named.
    pub(crate) fn command(
        &self,
        container: &Container,
        place: impl Fn(&str) -> String,
    ) -> Result<Command, ProgramError> {
        let words = |words: &Option<Vec<String>>| words.iter().flatten().map(|word| place(word)).collect::<Vec<_>>();
        let (command, args) = (words(&container.command), words(&container.args));
        let ours = match container.command.iter().flatten().next() {
            Some(program) => self.programs.by_path(program),
            None => self.programs.by_image(container),
        };
        let dev = self.dev_command.map(|text| self.dev_words(text, &place)).transpose()?;
        let given: Vec<String> = command.iter().skip(1).chain(&args).cloned().collect();
        if let Some(program) = ours {
            return match (given.first().map(String::as_str), dev) {
                (Some(INSTALL), _) if program == self.programs.proxy => Ok(Command::Done),
                (Some(BRIDGE), dev) => self.bridge(program, given, dev),
                (_, Some(words)) => self.run(words),
                (_, None) => Ok(Command::Run(program.to_owned(), given)),
            };
        }
        match dev {
            Some(words) => self.run(words),
            None if command.is_empty() => Err(ProgramError::OnlyImage(container.image.clone().unwrap_or_default())),
            None => self.run(command.into_iter().chain(args).collect()),
        }
    }

    /// Reads the annotation.
    fn dev_words(&self, text: &str, place: impl Fn(&str) -> String) -> Result<Vec<String>, ProgramError> {
        let words = shlex::split(text).filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| ProgramError::Unreadable(text.to_owned()))?;
        Ok(words.iter().map(|word| place(word)).collect())
    }

    /// Returns the bridge in front of the server's program, which is looked up here, so that a missing one is reported at once.
    fn bridge(&self, bridge: &Path, given: Vec<String>, dev: Option<Vec<String>>) -> Result<Command, ProgramError> {
        let end = given.iter().position(|word| word == "--").map_or(given.len(), |at| at + 1);
        let (options, server) = given.split_at(end);
        let words = dev.unwrap_or_else(|| server.to_vec());
        let (program, arguments) = self.exec(words)?;
        let program = program.into_os_string().into_string();
        let program = program.map_err(|path| ProgramError::Missing(path.to_string_lossy().into_owned()))?;
        Ok(Command::Run(bridge.to_owned(), options.iter().cloned().chain([program]).chain(arguments).collect()))
    }

    fn run(&self, words: Vec<String>) -> Result<Command, ProgramError> {
        self.exec(words).map(|(program, arguments)| Command::Run(program, arguments))
    }

    /// Returns the program that is the first of these words, and the others as its arguments.
    ///
    /// # Errors
    /// The program does not exist.
    pub(crate) fn exec(&self, words: Vec<String>) -> Result<(PathBuf, Vec<String>), ProgramError> {
        let mut words = words.into_iter();
        let name = words.next().unwrap_or_default();
        let found = self.find(&name).ok_or(ProgramError::Missing(name))?;
        Ok((found, words.collect()))
    }

    /// Finds a program: one of ours by its name, another one by its path from the folder or on PATH; one with an absolute path that is not
    /// there by its last part.
    fn find(&self, name: &str) -> Option<PathBuf> {
        if let Some(ours) = self.programs.by_path(name) {
            return Some(ours.to_owned());
        }
        let path = Path::new(name);
        if name.contains('/') {
            let there = self.folder.join(path);
            if is_program(&there) {
                return Some(there);
            }
        }
        let last = path.file_name().filter(|_| path.is_absolute() || !name.contains('/'))?;
        let folders = self.variables.get("PATH").map_or("/usr/local/bin:/usr/bin:/bin", String::as_str);
        env::split_paths(folders).map(|folder| self.folder.join(folder).join(last)).find(|path| is_program(path))
    }
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests;
