//! Tests `egress` of an Agent: the policy, the list of its runtime, the writes of an edit, and the conditions.

use std::time::Duration;

use crds::{Agent, egress::EgressList};
use serde_json::{Value, json};

use super::scenarios::{message, phase};
use crate::{
    fake::{Cascade, ObjectId, Operator, Sim, agent, agent_id, child_id, id, object, settings, tool},
    kind::ControlledKind,
    render::RenderSettings,
};

const MINUTE: Duration = Duration::from_secs(60);

fn operator(sim: &Sim, network_policies: bool) -> Operator {
    Operator::with(sim, Agent::registry().unwrap(), RenderSettings { network_policies, ..settings() })
}

fn policy(sim: &Sim, name: &str) -> Option<Value> {
    sim.store().get(&id("NetworkPolicy", name)).map(|found| found.body["spec"].clone())
}

/// Returns the list of the runtime, as the container of the Deployment has it.
fn list(sim: &Sim) -> Option<EgressList> {
    let variables = sim.store().at(&child_id("Deployment"), "/spec/template/spec/containers/0/env");
    let variables = variables.as_array().cloned().unwrap_or_default();
    let variable = variables.into_iter().find(|variable| variable["name"] == "RECIF_EGRESS")?;
    Some(serde_json::from_str(variable["value"].as_str().unwrap()).unwrap())
}

fn condition(sim: &Sim, type_: &str) -> Option<(String, String)> {
    let all = sim.store().at(&agent_id("a"), "/status/conditions");
    let found = all.as_array()?.iter().find(|condition| condition["type"] == type_)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason")))
}

fn is(status: &str, reason: &str) -> Option<(String, String)> {
    Some((status.to_owned(), reason.to_owned()))
}

async fn edit(sim: &Sim, operator: &mut Operator, egress: Value) {
    sim.store().edit(&agent_id("a"), |body| body["spec"]["egress"] = egress);
    operator.run(MINUTE).await;
}

/// Returns the writes of children that were sent since the last look.
fn child_writes(sim: &Sim) -> Vec<String> {
    let mut writes = sim.take_writes();
    writes.retain(|write| !write.contains("Agent/"));
    writes
}

#[tokio::test(start_paused = true)]
async fn an_edit_is_one_write_of_the_policy_and_one_rollout() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({})));
    let mut operator = operator(&sim, true);
    operator.run(MINUTE).await;
    assert_eq!((list(&sim), condition(&sim, "EgressRestricted")), (None, None), "no list, no restriction");
    assert_eq!(policy(&sim, "a-sidecar").unwrap()["policyTypes"], json!(["Ingress"]));
    for egress in [json!([]), json!(["api.example.com"]), json!(["api.example.com", "10.1.0.0/16:5432"])] {
        sim.take_requests();
        edit(&sim, &mut operator, egress.clone()).await;
        assert_eq!(child_writes(&sim), ["Apply NetworkPolicy/a-sidecar", "Apply Deployment/a"], "{egress}");
        assert_eq!(list(&sim).unwrap().listed.len(), egress.as_array().unwrap().len());
        assert_eq!(policy(&sim, "a-sidecar").unwrap()["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(phase(&sim), "Running");
        assert_eq!(condition(&sim, "EgressRestricted"), is("True", "PolicyApplied"));
    }
    operator.run(MINUTE * 30).await;
    assert_eq!(sim.take_requests(), [], "what is in order costs nothing");
    edit(&sim, &mut operator, Value::Null).await;
    assert_eq!(child_writes(&sim), ["Apply NetworkPolicy/a-sidecar", "Apply Deployment/a"]);
    assert_eq!((list(&sim), condition(&sim, "EgressRestricted")), (None, None));
    assert_eq!(policy(&sim, "a-sidecar").unwrap()["egress"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn what_the_spec_names_is_admitted_by_itself() {
    let sim = Sim::new();
    sim.store().create(&agent_id("b"), agent(json!({})));
    let ask = json!({"name": "ask", "type": "agent", "agentRef": {"name": "b"}});
    sim.store().create(&id("Tool", "ask"), object("Tool", ask));
    sim.store().create(&id("Tool", "weather"), tool("https://weather.example/today"));
    let spec = json!({
        "tools": ["ask", "weather"], "egress": ["queue.jobs.svc:5672"],
        "databaseUrl": "postgresql://u:secret@db.data.svc.cluster.local/x",
    });
    sim.store().create(&agent_id("a"), agent(spec));
    let mut operator = operator(&sim, true);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim), "Running", "{}", message(&sim));
    let rules = policy(&sim, "a-sidecar").unwrap()["egress"].take();
    let named = |name: &str| json!({ "matchLabels": { "kubernetes.io/metadata.name": name } });
    let pods = json!({ "matchLabels": { "app.kubernetes.io/name": "b", "recif.dev/agent": "b" } });
    assert_eq!(
        rules[2]["to"],
        json!([
            { "namespaceSelector": named("team"), "podSelector": pods },
            { "namespaceSelector": named("data") },
            { "namespaceSelector": named("jobs") },
        ])
    );
    assert_eq!(rules[3]["ports"], json!([{ "protocol": "TCP", "port": 443 }]));
    assert_eq!(rules[3]["to"][0]["ipBlock"]["cidr"], "0.0.0.0/0");
    let list = list(&sim).unwrap();
    let shown = |entries: &[crds::egress::EgressEntry]| entries.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(&list.listed), ["queue.jobs.svc:5672"]);
    assert_eq!(shown(&list.own), ["b.team.svc.cluster.local:8000", "weather.example:443"], "not the database");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_ends_with_the_name_of_a_namespace_stays_reachable() {
    let sim = Sim::new();
    let namespace = ObjectId { kind: "Namespace", namespace: String::new(), name: "dev".to_owned() };
    sim.store().create(&namespace, json!({"kind": "Namespace", "metadata": {}}));
    sim.store().create(&agent_id("a"), agent(json!({"egress": ["web.dev:8443", "queue.jobs.svc:5672"]})));
    operator(&sim, true).run(MINUTE).await;
    let rules = policy(&sim, "a-sidecar").unwrap()["egress"].take();
    let named = |name: &str| json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } } });
    assert_eq!(rules[2]["to"], json!([named("dev"), named("jobs")]));
    assert_eq!(
        rules[3]["ports"],
        json!([{ "protocol": "TCP", "port": 8443 }]),
        "not that of a name that ends with svc"
    );
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_cannot_be_read_and_a_variable_of_ours_are_refused() {
    for (spec, words) in [
        (json!({"egress": ["fe80::1%eth0"]}), "write api.example.com, *.example.com:8443 or 10.1.0.0/16:5432"),
        (json!({"egress": [], "env": [{"name": "RECIF_EGRESS", "value": "{}"}]}), "RECIF_EGRESS of container agent"),
    ] {
        let sim = Sim::new();
        sim.store().create(&agent_id("a"), agent(spec));
        operator(&sim, true).run(MINUTE).await;
        assert_eq!(phase(&sim), "Failed");
        assert!(message(&sim).contains(words), "{}", message(&sim));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_sidecar_and_beside_a_foreign_policy_the_egress_part_stands_alone() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({"egress": []})));
    let mut operator = operator(&sim, true);
    operator.run(MINUTE).await;
    assert!(policy(&sim, "a-sidecar").is_some() && policy(&sim, "a-egress").is_none());
    let deny = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {},
        "spec": { "podSelector": { "matchLabels": {} }, "policyTypes": ["Ingress"] } });
    sim.store().create(&id("NetworkPolicy", "deny"), deny);
    operator.run(MINUTE * 20).await;
    assert_eq!(phase(&sim), "Running");
    assert_eq!(policy(&sim, "a-sidecar"), None, "it lets in what that one keeps out");
    let alone = policy(&sim, "a-egress").unwrap();
    assert_eq!((&alone["policyTypes"], &alone["ingress"]), (&json!(["Egress"]), &Value::Null));
    sim.take_requests();
    operator.run(MINUTE * 20).await;
    assert_eq!(sim.take_requests(), []);
    sim.store().delete(&id("NetworkPolicy", "deny"), Cascade::Background);
    sim.store().edit(&agent_id("a"), |body| body["spec"]["proxy"] = json!({"enabled": false}));
    operator.run(MINUTE).await;
    assert!(policy(&sim, "a-egress").is_some() && policy(&sim, "a-sidecar").is_none());
}

