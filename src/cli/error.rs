//! What can go wrong in a command, said to the person who typed it.

use std::{io, path::PathBuf};

use crds::Kind;

use crate::cluster::live::{Live, ReadError};

/// Why a command has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The word is no kind of ours.
    #[error("there is no kind {word:?}: use one of {known}")]
    UnknownKind {
        /// What was typed.
        word: String,
        /// The kinds, with their short names.
        known: String,
    },
    /// Neither `kind/name` nor `kind name`.
    #[error("name one object, as {0}/my-{0} or {0} my-{0}")]
    NoName(String),
    /// There is no such object.
    #[error("there is no {kind} {name} in namespace {namespace}: `kubectl get {plural} -A` lists those there are")]
    Missing {
        /// The kind.
        kind: &'static str,
        /// Its plural, for kubectl.
        plural: &'static str,
        /// Where it was looked for.
        namespace: String,
        /// The name.
        name: String,
    },
    /// Objects of the kind run nothing.
    #[error("a {kind} has no Pods that could be replaced: a rollout is for one of {workloads}")]
    NoPods {
        /// The kind.
        kind: &'static str,
        /// The kinds that have Pods.
        workloads: String,
    },
    /// The object is being deleted.
    #[error("{kind} {name} is being deleted: there is nothing to roll out")]
    Going {
        /// The kind.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The cluster could not be read, or did not take what was sent.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file could not be written.
    #[error("write {}: {source}", .path.display())]
    Write {
        /// Which file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Stdout could not be written.
    #[error("write to stdout: {0}")]
    Print(io::Error),
    /// Something of ours cannot be written as YAML or JSON: a defect.
    #[error("write {what} as text: {why}")]
    Encode {
        /// What was to be written.
        what: &'static str,
        /// Why not.
        why: String,
    },
}

impl CliError {
    /// That the object is not there.
    pub(super) fn missing(live: &Live, kind: &'static Kind, name: &str) -> Self {
        let namespace = live.namespace.clone();
        Self::Missing { kind: kind.name, plural: kind.plural, namespace, name: name.to_owned() }
    }

    /// Whether whoever read our output went away.
    pub(super) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Print(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
