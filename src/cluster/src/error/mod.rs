//! Classifies responses of the API server by how the driver handles them: a pure function, tested with real responses.

use std::time::Duration;

use kube::core::Status;
use machine::ApiError;

/// Failed request. `what` names the operation, such as "apply Deployment ns/a".
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The API server did not answer within the deadline.
    #[error("{what}: no answer within {} s", after.as_secs())]
    Timeout {
        /// The operation.
        what: String,
        /// The deadline.
        after: Duration,
    },
    /// The connection could not be made, or broke.
    #[error("{what}: {cause}")]
    Transport {
        /// The operation.
        what: String,
        /// The cause.
        cause: String,
    },
    /// The API server refused.
    #[error("{what}: {} ({code})", status.message)]
    Refused {
        /// The operation.
        what: String,
        /// The HTTP status.
        code: u16,
        /// The body.
        status: Box<Status>,
        /// Delay from `Retry-After`.
        after: Option<Duration>,
    },
    /// The API server accepted, but its response cannot be decoded.
    #[error("{what}: the answer cannot be read: {cause}")]
    Unreadable {
        /// The operation.
        what: String,
        /// The error in the response.
        cause: String,
    },
    /// This replica may no longer write.
    #[error("{what}: not sent, this replica does not hold the lease")]
    NotLeading {
        /// The operation.
        what: String,
    },
}

impl RequestError {
    /// Returns the HTTP status of a refusal.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Returns the delay that the API server asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { after, .. } => *after,
            _ => None,
        }
    }

    /// Returns the error without the operation, so that it is the same for many requests that failed for the same
    /// cause.
    pub fn cause(&self) -> String {
        match self {
            Self::Timeout { .. } => "no answer".to_owned(),
            Self::Transport { cause, .. } | Self::Unreadable { cause, .. } => cause.clone(),
            Self::Refused { code, status, .. } => format!("{code} {}", status.message),
            Self::NotLeading { .. } => "not leading".to_owned(),
        }
    }
}

/// Operation of a request, which gives some responses their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiOperation {
    /// GET.
    Get,
    /// Server-side apply to an object that exists.
    Apply,
    /// Server-side apply where no object is expected.
    Create,
    /// JSON Patch.
    JsonPatch,
    /// DELETE.
    Delete,
}

/// Beginnings of 500s with which a server-side apply refuses a body that does not fit the schema.
const NOT_TYPED: [&str; 2] = ["failed to create typed patch object", "failed to convert new object"];

/// Classifies a failed request for the driver.
pub fn classify(operation: ApiOperation, error: RequestError) -> ApiError {
    let message = error.to_string();
    let RequestError::Refused { code, status, after, .. } = error else {
        return ApiError::Transient { message, after: None };
    };
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    let names = |field: &str| causes.iter().any(|cause| cause.field == field);
    let applies = matches!(operation, ApiOperation::Apply | ApiOperation::Create);
    match code {
        403 if causes.iter().any(|cause| cause.reason == "NamespaceTerminating") => ApiError::NamespaceTerminating,
        403 => ApiError::Forbidden(message),
        404 => ApiError::NotFound,
        409 if status.message.contains("uid mismatch") || status.message.contains("UID in precondition") => {
            ApiError::WrongUid(message)
        }
        409 if operation == ApiOperation::Create => ApiError::WrongUid(message),
        422 if operation == ApiOperation::JsonPatch && causes.is_empty() => ApiError::Stale,
        422 if applies && names("metadata.uid") => ApiError::WrongUid(message),
        422 if applies
            && causes.iter().any(|cause| cause.field == "spec.selector" && cause.message.contains("immutable")) =>
        {
            ApiError::SelectorImmutable(message)
        }
        // Only the API server's own validation names a field; an admission policy or webhook does not.
        422 if causes.iter().any(|cause| !cause.field.is_empty()) => ApiError::Invalid(message),
        400 | 405 | 406 | 413 | 415 | 422 if applies => ApiError::Refused(message),
        400 | 405 | 406 | 413 | 415 | 422 => ApiError::Invalid(message),
        500 if applies && NOT_TYPED.iter().any(|start| status.message.starts_with(start)) => ApiError::Invalid(message),
        _ => ApiError::Transient { message, after },
    }
}

#[cfg(test)]
mod tests;
