//! Files of logs: one per workload and container, and an older one when it grows too large.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;

/// Size at which a file becomes the older one, in bytes.
const MAX_SIZE: u64 = 5 * 1024 * 1024;

/// Files by their path.
#[derive(Debug)]
pub(crate) struct LogFiles {
    folder: PathBuf,
    files: Mutex<HashMap<PathBuf, Arc<LogFile>>>,
}

impl LogFiles {
    /// Makes files below a folder.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, files: Mutex::default() }
    }

    /// Returns the file of this name for a namespace.
    pub(crate) fn open(&self, namespace: &str, name: &str) -> Arc<LogFile> {
        let path = self.folder.join(namespace).join(format!("{name}.log"));
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.entry(path.clone()).or_insert_with(|| Arc::new(LogFile { path, open: Mutex::default() })).clone()
    }
}

/// File of a log. It is opened with its first line.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    open: Mutex<Opened>,
}

#[derive(Debug, Default)]
struct Opened {
    file: Option<File>,
    size: u64,
    /// Set when a line could not be written, which is reported once.
    has_failed: bool,
}

impl LogFile {
    /// Writes a line of a Pod with its time.
    pub(crate) fn write(&self, pod: &str, at: Timestamp, line: &str) {
        let mut opened = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let text = format!("{at} {pod} {line}\n");
        if let Err(error) = self.append(&mut opened, text.as_bytes())
            && !std::mem::replace(&mut opened.has_failed, true)
        {
            tracing::warn!(%error, "the log {} is not written", self.path.display());
        }
    }

    fn append(&self, opened: &mut Opened, bytes: &[u8]) -> io::Result<()> {
        if opened.size + bytes.len() as u64 > MAX_SIZE {
            opened.file = None;
            // Also after an error the next line opens the file anew.
            opened.size = 0;
            match fs::rename(&self.path, self.path.with_extension("log.1")) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let file = match &mut opened.file {
            Some(file) => file,
            none => {
                if let Some(folder) = self.path.parent() {
                    fs::create_dir_all(folder)?;
                }
                let file = OpenOptions::new().create(true).append(true).open(&self.path)?;
                opened.size = file.metadata()?.len();
                none.insert(file)
            }
        };
        file.write_all(bytes)?;
        opened.size += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestFolder;

    #[test]
    fn a_file_grows_and_becomes_the_older_one() {
        let folder = TestFolder::new();
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        let files = LogFiles::new(folder.path().to_owned());
        files.open("ns", "agent-a").write("p-1", at, "first");
        let path = folder.path().join("ns/agent-a.log");
        assert_eq!(fs::read_to_string(&path).unwrap(), "2027-01-15T08:00:00Z p-1 first\n");
        let large = "x".repeat(MAX_SIZE as usize - 60);
        files.open("ns", "agent-a").write("p-2", at, &large);
        files.open("ns", "agent-a").write("p-2", at, "last");
        assert_eq!(fs::read_to_string(&path).unwrap(), "2027-01-15T08:00:00Z p-2 last\n");
        let older = fs::read_to_string(folder.path().join("ns/agent-a.log.1")).unwrap();
        assert!(older.contains("p-1 first\n"));
        // Another start goes on with the file.
        LogFiles::new(folder.path().to_owned()).open("ns", "agent-a").write("p-3", at, "more");
        assert!(fs::read_to_string(&path).unwrap().ends_with("p-2 last\n2027-01-15T08:00:00Z p-3 more\n"));
    }
}
