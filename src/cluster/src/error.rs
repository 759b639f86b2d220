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
mod tests {
    use super::*;

    fn refused(body: &str, after: Option<Duration>) -> RequestError {
        let status: Box<Status> = serde_json::from_str(body).unwrap();
        RequestError::Refused { what: "apply Deployment ns/a".into(), code: status.code, status, after }
    }

    /// Returns a word for the class, so that the table below stays readable.
    fn sort(operation: ApiOperation, body: &str) -> &'static str {
        match classify(operation, refused(body, None)) {
            ApiError::Transient { .. } => "transient",
            ApiError::NamespaceTerminating => "namespace terminating",
            ApiError::Forbidden(_) => "forbidden",
            ApiError::WrongUid(_) => "wrong uid",
            ApiError::Stale => "stale",
            ApiError::NotFound => "not found",
            ApiError::SelectorImmutable(_) => "selector",
            ApiError::Invalid(_) => "invalid",
            ApiError::Refused(_) => "refused",
        }
    }

    #[test]
    fn every_answer_has_its_sort() {
        use ApiOperation::{Apply, Create, Delete, Get, JsonPatch};
        let table = [
            (
                Apply,
                "namespace terminating",
                r#"{"kind":"Status","status":"Failure","message":"configmaps \"a-config\" is forbidden: unable to create new content in namespace ns because it is being terminated","reason":"Forbidden","details":{"name":"a-config","kind":"configmaps","causes":[{"reason":"NamespaceTerminating","message":"namespace ns is being terminated","field":"metadata.namespace"}]},"code":403}"#,
            ),
            (
                Apply,
                "forbidden",
                r#"{"kind":"Status","status":"Failure","message":"deployments.apps \"a\" is forbidden: User \"system:serviceaccount:recif:operator\" cannot patch resource \"deployments\" in API group \"apps\" in the namespace \"ns\"","reason":"Forbidden","details":{"name":"a","group":"apps","kind":"deployments"},"code":403}"#,
            ),
            (
                Apply,
                "forbidden",
                r#"{"kind":"Status","status":"Failure","message":"services \"a\" is forbidden: exceeded quota: q, requested: services=1, used: services=1, limited: services=1","reason":"Forbidden","details":{"name":"a","kind":"services"},"code":403}"#,
            ),
            (
                Apply,
                "wrong uid",
                r#"{"kind":"Status","status":"Failure","message":"Operation cannot be fulfilled on configmaps \"a\": uid mismatch: the provided object specified uid 1, and no existing object was found","reason":"Conflict","details":{"name":"a","kind":"configmaps"},"code":409}"#,
            ),
            (
                Apply,
                "wrong uid",
                r#"{"kind":"Status","status":"Failure","message":"ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \"1\": field is immutable","reason":"Invalid","details":{"name":"a","kind":"ConfigMap","causes":[{"reason":"FieldValueInvalid","message":"Invalid value: \"1\": field is immutable","field":"metadata.uid"}]},"code":422}"#,
            ),
            (
                Delete,
                "wrong uid",
                r#"{"kind":"Status","status":"Failure","message":"Operation cannot be fulfilled on deployments.apps \"a\": the UID in the precondition (1) does not match the UID in record (2). The object might have been deleted and then recreated: UID in precondition","reason":"Conflict","details":{"name":"a","group":"apps","kind":"deployments"},"code":409}"#,
            ),
            (
                Apply,
                "transient",
                r#"{"kind":"Status","status":"Failure","message":"Operation cannot be fulfilled on deployments.apps \"a\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"a","group":"apps","kind":"deployments"},"code":409}"#,
            ),
            (
                Create,
                "wrong uid",
                r#"{"kind":"Status","status":"Failure","message":"Operation cannot be fulfilled on services \"a\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"a","kind":"services"},"code":409}"#,
            ),
            (
                Apply,
                "selector",
                r#"{"kind":"Status","status":"Failure","message":"Deployment.apps \"a\" is invalid: spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"b\"}}: field is immutable","reason":"Invalid","details":{"name":"a","group":"apps","kind":"Deployment","causes":[{"reason":"FieldValueInvalid","message":"Invalid value: {\"matchLabels\":{\"app\":\"b\"}}: field is immutable","field":"spec.selector"}]},"code":422}"#,
            ),
            (
                Apply,
                "invalid",
                r#"{"kind":"Status","status":"Failure","message":"Deployment.apps \"a\" is invalid: spec.template.spec.containers[0].image: Required value","reason":"Invalid","details":{"name":"a","group":"apps","kind":"Deployment","causes":[{"reason":"FieldValueRequired","message":"Required value","field":"spec.template.spec.containers[0].image"}]},"code":422}"#,
            ),
            (
                Apply,
                "invalid",
                r#"{"kind":"Status","status":"Failure","message":"failed to create typed patch object (ns/a; apps/v1, Kind=Deployment): .spec.bad: field not declared in schema","code":500}"#,
            ),
            (
                Apply,
                "transient",
                r#"{"kind":"Status","status":"Failure","message":"etcdserver: leader changed","code":500}"#,
            ),
            (
                JsonPatch,
                "transient",
                r#"{"kind":"Status","status":"Failure","message":"failed to create typed patch object","code":500}"#,
            ),
            (
                JsonPatch,
                "stale",
                r#"{"kind":"Status","status":"Failure","message":"the server rejected our request due to an error in our request","reason":"Invalid","details":{},"code":422}"#,
            ),
            (
                JsonPatch,
                "invalid",
                r#"{"kind":"Status","status":"Failure","message":"Agent.agents.recif.dev \"a\" is invalid: status.replicas: Invalid value: \"string\"","reason":"Invalid","details":{"name":"a","causes":[{"reason":"FieldValueTypeInvalid","message":"Invalid value: \"string\"","field":"status.replicas"}]},"code":422}"#,
            ),
            (
                JsonPatch,
                "not found",
                r#"{"kind":"Status","status":"Failure","message":"agents.agents.recif.dev \"a\" not found","reason":"NotFound","details":{"name":"a","group":"agents.recif.dev","kind":"agents"},"code":404}"#,
            ),
            (
                Get,
                "transient",
                r#"{"kind":"Status","status":"Failure","message":"Too many requests, please try again later.","reason":"TooManyRequests","code":429}"#,
            ),
            (
                Get,
                "transient",
                r#"{"kind":"Status","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#,
            ),
            (
                Apply,
                "refused",
                r#"{"kind":"Status","status":"Failure","message":"deployments.apps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no Deployments today","reason":"Invalid","details":{"name":"a","group":"apps","kind":"deployments","causes":[{"message":"ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no Deployments today"}]},"code":422}"#,
            ),
            (
                Create,
                "refused",
                r#"{"kind":"Status","status":"Failure","message":"admission webhook \"w.example.com\" denied the request: id 7f3a","code":400}"#,
            ),
            (
                Apply,
                "refused",
                r#"{"kind":"Status","status":"Failure","message":"Request entity too large: limit is 3145728","reason":"RequestEntityTooLarge","code":413}"#,
            ),
        ];
        for (operation, expected, body) in table {
            assert_eq!(sort(operation, body), expected, "{operation:?} {body}");
        }
    }

    #[test]
    fn retry_after_is_passed_on() {
        let body = r#"{"message":"slow down","code":429}"#;
        let error = classify(ApiOperation::Get, refused(body, Some(Duration::from_secs(7))));
        let message = "apply Deployment ns/a: slow down (429)".into();
        assert_eq!(error, ApiError::Transient { message, after: Some(Duration::from_secs(7)) });
    }

    #[test]
    fn no_answer_is_transient() {
        let timeout = RequestError::Timeout { what: "x".into(), after: Duration::from_secs(10) };
        assert!(matches!(classify(ApiOperation::Apply, timeout), ApiError::Transient { after: None, .. }));
    }
}
