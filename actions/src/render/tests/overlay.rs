//! Tests `spec.podTemplate`: the changes it makes, and those that are rejected.

use serde_json::{Value, json};

use super::template;

fn with(overlay: Value) -> Value {
    template(json!({ "env": [{ "name": "A", "value": "1" }], "podTemplate": overlay })).unwrap()
}

#[test]
fn it_is_merged_by_name() {
    let overlay = json!({
        "metadata": {
            "labels": { "team": "blue", "app.kubernetes.io/part-of": "shop" },
            "annotations": { "example.com/scrape": "true" },
        },
        "spec": {
            "nodeSelector": { "disk": "ssd" },
            "tolerations": [{ "key": "gpu", "operator": "Exists" }],
            "terminationGracePeriodSeconds": 60,
            "securityContext": { "runAsUser": 2000, "fsGroup": 2000 },
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
            "initContainers": [{ "name": "fetch", "image": "fetch:1" }],
            "containers": [
                { "name": "log", "image": "log:1" },
                {
                    "name": "agent",
                    "env": [{ "name": "A", "value": "2" }, { "name": "B", "value": "3" }],
                    "ports": [{ "name": "metrics", "containerPort": 9090 }],
                    "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                    "securityContext": { "capabilities": { "add": ["NET_BIND_SERVICE"] } },
                },
            ],
        },
    });
    insta::assert_yaml_snapshot!(with(overlay));
}

#[test]
fn the_image_may_bring_its_own_user() {
    let security = |overlay: Value| with(json!({ "spec": overlay }))["spec"]["securityContext"].clone();
    assert_eq!(security(json!({ "securityContext": { "runAsUser": 2000 } }))["runAsUser"], 2000);
    let none = security(json!({ "securityContext": { "runAsUser": null, "runAsGroup": null } }));
    assert_eq!(none, json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } }));
}

#[test]
fn a_choice_of_one_is_replaced_as_a_whole() {
    let from = json!({ "fieldRef": { "fieldPath": "metadata.name" } });
    let template = with(json!({
        "spec": {
            "volumes": [{ "name": "tmp", "persistentVolumeClaim": { "claimName": "big" } }],
            "containers": [{
                "name": "agent",
                "env": [{ "name": "A", "valueFrom": from }],
                "volumeMounts": [{ "name": "other", "mountPath": "/tmp" }],
                "livenessProbe": { "exec": { "command": ["true"] } },
                "readinessProbe": null,
            }],
        },
    }));
    let spec = &template["spec"];
    assert_eq!(spec["volumes"], json!([{ "name": "tmp", "persistentVolumeClaim": { "claimName": "big" } }]));
    let container = &spec["containers"][0];
    assert_eq!(container["env"][1], json!({ "name": "A", "valueFrom": from }));
    assert_eq!(container["volumeMounts"], json!([{ "name": "other", "mountPath": "/tmp" }]));
    let probe = json!({ "exec": { "command": ["true"] }, "initialDelaySeconds": 5, "periodSeconds": 10 });
    assert_eq!(container["livenessProbe"], probe);
    assert!(container.get("readinessProbe").is_none());
}

#[test]
fn an_empty_overlay_changes_nothing() {
    let without = template(json!({})).unwrap();
    for overlay in
        [json!({}), json!({ "metadata": {}, "spec": {} }), json!({ "metadata": { "creationTimestamp": null } })]
    {
        assert_eq!(template(json!({ "podTemplate": overlay })).unwrap(), without);
    }
}

#[test]
fn what_would_cut_the_pods_off_is_refused() {
    let label = |name: &str| json!({ "metadata": { "labels": { name: "x" } } });
    let agent = |fields: Value| json!({ "spec": { "containers": [fields] } });
    for (overlay, message) in [
        (json!("x"), "podTemplate: must be an object with metadata and spec"),
        (
            json!({ "template": {} }),
            "podTemplate: \"template\" is not a field of a Pod template: use metadata and spec",
        ),
        (json!({ "spec": [] }), "podTemplate: spec must be an object"),
        (json!({ "metadata": null }), "podTemplate: metadata must be an object"),
        (json!({ "metadata": { "labels": "x" } }), "podTemplate: metadata/labels must be an object"),
        (
            label("app.kubernetes.io/name"),
            "podTemplate: label app.kubernetes.io/name finds the Pods of the agent: remove it",
        ),
        (label("recif.dev/agent"), "podTemplate: label recif.dev/agent finds the Pods of the agent: remove it"),
        (
            json!({ "metadata": { "labels": { "recif.dev/agent": null } } }),
            "podTemplate: label recif.dev/agent finds the Pods of the agent: remove it",
        ),
        (
            json!({ "metadata": { "annotations": { "recif.dev/config-hash": "x" } } }),
            "podTemplate: annotation recif.dev/config-hash is the operator's: remove it",
        ),
        (agent(json!({ "image": "x" })), "podTemplate: an element of containers has no name: give it one"),
        (json!({ "spec": { "containers": {} } }), "podTemplate: containers must be a list"),
        (
            agent(json!({ "name": "agent", "env": [{ "name": "CORAIL_CHANNEL", "value": "x" }] })),
            "podTemplate sets CORAIL_CHANNEL, which the operator renders for this agent: remove it and use the field of \
             the spec",
        ),
    ] {
        let error = template(json!({ "podTemplate": overlay })).unwrap_err();
        assert_eq!((error.reason(), error.to_string().as_str()), ("InvalidSpec", message));
    }
}

#[test]
fn our_labels_may_be_repeated_and_other_containers_may_have_our_variables() {
    let overlay = json!({
        "metadata": { "labels": { "recif.dev/agent": "my-agent" } },
        "spec": { "containers": [{ "name": "log", "env": [{ "name": "CORAIL_CHANNEL", "value": "x" }] }] },
    });
    assert!(template(json!({ "podTemplate": overlay })).is_ok());
}