#[tokio::test(start_paused = true)]
async fn with_policies_off_it_is_said_that_only_the_runtime_holds_to_it() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({"egress": ["api.example.com"]})));
    operator(&sim, false).run(MINUTE).await;
    assert_eq!((policy(&sim, "a-sidecar"), policy(&sim, "a-egress")), (None, None));
    assert_eq!(list(&sim).unwrap().listed.len(), 1);
    assert_eq!(condition(&sim, "EgressRestricted"), is("False", "PoliciesOff"));
}

#[tokio::test(start_paused = true)]
async fn a_model_of_a_cloud_opens_its_metadata_service_and_says_so() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({"egress": [], "modelType": "bedrock", "modelId": "m"})));
    let mut operator = operator(&sim, true);
    operator.run(MINUTE).await;
    assert_eq!(condition(&sim, "MetadataReachable"), is("True", "CloudCredentials"));
    let rules = policy(&sim, "a-sidecar").unwrap()["egress"].to_string();
    assert!(rules.contains("169.254.170.23/32"), "{rules}");
    sim.store().edit(&agent_id("a"), |body| body["spec"]["modelType"] = json!("openai"));
    operator.run(MINUTE).await;
    assert_eq!(condition(&sim, "MetadataReachable"), None);
    let rules = policy(&sim, "a-sidecar").unwrap()["egress"].to_string();
    assert!(!rules.contains("169.254.170.23/32"), "{rules}");
}

#[tokio::test(start_paused = true)]
async fn a_server_has_the_policy_and_an_edit_of_it_replaces_no_pods() {
    let sim = Sim::new();
    let server = json!({"transportType": "http", "deployment": {"image": "registry/server:1", "egress": []}});
    sim.store().create(&id("MCPServer", "m"), object("MCPServer", server));
    let mut operator = operator(&sim, true);
    operator.run(MINUTE).await;
    assert_eq!(policy(&sim, "m-sidecar").unwrap()["egress"].as_array().unwrap().len(), 2, "DNS and the gateways");
    let template = || sim.store().at(&id("Deployment", "m"), "/spec/template");
    let before = template();
    assert!(!before.is_null() && !before.to_string().contains("RECIF_EGRESS"), "{before}");
    let listed = json!(["api.example.com"]);
    sim.store().edit(&id("MCPServer", "m"), |body| body["spec"]["deployment"]["egress"] = listed);
    operator.run(MINUTE).await;
    assert_eq!(policy(&sim, "m-sidecar").unwrap()["egress"].as_array().unwrap().len(), 3);
    assert_eq!(template(), before);
}
