//! Tests of what the API server adds to objects of the built-in kinds, and what their creators own. The end-to-end tests compare it
//! with the real one.

#![allow(clippy::unwrap_used)]

mod common;

use common::{APPLY, DEPLOYMENTS, PODS, call, deployment, patch, pod, server};
use serde_json::{Value, json};

const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const OWNED: &str = "/metadata/managedFields/0/fieldsV1";

fn named(spec: Value) -> Value {
    json!({ "metadata": { "name": "a" }, "spec": spec })
}

#[tokio::test]
async fn defaults_and_empty_parts_are_those_of_the_api_server() {
    let server = server();
    let headless = json!({ "clusterIP": "None" });
    let selecting = json!({ "clusterIP": "None", "selector": { "a": "b" } });
    let slice = json!({
        "metadata": { "name": "a" }, "addressType": "IPv4", "ports": [{ "port": 80 }], "endpoints": [{ "addresses": ["10.0.0.1"] }],
    });
    let counts = json!({ "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0 });
    let cases = [
        (SERVICES, named(headless.clone()), "/spec/clusterIPs", json!(["None"])),
        (SERVICES, named(headless), "/spec/ipFamilyPolicy", json!("RequireDualStack")),
        (SERVICES, named(selecting.clone()), "/spec/ipFamilyPolicy", json!("SingleStack")),
        (SERVICES, named(selecting), "/status", json!({ "loadBalancer": {} })),
        (SLICES, slice.clone(), "/ports", json!([{ "name": "", "port": 80, "protocol": "TCP" }])),
        (SLICES, slice, "/endpoints", json!([{ "addresses": ["10.0.0.1"], "conditions": {} }])),
        (BUDGETS, named(json!({ "maxUnavailable": 1 })), "/status", counts),
        (DEPLOYMENTS, deployment("a"), "/status", json!({})),
    ];
    for (path, object, pointer, expected) in cases {
        let (code, created) = call(&server, &format!("POST {path}?dryRun=All"), object).await;
        assert_eq!((code, created.pointer(pointer)), (201, Some(&expected)), "{path} {pointer}");
    }
}

#[tokio::test]
async fn a_pod_is_completed_as_no_template_is() {
    let server = server();
    let mut body = pod("a");
    body["spec"]["hostNetwork"] = true.into();
    body["spec"]["containers"][0]["ports"] = json!([{ "containerPort": 80 }, { "containerPort": 81, "hostPort": 81 }]);
    body["spec"]["containers"][0]["resources"] =
        json!({ "limits": { "cpu": "1", "memory": "64Mi" }, "requests": { "cpu": "500m" } });
    let (code, created) = call(&server, &format!("POST {PODS}"), body.clone()).await;
    assert_eq!((code, &created["spec"]["enableServiceLinks"]), (201, &json!(true)));
    let container = &created["spec"]["containers"][0];
    let ports = container["ports"].as_array().unwrap().iter().map(|port| port["hostPort"].clone());
    assert_eq!(ports.collect::<Vec<_>>(), [80, 81]);
    assert_eq!(container["resources"]["requests"], json!({ "cpu": "500m", "memory": "64Mi" }));
    let mut template = deployment("a");
    template["spec"]["template"]["spec"] = body["spec"].clone();
    let (_, created) = call(&server, &format!("POST {DEPLOYMENTS}"), template).await;
    let spec = &created["spec"]["template"]["spec"];
    assert_eq!((spec.get("enableServiceLinks"), &spec["containers"][0]["ports"][0].get("hostPort")), (None, &None));
}

#[tokio::test]
async fn a_node_port_stays_while_others_apply_the_service() {
    let server = server();
    let service = |node_port: Option<u16>| {
        let mut port = json!({ "port": 80 });
        if let Some(node_port) = node_port {
            port["nodePort"] = node_port.into();
        } else {
            port["name"] = "http".into();
        }
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "a" }, "spec": { "ports": [port] } })
    };
    let path = format!("{SERVICES}/a");
    patch(&server, &format!("{path}?fieldManager=operator"), APPLY, service(None)).await;
    patch(&server, &format!("{path}?fieldManager=node"), APPLY, service(Some(20417))).await;
    let (code, applied) = patch(&server, &format!("{path}?fieldManager=operator"), APPLY, service(None)).await;
    let port = json!({ "name": "http", "port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": 20417 });
    assert_eq!((code, &applied["spec"]["ports"]), (200, &json!([port])));
    assert_eq!((applied["spec"].get("clusterIP"), &applied["spec"]["type"]), (None, &json!("ClusterIP")));
}

#[tokio::test]
async fn a_creator_owns_nothing_that_go_always_has() {
    let server = server();
    let policy = named(json!({ "podSelector": {}, "policyTypes": ["Ingress"] }));
    let event = json!({
        "metadata": { "name": "a" }, "involvedObject": { "name": "a", "namespace": "default" }, "source": { "component": "c" },
    });
    let namespace = json!({ "metadata": { "name": "a" } });
    let containers = format!("{OWNED}/f:spec/f:template/f:spec/f:containers/.");
    let cases = [
        (DEPLOYMENTS, deployment("a"), containers),
        (POLICIES, policy, format!("{OWNED}/f:spec/f:podSelector")),
        ("/api/v1/namespaces/default/events", event, format!("{OWNED}/f:source/.")),
        ("/api/v1/namespaces", namespace, format!("{OWNED}/f:spec")),
    ];
    for (path, object, pointer) in cases {
        let (code, created) = call(&server, &format!("POST {path}"), object).await;
        let parent = pointer.rsplit_once('/').unwrap().0;
        assert!(code == 201 && created.pointer(parent).is_some(), "{path}: {created}");
        assert_eq!(created.pointer(&pointer), None, "{path}");
    }
}
