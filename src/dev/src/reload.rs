//! Changes of files: which paths have changed since the last time, when nothing has changed for a moment. Editors write a file in
//! several steps, or put another one in its place.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use crate::folder;

/// Time without a change after which files are read.
const QUIET: Duration = Duration::from_millis(50);
/// Longest wait for such a time: a program may write all the time.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Watcher of folders.
pub(crate) struct FileWatcher {
    watcher: RecommendedWatcher,
    changes: mpsc::UnboundedReceiver<PathBuf>,
    /// Folders that are watched, each with whether those below it are, too.
    watched: BTreeMap<PathBuf, bool>,
    /// Paths that have changed, and are not returned yet.
    paths: BTreeSet<PathBuf>,
    /// Time at which they are returned if nothing else changes, and at the latest.
    due: Option<(Instant, Instant)>,
}

impl FileWatcher {
    /// Starts without folders.
    ///
    /// # Errors
    /// The system has no watches left.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, changes) = mpsc::unbounded_channel();
        let handler = move |event: notify::Result<Event>| {
            for path in event.map(changed_paths).unwrap_or_default() {
                // The receiver is gone when this process ends.
                let _ = sender.send(path);
            }
        };
        let watcher = notify::recommended_watcher(handler).map_err(io::Error::other)?;
        Ok(Self { watcher, changes, watched: BTreeMap::new(), paths: BTreeSet::new(), due: None })
    }

    /// Watches these folders, each with or without those below it, and no others. Returns those that cannot be watched.
    pub(crate) fn watch(&mut self, folders: BTreeMap<PathBuf, bool>) -> Vec<String> {
        let mut problems = Vec::new();
        for (folder, recursive) in &self.watched {
            if folders.get(folder) != Some(recursive) {
                // A folder that was removed is not watched any more.
                let _ = self.watcher.unwatch(folder);
            }
        }
        let mut watched = BTreeMap::new();
        for (folder, recursive) in folders {
            let is_watched = self.watched.get(&folder) == Some(&recursive);
            let mode = if recursive { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
            match if is_watched { Ok(()) } else { self.watcher.watch(&folder, mode) } {
                Ok(()) => {
                    watched.insert(folder, recursive);
                }
                Err(error) => problems.push(format!("{}: changes are not seen: {error}", folder.display())),
            }
        }
        self.watched = watched;
        problems
    }

    /// Waits for a change and then for quiet, and returns what has changed. A call that is given up loses nothing.
    pub(crate) async fn changed(&mut self) -> BTreeSet<PathBuf> {
        loop {
            let due = self.due.map(|(quiet, latest)| quiet.min(latest));
            tokio::select! {
                Some(path) = self.changes.recv() => {
                    let now = Instant::now();
                    let latest = self.due.map_or(now + MAX_WAIT, |(_, latest)| latest);
                    self.due = Some((now + QUIET, latest));
                    self.paths.insert(path);
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.due = None;
                    return std::mem::take(&mut self.paths);
                }
                // The watcher is gone: nothing changes any more.
                else => std::future::pending::<()>().await,
            }
        }
    }
}

/// Returns the paths that an event says have changed. Reading is no change: files are read here, too.
fn changed_paths(event: Event) -> Vec<PathBuf> {
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
        EventKind::Access(_) => return Vec::new(),
        _ => {}
    }
    event.paths.into_iter().filter(|path| !is_own(path)).collect()
}

/// Reports whether a path is in the folder of this program.
fn is_own(path: &Path) -> bool {
    path.components().any(|part| matches!(part, Component::Normal(name) if name == folder::NAME))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use notify::event::{CreateKind, ModifyKind};

    use super::*;

    #[test]
    fn reading_and_own_files_are_no_changes() {
        let event = |kind: EventKind, path: &str| changed_paths(Event::new(kind).add_path(path.into())).len();
        assert_eq!(event(EventKind::Modify(ModifyKind::Any), "/x/a.yaml"), 1);
        assert_eq!(event(EventKind::Create(CreateKind::Any), "/x/a.yaml"), 1);
        assert_eq!(event(EventKind::Access(AccessKind::Close(AccessMode::Write)), "/x/a.yaml"), 1);
        assert_eq!(event(EventKind::Access(AccessKind::Open(AccessMode::Any)), "/x/a.yaml"), 0);
        assert_eq!(event(EventKind::Modify(ModifyKind::Any), "/x/.recif/logs/operator.log"), 0);
    }

    #[tokio::test]
    async fn a_file_that_is_replaced_is_a_change() {
        let folder = std::env::temp_dir().join(format!("recif-dev-reload-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("below")).unwrap();
        let mut watcher = FileWatcher::start().unwrap();
        assert_eq!(watcher.watch([(folder.clone(), false)].into()), Vec::<String>::new());
        let changed = async |watcher: &mut FileWatcher| {
            tokio::time::timeout(Duration::from_secs(10), watcher.changed()).await.expect("no change was seen")
        };
        fs::write(folder.join("a.yaml"), "1").unwrap();
        assert!(changed(&mut watcher).await.contains(&folder.join("a.yaml")));
        fs::write(folder.join("b"), "2").unwrap();
        fs::rename(folder.join("b"), folder.join("a.yaml")).unwrap();
        assert!(changed(&mut watcher).await.contains(&folder.join("a.yaml")));
        watcher.watch([(folder.clone(), true)].into());
        fs::write(folder.join("below/c.py"), "3").unwrap();
        let mut all = BTreeSet::new();
        while !all.contains(&folder.join("below/c.py")) {
            all.append(&mut changed(&mut watcher).await);
        }
    }
}
