use super::*;
use crate::decode::object_version;

fn read(status: &str) -> WorkloadPod {
    let json = format!(
        r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u","resourceVersion":"1"}},
        "spec":{{"containers":[{{"name":"agent","image":"corail:latest"}}]}},"status":{status}}}"#
    );
    pod(&object_version(&json).unwrap(), &json).unwrap()
}

fn trouble(container: &str) -> Option<PodProblem> {
    read(&format!(r#"{{"containerStatuses":[{{"name":"agent",{container}}}]}}"#)).problem
}

#[test]
fn the_reason_is_a_class_and_what_the_user_wrote() {
    let image = "corail:latest".to_owned();
    for reason in ["ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"] {
        let pull = Some(PodProblem::ImagePull { image: image.clone() });
        assert_eq!(trouble(&format!(r#""state":{{"waiting":{{"reason":"{reason}"}}}}"#)), pull);
    }
    let never = r#""state":{"waiting":{"reason":"ErrImageNeverPull","message":"MESSAGE"}}"#;
    for (message, expected) in [
        (
            "Container image \\\"corail:latest\\\" is not present with pull policy of Never",
            PodProblem::ImageNeverPull { image: image.clone() },
        ),
        (
            "image corail:latest needs a container, which is not run here: name what runs instead",
            PodProblem::NeedsContainer { image },
        ),
    ] {
        assert_eq!(trouble(&never.replace("MESSAGE", message)), Some(expected));
    }
    let missing =
        r#""state":{"waiting":{"reason":"CreateContainerConfigError","message":"secret \"keys\" not found"}}"#;
    let object = r#"secret "keys""#.into();
    assert_eq!(trouble(missing), Some(PodProblem::CreateContainerConfigError { object }));
    let key = missing.replace(r#"secret \"keys\" not found"#, "couldn't find key a in Secret ns/keys");
    let object = r#"key "a" in Secret "keys""#.into();
    assert_eq!(trouble(&key), Some(PodProblem::CreateContainerConfigError { object }));
    assert_eq!(trouble(r#""state":{"waiting":{"reason":"ContainerCreating"}}"#), None);
}

#[test]
fn a_crash_loop_does_not_flap_between_attempts() {
    let ended = r#""lastState":{"terminated":{"exitCode":3}},"restartCount":2"#;
    let expected = Some(PodProblem::CrashLoop { container: "agent".into(), exit_code: 3 });
    for state in [r#"{"waiting":{"reason":"CrashLoopBackOff"}}"#, "{}", r#"{"terminated":{"exitCode":3}}"#] {
        assert_eq!(trouble(&format!(r#""state":{state},{ended}"#)), expected, "{state}");
    }
    assert_eq!(trouble(r#""lastState":{"terminated":{"exitCode":3}},"restartCount":1"#), None, "merely starting");
}

#[test]
fn what_keeps_an_init_container_or_the_sidecar_from_running_is_said_first() {
    let with = |sidecar: &str| {
        let json = format!(
            r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u","resourceVersion":"1"}},
            "spec":{{"containers":[{{"name":"agent","image":"a"}}],"initContainers":[{{"name":"proxy","image":"r/p"}}]}},
            "status":{{"initContainerStatuses":[{{"name":"proxy",{sidecar}}}],
            "containerStatuses":[{{"name":"agent","state":{{"waiting":{{"reason":"PodInitializing"}}}}}}]}}}}"#
        );
        pod(&object_version(&json).unwrap(), &json).unwrap().problem
    };
    let image = Some(PodProblem::ImagePull { image: "r/p".into() });
    assert_eq!(with(r#""state":{"waiting":{"reason":"ImagePullBackOff"}}"#), image);
    let crash = Some(PodProblem::CrashLoop { container: "proxy".into(), exit_code: 2 });
    let ended = r#""restartCount":3,"lastState":{"terminated":{"exitCode":2}}"#;
    assert_eq!(with(&format!(r#""state":{{"waiting":{{"reason":"CrashLoopBackOff"}}}},{ended}"#)), crash);
    assert_eq!(with(r#""ready":false,"restartCount":0,"state":{"running":{}}"#), None, "it is ready after the agent");
}

#[test]
fn where_it_is_and_what_it_costs_to_delete_it() {
    let here = read(r#"{"podIP":"10.1.2.3"}"#);
    assert_eq!((here.ip, here.deletion_cost), (Some([10, 1, 2, 3].into()), None));
    let costs = r#"{"metadata":{"name":"p","namespace":"ns","uid":"u","resourceVersion":"1",
        "annotations":{"a":"b","controller.kubernetes.io/pod-deletion-cost":"-7"}}}"#;
    assert_eq!(pod(&object_version(costs).unwrap(), costs).unwrap().deletion_cost, Some(-7));
}

#[test]
fn its_sidecar_listens_where_the_pod_says() {
    let port = |containers: &str| {
        let json = format!(
            r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u","resourceVersion":"1"}},
            "spec":{{"hostNetwork":true,{containers}}},"status":{{"podIP":"127.0.0.1","hostIP":"127.0.0.1"}}}}"#
        );
        let pod = pod(&object_version(&json).unwrap(), &json).unwrap();
        assert_eq!(pod.ip, Some([127, 0, 0, 1].into()));
        pod.port
    };
    let proxy = |port: &str| format!(r#""initContainers":[{{"name":"proxy","ports":[{port}]}}]"#);
    assert_eq!(port(&proxy(r#"{"name":"http","containerPort":21004,"hostPort":21004}"#)), 21004);
    assert_eq!(port(&proxy(r#"{"name":"metrics","containerPort":9},{"name":"http","containerPort":21004}"#)), 21004);
    let sidecar = r#""initContainers":[{"name":"proxy"}]"#;
    let both = r#"{"name":"agent","containerPort":21003},{"name":"http","containerPort":21004}"#;
    assert_eq!(port(&format!(r#"{sidecar},"containers":[{{"name":"flow","ports":[{both}]}}]"#)), 21004);
    for other in [
        proxy(""),
        proxy(r#"{"containerPort":21004}"#),
        proxy(r#"{"name":"http","containerPort":70000}"#),
        r#""containers":[{"name":"agent","ports":[{"name":"http","containerPort":8000}]}]"#.to_owned(),
        r#""containers":[{"name":"agent","ports":null}]"#.to_owned(),
    ] {
        assert_eq!(port(&other), 8888, "{other}");
    }
}

#[test]
fn a_ready_pod_has_no_trouble() {
    let pod = read(
        r#"{"conditions":[{"type":"Ready","status":"True"}],
        "containerStatuses":[{"name":"agent","ready":true,"restartCount":5,"lastState":{"terminated":{"exitCode":1}}}]}"#,
    );
    assert_eq!((pod.ready, pod.problem), (true, None));
}
