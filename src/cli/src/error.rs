//! What can go wrong in a command, said to the person who typed it.

use std::{io, path::PathBuf};

use crds::ApiKind;

use super::{exit::Exit, names::is_name};
use crate::cluster::{ForwardError, ReadError, UserClient};

/// Why a command has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The word is no kind of ours.
    #[error("there is no kind {word:?}{instead}: use one of {known}")]
    UnknownKind {
        /// What was typed.
        word: String,
        /// What may have been meant.
        instead: String,
        /// The kinds, with their short names.
        known: String,
    },
    /// Neither `kind/name` nor `kind name`.
    #[error("name one object, as {0}/my-{0} or {0} my-{0}")]
    NoName(String),
    /// There is no such object.
    #[error("there is no {kind} {name} in namespace {namespace}: `recif get {plural} -A` lists those there are")]
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
    /// The Secret with the keys of the gateways cannot be used.
    #[error("Secret recif-identity in namespace {namespace}: {why}; name another namespace with --system-namespace")]
    NoIdentity {
        /// Where it was looked for.
        namespace: String,
        /// Why not.
        why: String,
    },
    /// A rotation would leave Pods behind.
    #[error(
        "some Pods do not know the next key yet, and would know neither after another rotation: roll them out first \
         (recif rollout {0}), or rotate with --force"
    )]
    LeftBehind(String),
    /// The object is being deleted.
    #[error("{kind} {name} is being deleted: there is nothing to roll out")]
    BeingDeleted {
        /// The kind.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// What was typed does not go together, or cannot be read.
    #[error("{0}")]
    Usage(String),
    /// A part of Récif is not installed where it was looked for.
    #[error(
        "there is no {part} in namespace {namespace}: install it with `kubectl apply -k config/default`, or name the \
         namespace where it is with --system-namespace{or}"
    )]
    NotInstalled {
        /// Which part.
        part: &'static str,
        /// Where it was looked for.
        namespace: String,
        /// What else could be done.
        or: &'static str,
    },
    /// A part of Récif cannot be reached.
    #[error("the {part} cannot be reached: {why}")]
    Unreachable {
        /// Which part.
        part: &'static str,
        /// Why.
        why: String,
    },
    /// A server refused, because of who asked.
    #[error("{0}")]
    Forbidden(String),
    /// A server has nothing of that name.
    #[error("{0}")]
    NotFound(String),
    /// It is there, and not ready for what was asked.
    #[error("{0}")]
    NotReady(String),
    /// It did not happen within the time.
    #[error("not done within {within}: {last}")]
    TimedOut {
        /// As it was typed.
        within: String,
        /// How it stands.
        last: String,
    },
    /// An answer that failed, in the words of whoever answered.
    #[error("{0}")]
    FailedAnswer(String),
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
    /// With which code the command ends.
    pub(super) fn code(&self) -> Exit {
        match self {
            Self::UnknownKind { .. } | Self::NoName(_) | Self::NoPods { .. } | Self::Usage(_) => Exit::Usage,
            Self::Missing { .. } | Self::NotFound(_) | Self::NoIdentity { .. } => Exit::Missing,
            Self::BeingDeleted { .. } | Self::NotReady(_) | Self::LeftBehind(_) => Exit::NotReady,
            Self::NotInstalled { .. } | Self::Unreachable { .. } => Exit::Unreachable,
            Self::Forbidden(_) => Exit::Forbidden,
            Self::TimedOut { .. } => Exit::TimedOut,
            Self::Read(error) if error.is_unreachable() => Exit::Unreachable,
            Self::Read(error) => match error.status() {
                Some(400) => Exit::Usage,
                Some(401 | 403) => Exit::Forbidden,
                _ => Exit::Failed,
            },
            Self::FailedAnswer(_) | Self::Write { .. } | Self::Print(_) | Self::Encode { .. } => Exit::Failed,
        }
    }

    /// The same, where the word that is no kind stood alone (`name` is empty) and may be the name of an object.
    pub(super) fn without_kind(self, name: &str) -> Self {
        match self {
            Self::UnknownKind { word, known, .. } if name.is_empty() && is_name(&word) => {
                Self::UnknownKind { instead: format!("; if it is a name, write agent/{word}"), word, known }
            }
            other => other,
        }
    }

    /// That a part of Récif cannot be connected to; `or` says what else could be done.
    pub(super) fn unreachable_part(part: &'static str, error: ForwardError, or: &'static str) -> Self {
        match error {
            ForwardError::NoService { namespace, .. } => Self::NotInstalled { part, namespace, or },
            ForwardError::NoPod { .. } => Self::Unreachable { part, why: error.to_string() },
            ForwardError::Read(error) if error.is_forbidden() => Self::Forbidden(format!(
                "you may not reach the {part} through the API server: {error}; have the Role recif-visitor of its \
                 namespace bound to you{or}"
            )),
            ForwardError::Read(error) => Self::Read(error),
        }
    }

    /// That the object is not there.
    pub(super) fn missing(live: &UserClient, kind: &'static ApiKind, name: &str) -> Self {
        let namespace = live.namespace.clone();
        Self::Missing { kind: kind.name, plural: kind.plural, namespace, name: name.to_owned() }
    }

    /// Whether whoever read our output went away.
    pub(super) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Print(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
