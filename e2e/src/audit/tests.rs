//! Tests of the audit log's reader.

use super::*;

fn request(verb: &str, target: &str, uri: &str) -> AuditEvent {
    let time = "2030-01-01T00:00:00.000000Z";
    let line = format!(
        r#"{{"stage":"ResponseComplete","verb":"{verb}","requestURI":"{uri}","objectRef":{{{target}}},
            "requestReceivedTimestamp":"{time}","stageTimestamp":"{time}",
            "user":{{"username":"{OPERATOR}","uid":"1",
            "extra":{{"authentication.kubernetes.io/pod-uid":["7-8"]}}}},"responseStatus":{{"metadata":{{}},"code":200}}}}"#,
    );
    completed_requests([line.as_str()].into_iter(), SINCE).unwrap().remove(0)
}

const SINCE: AuditMark = AuditMark { offset: 0, received: Timestamp::UNIX_EPOCH };

#[test]
fn a_request_from_before_the_mark_is_not_counted_though_it_was_answered_after_it() {
    let line = |received: &str| {
        format!(
            r#"{{"stage":"ResponseComplete","verb":"create","requestURI":"/a","user":{{"username":"u"}},
                "requestReceivedTimestamp":"2030-01-01T00:00:{received}Z","stageTimestamp":"2030-01-01T00:00:09Z"}}"#
        )
    };
    let mark = AuditMark { offset: 0, received: "2030-01-01T00:00:03Z".parse().unwrap() };
    let (before, after) = (line("02.999999"), line("03.000001"));
    let counted = completed_requests([before.as_str(), &after].into_iter(), mark).unwrap();
    assert_eq!(counted.iter().map(|it| it.received.as_millisecond() % 60_000).collect::<Vec<_>>(), [3000]);
}

fn lines(stages: &[(&str, &str, &str)]) -> String {
    let line = |(stage, id, uri): &(&str, &str, &str)| {
        format!("{{\"level\":\"Metadata\",\"auditID\":\"{id}\",\"stage\":\"{stage}\",\"requestURI\":\"{uri}\"}}\n")
    };
    stages.iter().map(line).collect()
}

#[test]
fn a_read_ends_when_every_write_before_the_fence_is_answered() {
    let until_fence = [
        ("RequestReceived", "w1", "/a"),
        ("RequestReceived", "w2", "/b"),
        ("ResponseComplete", "w1", "/a"),
        ("ResponseComplete", "f", "/fence-1-1"),
    ];
    let (fence, mut text) = ("/fence-1-1\"", lines(&until_fence));
    let fence_line = text.len() - lines(&until_fence[3..]).len()..text.len();
    let missing = end_of_answers(&text, fence).unwrap_err();
    assert!(missing.contains("w2") && !missing.contains("w1"), "{missing}");
    text += &lines(&[("RequestReceived", "later", "/c"), ("ResponseComplete", "w2", "/b")]);
    let end = text.len();
    text += &lines(&[("ResponseComplete", "later", "/c")]);
    assert_eq!(end_of_answers(&text, fence), Ok((fence_line, end)));
    let missing = end_of_answers(&text, "/fence-1-2\"").unwrap_err();
    assert!(missing.starts_with("our own request"), "{missing}");
}

#[test]
fn a_read_ends_at_the_fence_when_every_earlier_write_was_answered() {
    let text = lines(&[
        ("RequestReceived", "w1", "/a"),
        ("ResponseStarted", "w1", "/a"),
        ("ResponseComplete", "read", "/b"),
        ("ResponseComplete", "f", "/fence-1-1"),
    ]);
    let end = end_of_answers(&text, "/fence-1-1\"").map(|(_, end)| end);
    assert_eq!(end, Ok(text.len()), "a stream counts as answered when it starts");
}

#[test]
fn a_dry_run_is_no_write() {
    let target = r#""resource":"deployments","namespace":"a","name":"b""#;
    assert!(request("patch", target, "/b?fieldManager=m").is_write());
    assert!(!request("patch", target, "/b?dryRun=All&fieldManager=m").is_write());
    assert!(!request("get", target, "/b").is_write());
}

#[test]
fn watches_and_the_lease_are_upkeep() {
    assert!(request("watch", r#""resource":"agents""#, "/agents?watch=true").is_upkeep());
    assert!(request("update", r#""resource":"leases","name":"l""#, "/l").is_upkeep());
    assert!(request("get", "", "/version").is_upkeep());
    assert!(!request("list", r#""resource":"agents""#, "/agents").is_upkeep());
}

#[test]
fn a_subresource_is_part_of_the_resource() {
    let target = r#""resource":"agents","subresource":"status","namespace":"a","name":"b""#;
    let request = request("patch", target, "/status");
    assert_eq!(request.resource(), "agents/status");
    assert_eq!(request.to_string(), "patch agents/status a/b 200");
    assert!(request.is_by(OPERATOR));
    assert_eq!(request.pod_uid(), "7-8");
}
