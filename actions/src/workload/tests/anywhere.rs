//! Tests convergence: from any status and any cluster, the Agent ends as a newly created one does, by transitions of the table,
//! and then writes nothing.

use std::{collections::BTreeSet, time::Duration};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::scenarios::{CREATE, REST, same};
use crate::{
    fake::{Cascade, Operator, Sim, Store, agent_id, child_id, tool_id},
    workload::EDGES,
};

const KINDS: [&str; 5] = ["ServiceAccount", "ConfigMap", "Secret", "Service", "Deployment"];

/// State that a crash, an older or newer build, or a mistaken edit may have left.
#[derive(Debug, Clone)]
struct Mess {
    phase: &'static str,
    tool_phase: &'static str,
    /// Fields of the status that are missing.
    missing: BTreeSet<&'static str>,
    /// Fields of the status with another value.
    wrong: BTreeSet<&'static str>,
    /// Children that are gone.
    gone: BTreeSet<&'static str>,
    /// Children that another client changed.
    changed: BTreeSet<&'static str>,
    /// Children without owner, such as those of a restored backup.
    orphaned: BTreeSet<&'static str>,
    finalizer: bool,
    edited: bool,
}

fn some_of(from: &'static [&'static str]) -> impl Strategy<Value = BTreeSet<&'static str>> {
    proptest::sample::subsequence(from, 0..=from.len()).prop_map(|some| some.into_iter().collect())
}

fn mess() -> impl Strategy<Value = Mess> {
    const FIELDS: &[&str] = &[
        "conditions",
        "specDigest",
        "renderVersion",
        "inputs",
        "failure",
        "history",
        "observedGeneration",
        "children",
        "contentHash",
        "endpoint",
        "replicas",
    ];
    const PHASES: &[&str] = &[
        "",
        "Pending",
        "Resolving",
        "Rendering",
        "Deploying",
        "Running",
        "Failed",
        "Terminated",
        "Terminating",
        "Hibernating",
    ];
    const TOOL: &[&str] = &["", "Pending", "Resolving", "Available", "Error", "Hibernating"];
    let phases = (proptest::sample::select(PHASES), proptest::sample::select(TOOL));
    let children = (some_of(&KINDS), some_of(&KINDS), some_of(&KINDS));
    (phases, some_of(FIELDS), some_of(FIELDS), children, any::<bool>(), any::<bool>()).prop_map(
        |((phase, tool_phase), missing, wrong, (gone, changed, orphaned), finalizer, edited)| Mess {
            phase,
            tool_phase,
            missing,
            wrong,
            gone,
            changed,
            orphaned,
            finalizer,
            edited,
        },
    )
}

/// Returns another value for a field of the status.
fn wrong(field: &str) -> Value {
    let time = "2030-03-17T17:50:00Z";
    match field {
        "conditions" => json!([
            {"type": "ReferencesResolved", "status": "True", "reason": "Resolved", "message": "", "lastTransitionTime": time},
            {"type": "Ready", "status": "True", "reason": "X", "message": "y", "lastTransitionTime": time},
            {"type": "Available", "status": "False", "reason": "X", "message": "y", "lastTransitionTime": "2029-01-01T00:00:00Z"},
        ]),
        "specDigest" | "contentHash" | "endpoint" => json!("other"),
        "renderVersion" => json!(0),
        "observedGeneration" | "replicas" => json!(7),
        "inputs" => json!({"Tool/other": "x", "Tool/weather": "y"}),
        "failure" => {
            json!({"reason": "Panic", "during": "Rendering", "retryable": true, "attempts": 3, "nextAttemptAt": time})
        }
        "history" => json!([{"seq": 3, "at": time, "from": "Running", "to": "Failed", "action": "x"}]),
        _ => json!([
            {"kind": "Deployment", "name": "a", "uid": "other", "inputs": "x", "owned": "y"},
            {"kind": "Gadget", "name": "a", "uid": "other", "inputs": "x", "owned": "y"},
            {"kind": "Secret", "name": "of-old", "uid": "other", "inputs": "x", "owned": "y"},
        ]),
    }
}

fn make(store: &mut Store, mess: &Mess) {
    for kind in &mess.gone {
        store.delete(&child_id(kind), Cascade::Background);
    }
    for kind in &mess.changed {
        let field = match *kind {
            "ServiceAccount" => "/automountServiceAccountToken",
            "ConfigMap" => "/data/CORAIL_CHANNEL",
            "Secret" => "/data/CORAIL_DATABASE_URL",
            "Service" => "/spec/type",
            _ => "/spec/progressDeadlineSeconds",
        };
        store.edit_as(&child_id(kind), field, Some(json!("changed")), "kubectl");
    }
    for kind in &mess.orphaned {
        store.edit_as(&child_id(kind), "/metadata/ownerReferences", None, "velero");
    }
    let phase = |body: &mut Value, phase: &str| match phase {
        "" => drop(body["status"].as_object_mut().expect("a status").remove("phase")),
        phase => body["status"]["phase"] = json!(phase),
    };
    store.edit(&tool_id("weather"), |body| phase(body, mess.tool_phase));
    store.edit(&agent_id("a"), |body| {
        // Fields that one step writes and later steps trust; they are written again only from the start.
        let restarts = <crds::WorkloadPhase as meta::Phase>::parse(mess.phase).is_none();
        let believed = |field: &str| matches!(field, "specDigest" | "contentHash" | "endpoint" | "conditions");
        for field in mess
            .wrong
            .iter()
            .filter(|field| restarts || !matches!(**field, "specDigest" | "contentHash" | "endpoint" | "children"))
        {
            body["status"][*field] = wrong(field);
        }
        for field in mess.missing.iter().filter(|field| restarts || !believed(field)) {
            body["status"].as_object_mut().expect("a status").remove(*field);
        }
        phase(body, mess.phase);
        if !mess.finalizer {
            body["metadata"].as_object_mut().expect("metadata").remove("finalizers");
        }
        if mess.edited {
            body["spec"]["systemPrompt"] = json!("x");
        }
    });
}

fn edit_once(store: &mut Store) {
    store.edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("x"));
}

async fn ends_in_the_same_place(mess: Mess) {
    let reference = Sim::new();
    (CREATE.happens)(&mut reference.store());
    Operator::start(&reference).run(REST).await;
    let sim = reference.fork();
    if mess.edited {
        edit_once(&mut reference.store());
        Operator::start(&reference).run(REST).await;
    }
    make(&mut sim.store(), &mess);
    let mut operator = Operator::start(&sim);
    operator.run(Duration::from_secs(30 * 60)).await;
    for step in operator.trace.take() {
        if step.kind != "Agent" || step.from == step.to {
            continue;
        }
        let allowed = EDGES.iter().any(|edge| {
            let parse = <crds::WorkloadPhase as meta::Phase>::parse;
            parse(&step.to).is_some_and(|to| {
                let by = edge.by.as_str();
                edge.allows(parse(&step.from), to, edge.by) && (by == step.action || by == "Fail")
            })
        });
        assert!(allowed, "{} moved from {:?} to {:?}", step.action, step.from, step.to);
    }
    same(&reference.store(), &sim.store(), "in the end");
    sim.take_requests();
    Operator::start(&sim).run(REST * 10).await;
    assert_eq!(sim.take_writes(), Vec::<String>::new(), "written although all is well");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn from_anywhere_it_ends_where_a_fresh_create_ends(mess in mess()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        runtime.block_on(ends_in_the_same_place(mess));
    }
}
