use std::{collections::BTreeMap, sync::Arc};

use actions::ports::{ChildKind, ChildRef, Controller};
use crds::{Agent, MCPServer, RemoteMCPServer, Tool, pod_problem::PodProblem};
use serde_json::{Value, json};

use super::*;

fn change<T>(old: Option<T>, new: Option<T>, cause: ChangeSource) -> Change<T> {
    Change { key: Key::new("ns", "a"), old: old.map(Arc::new), new: new.map(Arc::new), source: cause }
}

fn patched(base: &Value, path: &str, value: Value) -> Value {
    let mut changed = base.clone();
    *changed.pointer_mut(path).unwrap() = value;
    changed
}

/// Reports whether the predicate `wakes` is true after `path` of the object was set.
fn triggered<K: PhasedObject + serde::de::DeserializeOwned>(
    base: &Value,
    wakes: fn(&Change<K>) -> bool,
    path: &str,
    value: Value,
) -> bool {
    let read = |json: Value| Some(serde_json::from_value::<K>(json).unwrap());
    wakes(&change(read(base.clone()), read(patched(base, path, value)), ChangeSource::Watch))
}

#[test]
fn an_object_is_woken_by_what_a_step_reads_and_never_by_its_status() {
    let base = json!({
        "apiVersion": "agents.recif.dev/v1", "kind": "Agent",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "generation": 1, "resourceVersion": "1",
            "labels": {}, "annotations": {"note": "x", "recif.dev/rollout-at": "1"}, "finalizers": [],
            "ownerReferences": [], "deletionTimestamp": null},
        "spec": {"name": "A", "framework": "corail"},
        "status": {"phase": "Running", "replicas": 1},
    });
    let owner = json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x"}]);
    let table = [
        ("/metadata/generation", json!(2), true),
        ("/metadata/uid", json!("v"), true),
        ("/metadata/labels", json!({"a": "b"}), true),
        ("/metadata/finalizers", json!(["x"]), true),
        ("/metadata/ownerReferences", owner, true),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"), true),
        ("/metadata/annotations/recif.dev~1rollout-at", json!("2"), true),
        ("/metadata/annotations/note", json!("y"), false),
        ("/metadata/resourceVersion", json!("2"), false),
        ("/status/phase", json!("Failed"), false),
    ];
    for (path, value, expected) in table {
        assert_eq!(triggered::<Agent>(&base, triggers_itself, path, value), expected, "{path}");
    }
    let same = || serde_json::from_value::<Agent>(base.clone()).unwrap();
    assert!(!triggers_itself(&change(Some(same()), Some(same()), ChangeSource::Watch)));
    assert!(
        triggers_itself(&change(Some(same()), Some(same()), ChangeSource::Restored)),
        "what looks the same may not be"
    );
}

