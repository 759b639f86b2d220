//! Reasons why a request to the cluster failed.

use std::path::PathBuf;

/// Reason for which a request to the cluster failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no usable kubeconfig.
    #[error("find out how to reach the cluster: {0}; choose one with --kubeconfig and --context")]
    Kubeconfig(String),
    /// A `recif dev` runs in the folder, and has no usable kubeconfig: it has not written it yet, or has removed it at its end.
    #[error("recif dev in {} is starting or ending: try again, or choose another cluster with --context", .0.display())]
    Starting(PathBuf),
    /// The API server does not serve the kind.
    #[error(
        "the cluster does not know the kind {0}: install it with `recif crds | kubectl apply --server-side -f -`, or \
         choose another cluster with --context"
    )]
    NotInstalled(&'static str),
    /// A request failed.
    #[error("{doing}: {}", reason(.source))]
    Request {
        /// Description of the request.
        doing: String,
        /// Cause.
        source: Box<kube::Error>,
    },
}

impl ReadError {
    /// Reports whether the API server refused the request for lack of rights.
    pub fn is_forbidden(&self) -> bool {
        self.status() == Some(403)
    }

    /// Reports whether the API server cannot be reached, or does not serve the kind.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Kubeconfig(_) | Self::Starting(_) | Self::NotInstalled(_) => true,
            Self::Request { source, .. } => {
                !matches!(source.as_ref(), kube::Error::Api(_) | kube::Error::SerdeError(_))
            }
        }
    }

    /// Returns the status code of the API server's refusal, if it is one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Request { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the words of the API server if it answered, else the reason for which it was not reached.
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::Request { source, .. } => reason(source),
            other => other.to_string(),
        }
    }

    pub(super) fn request(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Request { doing, source: Box::new(source) }
    }
}

/// Returns the message of the API server if it sent one, else the reason for which it was not reached.
fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        kube::Error::Service(inner) => format!(
            "the API server cannot be reached ({}): see whether it runs, or choose another cluster with --context",
            error_chain(inner.as_ref())
        ),
        other => error_chain(other),
    }
}

/// Returns an error with its causes, without repeating texts.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        let cause_text = deeper.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        cause = deeper.source();
    }
    text
}
