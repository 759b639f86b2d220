//! From files to objects: reads what is saved, applies what changed, and follows what becomes of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use kube::Client;
use tokio::time::Instant;

use crate::{
    apply::{Applier, ApplyReport, words},
    code::Code,
    kinds::Kinds,
    manifest::ObjectId,
    programs,
    screen::{Event, Screen},
    secrets,
    status::{Sight, Tracker},
    workspace::{ReportedProblems, Snapshot, Workspace},
};

/// Desired state by the files, and the progress towards it.
pub(crate) struct Desired {
    workspace: Workspace,
    applier: Applier,
    tracker: Tracker,
    code: Code,
    snapshot: Snapshot,
    reported: ReportedProblems,
    screen: Screen,
    /// Words with which a shell runs this program.
    recif: String,
    began: Instant,
    /// Objects that the last `ready` left out; none before the first.
    ready_but_for: Option<Vec<String>>,
}

impl Desired {
    /// Reads nothing yet.
    pub(crate) fn new(workspace: Workspace, client: Client, kinds: Kinds, namespace: String, screen: Screen) -> Self {
        Self {
            workspace,
            applier: Applier::new(client, kinds),
            tracker: Tracker::new(namespace),
            code: Code::default(),
            snapshot: Snapshot::default(),
            reported: ReportedProblems::default(),
            screen,
            recif: programs::own_command(),
            began: Instant::now(),
            ready_but_for: None,
        }
    }

    /// Reads the files, and applies what changed since the last time. Returns the number of problems.
    pub(crate) async fn load(&mut self) -> usize {
        let (snapshot, outcome) = self.apply().await;
        self.tell(snapshot, outcome)
    }

    /// Reloads these changed paths and reports them.
    pub(crate) async fn reload(&mut self, paths: &BTreeSet<PathBuf>) {
        let (snapshot, outcome) = self.apply().await;
        let (workloads, code) = self.code.concerned(paths);
        let now = Timestamp::now().to_string();
        let mut restarted = Vec::new();
        // What is rolled for its object needs no second time.
        for id in workloads.iter().filter(|id| !outcome.changed.contains(id)) {
            match self.applier.restart(id, &now).await {
                Ok(()) => restarted.push(self.tracker.label(id)),
                Err(error) => self.screen.problem(format!("{id} cannot be started anew: {}", words(&error))),
            }
            self.tracker.begin(id, Instant::now());
        }
        let here = std::env::current_dir().unwrap_or_default();
        let short = |path: &Path| path.strip_prefix(&here).unwrap_or(path).display().to_string();
        let files: Vec<String> = snapshot.saved.iter().cloned().chain(code.into_iter().map(short)).collect();
        if !files.is_empty() {
            let names = |ids: &[ObjectId]| ids.iter().map(|id| self.tracker.label(id)).collect();
            let (changed, deleted) = (names(&outcome.changed), names(&outcome.deleted));
            self.screen.show(&Event::Saved { files, changed, deleted, restarted });
        }
        self.tell(snapshot, outcome);
    }

    async fn apply(&mut self) -> (Snapshot, ApplyReport) {
        let mut snapshot = self.workspace.read();
        let (code, problems) = Code::of(&snapshot.manifests);
        self.code = code;
        snapshot.problems.extend(problems);
        let mut outcome = self.applier.apply(&snapshot.manifests).await;
        self.tracker.refuse(std::mem::take(&mut outcome.refused));
        let expected = snapshot.manifests.iter().map(|manifest| manifest.id.clone()).collect();
        self.tracker.expect(expected, &outcome.changed, Instant::now());
        (snapshot, outcome)
    }

    /// Shows what is new, and returns the number of problems.
    fn tell(&mut self, mut snapshot: Snapshot, outcome: ApplyReport) -> usize {
        let file = self.workspace.env_file.display().to_string();
        for (name, keys) in std::mem::take(&mut snapshot.made) {
            self.screen.show(&Event::Made { name, file: file.clone(), keys });
        }
        std::mem::take(&mut snapshot.notes).into_iter().for_each(|note| self.screen.note(note));
        let problems: Vec<String> = snapshot.problems.iter().cloned().chain(outcome.problems).collect();
        let count = problems.len();
        self.reported.renew(problems).into_iter().for_each(|problem| self.screen.problem(problem));
        self.snapshot = snapshot;
        count
    }

    /// Returns the folders in which a change may concern the files, each with whether those below it do, too. Each has one name: the
    /// system reports the changes of a folder under the name by which it was watched last.
    pub(crate) fn folders(&self) -> BTreeMap<PathBuf, bool> {
        let canonical = |folder: &PathBuf| std::fs::canonicalize(folder).unwrap_or_else(|_| folder.clone());
        let mut folders: BTreeMap<_, _> =
            self.snapshot.folders.iter().map(|folder| (canonical(folder), false)).collect();
        folders.extend(self.code.folders());
        folders
    }

    /// Takes what was seen of an object.
    pub(crate) fn see(&mut self, sight: Sight) {
        if let Some(event) = self.tracker.see(sight, Instant::now()) {
            self.screen.show(&event);
        }
        self.tell_ready();
    }

    /// Reports objects that did not become Ready in time.
    pub(crate) fn tick(&mut self) {
        let (snapshot, workspace) = (&self.snapshot, &self.workspace);
        let events = self.tracker.tick(Instant::now(), |id| advice(id, snapshot, workspace));
        events.iter().for_each(|event| self.screen.show(event));
        self.tell_ready();
    }

    /// Shows `ready` once there is nothing more to wait for, and again when nothing is left out any more.
    fn tell_ready(&mut self) {
        if self.ready_but_for.as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        if let Some(except) = self.tracker.settled()
            && (self.ready_but_for.is_none() || except.is_empty())
        {
            self.ready_but_for = Some(except.clone());
            let next = self.tracker.next_command(&self.recif);
            self.screen.show(&Event::Ready { after: self.began.elapsed(), except, next });
        }
    }

    /// Reports whether each object of a file is as it should be.
    pub(crate) fn is_ready(&self) -> bool {
        self.tracker.is_ready()
    }

    /// Shows why objects are not as they should be.
    pub(crate) fn tell_unready(&self) {
        for (id, sentence) in self.tracker.unready() {
            match advice(&id, &self.snapshot, &self.workspace) {
                Some(advice) => self.screen.problem(format!("{sentence} {advice}")),
                None => self.screen.problem(sentence),
            }
        }
    }
}

/// Returns what to put into the file of variables for an object that waits for Secrets.
fn advice(id: &ObjectId, snapshot: &Snapshot, workspace: &Workspace) -> Option<String> {
    let manifest = snapshot.manifests.iter().find(|manifest| manifest.id == *id)?;
    let keys = secrets::missing_keys(&manifest.object, &id.namespace, &snapshot.wanted, workspace.variables());
    let lines: Vec<String> = keys.iter().map(|key| format!("{key}=…")).collect();
    (!lines.is_empty()).then(|| format!("Put {} into {}.", lines.join(" and "), workspace.env_file.display()))
}
