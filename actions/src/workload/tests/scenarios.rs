//! Defines the scenarios of a running Agent as data: the fault tests run all of them under every fault.

use std::{collections::BTreeSet, time::Duration};

use serde_json::json;

use crate::fake::{Cascade, ObjectId, Operator, RunEnd, Sim, Store, agent, agent_id, child_id, tool, tool_id};

/// Long enough for every scenario to come to rest.
pub(super) const REST: Duration = Duration::from_secs(90);

/// Event in the cluster once the Agent `a` (with a Tool and a Secret) runs.
#[derive(Clone, Copy)]
pub(super) struct AgentScenario {
    pub(super) name: &'static str,
    pub(super) happens: fn(&mut Store),
}

const fn scenario(name: &'static str, happens: fn(&mut Store)) -> AgentScenario {
    AgentScenario { name, happens }
}

/// All scenarios.
pub(super) const ALL: &[AgentScenario] = &[
    CREATE,
    scenario("the spec changes and needs no Secret any more", |store| {
        store.edit(&agent_id("a"), |body| {
            body["spec"]["systemPrompt"] = json!("be brief");
            body["spec"].as_object_mut().expect("an object").remove("databaseUrl");
        });
    }),
    scenario("the spec names a ServiceAccount", |store| {
        store.edit(&agent_id("a"), |body| body["spec"]["serviceAccountName"] = json!("robot"));
    }),
    scenario("a tool changes", |store| {
        store.edit(&tool_id("weather"), |body| body["spec"]["endpoint"] = json!("http://other"));
    }),
    scenario("a tool becomes invalid and valid again", |store| {
        store.edit(&tool_id("weather"), |body| drop(body["spec"].as_object_mut().expect("it").remove("endpoint")));
        store.edit(&tool_id("weather"), |body| body["spec"]["endpoint"] = json!("http://third"));
    }),
    scenario("it is scaled up", |store| scale(store, 3)),
    scenario("it is stopped", |store| scale(store, 0)),
    scenario("the ServiceAccount is lost", |store| lose(store, "ServiceAccount")),
    scenario("the ConfigMap is lost", |store| lose(store, "ConfigMap")),
    scenario("the Secret is lost", |store| lose(store, "Secret")),
    scenario("the Service is lost", |store| lose(store, "Service")),
    scenario("the Deployment is lost", |store| lose(store, "Deployment")),
    scenario("every child is lost", |store| {
        ["ServiceAccount", "ConfigMap", "Secret", "Service", "Deployment"].iter().for_each(|kind| lose(store, kind));
    }),
    scenario("the ConfigMap drifts", |store| {
        store.edit_as(&child_id("ConfigMap"), "/data/CORAIL_CHANNEL", Some(json!("smoke")), "kubectl");
    }),
    scenario("the Deployment drifts", |store| {
        store.edit_as(&child_id("Deployment"), "/spec/progressDeadlineSeconds", Some(json!(5)), "kubectl");
    }),
    scenario("it is deleted", |store| store.delete(&agent_id("a"), Cascade::Background)),
    scenario("it is deleted in the foreground", |store| store.delete(&agent_id("a"), Cascade::Foreground)),
    scenario("it is deleted and leaves its children", |store| store.delete(&agent_id("a"), Cascade::Orphan)),
    scenario("its namespace is deleted", |store| store.delete_namespace(crate::fake::NS)),
];

/// Creates the Agent in an empty cluster.
pub(super) const CREATE: AgentScenario = scenario("it is created", |store| {
    store.create(&tool_id("weather"), tool("http://weather"));
    store.create(&agent_id("a"), agent(json!({"tools": ["weather"], "databaseUrl": "postgresql://u:p@db/x"})));
});

impl AgentScenario {
    /// Creates a cluster just before the event, in which everything has come to rest.
    pub(super) async fn stage(self) -> Sim {
        let sim = Sim::new();
        if self.name != CREATE.name {
            (CREATE.happens)(&mut sim.store());
            assert_eq!(Operator::start(&sim).run(REST).await, RunEnd::TimeIsOver);
            assert_eq!(phase(&sim), "Running");
        }
        sim
    }
}

/// Returns the phase of the Agent `a`.
pub(super) fn phase(sim: &Sim) -> String {
    sim.store().at(&agent_id("a"), "/status/phase").as_str().unwrap_or_default().to_owned()
}

/// Returns the reason of its condition Ready.
pub(super) fn reason(sim: &Sim) -> String {
    ready(sim, "reason")
}

/// Returns the message of its condition Ready.
pub(super) fn message(sim: &Sim) -> String {
    ready(sim, "message")
}

fn ready(sim: &Sim, field: &str) -> String {
    let conditions = sim.store().at(&agent_id("a"), "/status/conditions");
    let ready = conditions.as_array().and_then(|list| list.iter().find(|found| found["type"] == json!("Ready")));
    ready.and_then(|ready| ready[field].as_str()).unwrap_or_default().to_owned()
}

/// Sets `spec.replicas` of the Agent as a user.
pub(super) fn scale(store: &mut Store, replicas: i32) {
    store.edit(&agent_id("a"), |body| body["spec"]["replicas"] = json!(replicas));
}

/// Deletes a child as another client.
pub(super) fn lose(store: &mut Store, kind: &'static str) {
    let id: ObjectId = child_id(kind);
    store.delete(&id, Cascade::Background);
}

/// Asserts that both clusters are in the same state, and names only the differences.
pub(super) fn same(want: &Store, got: &Store, text: &str) {
    let (want, got) = (want.end_state(), got.end_state());
    let keys: BTreeSet<_> = want.keys().chain(got.keys()).collect();
    for key in keys {
        assert_eq!(want.contains_key(key), got.contains_key(key), "{text}: whether {key} is there");
        for (field, value) in want[key].as_object().into_iter().flatten() {
            let other = &got[key][field];
            for (part, value) in value.as_object().into_iter().flatten() {
                assert_eq!(value, &other[part], "{text}: {key}.{field}.{part}");
            }
            assert_eq!(value, other, "{text}: {key}.{field}");
        }
    }
}
