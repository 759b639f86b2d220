use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::DeploymentCondition;
use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn deployment(fields: Value) -> Deployment {
    let mut object = json!({
        "metadata": { "name": "a", "generation": 3 },
        "spec": { "replicas": 1, "selector": {}, "template": {}, "progressDeadlineSeconds": 60 },
    });
    for (name, value) in fields.as_object().unwrap() {
        object["spec"][name] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

/// Makes a Pod of a word such as `new1+`: template `new`, name `new1`, ready. `-` is not ready, `!` failed, `~` leaving, and
/// what follows is its deletion cost.
fn pod(word: &str) -> Pod {
    let (name, rest) = word.split_at(4);
    let (state, cost) = rest.split_at(1);
    let ready = if state == "-" || state == "!" { "False" } else { "True" };
    let mut object = json!({
        "metadata": { "name": name, "labels": { TEMPLATE_HASH: &name[..3] }, "annotations": { DELETION_COST: cost } },
        "status": {
            "phase": if state == "!" { "Failed" } else { "Running" },
            "conditions": [{ "type": "Ready", "status": ready, "lastTransitionTime": at(0) }],
        },
    });
    if state == "~" {
        object["metadata"]["deletionTimestamp"] = json!(at(0));
    }
    serde_json::from_value(object).unwrap()
}

fn step(deployment: &Deployment, words: &str, now: i64) -> RollOut {
    let pods: Vec<Pod> = words.split_whitespace().map(pod).collect();
    let mut plan = roll_out(deployment, "new", &pods.iter().collect::<Vec<_>>(), at(now));
    plan.delete.sort_unstable();
    plan
}

#[test]
fn one_pod_more_and_none_less_than_wanted() {
    for (replicas, pods, create, delete) in [
        (1, "", 1, ""),
        (3, "", 3, ""),
        (1, "old1+", 1, ""),
        (1, "old1+ new1-", 0, ""),
        (1, "old1+ new1+", 0, "old1"),
        (1, "new1+", 0, ""),
        (3, "old1+ old2+ old3+", 1, ""),
        (3, "old1+ old2+ old3+ new1-", 0, ""),
        (3, "old1+ old2+ old3+ new1+", 0, "old1"),
        (3, "old2+ old3+ new1+", 1, ""),
        // An old Pod that is not ready serves nothing.
        (1, "old1-", 1, ""),
        (1, "old1- new1-", 0, "old1"),
        (3, "old1- old2- old3-", 1, "old1 old2 old3"),
        (3, "old1+ old2- old3-", 1, "old2 old3"),
        // Scaling, alone and within a rollout.
        (3, "new1+", 2, ""),
        (1, "new1+ new2-", 0, "new2"),
        (1, "old1+ old2+ old3+", 0, "old1 old2"),
        (0, "old1+ new1- new2+", 0, "new1 new2 old1"),
        // A Pod that is leaving does not count, one that failed is replaced.
        (1, "new1~", 1, ""),
        (1, "old1~ new1+", 0, ""),
        (1, "new1!", 1, "new1"),
    ] {
        let plan = step(&deployment(json!({ "replicas": replicas })), pods, 1);
        assert_eq!((plan.create, plan.delete.join(" ").as_str()), (create, delete), "{replicas} {pods:?}");
    }
}

#[test]
fn of_ready_pods_those_go_first_that_cost_less() {
    for (replicas, pods, delete) in [
        (2, "new1+5 new2+-5 new3+0", "new2"),
        (1, "new1+5 new2+-5 new3+0", "new2 new3"),
        (2, "new1+-9 new2-9 new3+0", "new2"),
        (2, "new1+x new2+-1 new3+", "new2"),
    ] {
        let plan = step(&deployment(json!({ "replicas": replicas })), pods, 1);
        assert_eq!(plan.delete.join(" "), delete, "{pods}");
    }
}

#[test]
fn pods_that_cannot_run_beside_each_other_are_recreated() {
    let recreate = deployment(json!({ "strategy": { "type": "Recreate" } }));
    let mut alone = deployment(json!({}));
    alone.metadata.annotations = Some([(ALONE.to_owned(), "true".to_owned())].into());
    for (pods, create, of_recreate, of_alone) in [
        ("old1+", 0, "old1", "old1"),
        ("old1~", 0, "", ""),
        ("", 1, "", ""),
        ("new1+", 0, "", ""),
        // The new one listens on a port that it was not given.
        ("old1+ new1-", 0, "old1", "new1 old1"),
    ] {
        for (deployment, delete) in [(&recreate, of_recreate), (&alone, of_alone)] {
            let plan = step(deployment, pods, 1);
            assert_eq!((plan.create, plan.delete.join(" ").as_str()), (create, delete), "{pods}");
        }
    }
}

#[test]
fn a_deployment_that_goes_or_is_paused_makes_no_pods() {
    let mut going = deployment(json!({}));
    going.metadata.deletion_timestamp = Some(serde_json::from_value(json!(at(0))).unwrap());
    for deployment in [going, deployment(json!({ "paused": true }))] {
        let plan = step(&deployment, "old1+", 1);
        assert_eq!((plan.create, plan.delete.len()), (0, 0));
    }
}

/// Returns `TYPE=STATUS REASON` of each condition.
fn conditions(status: &DeploymentStatus) -> Vec<String> {
    let shown = |found: &DeploymentCondition| {
        format!("{}={} {}", found.type_, found.status, found.reason.clone().unwrap_or_default())
    };
    status.conditions.iter().flatten().map(shown).collect()
}

#[test]
fn the_status_is_the_one_that_a_finished_rollout_is_told_by() {
    let mut deployment = deployment(json!({ "replicas": 2 }));
    let mut see = |pods: &str, now: i64| {
        let status = step(&deployment, pods, now).status;
        deployment.status = Some(status.clone());
        let counts = [status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas];
        (counts.map(Option::unwrap_or_default), conditions(&status), status)
    };
    let (counts, found, status) = see("", 0);
    assert_eq!((counts, status.observed_generation), ([0, 0, 0, 0], Some(3)));
    assert_eq!(found, ["Available=False MinimumReplicasUnavailable", "Progressing=True NewReplicaSetCreated"]);
    let (counts, found, _) = see("new1+ new2-", 10);
    assert_eq!(counts, [2, 2, 1, 1]);
    assert_eq!(found, ["Available=False MinimumReplicasUnavailable", "Progressing=True ReplicaSetUpdated"]);
    let (_, _, same) = see("new1+ new2-", 20);
    assert_eq!(Some(&same), deployment_status_at(&same, 10), "nothing moved, so no time changed");
    let (_, found, _) = see("new1+ new2-", 70);
    assert_eq!(found[1], "Progressing=False ProgressDeadlineExceeded");
    let (counts, found, _) = see("new1+ new2+", 80);
    assert_eq!(counts, [2, 2, 2, 2]);
    assert_eq!(found, ["Available=True MinimumReplicasAvailable", "Progressing=True NewReplicaSetAvailable"]);
    let (_, found, _) = see("new1+ new2-", 1000);
    assert_eq!(found[1], "Progressing=True NewReplicaSetAvailable", "a complete rollout does not exceed the deadline");
}

/// Returns the status if its rollout moved last at this second.
fn deployment_status_at(status: &DeploymentStatus, second: i64) -> Option<&DeploymentStatus> {
    let progressing = status.conditions.iter().flatten().find(|found| found.type_ == "Progressing")?;
    progressing.last_update_time.as_ref().is_some_and(|time| time.0 == at(second)).then_some(status)
}

#[test]
fn old_pods_are_counted_until_they_are_gone() {
    let status = step(&deployment(json!({})), "old1+ new1+ old2~", 1).status;
    assert_eq!((status.replicas, status.updated_replicas, status.available_replicas), (Some(2), Some(1), Some(2)));
    assert_eq!(conditions(&status)[1], "Progressing=True NewReplicaSetCreated");
}

#[test]
fn a_pod_is_available_after_a_while_and_the_step_says_when() {
    let deployment = deployment(json!({ "minReadySeconds": 5 }));
    let plan = step(&deployment, "old1+ new1+", 4);
    assert_eq!((plan.delete.len(), plan.status.available_replicas, plan.next), (0, None, Some(at(5))));
    let plan = step(&deployment, "old1+ new1+", 5);
    assert_eq!((plan.delete.join(" ").as_str(), plan.status.available_replicas), ("old1", Some(2)));
    assert_eq!(plan.next, Some(at(5) + SignedDuration::from_secs(60)), "the deadline");
}

proptest::proptest! {
    /// However Pods become ready or fail, the wanted number of ready Pods is never deleted away, and the rollout ends.
    #[test]
    fn a_rollout_keeps_what_is_available_and_ends(replicas in 0_usize..5, old in 0_usize..5, failing in 0_usize..4) {
        let deployment = deployment(json!({ "replicas": replicas }));
        let mut pods: Vec<String> = (0..old).map(|number| format!("old{number}+")).collect();
        let mut made = 0;
        for _ in 0..40 {
            let plan = step(&deployment, &pods.join(" "), 1);
            let ready = |pods: &[String]| pods.iter().filter(|pod| pod.ends_with('+')).count();
            let before = ready(&pods);
            pods.retain(|pod| !plan.delete.contains(&pod[..4].to_owned()));
            proptest::prop_assert!(ready(&pods) >= before.min(replicas), "{:?} {:?}", plan, pods);
            proptest::prop_assert!(pods.len() + plan.create <= replicas.max(old) + 1);
            // The ones that were there become ready, the first of them fail.
            for pod in pods.iter_mut().filter(|pod| pod.ends_with('-')) {
                *pod = format!("{}+", &pod[..4]);
            }
            for _ in 0..plan.create {
                made += 1;
                pods.push(format!("new{}{}", made % 10, if made <= failing { '!' } else { '-' }));
            }
        }
        proptest::prop_assert_eq!(pods.len(), replicas);
        proptest::prop_assert!(pods.iter().all(|pod| pod.starts_with("new")), "{:?}", pods);
    }
}
