//! The life of Pods: they become ready, are found and reached, change, scale and end.

#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test may fail in a function beside it, too"
)]

mod common;

use std::time::{Duration, Instant};

use common::{World, ask, deployment, free_port, script, server, service};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

/// Not a test: the program that the node runs.
#[test]
#[ignore = "the node runs it as a program"]
fn program() {
    common::program();
}

#[tokio::test]
async fn a_deployment_becomes_a_ready_pod_that_its_service_reaches_and_goes_with_it() {
    let mut world = World::new();
    world.apply(service("shop", 80)).await;
    world.apply(deployment("shop", 1, server("serve", free_port(), &[("TEXT", "hello")]))).await;
    let pods = world.rolled_out("shop", 1).await;
    let pod = &pods[0];
    let hash = pod.labels()["pod-template-hash"].clone();
    assert!(pod.name_any().starts_with(&format!("shop-{hash}-")), "{}", pod.name_any());
    let (spec, status) = (pod.spec.clone().unwrap(), pod.status.clone().unwrap());
    assert_eq!((status.phase.as_deref(), status.pod_ip.as_deref()), (Some("Running"), Some("127.0.0.1")));
    let port = spec.containers[0].ports.as_ref().unwrap()[0].container_port;

    let slices = world.api::<EndpointSlice>().list(&ListParams::default().labels("of=shop")).await.unwrap().items;
    let slice = &slices[0];
    assert_eq!(slice.ports.as_ref().unwrap()[0].port, Some(port));
    assert_eq!(slice.endpoints.as_ref().unwrap()[0].conditions.as_ref().unwrap().ready, Some(true));
    let service = world.api::<Service>().get("shop").await.unwrap();
    assert_eq!(slice.metadata.owner_references.as_ref().unwrap()[0].uid, service.uid().unwrap());
    let node_port = service.spec.unwrap().ports.unwrap()[0].node_port.unwrap();
    assert_eq!(ask(&format!("127.0.0.1:{node_port}")).await.unwrap(), "hello");
    assert_eq!(world.ask("http://shop.default.svc.cluster.local").await.unwrap(), "hello");

    let (source, _) = world.written("listening on").await;
    assert_eq!((source.kind.as_str(), source.name.as_str(), source.index), ("deployment", "shop", 1));
    assert!(world.log(&pod.name_any(), false).await.unwrap().contains("as hello\n"));
    let file = std::fs::read_to_string(world.folder.join("logs/default/deployment-shop-c.log")).unwrap();
    assert!(file.contains("as hello"), "{file}");

    world.api::<Deployment>().delete("shop", &DeleteParams::foreground()).await.unwrap();
    world.until("the Pod is gone", <[Pod]>::is_empty).await;
    assert!(ask(&format!("127.0.0.1:{port}")).await.is_err(), "its process has ended");
    assert!(world.api::<Deployment>().get_opt("shop").await.unwrap().is_none());
    world.end().await;
    assert_eq!(std::fs::read_to_string(world.folder.join("processes")).unwrap(), "");
    assert_eq!(std::fs::read_dir(world.folder.join("pods")).unwrap().count(), 0);
}

#[tokio::test]
async fn no_request_fails_while_pods_are_replaced() {
    let world = World::new();
    let port = free_port();
    world.apply(service("web", 80)).await;
    world.apply(deployment("web", 2, server("serve", port, &[("TEXT", "0")]))).await;
    world.rolled_out("web", 2).await;
    for version in ["1", "2", "3"] {
        world.apply(deployment("web", 2, server("serve", port, &[("TEXT", version)]))).await;
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut same = 0;
        // Until the new ones alone have answered for a while.
        while same < 50 {
            let text = world.ask("http://web").await.unwrap();
            same = if text == version { same + 1 } else { 0 };
            assert!(Instant::now() < deadline, "still {text}");
        }
        world.rolled_out("web", 2).await;
    }
}

#[tokio::test]
async fn pods_are_as_many_as_wanted_and_a_request_waits_for_the_first() {
    let world = World::new();
    world.apply(service("many", 80)).await;
    world.apply(deployment("many", 0, server("serve", free_port(), &[("TEXT", "up")]))).await;
    let scale = |replicas: i32| Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    let api = world.api::<Deployment>();
    // The relay is made when the Service is seen.
    while world.names.replace("http://many", "default").is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let start = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        api.patch("many", &PatchParams::default(), &scale(1)).await.unwrap();
    };
    let (answer, ()) = tokio::join!(world.ask("http://many"), start);
    assert_eq!(answer.unwrap(), "up");
    world.rolled_out("many", 1).await;
    api.patch("many", &PatchParams::default(), &scale(3)).await.unwrap();
    let pods = world.rolled_out("many", 3).await;
    // Each has a port of its own.
    let mut ports: Vec<i32> = pods
        .iter()
        .map(|pod| pod.spec.as_ref().unwrap().containers[0].ports.as_ref().unwrap()[0].container_port)
        .collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 3);
    api.patch("many", &PatchParams::default(), &scale(0)).await.unwrap();
    world.until("no Pod is left", <[Pod]>::is_empty).await;
}

#[tokio::test]
async fn a_program_that_ignores_its_port_starts_after_its_predecessor() {
    let world = World::new();
    let port = free_port();
    let fixed = port.to_string();
    let with = |text: &str| deployment("stubborn", 1, server("fixed", port, &[("FIXED", &fixed), ("TEXT", text)]));
    world.apply(service("stubborn", 80)).await;
    world.apply(with("old")).await;
    let pods = world.rolled_out("stubborn", 1).await;
    let own = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].ports.as_ref().unwrap()[0].container_port;
    assert_eq!(own(&pods[0]), i32::from(port), "it has its declared port while that is free");
    world.apply(with("new")).await;
    world.noted("it starts after it").await;
    let pods = world.rolled_out("stubborn", 1).await;
    assert_eq!(own(&pods[0]), i32::from(port));
    assert_eq!(world.ask("http://stubborn").await.unwrap(), "new");
}

