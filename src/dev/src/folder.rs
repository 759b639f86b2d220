//! The folder `.recif`: it belongs to one `recif dev` at a time, and no other user may read it.
//!
//! A repository may bring a folder of this name, with links that lead elsewhere. Such a one is not used.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// Name of the folder.
pub(crate) const NAME: &str = ".recif";
/// Access for its owner alone.
const PRIVATE_FOLDER: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// Longest text of the lock that is read.
const MAX_LOCK: u64 = 4096;
/// Time for which a lock that is held is tried again, and how often.
const LOCK_TIMEOUT: Duration = Duration::from_millis(200);
const LOCK_RETRY: Duration = Duration::from_millis(10);

/// The folder, locked for this process.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    lock: File,
}

/// The folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    /// Another process has it.
    #[error("recif dev runs here already{0}")]
    Running(String),
    /// It is not one that this program made.
    #[error("{} is not used: {why}. Remove it", .path.display())]
    Foreign {
        /// The folder, or what is in it.
        path: PathBuf,
        /// Reason for the refusal.
        why: &'static str,
    },
    /// A file or folder cannot be made.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

impl Folder {
    /// Makes the folder in a directory, or takes the one that is there, and locks it.
    ///
    /// # Errors
    /// Another `recif dev` runs there, the folder is another user's, or it cannot be written.
    pub(crate) async fn open(parent: &Path) -> Result<Self, FolderError> {
        let path = parent.join(NAME);
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |source| FolderError::Io { path, source }
        };
        match DirBuilder::new().mode(PRIVATE_FOLDER).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check(&path)?,
            made => made.map_err(fail(&path))?,
        }
        // Absolute: programs get paths in it, and run in other folders.
        let path = fs::canonicalize(&path).map_err(fail(&path))?;
        let file = path.join("lock");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(PRIVATE_FILE);
        let mut lock = options.open(&file).map_err(fail(&file))?;
        match lock_exclusively(&lock).await {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FolderError::Running(holder(&mut lock))),
            Err(TryLockError::Error(source)) => return Err(FolderError::Io { path: file, source }),
        }
        let ignore = path.join(".gitignore");
        fs::write(&ignore, "*\n").map_err(fail(&ignore))?;
        let mut folder = Self { path, lock };
        folder.note("").map_err(fail(&file))?;
        Ok(folder)
    }

    /// Returns its absolute path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Notes in the lock who holds it, for the message to another one that would.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn note(&mut self, ui: &str) -> io::Result<()> {
        let text = json!({ "pid": std::process::id(), "ui": ui }).to_string();
        self.lock.set_len(0)?;
        self.lock.rewind()?;
        self.lock.write_all(text.as_bytes())
    }

    /// Writes a file that only its owner may read, in one step: no reader sees a part of it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, FolderError> {
        let (path, temporary) = (self.path.join(name), self.path.join(format!("{name}.new")));
        let written = || {
            let _ = fs::remove_file(&temporary);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(&temporary)?;
            file.write_all(text.as_bytes())?;
            fs::rename(&temporary, &path)
        };
        written().map_err(|source| FolderError::Io { path: path.clone(), source })?;
        Ok(path)
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&self, name: &str) {
        // It would lead to a server that is gone, which a command says too.
        let _ = fs::remove_file(self.path.join(name));
    }
}

/// Locks a file. It is tried for a moment, because commands take a shared lock to see whether `recif dev` runs.
async fn lock_exclusively(file: &File) -> Result<(), TryLockError> {
    let end = Instant::now() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < end => sleep(LOCK_RETRY).await,
            tried => return tried,
        }
    }
}

