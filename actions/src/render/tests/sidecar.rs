//! Tests the sidecar of a workload's Pods.

use serde_json::{Value, json};

use super::{PROXY_IMAGE, template};
use crate::render::{PinnedProxy, agent_workload_children};

/// Returns the Pod of an agent with this spec.
fn pod(spec: Value) -> Value {
    template(spec).unwrap()["spec"].take()
}

fn variables(pod: &Value) -> Vec<(&str, &str)> {
    let env = pod["initContainers"][0]["env"].as_array().unwrap().iter();
    env.map(|variable| (variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap())).collect()
}

/// First half of SHA-256 of the uid of the agent of these tests.
const KEY: &str = "4d482d944eb0a6761a09fc85221d45d5";

#[test]
fn every_pod_has_it_and_the_service_leads_to_it() {
    let pod = pod(json!({ "port": 9000 }));
    let proxy = &pod["initContainers"][0];
    assert_eq!(
        (&proxy["name"], &proxy["image"], &proxy["restartPolicy"]),
        (&json!("proxy"), &json!(PROXY_IMAGE), &json!("Always"))
    );
    assert_eq!(proxy["ports"], json!([{ "name": "http", "containerPort": 8888 }]));
    assert_eq!(pod["containers"][0]["ports"], json!([{ "name": "agent", "containerPort": 9000 }]));
    assert_eq!(pod["containers"][0]["readinessProbe"]["httpGet"]["port"], "agent");
    assert_eq!(proxy["startupProbe"]["httpGet"], json!({ "path": "/healthz", "port": "http" }));
    assert_eq!(proxy["readinessProbe"]["httpGet"], json!({ "path": "/readyz", "port": "http" }));
    assert_eq!(
        variables(&pod),
        [
            ("RECIF_UPSTREAM_URL", "http://127.0.0.1:9000"),
            ("RECIF_CONCURRENCY", "0"),
            ("RECIF_TIMEOUT", "60s"),
            ("RECIF_LAME_DUCK", "5s"),
            ("RECIF_SHUTDOWN_TIMEOUT", "25s"),
            ("RECIF_KEY", KEY),
            ("RECIF_NAME", "my-agent"),
            ("RECIF_NAMESPACE", "default"),
        ]
    );
}

#[test]
fn both_hooks_call_it_by_number_and_prove_themselves() {
    let pod = pod(json!({}));
    for (container, path) in
        [(&pod["initContainers"][0], "/_recif/lame-duck"), (&pod["containers"][0], "/_recif/drain")]
    {
        let header = json!({ "name": "X-Recif-Key", "value": KEY });
        let expected = json!({ "httpGet": { "path": path, "port": 8888, "httpHeaders": [header] } });
        assert_eq!(container["lifecycle"]["preStop"], expected);
    }
}

#[test]
fn the_spec_sets_the_cap_and_the_times_and_a_pod_has_the_time_to_drain() {
    for (spec, cap, timeout, shutdown, grace) in [
        (json!({}), "0", "60s", "25s", 45),
        (json!({ "proxy": { "concurrency": 3 } }), "3", "60s", "25s", 45),
        (json!({ "scaling": {}, "proxy": { "concurrency": 3 } }), "8", "60s", "25s", 45),
        (json!({ "scaling": { "concurrency": 2 }, "timeout": "1500ms" }), "2", "1500ms", "25s", 45),
        (json!({ "timeout": "5m", "drainTimeout": "1h" }), "0", "300s", "3600s", 3620),
        (json!({ "drainTimeout": "0s" }), "0", "60s", "0s", 20),
        (json!({ "drainTimeout": "500ms" }), "0", "60s", "500ms", 21),
    ] {
        let pod = pod(spec.clone());
        let found = variables(&pod);
        assert_eq!((found[1].1, found[2].1, found[4].1), (cap, timeout, shutdown), "{spec}");
        assert_eq!(pod["terminationGracePeriodSeconds"], grace, "{spec}");
    }
}

#[test]
fn what_only_the_scaler_or_the_gateway_reads_rolls_no_pods() {
    let plain = pod(json!({ "scaling": {} }));
    for spec in [
        json!({ "scaling": { "minReplicas": 0, "maxReplicas": 3, "stableWindow": "5m", "scaleToZeroAfter": "1h" } }),
        json!({ "scaling": {}, "expose": { "anonymousPaths": ["/public/*"] } }),
    ] {
        assert_eq!(pod(spec.clone()), plain, "{spec}");
    }
}

#[test]
fn without_it_a_pod_is_as_it_would_be_alone() {
    let pod = pod(json!({ "proxy": { "enabled": false }, "port": 8888, "drainTimeout": "1h" }));
    assert!(pod.get("initContainers").is_none() && pod["containers"][0].get("lifecycle").is_none());
    assert_eq!(pod["containers"][0]["ports"], json!([{ "name": "http", "containerPort": 8888 }]));
    assert_eq!(pod["containers"][0]["livenessProbe"]["httpGet"]["port"], "http");
    assert_eq!(pod["terminationGracePeriodSeconds"], 30);
}

