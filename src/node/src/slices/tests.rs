use serde_json::{Value, json};

use super::*;

fn service(spec: Value) -> Service {
    let mut object = json!({
        "metadata": { "name": "s", "namespace": "ns", "uid": "su", "labels": { "recif.dev/agent": "s" } },
        "spec": { "selector": { "app": "a" }, "ports": [{ "name": "http", "port": 80, "targetPort": "http" }] },
    });
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

fn pod(ready: bool, is_deleting: bool) -> Pod {
    let mut object = json!({
        "metadata": { "name": "p", "namespace": "ns", "uid": "pu", "labels": { "app": "a", "x": "y" },
            "annotations": { "recif.dev/dev-ports": "8000=21000,8888=21001" } },
        "spec": {
            "initContainers": [{ "name": "proxy", "ports": [{ "name": "http", "containerPort": 21001 }] }],
            "containers": [{ "name": "c", "ports": [{ "name": "agent", "containerPort": 21000 }] }],
        },
        "status": { "podIP": "127.0.0.1", "phase": "Running",
            "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] },
    });
    if is_deleting {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    }
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_slice_is_the_one_that_the_controller_makes() {
    let slice = serde_json::to_value(slice(&service(json!({})), &pod(true, false))).unwrap();
    let labels = json!({ "recif.dev/agent": "s", "kubernetes.io/service-name": "s",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io" });
    assert_eq!(slice["metadata"]["labels"], labels);
    let owner = json!([{ "apiVersion": "v1", "kind": "Service", "name": "s", "uid": "su", "controller": true,
        "blockOwnerDeletion": true }]);
    assert_eq!(slice["metadata"]["ownerReferences"], owner);
    assert_eq!(slice["ports"], json!([{ "name": "http", "port": 21001, "protocol": "TCP" }]));
    let endpoint = &slice["endpoints"][0];
    assert_eq!(endpoint["addresses"], json!(["127.0.0.1"]));
    assert_eq!(endpoint["targetRef"], json!({ "kind": "Pod", "name": "p", "namespace": "ns", "uid": "pu" }));
    assert_eq!(slice["addressType"], "IPv4");
    let name = slice["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("s-") && name.len() == 10, "{name}");
}

#[test]
fn conditions_say_whether_the_pod_serves_and_whether_it_goes() {
    for (ready, is_deleting, all, expected, state) in [
        (true, false, false, [true, true, false], Readiness::Ready),
        (false, false, false, [false, false, false], Readiness::No),
        (true, true, false, [false, true, true], Readiness::Leaving),
        (false, true, false, [false, false, true], Readiness::No),
        (false, false, true, [true, false, false], Readiness::Ready),
    ] {
        let service = service(json!({ "publishNotReadyAddresses": all }));
        let pod = pod(ready, is_deleting);
        let slice = slice(&service, &pod);
        let found = slice.endpoints.unwrap()[0].conditions.clone().unwrap();
        assert_eq!([found.ready, found.serving, found.terminating].map(Option::unwrap), expected);
        assert_eq!(readiness(&service, &pod), state);
    }
}

#[test]
fn a_port_leads_to_the_one_that_its_target_became() {
    let pod = pod(true, false);
    for (port, expected) in [
        (json!({ "port": 80, "targetPort": "http" }), Some(21001)),
        (json!({ "port": 80, "targetPort": "agent" }), Some(21000)),
        (json!({ "port": 80, "targetPort": 8000 }), Some(21000)),
        (json!({ "port": 8888 }), Some(21001)),
        (json!({ "port": 9 }), Some(9)),
        (json!({ "port": 80, "targetPort": "gone" }), None),
    ] {
        assert_eq!(target_port(&pod, &serde_json::from_value(port.clone()).unwrap()), expected, "{port}");
    }
}

#[test]
fn a_pod_is_behind_the_services_that_select_it() {
    let selected = |spec: Value, change: fn(&mut Pod)| {
        let mut pod = pod(true, false);
        change(&mut pod);
        is_selected(&service(spec), &pod)
    };
    assert!(selected(json!({}), |_| {}));
    assert!(!selected(json!({ "selector": { "app": "b" } }), |_| {}));
    assert!(!selected(json!({ "selector": {} }), |_| {}), "a Service without a selector has slices of others");
    assert!(!selected(json!({ "type": "ExternalName" }), |_| {}));
    assert!(!selected(json!({}), |pod| pod.metadata.namespace = Some("other".to_owned())));
    assert!(!selected(json!({}), |pod| pod.status.as_mut().unwrap().phase = Some("Failed".to_owned())));
    assert!(!selected(json!({}), |pod| pod.status.as_mut().unwrap().pod_ip = None));
}

#[test]
fn a_slice_is_written_again_only_if_it_differs() {
    let wanted = slice(&service(json!({})), &pod(true, false));
    let mut found = wanted.clone();
    found.metadata.resource_version = Some("7".to_owned());
    assert!(made_for(&found) == Some("su") && is_same(&found, &wanted));
    assert!(!is_same(&slice(&service(json!({})), &pod(false, false)), &wanted));
    found.metadata.labels = None;
    assert!(made_for(&found).is_none() && !is_same(&found, &wanted));
}

#[test]
fn a_slice_of_others_says_where_a_service_without_a_selector_leads() {
    let service = service(json!({ "selector": {}, "ports": [{ "name": "http", "port": 80 }] }));
    let slice = |namespace: &str, name: &str, port: &str| -> EndpointSlice {
        serde_json::from_value(json!({
            "metadata": { "namespace": namespace, "labels": { "kubernetes.io/service-name": name } },
            "addressType": "IPv4",
            "ports": [{ "name": "other", "port": 1 }, { "name": port, "port": 8080 }],
            "endpoints": [
                { "addresses": ["127.0.0.1"] },
                { "addresses": ["127.0.0.2"], "conditions": { "ready": false, "serving": true, "terminating": true } },
                { "addresses": ["127.0.0.3"], "conditions": { "ready": false } },
                { "addresses": ["a.example"] },
            ],
        }))
        .unwrap()
    };
    let port = &service.spec.as_ref().unwrap().ports.as_ref().unwrap()[0];
    let found = addresses(&service, port, &slice("ns", "s", "http"));
    let at = |last: u8| SocketAddr::from(([127, 0, 0, last], 8080));
    assert_eq!(found, [(at(1), Readiness::Ready), (at(2), Readiness::Leaving), (at(3), Readiness::No)]);
    for other in [slice("other", "s", "http"), slice("ns", "t", "http"), slice("ns", "s", "grpc")] {
        assert_eq!(addresses(&service, port, &other), []);
    }
}
