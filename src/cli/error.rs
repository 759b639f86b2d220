//! What can go wrong in a command, said to the person who typed it.

use std::{io, path::PathBuf};

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
    /// The API server does not serve the kind.
    #[error(
        "the cluster does not know the kind {0}: install it with `recif crds | kubectl apply --server-side -f -`, or \
         choose another cluster with --context"
    )]
    NotInstalled(&'static str),
    /// The kind has no state machine in this build.
    #[error("this build does not run the kind {0}, so that there is nothing to draw")]
    NoMachine(&'static str),
    /// No usable kubeconfig.
    #[error("find out how to reach the cluster: {0}; choose one with --kubeconfig and --context")]
    Kubeconfig(String),
    /// A request failed.
    #[error("{doing}: {}", reason(.source))]
    Api {
        /// What was being done.
        doing: String,
        /// What came back.
        source: Box<kube::Error>,
    },
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
    /// Wraps a failed request with what it was for.
    pub(super) fn api(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Api { doing, source: Box::new(source) }
    }

    /// Whether whoever read our output went away.
    pub(super) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Print(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Whether the caller may not do what was tried.
    pub(super) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(source.as_ref(), kube::Error::Api(status) if status.code == 403))
    }
}

/// The API server's own sentence where there is one, else what kept us from it.
fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => {
            let mut text = other.to_string();
            let mut cause = std::error::Error::source(other);
            while let Some(deeper) = cause {
                let said = deeper.to_string();
                if !text.contains(&said) {
                    text = format!("{text}: {said}");
                }
                cause = deeper.source();
            }
            text
        }
    }
}
