//! Tests the evaluation of references and the messages about them.

use std::{collections::BTreeMap, sync::Arc};

use crds::{Agent, Flow, HasReferences, Model, RefKind, Tool, cycle::Node, digest};
use meta::{CommonStatus, PhasedObject};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Inputs, Resolution, Resolver};
use crate::ports::{CacheReader, Cached, CachedChild, ChildRef, WorkloadPod};

/// Objects by `Kind/name`.
#[derive(Default)]
struct TestObjects(BTreeMap<String, Value>);

impl TestObjects {
    /// Adds an object that has settled in its phase.
    fn with(mut self, id: &str, phase: &str, spec: Value) -> Self {
        let ready = json!([{ "type": "Ready", "status": "True", "reason": phase, "message": "the cause",
            "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
        let status = json!({ "phase": phase, "observedGeneration": 1, "conditions": ready });
        let name = id.split('/').next_back().unwrap();
        let body = json!({ "metadata": { "name": name, "generation": 1 }, "spec": spec, "status": status });
        self.0.insert(id.to_owned(), body);
        self
    }

    /// Changes a part of an object.
    fn set(mut self, id: &str, pointer: &str, value: Value) -> Self {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        self.0.get_mut(id).unwrap().pointer_mut(parent).unwrap()[field] = value;
        self
    }

    fn secret(mut self, name: &str, data: Value) -> Self {
        self.0.insert(format!("Secret/{name}"), data);
        self
    }

    fn without(mut self, id: &str) -> Self {
        assert!(self.0.remove(id).is_some(), "{id}");
        self
    }

    fn get<K: DeserializeOwned>(&self, kind: &str, name: &str) -> Option<Arc<K>> {
        self.0.get(&format!("{kind}/{name}")).map(|body| Arc::new(serde_json::from_value(body.clone()).unwrap()))
    }

    fn lookup(&self) -> Resolver<'_> {
        Resolver { cache: self, namespace: "ns" }
    }

    fn inputs<K: HasReferences + DeserializeOwned>(&self, kind: RefKind, name: &str) -> Inputs {
        let object: Arc<K> = self.get(kind.as_str(), name).unwrap();
        self.lookup().inputs(Some(&Node::new(kind, name)), &object.references())
    }

    /// Returns what the flow `f` waits for, and whether a user has to act.
    fn flow(&self) -> Option<(String, bool)> {
        let wait = self.inputs::<Flow>(RefKind::Flow, "f").waiting_for()?;
        Some((wait.sentence, wait.needs_user))
    }

    fn digests(&self) -> BTreeMap<String, String> {
        self.inputs::<Flow>(RefKind::Flow, "f").pin()
    }
}

impl<K: PhasedObject + DeserializeOwned> Cached<K> for TestObjects {
    fn cached(&self, _: &str, name: &str) -> Option<Arc<K>> {
        self.get(K::KIND, name)
    }
}

impl CacheReader for TestObjects {
    fn is_defined(&self, kind: RefKind) -> bool {
        !self.0.contains_key(&format!("undefined/{kind}"))
    }

    fn namespace_labels(&self, _: &str) -> Option<Arc<BTreeMap<String, String>>> {
        None
    }

    fn is_namespace_going(&self, _: &str) -> bool {
        false
    }

    fn published_tools(&self, _: &'static str, _: &str, _: &str) -> Vec<Arc<Tool>> {
        Vec::new()
    }

    fn is_tool_used(&self, _: &str, _: &str) -> bool {
        false
    }

    fn is_ingress_governed(&self, _: &str, _: &BTreeMap<String, String>) -> bool {
        false
    }

    fn is_disruption_governed(&self, _: &str, _: &BTreeMap<String, String>) -> bool {
        false
    }

    fn caller_keys(&self) -> Option<String> {
        None
    }

    fn child(&self, child: &ChildRef) -> Option<Arc<CachedChild>> {
        let data = self.0.get(&format!("{}/{}", child.kind, child.name))?;
        Some(Arc::new(CachedChild {
            child: child.clone(),
            uid: String::new(),
            resource_version: 1,
            generation: 1,
            labels: BTreeMap::new(),
            controller: None,
            owned: None,
            deleting: false,
            data: serde_json::from_value(data.clone()).unwrap(),
            deployment: None,
            definitions: None,
        }))
    }
    fn children(&self, _: &str, _: &str) -> Vec<Arc<CachedChild>> {
        Vec::new()
    }
    fn pods(&self, _: &'static str, _: &str, _: &str) -> Vec<Arc<WorkloadPod>> {
        Vec::new()
    }
}

fn tool(spec: Value) -> Value {
    let mut whole = json!({ "name": "t", "type": "http", "endpoint": "http://t" });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    whole
}

/// Builds a flow with a reference of each kind, all of which exist.
fn whole() -> TestObjects {
    let flow = json!({ "prompts": [{ "promptRef": { "name": "p" } }], "tools": [{ "name": "t" }], "modelRef": { "name": "m" } });
    let header = json!([{ "name": "Authorization", "secretKeyRef": { "name": "h", "key": "token" } }]);
    let config = json!({ "type": "openai", "credentialsRef": { "name": "s" }, "credentialKeys": ["KEY", "ORG"] });
    TestObjects::default()
        .with("Flow/f", "Resolving", flow)
        .with("Prompt/p", "Available", json!({ "content": "Hi" }))
        .with("Tool/t", "Available", tool(json!({ "headersFrom": header })))
        .with("Model/m", "Available", json!({ "provider": "x", "model": "y", "pluginConfigRef": { "name": "pc" } }))
        .with("PluginConfig/pc", "Available", config)
        .secret("s", json!({ "KEY": "1", "ORG": "1", "OTHER": "1" }))
        .secret("h", json!({ "token": "1", "other": "1" }))
}

#[test]
fn what_is_there_may_be_used() {
    assert_eq!(whole().flow(), None);
    assert_eq!(whole().digests().keys().collect::<Vec<_>>(), ["Model/m", "Prompt/p", "Tool/t"]);
}

#[test]
fn all_that_is_missing_is_named_at_once_in_a_fixed_order() {
    let nothing = whole().without("Prompt/p").without("Tool/t").without("Model/m");
    let message = r#"prompt "p" not found; tool "t" not found; model "m" not found"#;
    assert_eq!(nothing.flow(), Some((message.into(), true)));
    let behind = whole().without("Prompt/p").without("Secret/h").without("PluginConfig/pc");
    let message = r#"prompt "p" not found; secret "h" not found (referenced by tool "t"); pluginconfig "pc" not found (referenced by model "m")"#;
    assert_eq!(behind.flow(), Some((message.into(), true)));
}

#[test]
fn a_kind_without_a_definition_is_named_as_the_cause() {
    let undefined = whole().without("Tool/t").with("undefined/Tool", "", json!({}));
    let message = r#"tool "t" not found: its CustomResourceDefinition is missing, apply config/crd"#;
    assert_eq!(undefined.flow(), Some((message.into(), true)));
}

#[test]
fn the_cause_is_named_and_not_who_waits_for_it() {
    for phase in ["Resolving", "Error", "Available"] {
        let waiting = |objects: TestObjects| {
            objects.set("PluginConfig/pc", "/status/phase", json!(phase)).set("Model/m", "/status/phase", json!(phase))
        };
        let message = r#"secret "s" not found (referenced by pluginconfig "pc")"#;
        assert_eq!(waiting(whole().without("Secret/s")).flow(), Some((message.into(), true)), "{phase}");
        let lacking = whole().secret("s", json!({ "OTHER": "1" }));
        let message = r#"secret "s" has no key "KEY" (referenced by pluginconfig "pc"); secret "s" has no key "ORG" (referenced by pluginconfig "pc")"#;
        assert_eq!(waiting(lacking).flow(), Some((message.into(), true)), "{phase}");
    }
}

#[test]
fn an_error_is_missing_and_what_has_not_settled_is_on_its_way() {
    let error = |id: &str| whole().set(id, "/status/phase", json!("Error")).flow();
    assert_eq!(error("Tool/t"), Some((r#"tool "t" is in phase Error: the cause"#.into(), true)));
    let message = r#"pluginconfig "pc" is in phase Error: the cause (referenced by model "m")"#;
    assert_eq!(error("PluginConfig/pc"), Some((message.into(), true)));
    let pending = |id: &str| whole().set(id, "/status/phase", json!("Pending")).flow();
    assert_eq!(pending("Prompt/p"), Some((r#"prompt "p" is Pending"#.into(), false)));
    let message = r#"pluginconfig "pc" is Pending (referenced by model "m")"#;
    assert_eq!(pending("PluginConfig/pc"), Some((message.into(), false)));
    let edited = whole().set("Model/m", "/metadata/generation", json!(2));
    assert_eq!(edited.flow(), Some((r#"model "m" is Available"#.into(), false)), "its status speaks of an older spec");
    for unseen in [json!(null), CommonStatus::initial()] {
        let unseen = whole().set("Prompt/p", "/status", unseen);
        assert_eq!(unseen.flow(), Some((r#"prompt "p" is not yet seen by the operator"#.into(), false)));
    }
}

#[test]
fn what_is_read_moves_the_digest_and_nothing_else_does() {
    let before = whole().digests();
    let moved = |objects: TestObjects| -> Vec<String> {
        let after = objects.digests();
        before.iter().filter(|(name, digest)| after[*name] != **digest).map(|(name, _)| name.clone()).collect()
    };
    let nothing: [&str; 0] = [];
    assert_eq!(moved(whole().set("Prompt/p", "/spec/content", json!("Ho"))), ["Prompt/p"]);
    assert_eq!(moved(whole().set("Prompt/p", "/spec/description", json!("x"))), nothing);
    assert_eq!(moved(whole().set("Tool/t", "/spec/category", json!("x"))), nothing);
    assert_eq!(moved(whole().set("Tool/t", "/spec/endpoint", json!("http://u"))), ["Tool/t"]);
    assert_eq!(moved(whole().secret("h", json!({ "token": "2", "other": "1" }))), ["Tool/t"]);
    assert_eq!(moved(whole().secret("h", json!({ "token": "1", "other": "2" }))), nothing);
    assert_eq!(moved(whole().set("Model/m", "/spec/defaultConfig", json!({ "x": 1 }))), ["Model/m"]);
    assert_eq!(moved(whole().set("PluginConfig/pc", "/spec/region", json!("eu"))), ["Model/m"]);
    assert_eq!(moved(whole().secret("s", json!({ "KEY": "2", "ORG": "1", "OTHER": "1" }))), ["Model/m"]);
    assert_eq!(moved(whole().secret("s", json!({ "KEY": "1", "ORG": "1", "OTHER": "2" }))), nothing);
}

/// Digests that are pinned in the statuses of users. If this test fails, an added field is serialized with its default: leave it
/// out there.
#[test]
fn what_is_pinned_of_a_spec_is_the_same_in_every_build() {
    let full = json!({
        "name": "t", "type": "http", "category": "x", "description": "Tells", "endpoint": "http://t/{city}", "method": "POST",
        "headers": { "X-A": "b" }, "parameters": [{ "name": "city", "required": true }], "timeout": 7,
    });
    let model =
        json!({ "provider": "x", "model": "y", "defaultConfig": { "n": 1 }, "pluginConfigRef": { "name": "pc" } });
    let plugin = json!({ "type": "openai", "region": "eu", "extraConfig": { "baseUrl": "http://o" } });
    let one = |object: &str, spec: Value| {
        let objects = whole().set(object, "/spec", spec);
        let name = if object == "PluginConfig/pc" { "Model/m" } else { object };
        objects.digests().get(name).cloned().unwrap_or_default()
    };
    let found = [
        ("a whole flow", digest::digest(&json!(whole().digests()))),
        ("a tool", one("Tool/t", tool(json!({})))),
        ("a full tool", one("Tool/t", full)),
        ("a model", one("Model/m", model)),
        ("a provider", one("PluginConfig/pc", plugin)),
        ("a prompt", one("Prompt/p", json!({ "content": "Ho", "description": "x" }))),
        ("settings of agents", crate::agent::settings_digest(&crate::fake::settings(), "team")),
        ("settings of flows", crate::flow::settings_digest(&crate::fake::settings())),
    ];
    let found: Vec<String> =
        found.iter().map(|(what, digest)| format!("{what}: {}", digest.get(..12).unwrap_or("none"))).collect();
    assert_eq!(found, GOLDEN);
}

const GOLDEN: &[&str] = &[
    "a whole flow: f25827424e4a",
    "a tool: dd8c1b8b7201",
    "a full tool: 4559cb3f5e6b",
    "a model: 8d4b81fcfacc",
    "a provider: cf18abec4263",
    "a prompt: c758089f0833",
    "settings of agents: 216111b9c7b6",
    "settings of flows: 17a1bd618bc7",
];

#[test]
fn models_stand_in_for_each_other_and_a_missing_one_is_waited_for() {
    let lacking = || whole().set("Model/m", "/spec/fallbackRefs", json!([{ "name": "n" }]));
    let message = r#"model "n" not found (referenced by model "m")"#;
    assert_eq!(lacking().flow(), Some((message.into(), true)));
    let spec = json!({ "provider": "x", "model": "z", "pluginConfigRef": { "name": "own" },
        "fallbackRefs": [{ "name": "m" }] });
    let plugin = json!({ "type": "openai", "credentialsRef": { "name": "h" } });
    let both =
        || lacking().with("PluginConfig/own", "Available", plugin.clone()).with("Model/n", "Pending", spec.clone());
    assert_eq!(both().flow(), None, "the phase of a fallback does not count");
    for name in ["m", "n"] {
        assert_eq!(both().inputs::<Model>(RefKind::Model, name).waiting_for(), None, "{name}");
    }
    let message = r#"pluginconfig "own" not found (referenced by model "n")"#;
    assert_eq!(both().without("PluginConfig/own").flow(), Some((message.into(), true)));
    let flow: Arc<Flow> = both().get("Flow", "f").unwrap();
    let found: Vec<_> = both().lookup().data(&flow.references()).into_keys().collect();
    assert!(found.contains(&"Model/m/Model/n/PluginConfig/own/Secret/h".to_owned()), "{found:?}");
    assert_ne!(both().digests(), both().secret("h", json!({ "token": "2", "other": "1" })).digests());
}

#[test]
fn the_data_behind_references_is_found_by_its_way() {
    let flow: Arc<Flow> = whole().get("Flow", "f").unwrap();
    let found = whole().lookup().data(&flow.references());
    assert_eq!(found.into_keys().collect::<Vec<_>>(), ["Model/m/PluginConfig/pc/Secret/s", "Tool/t/Secret/h"]);
    let off = whole().set("Tool/t", "/spec/enabled", json!(false));
    assert_eq!(off.lookup().data(&flow.references()).len(), 1, "a tool that is switched off is not rendered");
}

#[test]
fn a_builtin_needs_no_tool_and_one_that_is_switched_off_nothing_behind_it() {
    let builtin = whole().set("Flow/f", "/spec/tools", json!([{ "name": "calculator" }]));
    assert_eq!(builtin.flow(), None);
    let off = whole().set("Tool/t", "/spec/enabled", json!(false)).without("Secret/h");
    assert_eq!(off.flow(), None);
}

/// Builds a flow that calls an agent in this phase.
fn caller(phase: &str, available: bool) -> TestObjects {
    let conditions = json!([
        { "type": "Available", "status": if available { "True" } else { "False" }, "reason": "x", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" },
        { "type": "Ready", "status": "False", "reason": "x", "message": "the cause",
            "lastTransitionTime": "2026-01-01T00:00:00Z" },
    ]);
    whole()
        .set("Tool/t", "/spec", json!({ "name": "t", "type": "agent", "agentRef": { "name": "a" } }))
        .with("Agent/a", phase, json!({ "name": "A", "framework": "corail" }))
        .set("Agent/a", "/status/conditions", conditions)
        .set("Agent/a", "/status/endpoint", json!("http://a.ns.svc:8000"))
}

#[test]
fn an_agent_that_is_called_is_asked_whether_it_is_available_and_not_for_its_phase() {
    for phase in ["Running", "Deploying", "Failed", "Hibernating"] {
        assert_eq!(caller(phase, true).flow(), None, "{phase}");
    }
    let message = r#"agent "a" is Deploying, not available (referenced by tool "t")"#;
    assert_eq!(caller("Deploying", false).flow(), Some((message.into(), false)));
    let message = r#"agent "a" is in phase Failed: the cause (referenced by tool "t")"#;
    assert_eq!(caller("Failed", false).flow(), Some((message.into(), true)));
    let message = r#"agent "a" not found (referenced by tool "t")"#;
    assert_eq!(caller("Running", true).without("Agent/a").flow(), Some((message.into(), true)));
}

#[test]
fn of_an_agent_that_is_called_only_the_address_counts() {
    let before = caller("Running", true).digests();
    let edited = caller("Running", true).set("Agent/a", "/spec/systemPrompt", json!("x"));
    assert_eq!(edited.set("Agent/a", "/metadata/generation", json!(2)).digests(), before);
    let moved = caller("Running", true).set("Agent/a", "/status/endpoint", json!("http://other"));
    assert_ne!(moved.digests(), before);
}

#[test]
fn a_cycle_is_named_on_every_member_and_on_each_object_that_leads_into_it() {
    let circle = caller("Resolving", false).set("Agent/a", "/spec/tools", json!(["u"])).with(
        "Tool/u",
        "Resolving",
        json!({ "name": "u", "type": "flow", "flowRef": { "name": "f" } }),
    );
    let message = |inputs: Inputs| inputs.waiting_for().map(|wait| (wait.reason, wait.sentence)).unwrap();
    let cycle = |text: &str| ("ReferenceCycle", format!("cycle: {text}"));
    assert_eq!(
        message(circle.inputs::<Flow>(RefKind::Flow, "f")),
        cycle("Flow/f → Tool/t → Agent/a → Tool/u → Flow/f")
    );
    assert_eq!(
        message(circle.inputs::<Tool>(RefKind::Tool, "u")),
        cycle("Tool/u → Flow/f → Tool/t → Agent/a → Tool/u")
    );
    assert_eq!(
        message(circle.inputs::<Agent>(RefKind::Agent, "a")),
        cycle("Agent/a → Tool/u → Flow/f → Tool/t → Agent/a")
    );
    let outside = circle.with("Agent/z", "Resolving", json!({ "name": "Z", "framework": "corail", "tools": ["t"] }));
    let waits = r#"tool "t" waits for itself, cycle: Tool/t → Agent/a → Tool/u → Flow/f → Tool/t"#;
    assert_eq!(message(outside.inputs::<Agent>(RefKind::Agent, "z")), ("MissingDependency", waits.to_owned()));
    let open = outside.set("Tool/u", "/spec/enabled", json!(false));
    let found = open.inputs::<Flow>(RefKind::Flow, "f");
    assert!(
        !found.0.iter().any(|(_, found)| matches!(found, Resolution::Cycle(_))),
        "a tool that is off closes no circle"
    );
}

#[test]
fn an_optional_secret_may_be_absent_and_may_lack_a_key() {
    let env = |optional: bool| json!([{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "o", "key": "k", "optional": optional } } }]);
    let with = |optional| whole().set("Flow/f", "/spec/env", env(optional));
    assert_eq!(with(true).flow(), None);
    assert_eq!(with(true).secret("o", json!({})).flow(), None);
    assert_eq!(with(false).flow(), Some((r#"secret "o" not found"#.into(), true)));
    assert_eq!(with(false).secret("o", json!({})).flow(), Some((r#"secret "o" has no key "k""#.into(), true)));
}
