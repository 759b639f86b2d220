//! What the API server adds to objects of the built-in kinds, and what their creators own. The end-to-end tests compare it with the
//! real one.

#![allow(clippy::unwrap_used)]

mod common;

use common::{DEPLOYMENTS, call, deployment, server};
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