#[test]
fn its_port_is_not_for_the_container_behind_it() {
    let error = template(json!({ "port": 8888 })).unwrap_err();
    assert_eq!(error.reason(), "InvalidSpec");
    assert_eq!(
        error.to_string(),
        "port 8888 is the sidecar's: let the container listen on another one, or set proxy.enabled to false"
    );
}

fn overlaid(overlay: Value, enabled: bool) -> Result<Value, String> {
    let spec = json!({ "podTemplate": { "spec": overlay }, "proxy": { "enabled": enabled } });
    template(spec).map_err(|error| error.to_string())
}

#[test]
fn the_overlay_can_neither_take_it_away_nor_lead_around_it() {
    let sidecar = |fields: Value| {
        let mut container = json!({ "name": "proxy" });
        container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({ "initContainers": [container] })
    };
    let container = |fields: Value| json!({ "containers": [fields] });
    let hook = json!({ "exec": { "command": ["sleep", "10"] } });
    for (overlay, message) in [
        (
            json!({ "initContainers": null }),
            "initContainers must be a list: to run without the sidecar set proxy.enabled to false",
        ),
        (
            sidecar(json!({ "restartPolicy": null })),
            "container proxy is the sidecar, which sets restartPolicy itself: remove that",
        ),
        (sidecar(json!({ "ports": [] })), "container proxy is the sidecar, which sets ports itself: remove that"),
        (
            sidecar(json!({ "lifecycle": null, "image": "x" })),
            "container proxy is the sidecar, which sets lifecycle itself: remove that",
        ),
        (
            sidecar(json!({ "env": [{ "name": "RECIF_KEY", "value": "1" }] })),
            "container proxy is the sidecar, whose RECIF_KEY comes from the spec: remove that",
        ),
        (
            container(json!({ "name": "proxy", "image": "envoy" })),
            "proxy is the name of the sidecar: give the container another one, or change the sidecar under initContainers",
        ),
        (
            container(json!({ "name": "agent", "ports": [{ "name": "http", "containerPort": 8000 }] })),
            "port 8888 and the name http are the sidecar's: give the port another number or name",
        ),
        (
            container(json!({ "name": "log", "ports": [{ "name": "more", "containerPort": 8888 }] })),
            "port 8888 and the name http are the sidecar's: give the port another number or name",
        ),
        (
            container(json!({ "name": "agent", "lifecycle": { "preStop": hook } })),
            "lifecycle.preStop of container agent is where the sidecar empties the Pod: remove it, or set proxy.enabled to \
             false",
        ),
        (
            container(json!({ "name": "agent", "lifecycle": null })),
            "lifecycle.preStop of container agent is where the sidecar empties the Pod: remove it, or set proxy.enabled to \
             false",
        ),
        (
            container(json!({ "name": "agent", "livenessProbe": { "tcpSocket": { "port": "http" } } })),
            "livenessProbe of container agent names port http, which is the sidecar's: name it agent",
        ),
    ] {
        assert_eq!(overlaid(overlay, true).unwrap_err(), format!("podTemplate: {message}"));
    }
}

#[test]
fn the_overlay_may_change_what_it_needs_not() {
    let overlay = json!({
        "terminationGracePeriodSeconds": 300,
        "initContainers": [
            { "name": "fetch", "image": "fetch" },
            {
                "name": "proxy", "image": "registry.example/proxy:2", "resources": { "requests": { "cpu": "1" } },
                "env": [{ "name": "RECIF_IDLE_TIMEOUT", "value": "1h" }],
            },
        ],
        "containers": [
            { "name": "agent", "lifecycle": { "postStart": { "httpGet": { "path": "/", "port": 8000 } } } },
            { "name": "log", "lifecycle": { "preStop": { "sleep": { "seconds": 3 } } } },
        ],
    });
    let pod = overlaid(overlay, true).unwrap()["spec"].take();
    let proxy = &pod["initContainers"][0];
    assert_eq!(
        (&proxy["image"], &proxy["resources"]["requests"]),
        (&json!("registry.example/proxy:2"), &json!({ "cpu": "1", "memory": "16Mi" }))
    );
    assert_eq!(variables(&pod).last().unwrap(), &("RECIF_IDLE_TIMEOUT", "1h"));
    assert_eq!(pod["initContainers"][1]["name"], "fetch", "after the sidecar, through which it may be seen to start");
    assert_eq!(pod["containers"][0]["lifecycle"]["preStop"]["httpGet"]["path"], "/_recif/drain");
    assert_eq!(pod["terminationGracePeriodSeconds"], 300);
}

