//! Checks the decoding of objects, their references, and the changes that change their digest.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may fail in a function beside it, too")]

use crds::{Agent, ApiKind, HasReferences, KINDS, RefKind, Reference, Role, Tool, digest::canonical_json};
use meta::PhasedObject as _;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn agent(spec: Value) -> Agent {
    let mut whole = json!({ "name": "A", "framework": "corail" });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "apiVersion": "agents.recif.dev/v1", "kind": "Agent", "metadata": { "name": "a" }, "spec": whole,
    }))
    .unwrap()
}

#[test]
fn an_object_of_an_older_schema_reads_with_the_defaults() {
    let agent = agent(json!({}));
    let spec = &agent.spec;
    assert_eq!(
        [&spec.strategy, &spec.channel, &spec.model_type, &spec.model_id, &spec.image],
        ["simple", "rest", "stub", "stub-echo", "corail:latest"]
    );
    assert_eq!((spec.replicas, spec.port), (1, 8000));

    let tool: Tool =
        serde_json::from_value(json!({ "metadata": {}, "spec": { "name": "t", "type": "http" } })).unwrap();
    assert_eq!((tool.spec.category.as_str(), tool.spec.timeout, tool.spec.enabled), ("general", 30, true));
}

#[test]
fn the_defaults_of_the_schema_are_those_of_the_types() {
    for (kind, minimal) in [
        ("Agent", serde_json::to_value(&agent(json!({})).spec).unwrap()),
        (
            "Tool",
            serde_json::to_value(
                serde_json::from_value::<crds::ToolSpec>(json!({ "name": "t", "type": "http" })).unwrap(),
            )
            .unwrap(),
        ),
    ] {
        let definition = serde_json::to_value(ApiKind::find(kind).unwrap().definition()).unwrap();
        let fields =
            &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        let defaults: Map<String, Value> = fields
            .as_object()
            .unwrap()
            .iter()
            .filter_map(|(name, field)| Some((name.clone(), field.get("default")?.clone())))
            .collect();
        let set: Map<String, Value> = minimal
            .as_object()
            .unwrap()
            .iter()
            .filter(|(name, _)| !["name", "framework", "type"].contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        assert_eq!(defaults, set, "{kind}");
    }
}

#[test]
fn fields_of_another_build_do_not_make_an_object_unreadable() {
    let agent: Agent = serde_json::from_value(json!({
        "metadata": { "name": "a", "later": 1 },
        "spec": {
            "name": "A", "framework": "later", "storage": "later", "later": { "x": 1 }, "env": [{ "name": "E", "later": true }],
        },
        "status": {
            "phase": "Hibernating", "later": [],
            "failure": { "reason": "ImagePull" },
            "history": [{ "to": "Running" }],
            "children": [{ "kind": "Deployment", "name": "a" }],
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        },
    }))
    .unwrap();
    assert_eq!(agent.spec.storage.as_deref(), Some("later"));
    let parameters = json!([{ "name": "p" }, { "name": "q", "type": "later" }]);
    let tool: Tool = serde_json::from_value(json!({
        "metadata": {}, "spec": { "name": "t", "type": "later", "parameters": parameters },
    }))
    .unwrap();
    let types: Vec<_> = tool.spec.parameters.iter().map(|parameter| parameter.type_.as_str()).collect();
    assert_eq!(types, ["string", "later"]);
    let status = agent.status.unwrap();
    assert_eq!(status.machine.phase.as_deref(), Some("Hibernating"));
    assert_eq!(status.machine.history[0].to, "Running");
}

#[test]
fn a_length_of_time_that_this_build_cannot_read_is_its_default_and_stays_as_written() {
    let agent = agent(json!({ "timeout": "1d", "drainTimeout": "90s", "scaling": { "stableWindow": "later" } }));
    let traffic = &agent.spec.traffic;
    assert_eq!((traffic.timeout().as_secs(), traffic.drain_timeout().as_secs()), (60, 90));
    assert_eq!(traffic.scaling.as_ref().unwrap().stable_window().as_secs(), 60);
    assert_eq!(serde_json::to_value(&agent.spec).unwrap()["timeout"], "1d");
}

#[test]
fn the_cap_is_that_of_scaling_where_it_is_set() {
    for (spec, cap) in [
        (json!({}), 0),
        (json!({ "proxy": { "concurrency": 4 } }), 4),
        (json!({ "scaling": {} }), 8),
        (json!({ "scaling": { "concurrency": 2 }, "proxy": { "concurrency": 4 } }), 2),
    ] {
        assert_eq!(agent(spec.clone()).spec.traffic.concurrency(), cap, "{spec}");
    }
}

#[test]
fn quantities_may_be_written_as_numbers() {
    let agent = agent(json!({ "resources": { "limits": { "cpu": 1, "memory": "1Gi" } } }));
    let limits = agent.spec.resources.unwrap().limits.unwrap();
    assert_eq!((limits["cpu"].0.as_str(), limits["memory"].0.as_str()), ("1", "1Gi"));
}

#[test]
fn the_table_of_kinds_says_what_the_definitions_say() {
    for kind in KINDS {
        let definition = kind.definition();
        let names = &definition.spec.names;
        assert_eq!((names.kind.as_str(), names.plural.as_str()), (kind.name, kind.plural));
        assert_eq!(names.short_names.as_deref(), Some(&[kind.short.to_string()][..]));
        assert_eq!(names.categories.as_deref(), Some(&["recif".to_string()][..]));
        let subresources = definition.spec.versions[0].subresources.clone().unwrap();
        assert!(subresources.status.is_some());
        assert_eq!(subresources.scale.is_some(), kind.role == Role::Workload, "{}", kind.name);
        for word in
            [kind.name, kind.plural, kind.short, &kind.name.to_lowercase(), &format!("{}.{}", kind.plural, crds::GROUP)]
        {
            assert_eq!(ApiKind::find(word).map(|found| found.name), Some(kind.name), "{word}");
        }
    }
    assert!(ApiKind::find("pods").is_none());
}

#[test]
fn kubectl_get_shows_the_phase_of_each_kind_and_whether_a_workload_is_ready() {
    for kind in KINDS {
        let version = kind.definition().spec.versions.remove(0);
        let columns = version.additional_printer_columns.unwrap_or_default();
        // Those of another priority are shown with `-o wide` only.
        let shown: Vec<&str> = columns
            .iter()
            .filter(|column| column.priority.unwrap_or_default() == 0)
            .map(|column| column.name.as_str())
            .collect();
        assert!(shown.contains(&"Phase"), "{}: {shown:?}", kind.name);
        assert!(kind.role != Role::Workload || shown.contains(&"Ready"), "{}: {shown:?}", kind.name);
    }
}

#[test]
fn every_field_has_a_description() {
    fn check(path: &str, schema: &Value) {
        let described = |name: &&String| path.contains('.') || *name != "metadata";
        for (name, field) in schema["properties"].as_object().into_iter().flatten().filter(|(name, _)| described(name))
        {
            let path = format!("{path}.{name}");
            assert!(
                field["description"].as_str().is_some_and(|text| !text.contains('\n')),
                "{path} has no description"
            );
            assert!(field.get("nullable").is_none(), "{path} is nullable");
            check(&path, field);
            check(&path, &field["items"]);
        }
    }
    for kind in KINDS {
        let definition = serde_json::to_value(kind.definition()).unwrap();
        check(kind.name, &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
    }
}

#[test]
fn an_agent_refers_to_its_tools_and_to_the_secrets_and_config_maps_of_its_environment() {
    let agent = agent(json!({
        "tools": ["weather", "calculator"],
        "env": [
            { "name": "PLAIN", "value": "x" },
            { "name": "NODE", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
            { "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "api", "key": "k", "optional": true } } },
            { "name": "MODE", "valueFrom": { "configMapKeyRef": { "name": "modes", "key": "k" } } },
        ],
        "envFrom": [
            { "secretRef": { "name": "api" } },
            { "secretRef": { "name": "extra", "optional": true } },
            { "secretRef": { "name": "extra", "optional": true } },
            { "configMapRef": { "name": "api" } },
            { "configMapRef": { "name": "" } },
        ],
    }));
    let reference = |kind, name: &str, optional| Reference { optional, ..Reference::new(kind, name) };
    let with_key = |kind, name: &str, key: &str| Reference { keys: [key.into()].into(), ..Reference::new(kind, name) };
    assert_eq!(
        agent.references(),
        [
            reference(RefKind::Tool, "calculator", false),
            reference(RefKind::Tool, "weather", false),
            reference(RefKind::Secret, "api", false),
            reference(RefKind::Secret, "extra", true),
            reference(RefKind::ConfigMap, "api", false),
            with_key(RefKind::ConfigMap, "modes", "k"),
        ]
    );
    assert_eq!(agent.references()[1].to_string(), "Tool/weather");
}

#[test]
fn an_agent_refers_to_the_key_that_holds_its_system_prompt() {
    for (source, kind) in [("configMapKeyRef", RefKind::ConfigMap), ("secretKeyRef", RefKind::Secret)] {
        let mut agent = agent(json!({ "systemPromptFrom": { source: { "name": "prompts", "key": "k" } } }));
        let key = Reference { keys: ["k".into()].into(), whole: false, ..Reference::new(kind, "prompts") };
        assert_eq!(agent.references(), std::slice::from_ref(&key), "the other keys of the object do not count");
        agent.spec.env_from = serde_json::from_value(
            json!([{ "configMapRef": { "name": "prompts" } }, { "secretRef": { "name": "prompts" } }]),
        )
        .unwrap();
        assert!(agent.references().contains(&Reference { whole: true, ..key }), "{source}");
    }
}

#[test]
fn a_server_is_referred_to_by_each_choice_of_its_tools() {
    let headers = json!([
        { "name": "A", "valueFrom": { "type": "Secret", "name": "s", "key": "k" } },
        { "name": "B", "valueFrom": { "type": "ConfigMap", "name": "c", "key": "k" } },
    ]);
    let agent = agent(json!({ "toolServers": [
        { "name": "docs" },
        { "name": "docs", "include": ["get_*"], "headersFrom": headers },
        { "name": "docs", "namespace": "other" },
        { "name": "docs", "kind": "MCPServer", "namespace": "" },
        { "name": "docs", "kind": "Oracle" },
    ] }));
    let found = agent.references();
    let mut names: Vec<_> = found.iter().map(|found| (found.to_string(), found.choices.len())).collect();
    let expected = [
        ("MCPServer/docs", 1),
        ("RemoteMCPServer/docs", 2),
        ("RemoteMCPServer/other/docs", 1),
        ("Secret/s", 0),
        ("ConfigMap/c", 0),
    ];
    let mut expected = expected.map(|(name, choices)| (name.to_owned(), choices));
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
    assert!(found.iter().all(|found| !found.whole && !found.optional));
}

#[test]
fn an_agent_of_another_namespace_is_referred_to_as_one() {
    let asks = |reference: Value| {
        let spec = json!({ "name": "t", "type": "agent", "agentRef": reference });
        let tool: Tool = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
        tool.references().iter().map(Reference::to_string).collect::<Vec<_>>()
    };
    assert_eq!(asks(json!({ "name": "a" })), ["Agent/a"]);
    assert_eq!(asks(json!({ "name": "a", "namespace": "" })), ["Agent/a"]);
    assert_eq!(asks(json!({ "name": "a", "namespace": "other" })), ["Agent/other/a"]);
}

#[test]
fn what_no_pod_reads_leaves_an_agents_digest_alone() {
    let digest = agent(json!({})).spec_digest();
    assert_eq!(digest.len(), 64);
    assert_eq!(agent(json!({ "replicas": 5 })).spec_digest(), digest);
    let limits = json!([{ "per": "caller", "requestsPerMinute": 10 }, { "per": "workload", "tokensPerDay": 1000, "costPerDay": "2.5" }]);
    assert_eq!(agent(json!({ "limits": limits })).spec_digest(), digest, "the gateway alone reads it");
    assert_eq!(agent(json!({ "strategy": "simple" })).spec_digest(), digest, "a default that is written out");
    let scaled = |scaling| agent(json!({ "scaling": scaling })).spec_digest();
    assert_ne!(scaled(json!({})), digest, "Pods get a cap with it");
    for change in [
        json!({ "minReplicas": 0 }),
        json!({ "maxReplicas": 3 }),
        json!({ "stableWindow": "5m" }),
        json!({ "scaleToZeroAfter": "1h" }),
    ] {
        assert_eq!(scaled(change.clone()), scaled(json!({})), "{change}");
    }
    assert_ne!(scaled(json!({ "concurrency": 4 })), scaled(json!({})));
    for change in [
        json!({ "timeout": "90s" }),
        json!({ "drainTimeout": "5m" }),
        json!({ "proxy": { "concurrency": 4 } }),
        json!({ "name": "B" }),
        json!({ "port": 8001 }),
        json!({ "systemPrompt": "x" }),
        json!({ "systemPromptFrom": { "configMapKeyRef": { "name": "a", "key": "k" } } }),
        json!({ "description": "x" }),
        json!({ "card": { "skills": [{ "id": "a", "name": "A" }] } }),
        json!({ "readiness": {} }),
        json!({ "tools": ["a"] }),
        json!({ "toolServers": [{ "name": "a" }] }),
        json!({ "allowedNamespaces": { "from": "All" } }),
        json!({ "env": [{ "name": "A" }] }),
        json!({ "podTemplate": {} }),
    ] {
        assert_ne!(agent(change.clone()).spec_digest(), digest, "{change}");
    }
    assert_ne!(
        agent(json!({ "tools": ["a", "b"] })).spec_digest(),
        agent(json!({ "tools": ["b", "a"] })).spec_digest(),
        "the order of tools is what the model sees"
    );
}

#[test]
fn canonical_json_sorts_keys_and_has_no_white_space() {
    for (value, expected) in [
        (json!({ "b": 1, "a": { "d": [1, 2.5, null], "c": true } }), r#"{"a":{"c":true,"d":[1,2.5,null]},"b":1}"#),
        (json!({}), "{}"),
        (json!([]), "[]"),
        (json!({ "\"\n": "é\u{1}" }), "{\"\\\"\\n\":\"é\\u0001\"}"),
        (json!({ "Z": 0, "a": 0, "é": 0 }), r#"{"Z":0,"a":0,"é":0}"#),
    ] {
        assert_eq!(canonical_json(&value), expected);
    }
    assert_eq!(crds::digest::sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(".*", inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Renders the same value as JSON text with the keys of its maps in reverse order.
fn backwards(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[ {} ]", items.iter().map(backwards).collect::<Vec<_>>().join(" , ")),
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by(|a, b| b.0.cmp(a.0));
            let fields = fields.iter().map(|(key, field)| format!("{} : {}", json!(key), backwards(field)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(" , "))
        }
        scalar => scalar.to_string(),
    }
}

proptest! {
    #[test]
    fn canonical_json_does_not_depend_on_how_the_value_was_written(value in any_json()) {
        let again: Value = serde_json::from_str(&backwards(&value)).unwrap();
        prop_assert_eq!(canonical_json(&again), canonical_json(&value));
    }

    #[test]
    fn canonical_json_holds_the_whole_value(value in any_json()) {
        prop_assert_eq!(serde_json::from_str::<Value>(&canonical_json(&value)).unwrap(), value);
    }
}

#[test]
fn a_model_refers_to_its_fallbacks_and_a_plugin_config_to_the_sources_of_its_headers_and_certificates() {
    let model: crds::Model = serde_json::from_value(json!({ "metadata": {}, "spec": {
        "provider": "p", "model": "m", "pluginConfigRef": { "name": "pc" }, "fallbackRefs": [{ "name": "n" }],
    } }))
    .unwrap();
    let references = model.references();
    assert_eq!(references.iter().map(Reference::to_string).collect::<Vec<_>>(), ["Model/n", "PluginConfig/pc"]);
    assert_eq!(references.iter().map(Reference::is_fallback).collect::<Vec<_>>(), [true, false]);
    let plugin: crds::PluginConfig = serde_json::from_value(json!({ "metadata": {}, "spec": {
        "type": "openai", "passthrough": true, "tls": { "caSecretRef": { "name": "ca" } },
        "headersFrom": [{ "name": "X-Key", "valueFrom": { "type": "ConfigMap", "name": "c", "key": "k" } }],
    } }))
    .unwrap();
    let found: Vec<_> = plugin.references().iter().map(Reference::to_string).collect();
    assert_eq!(found, ["Secret/ca", "ConfigMap/c"]);
    let tls = serde_json::to_value(plugin.spec.tls).unwrap();
    assert_eq!(tls.get("systemCAs"), None, "a default that is written would change the digests of older objects");
}
