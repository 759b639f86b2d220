//! Program that is run for each child.

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{self, Stdio},
};

/// Program that existed at startup, with its arguments.
#[derive(Debug)]
pub(super) struct ServerCommand {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl ServerCommand {
    /// Looks up the program, in PATH if its name has no slash, so that a missing program fails the startup and not the
    /// first client.
    pub(super) fn find(words: Vec<OsString>) -> Result<Self, ArgsError> {
        let mut words = words.into_iter();
        let name = PathBuf::from(words.next().unwrap_or_default());
        let searched = name.components().count() == 1 && !name.has_root();
        let found = if searched {
            let folders = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
            env::split_paths(&folders).map(|folder| folder.join(&name)).find(|path| is_program(path))
        } else {
            Some(name.clone()).filter(|path| is_program(path))
        };
        let program = found.ok_or(ArgsError::Program(name, searched))?;
        Ok(Self { program, arguments: words.collect() })
    }

    /// Starts a process of the program, as the leader of a process group of its own, with pipes for input, output and
    /// log.
    pub(super) fn start(&self) -> io::Result<process::Child> {
        let mut command = process::Command::new(&self.program);
        command.args(&self.arguments).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    }
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// An argument that is refused. The process must not start.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ArgsError {
    /// The path would never be requested, or is one of the probes'.
    #[error("--path {0:?} is refused: it has to begin with `/` and must not be /livez or /readyz")]
    Path(String),
    /// No client of the older era could be served.
    #[error("--max-sessions 0 is refused: set it to 1 or more")]
    Sessions,
    /// The program does not exist.
    #[error("program {0:?} not found{path}; name one that the image has", path = if *.1 { " in PATH" } else { "" })]
    Program(PathBuf, bool),
}
