//! Errors of the commands, with a text for the user.

use std::{io, path::PathBuf};

use crds::ApiKind;

use super::{exit::Exit, names::is_name};
use crate::cluster::{ForwardError, ReadError, UserClient};

/// Page on how to install, and how to sign in.
pub(crate) const INSTALL_PAGE: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/install.md");

/// Reason for which a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The word is not a kind of the API.
    #[error("unknown kind {word:?}{instead}: use one of {known}")]
    UnknownKind {
        /// Word that was typed.
        word: String,
        /// Suggestion of what may have been meant.
        instead: String,
        /// Known kinds, with their short names.
        known: String,
    },
    /// The argument is neither `kind/name` nor `kind name`.
    #[error("name one object, as {0}/my-{0} or {0} my-{0}")]
    NoName(String),
    /// The object does not exist.
    #[error("{kind} {name} not found in namespace {namespace}: `recif get {plural} -A` lists those there are")]
    Missing {
        /// Kind of the object.
        kind: &'static str,
        /// Plural of the kind, for kubectl.
        plural: &'static str,
        /// Namespace in which it was looked up.
        namespace: String,
        /// Name of the object.
        name: String,
    },
    /// Objects of the kind have no Pods.
    #[error("a {kind} has no Pods that could be replaced: a rollout is for one of {workloads}")]
    NoPods {
        /// Kind of the object.
        kind: &'static str,
        /// Kinds that have Pods.
        workloads: String,
    },
    /// The Secret with the keys of the gateways cannot be used.
    #[error("Secret recif-identity in namespace {namespace}: {why}; name another namespace with --system-namespace")]
    NoIdentity {
        /// Namespace in which it was looked up.
        namespace: String,
        /// Cause.
        why: String,
    },
    /// A rotation would leave Pods without a known key.
    #[error(
        "some Pods do not know the next key yet, and would know neither after another rotation: roll them out first \
         (recif rollout {0}), or rotate with --force"
    )]
    LeftBehind(String),
    /// The object is being deleted.
    #[error("{kind} {name} is being deleted: there is nothing to roll out")]
    BeingDeleted {
        /// Kind of the object.
        kind: &'static str,
        /// Name of the object.
        name: String,
    },
    /// The arguments contradict each other, or cannot be parsed.
    #[error("{0}")]
    Usage(String),
    /// A part of Récif is not installed where it was looked up.
    #[error(
        "no {part} found in namespace {namespace}: install it by Helm or kubectl ({INSTALL_PAGE}), or name the \
         namespace where it is with --system-namespace{or}"
    )]
    NotInstalled {
        /// Name of the part.
        part: &'static str,
        /// Namespace in which it was looked up.
        namespace: String,
        /// Alternative for the user.
        or: &'static str,
    },
    /// A part of Récif cannot be reached.
    #[error("the {part} cannot be reached: {why}")]
    Unreachable {
        /// Name of the part.
        part: &'static str,
        /// Cause.
        why: String,
    },
    /// A server refused the caller.
    #[error("{0}")]
    Forbidden(String),
    /// A server has no object of that name.
    #[error("{0}")]
    NotFound(String),
    /// The object exists, and is not ready for the request.
    #[error("{0}")]
    NotReady(String),
    /// The wait timed out.
    #[error("not done within {within}: {last}")]
    TimedOut {
        /// Timeout as it was typed.
        within: String,
        /// Last state of the object.
        last: String,
    },
    /// The user stopped it.
    #[error("{0}")]
    Interrupted(String),
    /// A failed response, in the words of the server.
    #[error("{0}")]
    FailedAnswer(String),
    /// The cluster could not be read, or refused a write.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file could not be written.
    #[error("write {}: {source}", .path.display())]
    Write {
        /// Path of the file or folder.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file could not be read.
    #[error("read {}: {source}", .path.display())]
    ReadFile {
        /// Path of the file or folder.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A text is not what its name says; with its place.
    #[error("{0}")]
    Document(String),
    /// Objects cannot be imported.
    #[error(transparent)]
    Import(#[from] ::import::ImportError),
    /// Stdout could not be written.
    #[error("write to stdout: {0}")]
    Print(io::Error),
    /// A value cannot be encoded as YAML or JSON: a defect.
    #[error("write {what} as text: {why}")]
    Encode {
        /// Name of the value.
        what: &'static str,
        /// Cause.
        why: String,
    },
}

impl CliError {
    /// Returns the exit code for the error.
    pub(super) fn code(&self) -> Exit {
        match self {
            Self::UnknownKind { .. } | Self::NoName(_) | Self::NoPods { .. } | Self::Usage(_) => Exit::Usage,
            Self::Missing { .. } | Self::NotFound(_) | Self::NoIdentity { .. } => Exit::Missing,
            Self::BeingDeleted { .. } | Self::NotReady(_) | Self::LeftBehind(_) => Exit::NotReady,
            Self::NotInstalled { .. } | Self::Unreachable { .. } => Exit::Unreachable,
            Self::Forbidden(_) => Exit::Forbidden,
            Self::TimedOut { .. } => Exit::TimedOut,
            Self::Interrupted(_) => Exit::Interrupted,
            Self::Read(error) if error.is_unreachable() => Exit::Unreachable,
            Self::Read(error) => match error.status() {
                Some(400) => Exit::Usage,
                Some(401 | 403) => Exit::Forbidden,
                _ => Exit::Failed,
            },
            Self::FailedAnswer(_)
            | Self::Write { .. }
            | Self::ReadFile { .. }
            | Self::Document(_)
            | Self::Import(_)
            | Self::Print(_)
            | Self::Encode { .. } => Exit::Failed,
        }
    }

    /// Returns the error of an unknown kind with a hint, if the word stood alone (`name` is empty) and may be the name
    /// of an object.
    pub(super) fn without_kind(self, name: &str) -> Self {
        match self {
            Self::UnknownKind { word, known, .. } if name.is_empty() && is_name(&word) => {
                Self::UnknownKind { instead: format!("; if it is a name, write agent/{word}"), word, known }
            }
            other => other,
        }
    }

    /// Returns the error for a part of Récif to which no connection can be made; `or` names an alternative.
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

    /// Returns the error for an object that does not exist.
    pub(super) fn missing(live: &UserClient, kind: &'static ApiKind, name: &str) -> Self {
        let namespace = live.namespace.clone();
        Self::Missing { kind: kind.name, plural: kind.plural, namespace, name: name.to_owned() }
    }

    /// Reports whether the reader of stdout has closed the pipe.
    pub(super) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Print(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
