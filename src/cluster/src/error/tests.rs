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