#[tokio::test]
async fn a_mistake_in_new_code_leaves_the_pod_that_works() {
    let world = World::new();
    let port = free_port();
    world.apply(service("shop", 80)).await;
    world.apply(deployment("shop", 1, server("serve", port, &[("TEXT", "works")]))).await;
    let old = world.rolled_out("shop", 1).await[0].uid();
    let mut broken = server("serve", port, &[]);
    broken["command"] = json!(["bash", "-c", "echo SyntaxError; exit 1"]);
    world.apply(deployment("shop", 1, broken)).await;
    world.noted("2nd time").await;
    assert!(world.pods().await.iter().any(|pod| pod.uid() == old && pod.metadata.deletion_timestamp.is_none()));
    assert_eq!(world.ask("http://shop").await.unwrap(), "works");
    let deployment = world.api::<Deployment>().get("shop").await.unwrap();
    assert!(!deployment.annotations().contains_key("recif.dev/dev-alone"));
}

#[tokio::test]
async fn a_hook_runs_first_then_sigterm_and_sigkill_after_the_grace_period() {
    let mut world = World::new();
    let text = "trap 'echo got TERM' TERM; echo pid $BASHPID; while :; do sleep 0.05; done";
    let mut deaf = deployment("deaf", 1, script(text));
    deaf["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
    deaf["spec"]["template"]["spec"]["containers"][0]["lifecycle"] =
        json!({ "preStop": { "exec": { "command": ["sh", "-c", "touch $MARK"] } } });
    let mark = world.folder.join("hook");
    deaf["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{ "name": "MARK", "value": mark }]);
    world.apply(deaf).await;
    world.rolled_out("deaf", 1).await;
    let (_, line) = world.written("pid ").await;
    let pid = line.strip_prefix("pid ").unwrap().to_owned();
    assert!(common::runs(&pid) && !mark.exists());
    let begin = Instant::now();
    world.end().await;
    assert!(begin.elapsed() >= Duration::from_millis(900), "it had its grace period: {:?}", begin.elapsed());
    world.written("got TERM").await;
    assert!(mark.exists() && !common::runs(&pid));
}

#[tokio::test]
async fn a_second_signal_ends_everything_at_once() {
    let mut world = World::new();
    world.apply(deployment("deaf", 1, script("trap '' TERM; echo up; while :; do sleep 1; done"))).await;
    world.written("up").await;
    let begin = Instant::now();
    world.kill.cancel();
    world.end().await;
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_sidecar_starts_first_and_ends_last() {
    let world = World::new();
    let mut object =
        deployment("pair", 1, script("trap 'echo main ends; exit 0' TERM; echo main; while :; do sleep 0.02; done"));
    object["spec"]["template"]["spec"]["initContainers"] = json!([
        { "name": "setup", "image": "x", "command": ["bash", "-c", "echo setup"] },
        { "name": "side", "image": "x", "restartPolicy": "Always",
            "command": ["bash", "-c", "trap 'echo side ends; exit 0' TERM; echo side; while :; do sleep 0.02; done"] },
    ]);
    world.apply(object).await;
    world.rolled_out("pair", 1).await;
    world.written("main").await;
    world.api::<Deployment>().delete("pair", &DeleteParams::background()).await.unwrap();
    world.until("the Pod is gone", <[Pod]>::is_empty).await;
    let lines: Vec<String> = world.screen.lines.lock().unwrap().iter().map(|(_, line)| line.clone()).collect();
    let at = |text: &str| lines.iter().position(|line| line == text).unwrap_or_else(|| panic!("{text}: {lines:?}"));
    assert!(at("setup") < at("side") && at("setup") < at("main"), "{lines:?}");
    assert!(at("main ends") < at("side ends"), "{lines:?}");
}

#[tokio::test]
async fn slices_of_a_service_without_a_selector_are_its_owners_and_lead_where_they_say() {
    let world = World::new();
    let mut outside = service("outside", 80);
    outside["spec"].as_object_mut().unwrap().remove("selector");
    world.apply(outside).await;
    let own = world.api::<Service>().get("outside").await.unwrap();
    world.apply(service("inside", 80)).await;
    world.apply(deployment("inside", 1, server("serve", free_port(), &[("TEXT", "from outside")]))).await;
    let pods = world.rolled_out("inside", 1).await;
    let port = pods[0].spec.as_ref().unwrap().containers[0].ports.as_ref().unwrap()[0].container_port;
    let slice = json!({
        "metadata": {
            "name": "outside",
            "labels": { "kubernetes.io/service-name": "outside",
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Service", "name": "outside", "uid": own.uid().unwrap() }],
        },
        "addressType": "IPv4", "ports": [{ "name": "http", "port": port }],
        "endpoints": [{ "addresses": ["127.0.0.1"], "conditions": { "ready": true } }],
    });
    let api = world.api::<EndpointSlice>();
    api.create(&PostParams::default(), &serde_json::from_value(slice).unwrap()).await.unwrap();
    assert_eq!(world.ask("http://outside.default").await.unwrap(), "from outside");
    // Another change lets the node look at every slice.
    world.apply(deployment("inside", 0, server("serve", 80, &[]))).await;
    world.until("no Pod is left", <[Pod]>::is_empty).await;
    assert!(api.get_opt("outside").await.unwrap().is_some());
}