/// Checks that a folder is one that this program made for this user.
fn check(path: &Path) -> Result<(), FolderError> {
    let foreign = |path: &Path, why| FolderError::Foreign { path: path.to_owned(), why };
    let fail = |source| FolderError::Io { path: path.to_owned(), source };
    let found = fs::symlink_metadata(path).map_err(fail)?;
    if !found.is_dir() {
        return Err(foreign(path, "it is no folder"));
    }
    if found.uid() != rustix::process::getuid().as_raw() {
        return Err(foreign(path, "it belongs to another user"));
    }
    if found.permissions().mode() & 0o777 != PRIVATE_FOLDER {
        return Err(foreign(path, "its mode is not 0700, so it was not made by recif dev"));
    }
    for entry in fs::read_dir(path).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if entry.file_type().map_err(fail)?.is_symlink() {
            return Err(foreign(&entry.path(), "it is a symbolic link, and recif dev makes none"));
        }
    }
    Ok(())
}

/// Returns what the holder of a lock noted in it.
fn holder(lock: &mut File) -> String {
    let mut text = String::new();
    // Without a note the message is shorter.
    let _ = lock.take(MAX_LOCK).read_to_string(&mut text);
    let note: Value = serde_json::from_str(&text).unwrap_or_default();
    let pid = note["pid"].as_u64().map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    match note["ui"].as_str().unwrap_or_default() {
        "" => pid,
        ui => format!("{pid}: {ui}"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn parent(name: &str) -> PathBuf {
        let parent = std::env::temp_dir().join(format!("recif-dev-folder-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&parent);
        fs::create_dir_all(&parent).unwrap();
        parent
    }

    #[tokio::test]
    async fn one_process_has_the_folder() {
        let parent = parent("lock");
        let mut folder = Folder::open(&parent).await.unwrap();
        folder.note("http://127.0.0.1:8780/ui/").unwrap();
        let error = Folder::open(&parent).await.unwrap_err().to_string();
        let pid = std::process::id();
        assert_eq!(error, format!("recif dev runs here already (pid {pid}): http://127.0.0.1:8780/ui/"));
        drop(folder);
        Folder::open(&parent).await.unwrap();
    }

    #[tokio::test]
    async fn a_command_that_looks_at_the_lock_is_waited_for() {
        let parent = parent("probe");
        drop(Folder::open(&parent).await.unwrap());
        let probe = File::open(parent.join(NAME).join("lock")).unwrap();
        probe.try_lock_shared().unwrap();
        let looks = async {
            sleep(LOCK_TIMEOUT / 2).await;
            drop(probe);
        };
        let (opened, ()) = tokio::join!(Folder::open(&parent), looks);
        opened.unwrap();
    }

    #[tokio::test]
    async fn its_files_are_for_their_owner_alone() {
        let parent = parent("mode");
        let folder = Folder::open(&parent).await.unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for _ in 0..2 {
            let file = folder.write("kubeconfig", "x").unwrap();
            assert_eq!((mode(&file), fs::read_to_string(&file).unwrap().as_str()), (0o600, "x"));
        }
        assert_eq!((mode(folder.path()), mode(&folder.path().join("lock"))), (0o700, 0o600));
        assert_eq!(fs::read_to_string(folder.path().join(".gitignore")).unwrap(), "*\n");
        folder.remove("kubeconfig");
        folder.remove("kubeconfig");
        assert!(!folder.path().join("kubeconfig").exists());
    }

    #[tokio::test]
    async fn a_folder_of_a_repository_is_not_used() {
        let open = async |name: &str, make: &dyn Fn(&Path)| {
            let parent = parent(name);
            make(&parent.join(NAME));
            Folder::open(&parent).await.unwrap_err().to_string()
        };
        let checkout = open("checkout", &|path| {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        })
        .await;
        assert!(checkout.contains("its mode is not 0700"), "{checkout}");
        let link = open("link", &|path| symlink("/tmp", path).unwrap()).await;
        assert!(link.contains("it is no folder"), "{link}");
        let file = open("file", &|path| fs::write(path, "").unwrap()).await;
        assert!(file.contains("it is no folder"), "{file}");
        let inner = open("inner", &|path| {
            DirBuilder::new().mode(0o700).create(path).unwrap();
            symlink("/tmp", path.join("logs")).unwrap();
        })
        .await;
        assert!(inner.contains("logs is not used: it is a symbolic link"), "{inner}");
    }
}