#[test]
fn without_it_the_overlay_has_its_names() {
    let overlay = json!({
        "containers": [
            { "name": "agent", "lifecycle": { "preStop": { "sleep": { "seconds": 3 } } }, "ports": [{ "name": "http", "containerPort": 8000 }] },
            { "name": "proxy", "image": "envoy" },
        ],
    });
    let pod = overlaid(overlay, false).unwrap()["spec"].take();
    assert_eq!(pod["containers"][0]["lifecycle"]["preStop"], json!({ "sleep": { "seconds": 3 } }));
}

/// Returns the sidecar of an agent with this overlay.
fn rendered(overlay: Value, tells_ready: bool) -> Value {
    let mut pod = rendered_pod(overlay, tells_ready, false);
    let containers = pod["initContainers"].as_array_mut().unwrap().drain(..);
    containers.into_iter().find(|container| container["name"] == "proxy").unwrap()
}

/// Returns the Pod of an agent with this overlay, whose sidecar has these abilities.
fn rendered_pod(overlay: Value, tells_ready: bool, declares_port: bool) -> Value {
    let agent = super::agent(json!({ "podTemplate": { "spec": overlay } }));
    let config = super::config(json!({}), &super::bare()).unwrap();
    let proxy = PinnedProxy { image: PROXY_IMAGE, caller_keys: None, tells_ready, declares_port };
    let [_, mut deployment] = agent_workload_children(&agent, &config, super::images(&agent, proxy), Some(1)).unwrap();
    deployment.body["spec"]["template"]["spec"].take()
}

/// Returns the variables by which the sidecar queries the readiness of the workload, for an agent with this overlay.
fn asked(overlay: Value, tells_ready: bool) -> Vec<Value> {
    let mut env = rendered(overlay, tells_ready)["env"].as_array().unwrap().clone();
    env.retain(|variable| ["RECIF_POD_UID", "RECIF_READINESS"].contains(&variable["name"].as_str().unwrap()));
    env
}

/// Before Kubernetes 1.33 a Service does not find the port of an init container by its name.
#[test]
fn the_service_finds_its_port_at_the_workloads_container() {
    let overlay =
        json!({ "containers": [{ "name": "agent", "ports": [{ "name": "metrics", "containerPort": 9090 }] }] });
    for overlay in [json!({}), overlay] {
        let pod = rendered_pod(overlay, true, true);
        let mut ports =
            pod["containers"].as_array().unwrap().iter().flat_map(|found| found["ports"].as_array().unwrap());
        assert_eq!(ports.find(|port| port["name"] == "http").unwrap()["containerPort"], 8888, "{pod}");
        assert_eq!(pod["initContainers"][0].get("ports"), None, "each port is declared once");
        assert_eq!(pod["initContainers"][0]["readinessProbe"]["httpGet"], json!({ "path": "/readyz", "port": 8888 }));
    }
}

#[test]
fn the_workload_does_not_wait_for_a_probe_of_the_sidecar_but_in_templates_of_before() {
    let probe = |tells_ready| rendered(json!({}), tells_ready)["startupProbe"]["httpGet"]["path"].clone();
    assert_eq!((probe(true), probe(false)), (Value::Null, json!("/healthz")));
}

#[test]
fn it_asks_for_readiness_where_nothing_else_decides_it() {
    let uid = json!({ "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.uid" } });
    let expected = [
        json!({ "name": "RECIF_POD_UID", "valueFrom": uid }),
        json!({ "name": "RECIF_READINESS", "value": "/healthz" }),
    ];
    let probe = json!({ "httpGet": { "path": "/up", "port": 9 } });
    for overlay in [
        json!({}),
        json!({ "readinessGates": [], "containers": [{ "name": "log", "image": "log", "livenessProbe": probe }] }),
        json!({ "containers": [{ "name": "agent", "livenessProbe": { "periodSeconds": 2 } }] }),
    ] {
        assert_eq!(asked(overlay.clone(), true), expected, "{overlay}");
    }
    for overlay in [
        json!({ "readinessGates": [{ "conditionType": "example.com/up" }] }),
        json!({ "containers": [{ "name": "log", "image": "log", "readinessProbe": probe }] }),
        json!({ "initContainers": [{ "name": "mesh", "image": "m", "restartPolicy": "Always", "readinessProbe": probe }] }),
        json!({ "containers": [{ "name": "agent", "readinessProbe": { "periodSeconds": 2 } }] }),
        json!({ "containers": [{ "name": "agent", "readinessProbe": null }] }),
        json!({ "containers": [{ "name": "agent", "startupProbe": { "periodSeconds": 2 } }] }),
        json!({ "containers": [{ "name": "agent", "lifecycle": { "postStart": { "sleep": { "seconds": 9 } } } }] }),
        json!({ "containers": [{ "name": "log", "image": "log", "startupProbe": probe }] }),
    ] {
        assert_eq!(asked(overlay.clone(), true), [] as [Value; 0], "{overlay}");
    }
    assert_eq!(asked(json!({}), false), [] as [Value; 0], "a template of before");
}