#[test]
fn referrers_are_woken_by_what_a_reference_is_judged_by_only() {
    let base = json!({
        "apiVersion": "agents.recif.dev/v1", "kind": "Tool",
        "metadata": {"name": "t", "namespace": "ns", "uid": "u", "generation": 1, "labels": {}, "annotations": {}},
        "spec": {"name": "t", "type": "http"},
        "status": {"phase": "Available", "observedGeneration": 1, "history": [],
            "conditions": [{"type": "Ready", "status": "True", "reason": "Available", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    });
    let history = json!([{"seq": 1, "at": "2026-01-01T00:00:00Z", "to": "Available", "action": "check"}]);
    let table = [
        ("/metadata/generation", json!(2), true),
        ("/metadata/uid", json!("v"), true),
        ("/status/phase", json!("Error"), true),
        ("/status/observedGeneration", json!(2), true),
        ("/status/conditions/0/message", json!("no endpoint"), true),
        ("/status/history", history, false),
        ("/metadata/annotations", json!({"a": "b"}), false),
        ("/metadata/labels", json!({"a": "b"}), false),
    ];
    for (path, value, expected) in table {
        assert_eq!(triggered::<Tool>(&base, triggers_referrers, path, value), expected, "{path}");
    }
}

/// Returns a server that reported one tool, in the form of both kinds.
fn server(kind: &str, phase: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "agents.recif.dev/v1", "kind": kind,
        "metadata": {"name": "s", "namespace": "ns", "uid": "u", "generation": 1, "labels": {}, "annotations": {}},
        "spec": spec,
        "status": {"phase": phase, "observedGeneration": 1, "toolsDigest": "1", "toolCount": 1, "publishedTools": 0,
            "heldToolsDigest": "1",
            "toolsChangedAt": "2026-01-01T00:00:00Z", "era": "discover",
            "discoveredTools": [{"name": "t", "description": "", "digest": "1"}],
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Available", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "ToolsPublished", "status": "True", "reason": "Published", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

#[test]
fn the_users_of_a_server_are_woken_by_its_tools_and_how_it_stands() {
    let remote = server("RemoteMCPServer", "Available", json!({"url": "http://a"}));
    let own = json!({"transportType": "stdio", "deployment": {"image": "i/i", "cmd": "c"}});
    let own = server("MCPServer", "Running", own);
    let table = [
        ("/metadata/generation", json!(2), true),
        ("/metadata/uid", json!("v"), true),
        ("/status/toolsDigest", json!("2"), true),
        ("/status/heldToolsDigest", json!("2"), true),
        ("/status/phase", json!("Terminated"), true),
        ("/status/conditions/0/status", json!("False"), true),
        ("/status/toolsChangedAt", json!("2026-01-02T00:00:00Z"), false),
        ("/status/era", json!("initialize"), false),
        ("/status/publishedTools", json!(1), false),
        ("/status/conditions/1/status", json!("False"), false),
        ("/metadata/annotations", json!({"a": "b"}), false),
    ];
    for (path, value, expected) in table {
        assert_eq!(triggered::<RemoteMCPServer>(&remote, triggers_referrers, path, value.clone()), expected, "{path}");
        assert_eq!(triggered::<MCPServer>(&own, triggers_referrers, path, value), expected, "{path}");
    }
}

#[test]
fn a_server_is_woken_by_its_spec_and_never_by_what_it_told() {
    let remote = server("RemoteMCPServer", "Available", json!({"url": "http://a"}));
    for (path, value, expected) in [
        ("/metadata/generation", json!(2), true),
        ("/metadata/labels", json!({"a": "b"}), true),
        ("/status/toolsDigest", json!("2"), false),
        ("/status/discoveredTools", json!([]), false),
        ("/status/phase", json!("Error"), false),
    ] {
        assert_eq!(triggered::<RemoteMCPServer>(&remote, triggers_itself, path, value), expected, "{path}");
    }
}

#[test]
fn a_server_is_woken_when_its_definitions_are_not_as_it_left_them() {
    let kept = |owned: &str| CachedChild {
        child: ChildRef { kind: ChildKind::ConfigMap, namespace: "ns".into(), name: "s.mcp-tools".into() },
        controller: Some(Controller { kind: "RemoteMCPServer".into(), ..child().controller.unwrap() }),
        owned: Some(owned.into()),
        deployment: None,
        ..child()
    };
    let touched = CachedChild { resource_version: 9, ..kept("1") };
    for (what, new, cause, expected) in [
        ("drift", Some(kept("2")), ChangeSource::Watch, true),
        ("gone", None, ChangeSource::Watch, true),
        ("foreign annotation", Some(touched), ChangeSource::Watch, false),
        ("our own apply", Some(kept("2")), ChangeSource::Write, false),
    ] {
        let change = change(Some(kept("1")), new, cause);
        assert_eq!(triggers_owner(&change), expected, "{what}");
        assert_eq!(owners("RemoteMCPServer", &change).map(|key| key.name).collect::<Vec<_>>(), ["a"]);
    }
}

fn child() -> CachedChild {
    CachedChild {
        child: ChildRef { kind: ChildKind::Deployment, namespace: "ns".into(), name: "a".into() },
        uid: "u".into(),
        resource_version: 1,
        generation: 1,
        labels: BTreeMap::from([("recif.dev/agent".into(), "a".into())]),
        controller: Some(Controller { group: GROUP.into(), kind: "Agent".into(), name: "a".into(), uid: "x".into() }),
        owned: Some("1".into()),
        deleting: false,
        data: BTreeMap::new(),
        deployment: Some(DeploymentState::default()),
        definitions: None,
    }
}

fn ready() -> CachedChild {
    let state = DeploymentState { ready: 1, ..DeploymentState::default() };
    CachedChild { deployment: Some(state), resource_version: 2, ..child() }
}

#[test]
fn an_owner_is_woken_by_its_child_but_not_by_its_own_apply() {
    let newer = CachedChild { resource_version: 2, ..child() };
    let drifted = CachedChild { owned: None, ..newer.clone() };
    let table = [
        ("made", None, Some(child()), ChangeSource::Watch, true),
        ("gone", Some(child()), None, ChangeSource::Watch, true),
        ("status", Some(child()), Some(ready()), ChangeSource::Watch, true),
        ("drift", Some(child()), Some(drifted.clone()), ChangeSource::Watch, true),
        ("foreign annotation", Some(child()), Some(newer), ChangeSource::Watch, false),
        ("made by us", None, Some(child()), ChangeSource::Write, false),
        ("applied by us", Some(child()), Some(drifted), ChangeSource::Write, false),
        ("ready since, seen in our answer", Some(child()), Some(ready()), ChangeSource::Write, true),
    ];
    for (what, old, new, cause, expected) in table {
        assert_eq!(triggers_owner(&change(old, new, cause)), expected, "{what}");
    }
}

#[test]
fn an_owner_is_found_by_reference_and_a_stripped_child_by_label() {
    let found = |old: Option<CachedChild>, new: Option<CachedChild>| -> Vec<String> {
        owners("Agent", &change(old, new, ChangeSource::Watch)).map(|key| key.name).collect()
    };
    assert_eq!(found(None, Some(child())), ["a"]);
    assert_eq!(found(Some(child()), Some(CachedChild { controller: None, ..child() })), ["a"]);
    let foreign = Controller { kind: "Other".into(), ..child().controller.unwrap() };
    assert_eq!(found(Some(child()), Some(CachedChild { controller: Some(foreign.clone()), ..child() })), ["a"]);
    assert!(found(None, Some(CachedChild { controller: Some(foreign), ..child() })).is_empty());
}

#[test]
fn readers_are_woken_by_data_only() {
    let secret = |value: &str| CachedChild { data: BTreeMap::from([("k".into(), value.into())]), ..child() };
    assert!(triggers_readers(&change(Some(secret("1")), Some(secret("2")), ChangeSource::Watch)));
    let labelled = CachedChild { labels: BTreeMap::new(), ..secret("1") };
    assert!(!triggers_readers(&change(Some(secret("1")), Some(labelled), ChangeSource::Watch)));
}

#[test]
fn a_workload_is_woken_by_the_health_of_its_pods() {
    let pod = WorkloadPod {
        name: "p".into(),
        uid: "p".into(),
        resource_version: 1,
        labels: BTreeMap::from([("recif.dev/agent".into(), "a".into())]),
        ready: false,
        terminating: false,
        ip: None,
        port: 8888,
        deletion_cost: None,
        problem: None,
    };
    let newer = WorkloadPod { resource_version: 2, ..pod.clone() };
    let troubled = WorkloadPod { problem: Some(PodProblem::Unschedulable), ..pod.clone() };
    assert!(!triggers_workload(&change(Some(pod.clone()), Some(newer), ChangeSource::Watch)));
    let change = change(Some(pod), Some(troubled), ChangeSource::Watch);
    assert!(triggers_workload(&change));
    assert_eq!(workloads("Agent", &change).collect::<Vec<_>>(), [Key::new("ns", "a")]);
}
